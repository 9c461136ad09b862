//! Elementary functions as fixed sequences of IEEE 754 operations: polynomials and selects, no tables, no branches.
//!
//! **Exponential.** x = n · ln 2 + r with |r| ≤ ½ ln 2 (Cody and Waite: ln 2 in two parts, the first short enough for
//! n · ln 2 to be exact), eʳ = 1 + r + r² · polynomial(r), and 2ⁿ made of bits. Two factors 2^(n/2) reach past both
//! ends of the exponent's range, so that results overflow to ∞ and underflow through the subnormal numbers, rounded
//! once. Where x ≤ 0, 2^(n + SHIFT) and the constant 2^(−SHIFT) do the same.
//!
//! **σ, tanh.** The reciprocal of 1 + e^y = (1 + 2ⁿ) + 2ⁿ · (eʳ − 1), where 1 + 2ⁿ is exact, so that the sum is rounded
//! once. tanh x is 1 − 2/(1 + e^(2x)), which cancels below ½: there it is x + x³ · polynomial(x²).
//!
//! **Normal distribution.** Φ(−x) = e^(−x²/2) · M(x) for x ≥ 0, where M is Mills' ratio over √(2π). It falls like 1/x,
//! so with w = k/(x + k), M/w is nearly constant, and one polynomial in w serves the whole range. x² is kept in two
//! parts, since an error of half a unit in x² would be multiplied by x²/2 in the result. The other half is 1 − Φ(−x).
//! erf is x + x · polynomial(x²) below 1, and 1 − 2 Φ(−√2·x) above.
//!
//! Source of the reduction: W. J. Cody, W. Waite, *Software Manual for the Elementary Functions*, 1980, chapter 6.

use core::f64::consts::{LOG2_E, SQRT_2};

use crate::Real;
use crate::coefficients;

/// 1/√(2π)
pub(crate) const INVERSE_ROOT_TWO_PI: f64 = 0.398_942_280_401_432_7;

/// Below this, 2ⁿ + 1 is not exact in `f32`; in `f64` it makes no difference.
const SIGMOID_FAR: f64 = -16.2;

/// Where tanh's polynomial ends.
pub(crate) const TANH_NEAR: f64 = 0.6;

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
    /// From here on σ, tanh and erf are 1, and Φ(−x) is 0.
    const SIGMOID_END: Self;
    const TANH_END: Self;
    const ERF_END: Self;
    const NORMAL_END: Self;
    /// The binary logarithm of a power that keeps numbers clear of one end of the exponent's range.
    const SHIFT: Self;
    /// 2^(−SHIFT)
    const SHIFT_SCALE: Self;
    /// k of `mills_rest`.
    const MILLS_POLE: Self;

    /// 2ⁿ for n = `rounded` − ROUND, in the range of normal numbers.
    fn power(rounded: Self) -> Self;

    /// Two factors whose product is 2ⁿ, twice as far.
    fn powers(rounded: Self) -> (Self, Self);

    fn with_sign_of(self, sign: Self) -> Self;
    fn exp_rest(self) -> Self;
    fn erf_rest(self) -> Self;
    fn tanh_rest(self) -> Self;
    fn mills_rest(self) -> Self;
}

macro_rules! format {
    ($type:ident, $bits:ident, $exp_rest:ident, $tanh_rest:ident, $erf_rest:ident, $mills_rest:ident, {
        round: $round:literal,
        ln_2: $ln_2_hi:literal + $ln_2_lo:literal,
        exp: $exp_smallest:literal .. $exp_largest:literal,
        ends: $sigmoid_end:literal, $tanh_end:literal, $erf_end:literal, $normal_end:literal,
        sigmoid: $shift:literal,
        pole: $pole:literal,
    }) => {
        impl Format for $type {
            const ROUND: Self = $round;
            const LN_2_HI: Self = $ln_2_hi;
            const LN_2_LO: Self = $ln_2_lo;
            const EXP_LARGEST: Self = $exp_largest;
            const EXP_SMALLEST: Self = $exp_smallest;
            const SIGMOID_END: Self = $sigmoid_end;
            const TANH_END: Self = $tanh_end;
            const ERF_END: Self = $erf_end;
            const NORMAL_END: Self = $normal_end;
            const SHIFT: Self = $shift as Self;
            const SHIFT_SCALE: Self =
                Self::from_bits(($type::MAX_EXP as $bits - 1 - $shift) << ($type::MANTISSA_DIGITS - 1));
            const MILLS_POLE: Self = $pole;

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
            fn tanh_rest(self) -> Self {
                coefficients::$tanh_rest(self)
            }

            #[inline(always)]
            fn mills_rest(self) -> Self {
                coefficients::$mills_rest(self)
            }
        }
    };
}

