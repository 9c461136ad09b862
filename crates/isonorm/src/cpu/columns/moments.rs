use std::ops::Range;

use isonorm_math::{Element, Real};

use super::{Tile, TileLayout, gather, spread};
use crate::cpu::elementwise::{Coefficient, Each};
use crate::cpu::isa::Kernel;
use crate::cpu::memory::Source;
use crate::cpu::statistics::{DIGITS_KEPT, GroupStatistics, central};

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
                *centre = central(rows.map(|row| row[column].to_acc()));
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
        let zeros = Each(&Tile::<T::Acc>::ZERO[..lanes]);
        let centre = Each(&self.centre[..lanes]);
        let (mut sums, mut squares) = (Tile::ZERO, Tile::ZERO);
        if self.centred {
            let sums = [&mut sums, &mut squares];
            for_each_four_lines(x, tile, rows.clone(), sums, (centre, zeros), |[sum, squares], d| {
                [sum + d, d.mul_add(d, squares)]
            });
        } else {
            let sums = [&mut sums, &mut squares];
            for_each_four_lines(x, tile, rows.clone(), sums, (zeros, zeros), |[_, squares], d| {
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
        for_each_four_lines(x, tile, rows, sums, (centre, mean), |[unused, squares], d| {
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

/// `[a[i], b[i]] = step([a[i], b[i]], (x − centre[i]) − mean[i])` for every line's `x` in lane `i`, four lines at a time so that sums
/// are loaded and stored once for four elements.
#[inline(always)]
fn for_each_four_lines<T: Element>(
    x: &Source<'_, T>,
    tile: &TileLayout<'_>,
    rows: Range<usize>,
    [a, b]: [&mut Tile<T::Acc>; 2],
    (centre, mean): (Each<'_, T::Acc>, Each<'_, T::Acc>),
    step: impl Fn([T::Acc; 2], T::Acc) -> [T::Acc; 2],
) {
    let (joined, lanes) = (tile.plan.joined_rows, tile.lanes());
    let (a, b) = (&mut a[..lanes], &mut b[..lanes]);
    let (centre, mean) = (centre.part(0, lanes), mean.part(0, lanes));
    let mut next = rows.start;
    while next + 4 * joined <= rows.end {
        let lines = [0, 1, 2, 3].map(|line| x.slice(tile.offset(next + line * joined), lanes));
        for i in 0..lanes {
            let distance = |x: T| (x.to_acc() - centre.at(i)) - mean.at(i);
            let two = step(step([a[i], b[i]], distance(lines[0][i])), distance(lines[1][i]));
            [a[i], b[i]] = step(step(two, distance(lines[2][i])), distance(lines[3][i]));
        }
        next += 4 * joined;
    }
    for (at, len) in tile.lines(next..rows.end) {
        let x = x.slice(at, len);
        let (a, b, centre, mean) = (&mut a[..len], &mut b[..len], centre.part(0, len), mean.part(0, len));
        for i in 0..len {
            [a[i], b[i]] = step([a[i], b[i]], (x[i].to_acc() - centre.at(i)) - mean.at(i));
        }
    }
}
