//! Elementary functions as fixed sequences of IEEE 754 operations: polynomials and selects, no tables, no branches.
//!
//! **Exponential.** x = n · ln 2 + r with |r| ≤ ½ ln 2 (Cody and Waite: ln 2 in two parts, the first short enough for
//! n · ln 2 to be exact), eʳ = 1 + r + r² · polynomial(r), and 2ⁿ made of bits. Two factors 2^(n/2) reach past both
//! ends of the exponent's range, so that results overflow to ∞ and underflow through the subnormal numbers, rounded
//! once.
//!
//! **tanh, σ** are quotients of exponentials of −|x| or 2·|x|, chosen so that nothing cancels.
//!
//! **Normal distribution.** Φ(−x) = e^(−x²/2) · M(x) for x ≥ 0, where M is smooth and slow (Mills' ratio over
//! √(2π)) and one fraction of polynomials serves its whole range. x² is kept in two parts, since
//! an error of half a unit in x² would be multiplied by x²/2 in the result. The other half is 1 − Φ(−x). erf is
//! x · polynomial(x²) below 1, and 1 − 2 Φ(−√2·x) above.
//!
//! Source of the reduction: W. J. Cody, W. Waite, *Software Manual for the Elementary Functions*, 1980, chapter 6.

use core::f64::consts::{LOG2_E, SQRT_2};

use crate::{Real, coefficients};

/// 1/√(2π)
const INVERSE_ROOT_TWO_PI: f64 = 0.398_942_280_401_432_7;

/// What elementary functions need to know about a type.
pub(crate) trait Format: Real {
    /// 1.5 · 2^(fraction bits): adding it rounds to an integer, which is left in the lowest bits.
    const ROUND: Self;
    /// ln 2 = LN_2_HI + LN_2_LO, where n · LN_2_HI is exact.
    const LN_2_HI: Self;
    const LN_2_LO: Self;
    /// From here on eˣ is ∞, and below the other one it is 0.
    const EXP_LARGEST: Self;
    const EXP_SMALLEST: Self;
    /// From here on tanh and erf are 1, and Φ(−x) is 0.
    const TANH_END: Self;
    const ERF_END: Self;
    const NORMAL_END: Self;

    /// 2ⁿ for n = `rounded` − ROUND, in the range of normal numbers.
    fn power(rounded: Self) -> Self;

    /// Two factors whose product is 2ⁿ, twice as far.
    fn powers(rounded: Self) -> (Self, Self);

    fn with_sign_of(self, sign: Self) -> Self;
    fn exp_rest(self) -> Self;
    fn erf_rest(self) -> Self;
    fn mills(self) -> Self;
}

macro_rules! format {
    ($type:ident, $bits:ident, $exp_rest:ident, $erf_rest:ident, $mills_top:ident, $mills_bottom:ident, {
        round: $round:literal,
        ln_2: $ln_2_hi:literal + $ln_2_lo:literal,
        exp: $exp_smallest:literal .. $exp_largest:literal,
        ends: $tanh_end:literal, $erf_end:literal, $normal_end:literal,
    }) => {
        impl Format for $type {
            const ROUND: Self = $round;
            const LN_2_HI: Self = $ln_2_hi;
            const LN_2_LO: Self = $ln_2_lo;
            const EXP_LARGEST: Self = $exp_largest;
            const EXP_SMALLEST: Self = $exp_smallest;
            const TANH_END: Self = $tanh_end;
            const ERF_END: Self = $erf_end;
            const NORMAL_END: Self = $normal_end;

            #[inline(always)]
            fn power(rounded: Self) -> Self {
                const BIAS: $bits = $type::MAX_EXP as $bits - 1;
                const ZERO: $bits = ($round as $type).to_bits() - BIAS;
                let exponent = rounded.to_bits().wrapping_sub(ZERO);
                Self::from_bits(exponent << ($type::MANTISSA_DIGITS - 1))
            }

            #[inline(always)]
            fn powers(rounded: Self) -> (Self, Self) {
                // Raised by twice the bias plus 2, n is positive, and a logical shift halves it: AVX2 has no
                // arithmetic one for 64 bits. Each half is then one above its biased exponent.
                const RAISE: $bits = 2 * $type::MAX_EXP as $bits;
                const ZERO: $bits = ($round as $type).to_bits() - RAISE;
                let raised = rounded.to_bits().wrapping_sub(ZERO);
                let first = raised >> 1;
                let second = raised.wrapping_sub(first);
                (
                    Self::from_bits(first.wrapping_sub(1) << ($type::MANTISSA_DIGITS - 1)),
                    Self::from_bits(second.wrapping_sub(1) << ($type::MANTISSA_DIGITS - 1)),
                )
            }

            #[inline(always)]
            fn with_sign_of(self, sign: Self) -> Self {
                self.copysign(sign)
            }

            #[inline(always)]
            fn exp_rest(self) -> Self {
                coefficients::$exp_rest(self)
            }

            #[inline(always)]
            fn erf_rest(self) -> Self {
                coefficients::$erf_rest(self)
            }

            #[inline(always)]
            fn mills(self) -> Self {
                coefficients::$mills_top(self) / coefficients::$mills_bottom(self)
            }
        }
    };
}