format!(f32, u32, exp_rest_f32, tanh_rest_f32, erf_rest_f32, mills_rest_f32, {
    round: 12_582_912.0,
    ln_2: 0.693_145_75 + 1.428_606_8e-6,
    exp: -104.0 .. 89.0,
    ends: 40.0, 10.0, 4.0, 14.5,
    sigmoid: 64,
    pole: 3.0,
});
format!(f64, u64, exp_rest_f64, tanh_rest_f64, erf_rest_f64, mills_rest_f64, {
    round: 6_755_399_441_055_744.0,
    ln_2: 0.693_147_180_369_123_8 + 1.908_214_929_270_587_7e-10,
    exp: -746.0 .. 710.0,
    ends: 40.0, 20.0, 6.0, 39.0,
    sigmoid: 512,
    pole: 4.0,
});

/// x = n · ln 2 + r: r, and n + `round`.
#[inline(always)]
fn reduce<R: Format>(x: R, round: R) -> (R, R) {
    let rounded = x.mul_add(R::from_f64(LOG2_E), round);
    let n = rounded - round;
    let r = n.mul_add(-R::LN_2_LO, n.mul_add(-R::LN_2_HI, x));
    (r, rounded)
}

/// eʳ − 1 for |r| ≤ ½ ln 2.
#[inline(always)]
fn exp_reduced_less_one<R: Format>(r: R) -> R {
    (r * r).mul_add(r.exp_rest(), r)
}

#[inline(always)]
pub(crate) fn exp<R: Format>(x: R) -> R {
    let x = x.not_above(R::EXP_LARGEST).not_below(R::EXP_SMALLEST);
    let (r, rounded) = reduce(x, R::ROUND);
    let scale = R::powers(rounded);
    (exp_reduced_less_one(r) + R::ONE) * scale.0 * scale.1
}

/// eˣ for x ≤ 0: no end of the exponent's range is near 2^(n + SHIFT), and the last product is rounded, once.
#[inline(always)]
fn exp_below<R: Format>(x: R) -> R {
    let x = x.not_below(R::EXP_SMALLEST);
    let (r, rounded) = reduce(x, R::ROUND + R::SHIFT);
    (exp_reduced_less_one(r) + R::ONE) * R::power(rounded) * R::SHIFT_SCALE
}

#[inline(always)]
pub(crate) fn tanh<R: Format>(x: R) -> R {
    let square = x * x;
    let near = (x * square).mul_add(square.tanh_rest(), x);
    let a = x.abs().not_above(R::TANH_END);
    let (r, rounded) = reduce(a + a, R::ROUND);
    let scale = R::power(rounded);
    let exp_and_one = scale.mul_add(exp_reduced_less_one(r), scale + R::ONE);
    let two = R::ONE + R::ONE;
    let far = (-two).mul_add(R::ONE / exp_and_one, R::ONE);
    let value = if x.abs() < R::from_f64(TANH_NEAR) { near } else { far };
    value.with_sign_of(x)
}

