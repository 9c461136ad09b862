//! [`Activation`]: the functions fused behind a normalization, and their derivatives.
//!
//! | kind | f(z) | f′(z) |
//! |---|---|---|
//! | [`Identity`] | z | 1 |
//! | [`Relu`] | max(z, 0) | 1 where z > 0, else 0 |
//! | [`LeakyRelu`] | z where z > 0, else slope · z | 1 where z > 0, else slope |
//! | [`Silu`] | z · σ(z) | σ(z) · (1 + z · σ(−z)) |
//! | [`Gelu`] | z · Φ(z) | Φ(z) + z · φ(z) |
//! | [`GeluTanh`] | z · σ(2u), u = √(2/π) · (z + 0.044715 · z³) | σ(2u) + z · σ(2u) · σ(−2u) · 2u′ |
//! | [`Sigmoid`] | σ(z) = 1 / (1 + e⁻ᶻ) | σ(z) · σ(−z) |
//! | [`Tanh`] | tanh z | 1 − tanh² z |
//! | [`HardSwish`] | z · min(max(z + 3, 0), 6) / 6 | 0 where z ≤ −3, 1 where z ≥ 3, else z/3 + 1/2 |
//!
//! Definitions and the derivatives at kinks are PyTorch's. [`GeluTanh`] is its `½ z (1 + tanh u)`, by the identity
//! `½ (1 + tanh u) = σ(2u)`, which does not cancel for negative z. (GELU: D. Hendrycks, K. Gimpel, *Gaussian error
//! linear units*, 2016. SiLU: the same. Hard-swish: A. Howard et al., *Searching for MobileNetV3*, 2019.)
//!
//! # Infinities and NaN
//!
//! The value at −∞ is the limit: −0 for the last ones that tend to it ([`Silu`], [`Gelu`], [`GeluTanh`],
//! [`HardSwish`]), where the formula alone would say −∞ · 0. Derivatives at ±∞ are their limits. f(NaN) is NaN for
//! every kind. f′(NaN) is NaN where f′ is smooth; [`Relu`] and [`HardSwish`] have 1 there and [`LeakyRelu`] has its
//! slope, so that, as in PyTorch, the gradient passes.

mod kinds;

pub use kinds::{Gelu, GeluTanh, HardSwish, Identity, LeakyRelu, Relu, Sigmoid, Silu, Tanh};
pub(crate) use kinds::{cut, cut_below};

use crate::Real;

/// A function of one number with a derivative: one kind of activation, as a type.
///
/// Code that is generic over it is compiled for each kind. [`Activation::dispatch`] leads from a value to a type.
pub trait Pointwise: Copy + Send + Sync + 'static {
    /// f(z).
    fn apply<R: Real>(self, z: R) -> R;

    /// f′(z).
    fn derivative<R: Real>(self, z: R) -> R;
}

/// What [`Activation::dispatch`] runs, with the kind of activation as a type.
pub trait Visitor {
    /// What it returns.
    type Output;

    /// Runs with this kind.
    fn visit<P: Pointwise>(self, pointwise: P) -> Self::Output;
}

/// The function fused behind a normalization; the [module](self) has the formulas.
///
/// ```
/// use isonorm_math::Activation;
///
/// assert_eq!(Activation::Relu.apply(-2.0f32), 0.0);
/// assert_eq!(Activation::LeakyRelu { slope: 0.25 }.apply(-2.0f32), -0.5);
/// assert_eq!(Activation::HardSwish.derivative(1.5f64), 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// z
    #[default]
    Identity,
    /// max(z, 0)
    Relu,
    /// z where z > 0, else slope · z
    LeakyRelu {
        /// The factor for negative z; 0.01 in PyTorch by default.
        slope: f64,
    },
    /// z · σ(z), also called swish
    Silu,
    /// z · Φ(z)
    Gelu,
    /// z · σ(2u), `gelu(approximate="tanh")` in PyTorch
    GeluTanh,
    /// σ(z)
    Sigmoid,
    /// tanh z
    Tanh,
    /// z · min(max(z + 3, 0), 6) / 6
    HardSwish,
}

