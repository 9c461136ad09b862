//! [`Brief`]: an `f32` whose elementary functions take few instructions of a GPU.
//!
//! A GPU has instructions for about 2ˣ and about 1/x, wrong by 2⁻²² and 2⁻²³ of the result at most, and 0 where that is subnormal. With
//! w = 2^(−|x| · log₂ e), which no end of the exponent's range is near but 0, they make
//!
//! ```text
//! σ(|x|) = 1 / (1 + w)      σ(−|x|) = w / (1 + w)      tanh |x| = (1 − w²) / (1 + w²)      φ(x) = 2^(−x² · ½ log₂ e) / √(2π)
//! ```
//!
//! with a rounding or two of the argument; σ(x) alone is 1 / (1 + 2^(−x · log₂ e)), whatever the sign. The normal distribution's tail is
//! Φ(−|x|) = e^(−x²/2) · v · polynomial(v), v = 3/(|x| + 3), and x · Φ(x) = max(x, 0) − |x| · Φ(−|x|), without a choice by sign. All are
//! within the error that activations of an `f32` are allowed, so that the nearest number of 16 bits is found as often, but for factors below
//! 2⁻¹²⁶, which are 0: those of x below −87, and of a GELU below −13.2.
//! These instructions are no operations of IEEE 754: their last bits are the processor's own, and on a CPU, where
//! [`Brief`] stands in for them with the nearest number, others.

use core::f64::consts::LOG2_E;
use core::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use crate::Real;
use crate::coefficients::brief_mills_rest_f32;
use crate::elementary::{Format, INVERSE_ROOT_TWO_PI, TANH_NEAR};

/// An `f32` in every way but for how its elementary functions are computed; the [module](self) says how.
///
/// ```
/// use isonorm_math::{Activation, Brief};
///
/// let Brief(y) = Activation::Silu.apply(Brief(2.0));
/// assert!((y - 1.761_594).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Brief(pub f32);

/// About 2ˣ, without subnormal numbers.
#[inline(always)]
fn power_of_two(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::nvptx::about_power_of_two(x);
    #[cfg(not(target_arch = "nvptx64"))]
    return flushed(Real::exp(f64::from(x) * core::f64::consts::LN_2) as f32);
}

/// About 1/x, for 1 ≤ x, without subnormal numbers.
#[inline(always)]
fn about_reciprocal(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::nvptx::about_reciprocal(x);
    #[cfg(not(target_arch = "nvptx64"))]
    return flushed(1.0 / x);
}

/// A number that is not negative, or 0 instead of a subnormal one.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn flushed(x: f32) -> f32 {
    if x < f32::MIN_POSITIVE { 0.0 } else { x }
}

/// 2^(−|x| · log₂ e · `factor`)
#[inline(always)]
fn decay(x: f32, factor: f64) -> f32 {
    power_of_two(x.abs() * (-LOG2_E * factor) as f32)
}

/// What the normal distribution's tail is made of.
struct Tail {
    /// |x|, as far as e^(−x²/2) is not 0.
    size: f32,
    /// e^(−x²/2)
    gaussian: f32,
    /// 3/(|x| + 3)
    w: f32,
    /// Φ(−|x|) / (gaussian · w)
    rest: f32,
}

impl Tail {
    #[inline(always)]
    fn new(x: f32) -> Self {
        let size = x.abs().not_above(f32::NORMAL_END);
        let w = about_reciprocal(Real::mul_add(size, 1.0 / f32::MILLS_POLE, 1.0));
        Self {
            size,
            gaussian: power_of_two(size * size * (-0.5 * LOG2_E) as f32),
            w,
            rest: brief_mills_rest_f32(w),
        }
    }
}

macro_rules! as_f32 {
    ($($operation:ident :: $method:ident)*) => {$(
        impl $operation for Brief {
            type Output = Self;

            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self($operation::$method(self.0, other.0))
            }
        }
    )*};
    (assign $($operation:ident :: $method:ident)*) => {$(
        impl $operation for Brief {
            #[inline(always)]
            fn $method(&mut self, other: Self) {
                $operation::$method(&mut self.0, other.0);
            }
        }
    )*};
    (real $($method:ident)*) => {$(
        #[inline(always)]
        fn $method(self) -> Self {
            Self(Real::$method(self.0))
        }
    )*};
}

as_f32!(Add::add Sub::sub Mul::mul Div::div);
as_f32!(assign AddAssign::add_assign SubAssign::sub_assign MulAssign::mul_assign);

impl Neg for Brief {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl Real for Brief {
    const ZERO: Self = Self(0.0);
    const ONE: Self = Self(1.0);
    const HALF: Self = Self(0.5);
    const EPSILON: Self = Self(f32::EPSILON);
    const INFINITY: Self = Self(f32::INFINITY);

