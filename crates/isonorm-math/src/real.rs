//! [`Real`]: the floating-point types that arithmetic is done in.

use core::fmt::Debug;
use core::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::activation::{cut, cut_below};
use crate::elementary;

/// A type that arithmetic is done in: `f32` or `f64`.
///
/// The largest errors that were seen, in units in the last place of the result: over every `f32`, and over 100,000
/// `f64` for each function against values of 400 bits. They hold where the result is a normal number; a subnormal one
/// is at most 2 units off.
///
/// | function | `f32` | `f64` |
/// |---|---|---|
/// | [`exp`](Real::exp) | 1.02 | 0.97 |
/// | [`tanh`](Real::tanh) | 1.23 | 1.21 |
/// | [`sigmoid`](Real::sigmoid) | 1.70 | 1.64 |
/// | [`erf`](Real::erf) | 1.27 | 1.23 |
/// | [`normal_cdf`](Real::normal_cdf) | 3.94 | 3.39 |
/// | [`normal_pdf`](Real::normal_pdf) | 1.27 | 1.23 |
pub trait Real:
    Copy
    + Send
    + Sync
    + 'static
    + PartialOrd
    + PartialEq
    + Debug
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// 1/2.
    const HALF: Self;
    /// The distance from 1 to the next larger number: 2⁻²³ or 2⁻⁵².
    const EPSILON: Self;
    /// +∞.
    const INFINITY: Self;

    /// The nearest number to `value`, ties to even.
    fn from_f64(value: f64) -> Self;

    /// The same number as an `f64`; exact.
    fn to_f64(self) -> f64;

    /// `self · a + b`, rounded once.
    ///
    /// ```
    /// use isonorm_math::Real;
    /// let x = 1.0f32 + f32::EPSILON;
    /// assert_eq!(Real::mul_add(x, x, -(x * x)), f32::EPSILON * f32::EPSILON);
    /// ```
    fn mul_add(self, a: Self, b: Self) -> Self;

    /// The square root, correctly rounded; NaN for a negative number.
    fn sqrt(self) -> Self;

    /// The absolute value; clears the sign of a NaN too.
    fn abs(self) -> Self;

    /// The smaller of two numbers; `other` where either is NaN.
    ///
    /// This is one vector instruction, unlike the IEEE 754 minimum. So `x.min(bound)` drops a NaN in `x`, and
    /// `bound.min(x)` keeps it. Of two zeros it returns `other`.
    ///
    /// ```
    /// use isonorm_math::Real;
    /// assert_eq!(Real::min(f32::NAN, 1.0), 1.0);
    /// assert!(Real::min(1.0, f32::NAN).is_nan());
    /// ```
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        if self < other { self } else { other }
    }

    /// The larger of two numbers; `other` where either is NaN, as in [`min`](Real::min).
    ///
    /// ```
    /// use isonorm_math::Real;
    /// assert_eq!(Real::max(f32::NAN, 1.0), 1.0);
    /// assert!(Real::max(1.0, f32::NAN).is_nan());
    /// ```
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    /// The number, or `bound` where it is greater, which is no NaN; a NaN stays.
    ///
    /// ```
    /// use isonorm_math::Real;
    /// assert_eq!(2.0f32.not_above(1.0), 1.0);
    /// assert!(f32::NAN.not_above(1.0).is_nan());
    /// ```
    #[inline(always)]
    fn not_above(self, bound: Self) -> Self {
        bound.min(self)
    }

    /// The number, or `bound` where it is less, which is no NaN; a NaN stays.
    ///
    /// ```
    /// use isonorm_math::Real;
    /// assert_eq!(0.5f32.not_below(1.0), 1.0);
    /// assert!(f32::NAN.not_below(1.0).is_nan());
    /// ```
    #[inline(always)]
    fn not_below(self, bound: Self) -> Self {
        bound.max(self)
    }

    /// The greater of this and 0: +0 of −0, and a NaN of a NaN.
    ///
    /// ```
    /// use isonorm_math::Real;
    ///
    /// assert_eq!(Real::ramp(-1.0f32), 0.0);
    /// assert_eq!(Real::ramp(-0.0f32).to_bits(), 0);
    /// assert!(Real::ramp(f32::NAN).is_nan());
    /// ```
    #[inline(always)]
    fn ramp(self) -> Self {
        // Adding 0 changes −0 only, but a value that is kept as it was would make a loop store under a mask, which is slow.
        Self::ZERO.max(self) + Self::ZERO
    }

    /// Whether the number is neither infinite nor NaN.
    fn is_finite(self) -> bool;

    /// eˣ. Overflows to ∞; underflows through the subnormal numbers to 0.
    fn exp(self) -> Self;

    /// The hyperbolic tangent; odd, and ±1 at ±∞.
    fn tanh(self) -> Self;

    /// The logistic function 1 / (1 + e⁻ˣ), accurate in the negative tail too.
    fn sigmoid(self) -> Self;

    /// σ(|x|) and σ(−|x|) = 1 − σ(|x|) together, for the price of one exponential and one division; neither cancels.
    fn sigmoid_sides(self) -> (Self, Self);

    /// The error function 2/√π · ∫₀ˣ e^(−t²) dt; odd, and ±1 at ±∞.
    fn erf(self) -> Self;

    /// The normal distribution Φ(x) = ½ · (1 + erf(x/√2)), with a small *relative* error in the negative tail, where
    /// the formula just given would cancel.
    fn normal_cdf(self) -> Self;

    /// The normal density φ(x) = e^(−x²/2) / √(2π).
    fn normal_pdf(self) -> Self;

    /// Φ(x) and φ(x) together, for the price of one exponential.
    fn normal_cdf_pdf(self) -> (Self, Self);

    /// x · Φ(x), which is [`Gelu`](crate::activation::Gelu), and its limit 0 at −∞.
    #[inline(always)]
    fn gelu(self) -> Self {
        let x = cut_below(self);
        x * x.normal_cdf()
    }

    /// Its derivative, Φ(x) + x · φ(x), and its limits at ±∞.
    #[inline(always)]
    fn gelu_slope(self) -> Self {
        let x = cut(self);
        let (cdf, pdf) = x.normal_cdf_pdf();
        x.mul_add(pdf, cdf)
    }
}

