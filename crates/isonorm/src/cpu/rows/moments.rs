use std::ops::Range;

use isonorm_math::{Element, Moments, Real};

use super::GroupLayout;
use crate::cpu::isa::Vectors;
use crate::cpu::lanes::{DistanceLanes, Folded, Lanes};
use crate::cpu::memory::Source;
use crate::cpu::statistics::{BATCH, DIGITS_KEPT, GroupStatistics, central};

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
            central(layout.samples(&x))
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
        let [sum, squares] = self.sums_of_block(block).map(Folded::total);
        let moments = about_shift(count, sum, squares);
        if digits_are_kept(moments, squares) {
            moments
        } else {
            self.of_block_again(block, moments)
        }
    }

    /// The distances of a block from the shift, and their squares, added up; for RMSNorm, whose mean is 0, 0 and the squares.
    #[inline(always)]
    fn sums_of_block(&self, block: usize) -> [Folded<T::Acc>; 2] {
        if !self.centred {
            return [Folded::ZERO, self.sum(block, |s, v| v.mul_add(v, s))];
        }
        let mut lanes = DistanceLanes::new();
        for index in 0..self.layout.pieces(block) {
            let piece = self.layout.piece(block, index);
            lanes.add(self.x.slice(piece.offset, piece.len), self.shift);
        }
        lanes.fold()
    }

    /// The moments of a block from another pass over it, the squares about the mean of the first.
    #[inline(always)]
    fn of_block_again(&self, block: usize, first: Moments<f64>) -> Moments<f64> {
        let (shift, mean) = (self.shift, T::Acc::from_f64(first.mean));
        let squares = self.sum(block, |s, v| {
            let d = (v - shift) - mean;
            d.mul_add(d, s)
        });
        let squares = squares.total();
        if squares.is_finite() {
            Moments {
                m2: squares.to_f64(),
                ..first
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
    fn sum(&self, block: usize, step: impl Fn(T::Acc, T::Acc) -> T::Acc) -> Folded<T::Acc> {
        let mut lanes = Lanes::new();
        for index in 0..self.layout.pieces(block) {
            let piece = self.layout.piece(block, index);
            lanes.add(self.x.slice(piece.offset, piece.len), &step);
        }
        lanes.fold()
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

/// Moments from the sums of distances from the shift and of their squares.
#[inline(always)]
fn about_shift<A: Real>(count: f64, sum: A, squares: A) -> Moments<f64> {
    let sum = sum.to_f64();
    let mean = sum / count;
    Moments {
        count,
        mean,
        m2: squares.to_f64() - sum * mean,
    }
}

/// Whether the shift was near enough to the mean: false for what is not finite, too.
#[inline(always)]
fn digits_are_kept<A: Real>(moments: Moments<f64>, squares: A) -> bool {
    squares.is_finite() && moments.m2 >= DIGITS_KEPT * squares.to_f64()
}

/// Statistics of at most [`BATCH`] groups that are one block each, step by step for all of them.
#[inline(always)]
pub(super) fn measure_short_groups<'p, T: Element>(
    vectors: Vectors,
    x: Source<'_, T>,
    centred: bool,
    groups: Range<usize>,
    layout: impl Fn(usize) -> GroupLayout<'p>,
    statistics: &mut [GroupStatistics; BATCH],
) {
    let mut shift = [T::Acc::ZERO; BATCH];
    let mut sums = [Folded::ZERO; BATCH];
    let mut squares = [Folded::ZERO; BATCH];
    let mut moments = [Moments::EMPTY; BATCH];
    let mut count = 0.0;
    for (i, group) in groups.clone().enumerate() {
        let x = GroupMoments::new(x, layout(group), centred);
        count = x.elements(0) as f64;
        shift[i] = x.shift;
        [sums[i], squares[i]] = x.sums_of_block(0);
    }
    let (sums, squares) = (Folded::totals(vectors, &sums), Folded::totals(vectors, &squares));
    for i in 0..BATCH {
        moments[i] = about_shift(count, sums[i], squares[i]);
    }
    for (i, group) in groups.enumerate() {
        if !digits_are_kept(moments[i], squares[i]) {
            let x = GroupMoments {
                x,
                layout: layout(group),
                centred,
                shift: shift[i],
            };
            moments[i] = x.of_block_again(0, moments[i]);
        }
        statistics[i] = GroupStatistics::about(shift[i].to_f64(), moments[i]);
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