#[inline(always)]
pub(crate) fn sigmoid<R: Format>(x: R) -> R {
    let x = x.not_above(R::SIGMOID_END).not_below(R::EXP_SMALLEST);
    let (r, rounded) = reduce(-x, R::ROUND - R::SHIFT);
    let scale = R::power(rounded);
    // The larger of 2ⁿ and 1 goes in last where their sum would not be exact.
    let far = x < R::from_f64(SIGMOID_FAR);
    let first = if far { R::ZERO } else { scale };
    let last = if far { scale } else { R::ZERO };
    let exp_and_one = scale.mul_add(exp_reduced_less_one(r), first + R::SHIFT_SCALE) + last;
    R::ONE / exp_and_one * R::SHIFT_SCALE
}

/// σ(|x|) and σ(−|x|), for one division, and both tails as far as they reach.
#[inline(always)]
pub(crate) fn sigmoid_sides<R: Format>(x: R) -> (R, R) {
    let e = exp_below(-x.abs());
    let larger = R::ONE / (R::ONE + e);
    (larger, e * larger)
}

/// Φ(−x) · e^(x²/2) for x ≥ 0.
#[inline(always)]
fn mills<R: Format>(x: R) -> R {
    let sum = x + R::MILLS_POLE;
    let quotient = R::MILLS_POLE / sum;
    // One Newton step takes back what rounded off the sum and the quotient: M depends on w up to 3.2 times over.
    let sum_rest = x - (sum - R::MILLS_POLE);
    let rest = (-quotient).mul_add(sum_rest, (-quotient).mul_add(sum, R::MILLS_POLE));
    let w = (quotient * (R::ONE / R::MILLS_POLE)).mul_add(rest, quotient);
    w * mills_of(w)
}

/// The same over w = k/(x + k).
#[inline(always)]
fn mills_of<R: Format>(w: R) -> R {
    let two = R::ONE + R::ONE;
    (-two).mul_add(w, R::ONE).mills_rest()
}

/// e^(−x²/2), as (1 + `less_one`) · `scale` · SHIFT_SCALE.
#[derive(Clone, Copy)]
struct Gaussian<R> {
    less_one: R,
    /// 2^(n + SHIFT), which no end of the exponent's range is near.
    scale: R,
}

impl<R: Format> Gaussian<R> {
    /// For 0 ≤ x ≤ NORMAL_END.
    #[inline(always)]
    fn new(x: R) -> Self {
        let square = x * x;
        let square_rest = x.mul_add(x, -square);
        let hi = -R::HALF * square;
        let round = R::ROUND + R::SHIFT;
        let rounded = hi.mul_add(R::from_f64(LOG2_E), round);
        let n = rounded - round;
        let lo = n.mul_add(-R::LN_2_LO, -R::HALF * square_rest);
        Self {
            less_one: exp_reduced_less_one(n.mul_add(-R::LN_2_HI, hi) + lo),
            scale: R::power(rounded),
        }
    }

    #[inline(always)]
    fn times(self, factor: R) -> R {
        self.less_one.mul_add(factor, factor) * self.scale * R::SHIFT_SCALE
    }
}

#[inline(always)]
pub(crate) fn erf<R: Format>(x: R) -> R {
    let near = x.mul_add((x * x).erf_rest(), x);
    let a = x.abs().not_above(R::ERF_END);
    let tail = exp_below(-(a * a)) * mills(a * R::from_f64(SQRT_2));
    let far = (R::ONE - (tail + tail)).with_sign_of(x);
    if x.abs() < R::ONE { near } else { far }
}

#[inline(always)]
pub(crate) fn normal_pdf<R: Format>(x: R) -> R {
    Gaussian::new(x.abs().not_above(R::NORMAL_END)).times(R::from_f64(INVERSE_ROOT_TWO_PI))
}

/// Φ(x) and φ(x).
#[inline(always)]
pub(crate) fn normal_cdf_pdf<R: Format>(x: R) -> (R, R) {
    let a = x.abs().not_above(R::NORMAL_END);
    let gaussian = Gaussian::new(a);
    let tail = gaussian.times(mills(a));
    let cdf = if x > R::ZERO { R::ONE - tail } else { tail };
    (cdf, gaussian.times(R::from_f64(INVERSE_ROOT_TWO_PI)))
}