macro_rules! real {
    ($type:ident $($own:item)*) => {
        impl Real for $type {
            $($own)*

            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const HALF: Self = 0.5;
            const EPSILON: Self = $type::EPSILON;
            const INFINITY: Self = $type::INFINITY;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                $type::mul_add(self, a, b)
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                core::$type::math::mul_add(self, a, b)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn sqrt(self) -> Self {
                core::$type::math::sqrt(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                $type::abs(self)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                $type::is_finite(self)
            }

            #[inline(always)]
            fn exp(self) -> Self {
                elementary::exp(self)
            }

            #[inline(always)]
            fn tanh(self) -> Self {
                elementary::tanh(self)
            }

            #[inline(always)]
            fn sigmoid(self) -> Self {
                elementary::sigmoid(self)
            }

            #[inline(always)]
            fn sigmoid_sides(self) -> (Self, Self) {
                elementary::sigmoid_sides(self)
            }

            #[inline(always)]
            fn erf(self) -> Self {
                elementary::erf(self)
            }

            #[inline(always)]
            fn normal_cdf(self) -> Self {
                elementary::normal_cdf_pdf(self).0
            }

            #[inline(always)]
            fn normal_pdf(self) -> Self {
                elementary::normal_pdf(self)
            }

            #[inline(always)]
            fn normal_cdf_pdf(self) -> (Self, Self) {
                elementary::normal_cdf_pdf(self)
            }
        }
    };
}

real!(f32
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn not_above(self, bound: Self) -> Self {
        crate::nvptx::lesser(self, bound)
    }

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn not_below(self, bound: Self) -> Self {
        crate::nvptx::greater(self, bound)
    }

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn ramp(self) -> Self {
        crate::nvptx::greater(self, 0.0)
    }
);
real!(f64);
