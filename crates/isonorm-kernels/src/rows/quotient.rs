//! Division by the same number again and again, without a division.

use core::num::NonZero;

/// A number that others are divided by.
#[derive(Clone, Copy)]
pub(crate) struct Divisor {
    divisor: NonZero<u32>,
    /// 2³² divided by it, rounded down; of 1, a little less.
    reciprocal: u32,
}

impl Divisor {
    /// One division of 32 bits, which a GPU does by a sequence of some fifteen instructions; one of 64 bits would be eighty.
    #[inline(always)]
    pub(crate) fn new(divisor: NonZero<u32>) -> Self {
        Self {
            divisor,
            reciprocal: u32::MAX / divisor,
        }
    }

    #[inline(always)]
    pub(crate) fn divisor(&self) -> NonZero<u32> {
        self.divisor
    }

    /// The quotient and what is left. The upper half of the product lies below the quotient by 1 at most: the reciprocal is 1 too small at
    /// most, and the number less than 2³².
    #[inline(always)]
    pub(crate) fn divide(&self, number: u32) -> (u32, u32) {
        let below = ((u64::from(self.reciprocal) * u64::from(number)) >> 32) as u32;
        let left = number - below * self.divisor.get();
        match left >= self.divisor.get() {
            true => (below + 1, left - self.divisor.get()),
            false => (below, left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_with_a_reciprocal_is_the_quotient() {
        let ends = [
            1,
            2,
            3,
            5,
            7,
            255,
            4095,
            4096,
            65_537,
            u32::MAX / 3,
            u32::MAX - 1,
            u32::MAX,
        ];
        for by in ends {
            let divisor = Divisor::new(NonZero::new(by).expect("not 0"));
            let near = |end: u32| [end, by.wrapping_mul(end), by.wrapping_mul(end).wrapping_sub(1)];
            for number in ends.into_iter().chain([0]).flat_map(near) {
                assert_eq!(divisor.divide(number), (number / by, number % by), "{number} by {by}");
            }
        }
    }
}
