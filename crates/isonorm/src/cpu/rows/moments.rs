use std::ops::Range;

use isonorm_math::{Element, Moments, Real};

use super::GroupLayout;
use crate::cpu::lanes::Lanes;
use crate::cpu::memory::Source;
use crate::cpu::statistics::median;

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
        let shift = self.shift;
        let (mean, m2, count) = if self.centred {
            let (sum, count) = self.sum(block, |s, v| s + (v - shift));
            let mean = sum / T::Acc::from_f64(count);
            let (m2, _) = self.sum(block, |s, v| {
                let d = (v - shift) - mean;
                d.mul_add(d, s)
            });
            (mean, m2, count)
        } else {
            let (squares, count) = self.sum(block, |s, v| v.mul_add(v, s));
            (T::Acc::ZERO, squares, count)
        };
        if m2.is_finite() {
            Moments {
                count,
                mean: mean.to_f64(),
                m2: m2.to_f64(),
            }
        } else {
            self.of_extreme_block(block, shift.to_f64())
        }
    }

    /// Sums a block; also returns its number of elements.
    #[inline(always)]
    fn sum(&self, block: usize, step: impl Fn(T::Acc, T::Acc) -> T::Acc) -> (T::Acc, f64) {
        let mut lanes = Lanes::new();
        let mut count = 0;
        for index in 0..self.layout.pieces(block) {
            let piece = self.layout.piece(block, index);
            lanes.add(self.x.slice(piece.offset, piece.len), &step);
            count += piece.len;
        }
        (lanes.take(), count as f64)
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

/// Merges moments. (Dividing is slow: a short group is a single block.)
#[inline(always)]
fn merge(moments: Moments<f64>, more: Moments<f64>) -> Moments<f64> {
    if moments.count == 0.0 { more } else { moments.merge(more) }
}
