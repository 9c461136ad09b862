use std::ops::Range;

use isonorm_math::{Element, Real};

use super::{Tile, TileLayout, gather, spread};
use crate::cpu::elementwise::{All, Coefficient, Each, STRIP};
use crate::cpu::isa::Kernel;
use crate::cpu::lookahead::prefetch;
use crate::cpu::memory::{LINE_BYTES, Source};
use crate::cpu::statistics::{DIGITS_KEPT, GroupStatistics, central};

/// Bytes of the lines that are added up strip by strip: they and as many that come next fit the first-level cache.
const NEAR_BYTES: usize = 8 << 10;

/// Moments of each column about its centre. All columns have the same count.
pub(super) struct ColumnMoments {
    count: f64,
    mean: Tile<f64>,
    m2: Tile<f64>,
}

impl ColumnMoments {
    #[inline(always)]
    pub(super) fn empty() -> ColumnMoments {
        ColumnMoments {
            count: 0.0,
            mean: Tile::ZERO,
            m2: Tile::ZERO,
        }
    }

    /// Merges the moments of more rows by Chan's formula.
    #[inline(always)]
    pub(super) fn merge(&mut self, count: f64, mean: &[f64], m2: &[f64]) {
        let total = self.count + count;
        let share = if total > 0.0 { count / total } else { 0.0 };
        let cross = self.count * share;
        for (((mean, m2), more_mean), more_m2) in self.mean.iter_mut().zip(&mut *self.m2).zip(mean).zip(m2) {
            let delta = more_mean - *mean;
            *mean += delta * share;
            *m2 += more_m2 + delta * delta * cross;
        }
        self.count = total;
    }

    pub(super) fn mean(&self) -> &[f64] {
        &*self.mean
    }

    pub(super) fn m2(&self) -> &[f64] {
        &*self.m2
    }

    /// The statistics of the group that has these columns: their means first, then the squared distances.
    #[inline(always)]
    pub(super) fn of_group(&self, columns: Range<usize>, centre: impl Fn(usize) -> f64) -> GroupStatistics {
        let inner = columns.len() as f64;
        let shift = centre(columns.start);
        let mean_of = |column| self.mean[column] + (centre(column) - shift);
        let mean = columns.clone().map(mean_of).sum::<f64>() / inner;
        let between: f64 = columns.clone().map(mean_of).map(|m| (m - mean) * (m - mean)).sum();
        let within: f64 = self.m2[columns].iter().sum();
        GroupStatistics {
            mean: shift + mean,
            var: (within + self.count * between) / (self.count * inner),
        }
    }
}

/// The columns of a tile, and what their moments are about: an element of each, so that a constant column's are exactly zero
/// and a large mean costs no digits.
pub(super) struct TileMoments<'a, 't, T: Element> {
    x: Source<'a, T>,
    tile: &'t TileLayout<'t>,
    pub(super) centre: Tile<T::Acc>,
    /// False for RMSNorm: squares are taken about zero.
    centred: bool,
}

/// Mean (about the centre) and squared distances of each column of a block.
struct Block {
    mean: Tile<f64>,
    m2: Tile<f64>,
}