impl Activation {
    /// Runs `visitor` with this kind as a type: one branch, outside of the visitor's loop.
    ///
    /// ```
    /// use isonorm_math::Activation;
    /// use isonorm_math::activation::{Pointwise, Visitor};
    ///
    /// struct Sum<'a>(&'a [f32]);
    /// impl Visitor for Sum<'_> {
    ///     type Output = f32;
    ///     fn visit<P: Pointwise>(self, pointwise: P) -> f32 {
    ///         self.0.iter().map(|&z| pointwise.apply(z)).sum()
    ///     }
    /// }
    ///
    /// assert_eq!(Activation::Relu.dispatch(Sum(&[-1.0, 2.0, 3.0])), 5.0);
    /// ```
    #[inline(always)]
    pub fn dispatch<V: Visitor>(self, visitor: V) -> V::Output {
        match self {
            Self::Identity => visitor.visit(Identity),
            Self::Relu => visitor.visit(Relu),
            Self::LeakyRelu { slope } => visitor.visit(LeakyRelu { slope }),
            Self::Silu => visitor.visit(Silu),
            Self::Gelu => visitor.visit(Gelu),
            Self::GeluTanh => visitor.visit(GeluTanh),
            Self::Sigmoid => visitor.visit(Sigmoid),
            Self::Tanh => visitor.visit(Tanh),
            Self::HardSwish => visitor.visit(HardSwish),
        }
    }

    /// f(z) of one number.
    #[inline(always)]
    pub fn apply<R: Real>(self, z: R) -> R {
        self.dispatch(Apply(z))
    }

    /// f′(z) of one number.
    #[inline(always)]
    pub fn derivative<R: Real>(self, z: R) -> R {
        self.dispatch(Derivative(z))
    }

    /// Replaces every z by f(z).
    #[inline(always)]
    pub fn apply_slice<R: Real>(self, z: &mut [R]) {
        self.dispatch(ApplySlice(z));
    }

    /// Multiplies every gradient: `g[i] *= f′(z[i])`, as far as the shorter of the two slices reaches.
    ///
    /// ```
    /// use isonorm_math::Activation;
    ///
    /// let mut g = [10.0f32, 20.0];
    /// Activation::Relu.backward_slice(&[-1.0, 1.0], &mut g);
    /// assert_eq!(g, [0.0, 20.0]);
    /// ```
    #[inline(always)]
    pub fn backward_slice<R: Real>(self, z: &[R], g: &mut [R]) {
        self.dispatch(BackwardSlice { z, g });
    }
}

struct Apply<R>(R);

impl<R: Real> Visitor for Apply<R> {
    type Output = R;

    #[inline(always)]
    fn visit<P: Pointwise>(self, pointwise: P) -> R {
        pointwise.apply(self.0)
    }
}

struct Derivative<R>(R);

impl<R: Real> Visitor for Derivative<R> {
    type Output = R;

    #[inline(always)]
    fn visit<P: Pointwise>(self, pointwise: P) -> R {
        pointwise.derivative(self.0)
    }
}

struct ApplySlice<'a, R>(&'a mut [R]);

impl<R: Real> Visitor for ApplySlice<'_, R> {
    type Output = ();

    #[inline(always)]
    fn visit<P: Pointwise>(self, pointwise: P) {
        for z in self.0 {
            *z = pointwise.apply(*z);
        }
    }
}

struct BackwardSlice<'a, R> {
    z: &'a [R],
    g: &'a mut [R],
}

impl<R: Real> Visitor for BackwardSlice<'_, R> {
    type Output = ();

    #[inline(always)]
    fn visit<P: Pointwise>(self, pointwise: P) {
        for (&z, g) in self.z.iter().zip(self.g) {
            *g *= pointwise.derivative(z);
        }
    }
}
