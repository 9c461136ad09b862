//! Division of numbers that are known to lie far from both ends of the exponent's range, and so does the quotient.
//!
//! It is the quotient rounded once, as any other. A GPU has no instruction for it: the assembler writes out an approximation
//! and steps of Newton's method, and a branch around a slow way for the ends of the range, which keeps the divisions of
//! several numbers from being done side by side. Here the branch is left out.

use crate::Real;

/// Division far from both ends of the exponent's range: by 2^27 or more in `f32`.
pub(crate) trait Division: Real {
    /// 1 / self.
    #[inline(always)]
    fn reciprocal(self) -> Self {
        Self::ONE / self
    }

    /// self / divisor.
    #[inline(always)]
    fn quotient(self, divisor: Self) -> Self {
        self / divisor
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Division for f32 {}

#[cfg(target_arch = "nvptx64")]
impl Division for f32 {
    #[inline(always)]
    fn reciprocal(self) -> f32 {
        // What the assembler makes of a reciprocal, within the range.
        let about = crate::nvptx::about_reciprocal(self);
        Real::mul_add(about, Real::mul_add(-self, about, Self::ONE), about)
    }

    #[inline(always)]
    fn quotient(self, divisor: f32) -> f32 {
        quotient_by(self, divisor, divisor.reciprocal())
    }
}

impl Division for f64 {}

/// The quotient, by the reciprocal as it is rounded. (P. Markstein, *Computation of elementary functions on the IBM RISC
/// System/6000 processor*, 1990.)
#[cfg(any(test, target_arch = "nvptx64"))]
#[inline(always)]
fn quotient_by(dividend: f32, divisor: f32, reciprocal: f32) -> f32 {
    let about = dividend * reciprocal;
    let rest = Real::mul_add(-divisor, about, dividend);
    Real::mul_add(rest, reciprocal, about)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one quotient that is taken: of Mills' ratio.
    #[test]
    fn quotients_by_the_reciprocal_are_rounded_once() {
        // Debug builds are slow with fused multiply-adds: they take some of all.
        let step = if cfg!(debug_assertions) { 61 } else { 1 };
        for bits in (3f32.to_bits()..=17.5f32.to_bits()).step_by(step) {
            let divisor = f32::from_bits(bits);
            assert_eq!(quotient_by(3.0, divisor, 1.0 / divisor), 3.0 / divisor, "3 / {divisor}");
        }
    }
}