impl<'a, 't, T: Element> TileMoments<'a, 't, T> {
    pub(super) fn new(x: Source<'a, T>, tile: &'t TileLayout<'t>, centred: bool) -> TileMoments<'a, 't, T> {
        let mut centre = Tile::ZERO;
        if centred {
            // The first rows, which are about to be read anyway; some of them twice where there are fewer.
            let rows = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|row| {
                let row = row % tile.geometry.outer;
                x.slice(tile.offset(row), tile.width())
            });
            for (column, centre) in centre[..tile.width()].iter_mut().enumerate() {
                let mut some = [T::Acc::ZERO; 9];
                for (number, row) in some.iter_mut().zip(&rows) {
                    *number = row[column].to_acc();
                }
                *centre = central(some);
            }
            spread(&mut centre, tile);
        }
        TileMoments {
            x,
            tile,
            centre,
            centred,
        }
    }

    /// The work of computing the moments of some rows.
    pub(super) fn rows(&self, rows: Range<usize>) -> RowsMoments<'_, 'a, 't, T> {
        RowsMoments { of: self, rows }
    }

    /// The moments of a block; false when they are not finite.
    #[inline(always)]
    fn of_block(&self, rows: Range<usize>, block: &mut Block) -> bool {
        let (x, tile) = (&self.x, self.tile);
        let (width, lanes, count) = (tile.width(), tile.lanes(), rows.len() as f64);
        let centre = Each(&self.centre[..lanes]);
        let zero = All(T::Acc::ZERO);
        let (mut sums, mut squares) = (Tile::ZERO, Tile::ZERO);
        if self.centred {
            let sums = [&mut sums, &mut squares];
            for_each_line(x, tile, rows.clone(), sums, (centre, zero), |[sum, squares], d| {
                [sum + d, d.mul_add(d, squares)]
            });
        } else {
            let sums = [&mut sums, &mut squares];
            for_each_line(x, tile, rows.clone(), sums, (centre, zero), |[_, squares], d| {
                [T::Acc::ZERO, d.mul_add(d, squares)]
            });
        }
        gather(&mut sums, tile);
        gather(&mut squares, tile);
        let (means, m2) = (&mut block.mean[..width], &mut block.m2[..width]);
        let (sums, squares) = (&mut sums[..width], &mut squares[..width]);
        let (mut finite, mut kept) = (true, true);
        for i in 0..width {
            let (sum, squares) = (sums[i].to_f64(), squares[i].to_f64());
            means[i] = sum / count;
            m2[i] = squares - sum * means[i];
            kept &= m2[i] >= DIGITS_KEPT * squares;
            finite &= m2[i] < f64::INFINITY;
        }
        if kept || !finite {
            return finite;
        }
        // Another pass, with the distances from the means.
        let mut mean = Tile::ZERO;
        for i in 0..width {
            mean[i] = T::Acc::from_f64(means[i]);
        }
        spread(&mut mean, tile);
        let (mut unused, mut squares) = (Tile::ZERO, Tile::ZERO);
        let (mean, sums) = (Each(&mean[..lanes]), [&mut unused, &mut squares]);
        for_each_line(x, tile, rows, sums, (centre, mean), |[unused, squares], d| {
            [unused, d.mul_add(d, squares)]
        });
        gather(&mut squares, tile);
        for i in 0..width {
            m2[i] = squares[i].to_f64();
            finite &= m2[i] < f64::INFINITY;
        }
        finite
    }

    /// A block with a column whose squares overflow the accumulator (or which has a NaN or an infinity), in `f64`.
    #[cold]
    #[inline(never)]
    fn of_extreme_block(&self, rows: Range<usize>, block: &mut Block) {
        let tile = self.tile;
        for column in 0..tile.width() {
            let centre = self.centre[column].to_f64();
            let values = || {
                rows.clone()
                    .map(|row| self.x.at(tile.offset(row) + column).to_f64() - centre)
            };
            let mean = if self.centred {
                values().sum::<f64>() / rows.len() as f64
            } else {
                0.0
            };
            block.mean[column] = mean;
            block.m2[column] = values().map(|v| (v - mean) * (v - mean)).sum();
        }
    }
}

/// Computes the moments of some rows.
pub(super) struct RowsMoments<'m, 'a, 't, T: Element> {
    of: &'m TileMoments<'a, 't, T>,
    rows: Range<usize>,
}

impl<T: Element> Kernel for RowsMoments<'_, '_, '_, T> {
    type Output = ColumnMoments;

    #[inline(always)]
    fn run(self) -> ColumnMoments {
        let (x, width) = (self.of, self.of.tile.width());
        let mut moments = ColumnMoments::empty();
        let mut block = Block {
            mean: Tile::ZERO,
            m2: Tile::ZERO,
        };
        let block_rows = x.tile.plan.block_rows;
        for start in self.rows.clone().step_by(block_rows) {
            let rows = start..(start + block_rows).min(self.rows.end);
            let count = rows.len() as f64;
            if !x.of_block(rows.clone(), &mut block) {
                x.of_extreme_block(rows, &mut block);
            }
            moments.merge(count, &block.mean[..width], &block.m2[..width]);
        }
        moments
    }
}