format!(f32, u32, exp_rest_f32, erf_rest_f32, mills_top_f32, mills_bottom_f32, {
    round: 12_582_912.0,
    ln_2: 0.693_145_75 + 1.428_606_8e-6,
    exp: -104.0 .. 89.0,
    ends: 10.0, 4.0, 14.5,
});
format!(f64, u64, exp_rest_f64, erf_rest_f64, mills_top_f64, mills_bottom_f64, {
    round: 6_755_399_441_055_744.0,
    ln_2: 0.693_147_180_369_123_8 + 1.908_214_929_270_587_7e-10,
    exp: -746.0 .. 710.0,
    ends: 20.0, 6.0, 39.0,
});

/// The nearest integer to `x · log₂ e`, still with ROUND added, and without.
#[inline(always)]
fn octaves<R: Format>(x: R) -> (R, R) {
    let rounded = x.mul_add(R::from_f64(LOG2_E), R::ROUND);
    (rounded, rounded - R::ROUND)
}

/// eʳ − 1 for |r| ≤ ½ ln 2.
#[inline(always)]
fn exp_reduced_less_one<R: Format>(r: R) -> R {
    (r * r).mul_add(r.exp_rest(), r)
}

/// A number with a wide exponent: `significand · scale.0 · scale.1`.
#[derive(Clone, Copy)]
struct Scaled<R> {
    significand: R,
    scale: (R, R),
}

impl<R: Format> Scaled<R> {
    #[inline(always)]
    fn times(self, factor: R) -> R {
        (self.significand * factor * self.scale.0) * self.scale.1
    }
}

/// e^(−x²/2), for 0 ≤ x ≤ NORMAL_END.
#[inline(always)]
fn gaussian<R: Format>(x: R) -> Scaled<R> {
    let square = x * x;
    let square_rest = x.mul_add(x, -square);
    let hi = -R::HALF * square;
    let (rounded, n) = octaves(hi);
    let rest = n.mul_add(-R::LN_2_LO, -R::HALF * square_rest);
    let r = n.mul_add(-R::LN_2_HI, hi) + rest;
    Scaled {
        significand: exp_reduced_less_one(r) + R::ONE,
        scale: R::powers(rounded),
    }
}

#[inline(always)]
pub(crate) fn exp<R: Format>(x: R) -> R {
    let x = R::EXP_SMALLEST.max(R::EXP_LARGEST.min(x));
    let (rounded, n) = octaves(x);
    let r = n.mul_add(-R::LN_2_LO, n.mul_add(-R::LN_2_HI, x));
    let scale = R::powers(rounded);
    (exp_reduced_less_one(r) + R::ONE) * scale.0 * scale.1
}

/// (e^(2a) − 1) / (e^(2a) + 1), a = |x|.
#[inline(always)]
pub(crate) fn tanh<R: Format>(x: R) -> R {
    let a = R::TANH_END.min(x.abs());
    let double = a + a;
    let (rounded, n) = octaves(double);
    let r = n.mul_add(-R::LN_2_LO, n.mul_add(-R::LN_2_HI, double));
    let scale = R::power(rounded);
    let exp_less_one = scale.mul_add(exp_reduced_less_one(r), scale - R::ONE);
    let two = R::ONE + R::ONE;
    (exp_less_one / (exp_less_one + two)).with_sign_of(x)
}

#[inline(always)]
pub(crate) fn sigmoid<R: Format>(x: R) -> R {
    let e = exp(-x.abs());
    let top = if x < R::ZERO { e } else { R::ONE };
    top / (R::ONE + e)
}

/// σ(x) and σ(−x), for one division.
#[inline(always)]
pub(crate) fn sigmoid_pair<R: Format>(x: R) -> (R, R) {
    let e = exp(-x.abs());
    let larger = R::ONE / (R::ONE + e);
    let smaller = e * larger;
    if x < R::ZERO {
        (smaller, larger)
    } else {
        (larger, smaller)
    }
}

#[inline(always)]
pub(crate) fn erf<R: Format>(x: R) -> R {
    let near = x.mul_add((x * x).erf_rest(), x);
    let a = R::ERF_END.min(x.abs());
    let tail = exp(-(a * a)) * (a * R::from_f64(SQRT_2)).mills();
    let far = (R::ONE - (tail + tail)).with_sign_of(x);
    if x.abs() < R::ONE { near } else { far }
}

#[inline(always)]
pub(crate) fn normal_pdf<R: Format>(x: R) -> R {
    gaussian(R::NORMAL_END.min(x.abs())).times(R::from_f64(INVERSE_ROOT_TWO_PI))
}

/// Φ(x) and φ(x).
#[inline(always)]
pub(crate) fn normal_cdf_pdf<R: Format>(x: R) -> (R, R) {
    let a = R::NORMAL_END.min(x.abs());
    let gaussian = gaussian(a);
    let tail = gaussian.times(a.mills());
    let cdf = if x > R::ZERO { R::ONE - tail } else { tail };
    (cdf, gaussian.times(R::from_f64(INVERSE_ROOT_TWO_PI)))
}
