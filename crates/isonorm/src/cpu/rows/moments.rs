use std::ops::Range;

use isonorm_math::{Element, Moments, Real};

use super::GroupLayout;
use crate::cpu::lanes::Lanes;
use crate::cpu::memory::Source;
use crate::cpu::statistics::{BATCH, GroupStatistics, median};

/// Moments of a group about one of its elements, so that a constant group's are exactly zero and a large mean costs no digits.
#[derive(Clone, Copy)]
pub(super) struct GroupMoments<'a, 'p, T: Element> {
    x: Source<'a, T>,
    layout: GroupLayout<'p>,
    /// False for RMSNorm: squares are taken about zero.
    centred: bool,
    /// What the moments are about.
    pub(super) shift: T::Acc,
}

impl<'a, 'p, T: Element> GroupMoments<'a, 'p, T> {
    #[inline(always)]
    pub(super) fn new(x: Source<'a, T>, layout: GroupLayout<'p>, centred: bool) -> GroupMoments<'a, 'p, T> {
        let shift = if centred {
            median(layout.samples().map(|at| x.at(at)))
        } else {
            T::Acc::ZERO
        };
        GroupMoments {
            x,
            layout,
            centred,
            shift,
        }
    }

    /// The moments of some parts together.
    #[inline(always)]
    pub(super) fn of_parts(&self, parts: Range<usize>) -> Moments<f64> {
        let mut all = Moments::EMPTY;
        for part in parts {
            let blocks = self.layout.plan.part_blocks(part);
            let mut moments = Moments::EMPTY;
            for block in blocks {
                moments = merge(moments, self.of_block(block));
            }
            all = merge(all, moments);
        }
        all
    }

    #[inline(always)]
    fn of_block(&self, block: usize) -> Moments<f64> {
        let count = self.elements(block) as f64;
        let mean = self.sum_of_block(block) / T::Acc::from_f64(count);
        self.finish_block(block, count, mean, self.squares_of_block(block, mean))
    }

    /// The sum of a block's distances from the shift; for RMSNorm, whose mean is 0, 0.
    #[inline(always)]
    fn sum_of_block(&self, block: usize) -> T::Acc {
        let shift = self.shift;
        if self.centred {
            self.sum(block, |s, v| s + (v - shift))
        } else {
            T::Acc::ZERO
        }
    }

    /// The squared distances of a block from this mean (RMSNorm: from 0), added up.
    #[inline(always)]
    fn squares_of_block(&self, block: usize, mean: T::Acc) -> T::Acc {
        let shift = self.shift;
        if self.centred {
            self.sum(block, |s, v| {
                let d = (v - shift) - mean;
                d.mul_add(d, s)
            })
        } else {
            self.sum(block, |s, v| v.mul_add(v, s))
        }
    }

    /// The moments of a block, from its mean and squares.
    #[inline(always)]
    fn finish_block(&self, block: usize, count: f64, mean: T::Acc, squares: T::Acc) -> Moments<f64> {
        if squares.is_finite() {
            Moments {
                count,
                mean: mean.to_f64(),
                m2: squares.to_f64(),
            }
        } else {
            self.of_extreme_block(block, self.shift.to_f64())
        }
    }

    /// Elements of a block.
    #[inline(always)]
    fn elements(&self, block: usize) -> usize {
        match self.layout.pieces(block) {
            1 => self.layout.piece(block, 0).len,
            // Several pieces are whole segments.
            pieces => pieces * self.layout.geometry.inner,
        }
    }

    /// Sums a block.
    #[inline(always)]
    fn sum(&self, block: usize, step: impl Fn(T::Acc, T::Acc) -> T::Acc) -> T::Acc {
        let mut lanes = Lanes::new();
        for index in 0..self.layout.pieces(block) {
            let piece = self.layout.piece(block, index);
            lanes.add(self.x.slice(piece.offset, piece.len), &step);
        }
        lanes.total()
    }

    /// A block whose squares overflow the accumulator (or which has a NaN or an infinity), in `f64`.
    #[cold]
    #[inline(never)]
    fn of_extreme_block(&self, block: usize, shift: f64) -> Moments<f64> {
        let values = || {
            (0..self.layout.pieces(block)).flat_map(move |index| {
                let piece = self.layout.piece(block, index);
                self.x
                    .slice(piece.offset, piece.len)
                    .iter()
                    .map(move |v| v.to_acc().to_f64() - shift)
            })
        };
        let count = values().count() as f64;
        let mean = if self.centred {
            values().sum::<f64>() / count
        } else {
            0.0
        };
        Moments {
            count,
            mean,
            m2: values().map(|v| (v - mean) * (v - mean)).sum(),
        }
    }
}

/// Statistics of at most [`BATCH`] groups that are one block each, step by step for all of them.
#[inline(always)]
pub(super) fn measure_short_groups<'p, T: Element>(
    x: Source<'_, T>,
    centred: bool,
    groups: Range<usize>,
    layout: impl Fn(usize) -> GroupLayout<'p>,
    statistics: &mut [GroupStatistics; BATCH],
) {
    let mut shift = [T::Acc::ZERO; BATCH];
    let mut mean = [T::Acc::ZERO; BATCH];
    let mut squares = [T::Acc::ZERO; BATCH];
    let about = |group, shift| GroupMoments {
        x,
        layout: layout(group),
        centred,
        shift,
    };
    let mut count = 0.0;
    for (i, group) in groups.clone().enumerate() {
        let x = GroupMoments::new(x, layout(group), centred);
        count = x.elements(0) as f64;
        shift[i] = x.shift;
        mean[i] = x.sum_of_block(0);
    }
    let divisor = T::Acc::from_f64(count);
    for mean in &mut mean {
        *mean = *mean / divisor;
    }
    for (i, group) in groups.clone().enumerate() {
        squares[i] = about(group, shift[i]).squares_of_block(0, mean[i]);
    }
    for (i, group) in groups.enumerate() {
        let moments = about(group, shift[i]).finish_block(0, count, mean[i], squares[i]);
        statistics[i] = GroupStatistics::about(shift[i].to_f64(), moments);
    }
}

/// Merges moments. (Dividing is slow: a short group is a single block.)
#[inline(always)]
fn merge(moments: Moments<f64>, more: Moments<f64>) -> Moments<f64> {
    if moments.count == 0.0 {
        more
    } else {
        moments.merge(more)
    }
}
