//! What a thread adds up of a long row, in one pass.

use isonorm_math::{Moments, Real};

use super::statistics::not_below_zero;

/// A thread's sums of distances from a number, and of their squares.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// The number.
    pub(super) centre: f32,
    /// Whether the number is yet to be moved to the mean of the first tile.
    pub(super) to_be_centred: bool,
    /// Elements so far.
    pub(super) count: u32,
    /// The distances.
    pub(super) first: f32,
    /// Their squares.
    pub(super) second: f32,
}

/// Squares about the mean are those about another number less the square of the distance between the two. With less than this
/// share left, too many digits have cancelled, and the squares are added up once more.
const DIGITS_KEPT: f32 = 0.25;

impl Sums {
    #[inline(always)]
    pub(super) fn about(centre: f32) -> Self {
        Self {
            centre,
            to_be_centred: false,
            count: 0,
            first: f32::ZERO,
            second: f32::ZERO,
        }
    }

    /// How far the mean is from what the distances are from.
    #[inline(always)]
    fn rest(&self) -> f32 {
        self.first / self.count.max(1) as f32
    }

    #[inline(always)]
    pub(super) fn mean(&self) -> f32 {
        self.centre + self.rest()
    }

    #[inline(always)]
    fn m2(&self) -> f32 {
        not_below_zero((-self.rest()).mul_add(self.first, self.second))
    }

    /// False for what is not finite, too.
    #[inline(always)]
    pub(super) fn digits_are_kept(&self) -> bool {
        self.m2() >= DIGITS_KEPT * self.second
    }

    /// The moments, the mean as distance from `shift`.
    #[inline(always)]
    pub(super) fn moments(&self, shift: f32) -> Moments<f32> {
        if self.count == 0 {
            return Moments::EMPTY;
        }
        Moments {
            count: self.count as f32,
            mean: (self.centre - shift) + self.rest(),
            m2: self.m2(),
        }
    }

    /// The moments about 0.
    #[inline(always)]
    pub(super) fn squares(&self) -> Moments<f32> {
        Moments {
            count: self.count as f32,
            mean: 0.0,
            m2: self.second,
        }
    }
}