/// `[a[i], b[i]] = step([a[i], b[i]], (x − centre[i]) − mean[i])` for every line's `x` in lane `i`.
///
/// Some lines at a time, strip by strip, so that sums stay in registers from line to line. That is not the order of memory, which
/// alone is fetched ahead by itself: so while some lines are added up, from the first-level cache, the next ones are asked for.
#[inline(always)]
fn for_each_line<T, M>(
    x: &Source<'_, T>,
    tile: &TileLayout<'_>,
    rows: Range<usize>,
    [a, b]: [&mut Tile<T::Acc>; 2],
    (centre, mean): (Each<'_, T::Acc>, M),
    step: impl Fn([T::Acc; 2], T::Acc) -> [T::Acc; 2],
) where
    T: Element,
    M: Coefficient<T::Acc>,
{
    let (joined, lanes) = (tile.plan.joined_rows, tile.lanes());
    let strips = lanes / STRIP * STRIP;
    let stride = joined * tile.geometry.row();
    let together = (NEAR_BYTES / (lanes * size_of::<T>())).max(1);
    // The last line may be shorter.
    let whole = rows.len() / joined;
    for first in (0..whole).step_by(together) {
        let lines = together.min(whole - first);
        let at = tile.offset(rows.start + first * joined);
        let block = x.slice(at, (lines - 1) * stride + lanes);
        let mut ahead = NextLines {
            at: at + together * stride,
            lane: 0,
        };
        for start in (0..strips).step_by(STRIP) {
            // Local copies, which nothing else can point to, are kept in registers.
            let (mut of_a, mut of_b) = ([T::Acc::ZERO; STRIP], [T::Acc::ZERO; STRIP]);
            let (mut centres, mut means) = ([T::Acc::ZERO; STRIP], [T::Acc::ZERO; STRIP]);
            of_a.copy_from_slice(&a[start..start + STRIP]);
            of_b.copy_from_slice(&b[start..start + STRIP]);
            let (centre, mean) = (centre.part(start, STRIP), mean.part(start, STRIP));
            for i in 0..STRIP {
                (centres[i], means[i]) = (centre.at(i), mean.at(i));
            }
            for line in block[start..].chunks(stride) {
                let Some(&x_of_line) = line.first_chunk::<STRIP>() else {
                    break;
                };
                ahead.ask_for_strip(x, strips, stride);
                for i in 0..STRIP {
                    let distance = (x_of_line[i].to_acc() - centres[i]) - means[i];
                    [of_a[i], of_b[i]] = step([of_a[i], of_b[i]], distance);
                }
            }
            a[start..start + STRIP].copy_from_slice(&of_a);
            b[start..start + STRIP].copy_from_slice(&of_b);
        }
    }
    for (line, (at, len)) in tile.lines(rows).enumerate() {
        let start = if line < whole { strips } else { 0 };
        let len = len - start;
        if len == 0 {
            continue;
        }
        let x = x.slice(at + start, len);
        let (a, b) = (&mut a[start..start + len], &mut b[start..start + len]);
        let (centre, mean) = (centre.part(start, len), mean.part(start, len));
        for i in 0..len {
            [a[i], b[i]] = step([a[i], b[i]], (x[i].to_acc() - centre.at(i)) - mean.at(i));
        }
    }
}

/// Where the lines are that are asked for, in the order of memory.
struct NextLines {
    /// The first element of a line.
    at: usize,
    /// What is asked for next of it.
    lane: usize,
}

impl NextLines {
    /// Asks for the next strip of lines that have `lanes` lanes each and lie `stride` elements apart.
    #[inline(always)]
    fn ask_for_strip<T: Element>(&mut self, x: &Source<'_, T>, lanes: usize, stride: usize) {
        let strip = x.address(self.at.wrapping_add(self.lane)).cast::<u8>();
        for byte in (0..STRIP * size_of::<T>()).step_by(LINE_BYTES) {
            prefetch(strip.wrapping_add(byte));
        }
        self.lane += STRIP;
        if self.lane >= lanes {
            *self = NextLines {
                at: self.at.wrapping_add(stride),
                lane: 0,
            };
        }
    }
}
