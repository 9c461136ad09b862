//! Division by the same number again and again, without a division.

use core::num::NonZero;

/// A number that others are divided by.
#[derive(Clone, Copy)]
pub(super) struct Divisor {
    divisor: NonZero<u32>,
    /// 2⁶⁴ divided by it, rounded up; 0 for 1.
    reciprocal: u64,
}

impl Divisor {
    #[inline(always)]
    pub(super) fn new(divisor: NonZero<u32>) -> Self {
        let reciprocal = (u64::MAX / NonZero::<u64>::from(divisor)).wrapping_add(1);
        Self { divisor, reciprocal }
    }

    #[inline(always)]
    pub(super) fn divisor(&self) -> NonZero<u32> {
        self.divisor
    }

    /// The quotient and what is left: the upper half of a product is exact (Lemire, Kaser and Kurz, Faster remainder by direct computation,
    /// 2019).
    #[inline(always)]
    pub(super) fn divide(&self, number: u32) -> (u32, u32) {
        let (high, low) = (self.reciprocal >> 32, self.reciprocal & 0xffff_ffff);
        let quotient = match self.divisor.get() {
            1 => number,
            _ => ((high * u64::from(number) + ((low * u64::from(number)) >> 32)) >> 32) as u32,
        };
        (quotient, number - quotient * self.divisor.get())
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
