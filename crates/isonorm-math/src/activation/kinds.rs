//! One type for each kind of activation.

use super::Pointwise;
use crate::Real;

/// Where smooth activations are cut off: beyond it every factor that tends to 0 has underflowed to 0, and the
/// products with z are finite.
const CUT: f64 = 1e4;

/// `z`, not below −CUT; a NaN stays.
#[inline(always)]
pub(crate) fn cut_below<R: Real>(z: R) -> R {
    z.not_below(R::from_f64(-CUT))
}

/// `z`, between −CUT and CUT; a NaN stays.
#[inline(always)]
pub(crate) fn cut<R: Real>(z: R) -> R {
    cut_below(z).not_above(R::from_f64(CUT))
}

/// |z|, not above CUT; a NaN stays.
#[inline(always)]
fn cut_size<R: Real>(z: R) -> R {
    z.abs().not_above(R::from_f64(CUT))
}

/// f′(z), given f′(−|z|), of f(z) = z · G(z) where G(−z) = 1 − G(z): the derivatives at z and −z add up to 1. Where z is positive, that at −z
/// is at most ½.
#[inline(always)]
fn mirrored<R: Real>(z: R, below: R) -> R {
    if z < R::ZERO { below } else { R::ONE - below }
}

/// f(z) = z.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Identity;

impl Pointwise for Identity {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        z
    }

    #[inline(always)]
    fn derivative<R: Real>(self, _z: R) -> R {
        R::ONE
    }
}

/// f(z) = max(z, 0); f′(0) = 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Relu;

impl Pointwise for Relu {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        z.ramp()
    }

    #[inline(always)]
    fn derivative<R: Real>(self, z: R) -> R {
        if z <= R::ZERO { R::ZERO } else { R::ONE }
    }
}

/// f(z) = z where z > 0, else slope · z; f′(0) = slope.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeakyRelu {
    /// The factor for negative z.
    pub slope: f64,
}

impl Pointwise for LeakyRelu {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        z * self.derivative(z)
    }

    #[inline(always)]
    fn derivative<R: Real>(self, z: R) -> R {
        if z > R::ZERO { R::ONE } else { R::from_f64(self.slope) }
    }
}

/// f(z) = z · σ(z).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Silu;

impl Pointwise for Silu {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        let z = cut_below(z);
        z * z.sigmoid()
    }

    #[inline(always)]
    fn derivative<R: Real>(self, z: R) -> R {
        let size = cut_size(z);
        let (larger, smaller) = size.sigmoid_sides();
        mirrored(z, smaller * (-size).mul_add(larger, R::ONE))
    }
}

/// f(z) = z · Φ(z).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gelu;

impl Pointwise for Gelu {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        z.gelu()
    }

    #[inline(always)]
    fn derivative<R: Real>(self, z: R) -> R {
        z.gelu_slope()
    }
}

/// f(z) = z · σ(2u), u = √(2/π) · (z + 0.044715 · z³).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GeluTanh;

impl GeluTanh {
    /// 2 · √(2/π)
    const LINEAR: f64 = 1.595_769_121_605_731;
    /// 2 · √(2/π) · 0.044715
    const CUBIC: f64 = Self::LINEAR * 0.044_715;
}

impl Pointwise for GeluTanh {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        let z = cut_below(z);
        let slope = (z * z).mul_add(R::from_f64(Self::CUBIC), R::from_f64(Self::LINEAR));
        z * (z * slope).sigmoid()
    }

    #[inline(always)]
    fn derivative<R: Real>(self, z: R) -> R {
        let size = cut_size(z);
        let square = size * size;
        let argument = size * square.mul_add(R::from_f64(Self::CUBIC), R::from_f64(Self::LINEAR));
        let slope = square.mul_add(R::from_f64(3.0 * Self::CUBIC), R::from_f64(Self::LINEAR));
        let (larger, smaller) = argument.sigmoid_sides();
        mirrored(z, smaller * (-size * slope).mul_add(larger, R::ONE))
    }
}

/// f(z) = 1 / (1 + e⁻ᶻ).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sigmoid;

impl Pointwise for Sigmoid {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        z.sigmoid()
    }

    #[inline(always)]
    fn derivative<R: Real>(self, z: R) -> R {
        let (larger, smaller) = z.sigmoid_sides();
        larger * smaller
    }
}

/// f(z) = tanh z.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tanh;

impl Pointwise for Tanh {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        z.tanh()
    }

    /// 1 − tanh² z = 4 · σ(2z) · σ(−2z), which does not cancel.
    #[inline(always)]
    fn derivative<R: Real>(self, z: R) -> R {
        let (larger, smaller) = (z + z).sigmoid_sides();
        R::from_f64(4.0) * (larger * smaller)
    }
}

/// f(z) = z · min(max(z + 3, 0), 6) / 6; f′(−3) = 0 and f′(3) = 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HardSwish;

impl HardSwish {
    /// f is 0 below −BOUND and z above BOUND.
    const BOUND: f64 = 3.0;
}

impl Pointwise for HardSwish {
    #[inline(always)]
    fn apply<R: Real>(self, z: R) -> R {
        let z = cut_below(z);
        let bound = R::from_f64(Self::BOUND);
        let gate = (z + bound).not_below(R::ZERO).not_above(bound + bound);
        z * gate * R::from_f64(1.0 / 6.0)
    }

    #[inline(always)]
    fn derivative<R: Real>(self, z: R) -> R {
        let bound = R::from_f64(Self::BOUND);
        let inner = z.mul_add(R::from_f64(1.0 / 3.0), R::HALF);
        let inner = if z < bound { inner } else { R::ONE };
        if z <= -bound { R::ZERO } else { inner }
    }
}
