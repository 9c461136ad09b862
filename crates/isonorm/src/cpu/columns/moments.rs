use std::ops::Range;

use isonorm_math::{Element, Real};

use super::{Tile, TileLayout};
use crate::cpu::chunk::{Coefficient, Each};
use crate::cpu::memory::Source;
use crate::cpu::statistics::GroupStatistics;
use crate::plan::{BLOCK_ROWS, WIDEST_TILE};

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
            mean: [0.0; WIDEST_TILE],
            m2: [0.0; WIDEST_TILE],
        }
    }

    /// Merges the moments of more rows by Chan's formula.
    #[inline(always)]
    pub(super) fn merge<A: Real>(&mut self, count: f64, mean: &[A], m2: &[A]) {
        let total = self.count + count;
        let share = if total > 0.0 { count / total } else { 0.0 };
        let cross = self.count * share;
        for (((mean, m2), more_mean), more_m2) in self.mean.iter_mut().zip(&mut self.m2).zip(mean).zip(m2) {
            let delta = more_mean.to_f64() - *mean;
            *mean += delta * share;
            *m2 += more_m2.to_f64() + delta * delta * cross;
        }
        self.count = total;
    }

    pub(super) fn mean(&self) -> &[f64] {
        &self.mean
    }

    pub(super) fn m2(&self) -> &[f64] {
        &self.m2
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

/// The columns of a tile, and what their moments are about: the first element of their group, so that a constant group's are
/// exactly zero and a large mean costs no digits.
pub(super) struct TileMoments<'a, T: Element> {
    x: Source<'a, T>,
    pub(super) shift: Tile<T::Acc>,
    /// False for RMSNorm: squares are taken about zero.
    centred: bool,
}

/// Moments of a block in the accumulator's type.
struct Block<A> {
    mean: Tile<A>,
    m2: Tile<A>,
}

impl<'a, T: Element> TileMoments<'a, T> {
    #[inline(always)]
    pub(super) fn new(x: Source<'a, T>, tile: &TileLayout<'_>, centred: bool) -> TileMoments<'a, T> {
        let mut shift = [T::Acc::ZERO; WIDEST_TILE];
        if centred {
            let first = x.slice(tile.offset(0), tile.width());
            for (_, columns) in tile.each_group() {
                shift[columns.clone()].fill(first[columns.start].to_acc());
            }
        }
        TileMoments { x, shift, centred }
    }

    /// The moments of a part of the rows, merged into `moments`.
    #[inline(always)]
    pub(super) fn of_rows(&self, tile: &TileLayout<'_>, rows: Range<usize>) -> ColumnMoments {
        let width = tile.width();
        let mut moments = ColumnMoments::empty();
        let mut block = Block {
            mean: [T::Acc::ZERO; WIDEST_TILE],
            m2: [T::Acc::ZERO; WIDEST_TILE],
        };
        for start in rows.clone().step_by(BLOCK_ROWS) {
            let rows = start..(start + BLOCK_ROWS).min(rows.end);
            self.of_block(tile, rows.clone(), &mut block);
            let count = rows.len() as f64;
            let (mean, m2) = (&block.mean[..width], &block.m2[..width]);
            if m2.iter().fold(true, |finite, m2| finite & m2.is_finite()) {
                moments.merge(count, mean, m2);
            } else {
                let mut extreme = Block {
                    mean: [0.0; WIDEST_TILE],
                    m2: [0.0; WIDEST_TILE],
                };
                self.of_extreme_block(tile, rows, &mut extreme);
                moments.merge(count, &extreme.mean[..width], &extreme.m2[..width]);
            }
        }
        moments
    }

    #[inline(always)]
    fn of_block(&self, tile: &TileLayout<'_>, rows: Range<usize>, block: &mut Block<T::Acc>) {
        let width = tile.width();
        let row = |row: usize| self.x.slice(tile.offset(row), width);
        let (mean, m2, shift) = (
            &mut block.mean[..width],
            &mut block.m2[..width],
            Each(&self.shift[..width]),
        );
        m2.fill(T::Acc::ZERO);
        if !self.centred {
            return for_each_four_rows(rows, row, m2, (shift, shift), |m2, x, _, _| x.mul_add(x, m2));
        }
        mean.fill(T::Acc::ZERO);
        let count = T::Acc::from_f64(rows.len() as f64);
        for_each_four_rows(rows.clone(), row, mean, (shift, shift), |sum, x, shift, _| {
            sum + (x - shift)
        });
        for m in mean.iter_mut() {
            *m = *m / count;
        }
        for_each_four_rows(rows, row, m2, (shift, Each(mean)), |m2, x, shift, mean| {
            let d = (x - shift) - mean;
            d.mul_add(d, m2)
        });
    }

    /// A block with a column whose squares overflow the accumulator (or which has a NaN or an infinity), in `f64`.
    #[cold]
    #[inline(never)]
    fn of_extreme_block(&self, tile: &TileLayout<'_>, rows: Range<usize>, block: &mut Block<f64>) {
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

/// `sums[i] = step(sums[i], x, shift[i], mean[i])` for every row's `x` in column `i`, four rows at a time so that a sum is
/// loaded and stored once for four elements.
#[inline(always)]
fn for_each_four_rows<'s, T: Element>(
    rows: Range<usize>,
    row: impl Fn(usize) -> &'s [T],
    sums: &mut [T::Acc],
    (shift, mean): (Each<'_, T::Acc>, Each<'_, T::Acc>),
    step: impl Fn(T::Acc, T::Acc, T::Acc, T::Acc) -> T::Acc,
) {
    let width = sums.len();
    let (shift, mean) = (shift.first(width), mean.first(width));
    let mut next = rows.start;
    while next + 4 <= rows.end {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| &row(next + i)[..width]);
        for (i, sum) in sums.iter_mut().enumerate() {
            let (shift, mean) = (shift.at(i), mean.at(i));
            let two = step(step(*sum, a[i].to_acc(), shift, mean), b[i].to_acc(), shift, mean);
            *sum = step(step(two, c[i].to_acc(), shift, mean), d[i].to_acc(), shift, mean);
        }
        next += 4;
    }
    for next in next..rows.end {
        let a = &row(next)[..width];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = step(*sum, a[i].to_acc(), shift.at(i), mean.at(i));
        }
    }
}
