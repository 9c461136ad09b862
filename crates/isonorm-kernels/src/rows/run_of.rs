//! Which run a column lies in, without a division.

use core::num::NonZero;

use super::parameters::{Affine, at_least_one};

/// Which run a column lies in.
#[derive(Clone, Copy)]
pub struct RunOf {
    /// 2⁶⁴ divided by the length of a run, rounded up; 0 where a product with it is no substitute for a division.
    reciprocal: u64,
}

impl RunOf {
    #[inline(always)]
    pub(super) fn new(affine: &Affine) -> RunOf {
        let reciprocal = match u32::try_from(affine.run) {
            Ok(run) if run > 1 => u64::MAX / u64::from(at_least_one(run).get()) + 1,
            _ => 0,
        };
        RunOf { reciprocal }
    }

    /// A division of 32 bits by the same number again and again: the upper half of a product is exact (Lemire, Kaser and Kurz,
    /// Faster remainder by direct computation, 2019).
    #[inline(always)]
    pub(super) fn at(self, affine: &Affine, column: u64) -> u32 {
        if affine.runs <= 1 {
            return 0;
        }
        match u32::try_from(column) {
            Ok(column) if self.reciprocal != 0 => {
                let (high, low) = (self.reciprocal >> 32, self.reciprocal & 0xffff_ffff);
                let column = u64::from(column);
                ((high * column + ((low * column) >> 32)) >> 32) as u32
            }
            _ => (column / NonZero::new(affine.run).unwrap_or(NonZero::<u64>::MIN)) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_with_a_reciprocal_is_the_quotient() {
        let ends = [
            0,
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
        for run in ends.into_iter().filter(|&run| run > 0) {
            let affine = Affine {
                run: run.into(),
                runs: 2,
                ..Affine::NONE
            };
            let lookup = RunOf::new(&affine);
            for column in ends
                .into_iter()
                .flat_map(|end| [end, run.wrapping_mul(end), run.wrapping_mul(end).wrapping_sub(1)])
            {
                assert_eq!(lookup.at(&affine, column.into()), column / run, "{column} by {run}");
            }
            let far = (1 << 32) * u64::from(run).min(1 << 16) + 5;
            assert_eq!(lookup.at(&affine, far), (far / u64::from(run)) as u32);
        }
    }
}