    as_f32!(real sqrt abs ramp exp erf);

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        Self(value as f32)
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self.0)
    }

    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        Self(Real::mul_add(self.0, a.0, b.0))
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        let x = self.0;
        let square = x * x;
        let near = Real::mul_add(x * square, square.tanh_rest(), x);
        let w = decay(x, 2.0);
        let far = (1.0 - w) * about_reciprocal(1.0 + w);
        Self(if x.abs() < TANH_NEAR as f32 {
            near
        } else {
            far.with_sign_of(x)
        })
    }

    #[inline(always)]
    fn sigmoid(self) -> Self {
        // 1/∞ is 0.
        Self(about_reciprocal(1.0 + power_of_two(self.0 * -LOG2_E as f32)))
    }

    #[inline(always)]
    fn not_above(self, bound: Self) -> Self {
        Self(self.0.not_above(bound.0))
    }

    #[inline(always)]
    fn not_below(self, bound: Self) -> Self {
        Self(self.0.not_below(bound.0))
    }

    #[inline(always)]
    fn sigmoid_sides(self) -> (Self, Self) {
        let w = decay(self.0, 1.0);
        let larger = about_reciprocal(1.0 + w);
        (Self(larger), Self(w * larger))
    }

    #[inline(always)]
    fn normal_cdf(self) -> Self {
        self.normal_cdf_pdf().0
    }

    #[inline(always)]
    fn normal_pdf(self) -> Self {
        self.normal_cdf_pdf().1
    }

    #[inline(always)]
    fn normal_cdf_pdf(self) -> (Self, Self) {
        let Tail { gaussian, w, rest, .. } = Tail::new(self.0);
        let tail = gaussian * (w * rest);
        let cdf = if self.0 > 0.0 { 1.0 - tail } else { tail };
        (Self(cdf), Self(gaussian * INVERSE_ROOT_TWO_PI as f32))
    }

    #[inline(always)]
    fn gelu(self) -> Self {
        let tail = Tail::new(self.0);
        // −0 of what is not above 0, as the limit at −∞ is.
        let above = self.0.not_below(-0.0);
        Self(Real::mul_add(-tail.gaussian, tail.size * tail.w * tail.rest, above))
    }

    #[inline(always)]
    fn gelu_slope(self) -> Self {
        let tail = Tail::new(self.0);
        let below = tail.gaussian * Real::mul_add(-tail.size, INVERSE_ROOT_TWO_PI as f32, tail.w * tail.rest);
        // f′(x) + f′(−x) = 1
        Self(if self.0 < 0.0 { below } else { 1.0 - below })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Activation;

    const SMOOTH: [Activation; 5] = [
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    /// Errors in units of 2⁻²⁴: relative, and of the argument. The GPU's instructions add four to the former, and ten are allowed in all.
    const RELATIVE: f64 = 6.0;
    const OF_ARGUMENT: f64 = 4.0;

    #[test]
    fn errors_are_those_of_an_f32() {
        let unit = f64::from(f32::EPSILON) / 2.0;
        for bits in (0..=110f32.to_bits()).step_by(1009) {
            for z in [f32::from_bits(bits), -f32::from_bits(bits)] {
                let exact = f64::from(z);
                for kind in SMOOTH {
                    let (value, slope) = (kind.apply(exact), kind.derivative(exact));
                    let Brief(brief) = kind.apply(Brief(z));
                    let allowed = RELATIVE * value.abs() + OF_ARGUMENT * (exact * slope).abs();
                    // A factor of z is 0 instead of subnormal.
                    let tiny = f64::from(f32::MIN_POSITIVE) * exact.abs().max(1.0);
                    let error = (f64::from(brief) - value).abs();
                    assert!(error <= allowed * unit + tiny, "{kind:?} {z}: {brief:e} {value:e}");
                }
            }
        }
    }

    #[test]
    fn derivatives_are_those_of_an_f32() {
        for bits in (0..=110f32.to_bits()).step_by(1009) {
            for z in [f32::from_bits(bits), -f32::from_bits(bits)] {
                for kind in SMOOTH {
                    let (expected, Brief(brief)) = (kind.derivative(f64::from(z)), kind.derivative(Brief(z)));
                    let error = (f64::from(brief) - expected).abs();
                    assert!(error <= 1e-6, "{kind:?} {z}: {brief:e} {expected:e}");
                }
            }
        }
    }

    #[test]
    fn ends_are_limits() {
        for kind in SMOOTH {
            for z in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
                let (Brief(value), Brief(slope)) = (kind.apply(Brief(z)), kind.derivative(Brief(z)));
                assert_eq!(value.to_bits(), kind.apply(z).to_bits(), "{kind:?} {z}");
                assert_eq!(slope, kind.derivative(z), "{kind:?} {z}");
            }
            let (Brief(value), Brief(slope)) = (kind.apply(Brief(f32::NAN)), kind.derivative(Brief(f32::NAN)));
            assert!(value.is_nan() && slope.is_nan(), "{kind:?}");
        }
    }
}
