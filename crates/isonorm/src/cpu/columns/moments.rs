use std::ops::Range;

use isonorm_math::{Element, Real};

use super::{Tile, TileLayout, gather, spread};
use crate::cpu::elementwise::{Coefficient, Each};
use crate::cpu::isa::Kernel;
use crate::cpu::memory::Source;
use crate::cpu::statistics::{GroupStatistics, median};

/// Moments of each column about its group's shift. All columns have the same count.
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
    pub(super) fn merge<A: Real>(&mut self, count: f64, mean: &[A], m2: &[A]) {
        let total = self.count + count;
        let share = if total > 0.0 { count / total } else { 0.0 };
        let cross = self.count * share;
        for (((mean, m2), more_mean), more_m2) in self.mean.iter_mut().zip(&mut *self.m2).zip(mean).zip(m2) {
            let delta = more_mean.to_f64() - *mean;
            *mean += delta * share;
            *m2 += more_m2.to_f64() + delta * delta * cross;
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
    pub(super) fn of_group(&self, columns: Range<usize>, shift: f64) -> GroupStatistics {
        let inner = columns.len() as f64;
        let means = &self.mean[columns.clone()];
        let mean = means.iter().sum::<f64>() / inner;
        let between: f64 = means.iter().map(|m| (m - mean) * (m - mean)).sum();
        let within: f64 = self.m2[columns].iter().sum();
        GroupStatistics {
            mean: shift + mean,
            var: (within + self.count * between) / (self.count * inner),
        }
    }
}

/// The columns of a tile, and what their moments are about: an element of their group, so that a constant group's are exactly
/// zero and a large mean costs no digits.
pub(super) struct TileMoments<'a, 't, T: Element> {
    x: Source<'a, T>,
    tile: &'t TileLayout<'t>,
    pub(super) shift: Tile<T::Acc>,
    /// False for RMSNorm: squares are taken about zero.
    centred: bool,
}

/// Moments of a block in the accumulator's type.
struct Block<A> {
    mean: Tile<A>,
    m2: Tile<A>,
}

impl<'a, 't, T: Element> TileMoments<'a, 't, T> {
    pub(super) fn new(x: Source<'a, T>, tile: &'t TileLayout<'t>, centred: bool) -> TileMoments<'a, 't, T> {
        let mut shift = Tile::ZERO;
        if centred {
            // Three of the rows that are about to be read anyway.
            let last = (tile.geometry.outer - 1).min(6);
            let rows = [0, last / 2, last].map(|row| x.slice(tile.offset(row), tile.width()));
            for (_, columns) in tile.each_group() {
                let [a, b, c] = rows.map(|row| &row[columns.clone()]);
                let samples = [a[0], b[b.len() / 2], c[c.len() - 1]];
                shift[columns].fill(median(samples.map(Element::to_acc)));
            }
            spread(&mut shift, tile);
        }
        TileMoments {
            x,
            tile,
            shift,
            centred,
        }
    }

    /// The work of computing the moments of some rows.
    pub(super) fn rows(&self, rows: Range<usize>) -> RowsMoments<'_, 'a, 't, T> {
        RowsMoments { of: self, rows }
    }

    #[inline(always)]
    fn of_block(&self, rows: Range<usize>, block: &mut Block<T::Acc>) {
        let tile = self.tile;
        let lanes = tile.lanes();
        let (x, count) = (&self.x, T::Acc::from_f64(rows.len() as f64));
        let (mean, m2, shift) = (&mut block.mean, &mut block.m2, Each(&self.shift[..lanes]));
        m2[..lanes].fill(T::Acc::ZERO);
        if self.centred {
            mean[..lanes].fill(T::Acc::ZERO);
            for_each_four_lines(x, tile, rows.clone(), mean, (shift, shift), |sum, x, shift, _| {
                sum + (x - shift)
            });
            gather(mean, tile);
            for m in &mut mean[..tile.width()] {
                *m = *m / count;
            }
            spread(mean, tile);
            for_each_four_lines(
                x,
                tile,
                rows,
                m2,
                (shift, Each(&mean[..lanes])),
                |m2, x, shift, mean| {
                    let d = (x - shift) - mean;
                    d.mul_add(d, m2)
                },
            );
        } else {
            for_each_four_lines(x, tile, rows, m2, (shift, shift), |m2, x, _, _| x.mul_add(x, m2));
        }
        gather(m2, tile);
    }

    /// A block with a column whose squares overflow the accumulator (or which has a NaN or an infinity), in `f64`.
    #[cold]
    #[inline(never)]
    fn of_extreme_block(&self, rows: Range<usize>, block: &mut Block<f64>) {
        let tile = self.tile;
        for column in 0..tile.width() {
            let shift = self.shift[column].to_f64();
            let values = || {
                rows.clone()
                    .map(|row| self.x.at(tile.offset(row) + column).to_f64() - shift)
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
            x.of_block(rows.clone(), &mut block);
            let (mean, m2) = (&block.mean[..width], &block.m2[..width]);
            if m2.iter().fold(true, |finite, m2| finite & m2.is_finite()) {
                moments.merge(count, mean, m2);
            } else {
                let mut extreme = Block {
                    mean: Tile::ZERO,
                    m2: Tile::ZERO,
                };
                x.of_extreme_block(rows, &mut extreme);
                moments.merge(count, &extreme.mean[..width], &extreme.m2[..width]);
            }
        }
        moments
    }
}

/// `sums[i] = step(sums[i], x, shift[i], mean[i])` for every line's `x` in lane `i`, four lines at a time so that a sum is
/// loaded and stored once for four elements.
#[inline(always)]
fn for_each_four_lines<T: Element>(
    x: &Source<'_, T>,
    tile: &TileLayout<'_>,
    rows: Range<usize>,
    sums: &mut Tile<T::Acc>,
    (shift, mean): (Each<'_, T::Acc>, Each<'_, T::Acc>),
    step: impl Fn(T::Acc, T::Acc, T::Acc, T::Acc) -> T::Acc,
) {
    let (joined, lanes) = (tile.plan.joined_rows, tile.lanes());
    let (sums, shift, mean) = (&mut sums[..lanes], shift.part(0, lanes), mean.part(0, lanes));
    let mut next = rows.start;
    while next + 4 * joined <= rows.end {
        let [a, b, c, d] = [0, 1, 2, 3].map(|line| x.slice(tile.offset(next + line * joined), lanes));
        for i in 0..lanes {
            let (shift, mean) = (shift.at(i), mean.at(i));
            let two = step(step(sums[i], a[i].to_acc(), shift, mean), b[i].to_acc(), shift, mean);
            sums[i] = step(step(two, c[i].to_acc(), shift, mean), d[i].to_acc(), shift, mean);
        }
        next += 4 * joined;
    }
    for (at, len) in tile.lines(next..rows.end) {
        let (x, sums, shift, mean) = (
            x.slice(at, len),
            &mut sums[..len],
            shift.part(0, len),
            mean.part(0, len),
        );
        for i in 0..len {
            sums[i] = step(sums[i], x[i].to_acc(), shift.at(i), mean.at(i));
        }
    }
}
