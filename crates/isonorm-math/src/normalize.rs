//! Centring and scaling, forward and backward.
//!
//! # Forward
//!
//! ```text
//! x̂ = (x − mean) · rstd        rstd = 1 / √(variance + eps)
//! y = x̂ · weight + bias
//! ```
//!
//! A mean rounded to one number would shift every x̂ by up to half a unit in the last place of the mean, times rstd. So
//! a [`Normalizer`] carries it as two: `centre`, the mean rounded, and what rounding left, already multiplied by rstd, as
//! `offset`. Where |mean| ≫ deviation, every x lies between centre/2 and 2·centre, so `x − centre` is exact by Sterbenz's
//! lemma, and one fused multiply-add does the rest. (P. H. Sterbenz, *Floating-Point Computation*, 1974, theorem 4.3.1.)
//!
//! # Backward
//!
//! With g = dy · weight (the gradient of x̂), and mean(·) the mean over the group:
//!
//! ```text
//! dx = rstd · (g − mean(g) − x̂ · mean(g · x̂))
//! ```
//!
//! The two means, [`BackwardCoefficients`], are all that differs between the ops: RMSNorm takes no mean off, so its
//! mean(g) is 0; statistics that are constants (evaluation mode) have both 0.
//!
//! Source: S. Ioffe, C. Szegedy, *Batch Normalization*, 2015, section 3, with its chain of derivatives multiplied
//! out.

use crate::Real;

/// What normalizes a group; the [module](self) says why these three.
///
/// ```
/// use isonorm_math::Normalizer;
///
/// let mean = 16_777_217.0f64; // 2²⁴ + 1: between two neighbours in f32
/// let n = Normalizer::<f32>::new(mean, 1.0);
/// assert_eq!(n.apply(16_777_218.0), 1.0);
/// assert_eq!(n.apply(16_777_216.0), -1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Normalizer<R> {
    /// The mean, rounded.
    pub centre: R,
    /// 1 / √(variance + eps).
    pub rstd: R,
    /// (centre − mean) · rstd: what rounding the mean left.
    pub offset: R,
}

impl<R: Real> Normalizer<R> {
    /// From a mean and a reciprocal standard deviation. For `f64` itself, `offset` is 0.
    #[inline(always)]
    pub fn new(mean: f64, rstd: f64) -> Self {
        let centre = R::from_f64(mean);
        let rest = centre.to_f64() - mean;
        // Not 0 · ∞ where the variance and eps are 0, nor ∞ − ∞ where the mean is no number.
        let offset = if rest == 0.0 || !mean.is_finite() {
            0.0
        } else {
            rest * rstd
        };
        Self {
            centre,
            rstd: R::from_f64(rstd),
            offset: R::from_f64(offset),
        }
    }

    /// x̂ of `x`.
    #[inline(always)]
    pub fn apply(self, x: R) -> R {
        normalized(x, self.centre, self.rstd, self.offset)
    }
}

/// `x̂ = (x − centre) · rstd + offset`, the product and the sum rounded once.
///
/// Scalars, not a [`Normalizer`], so that a loop can hold any of them in a vector.
#[inline(always)]
pub fn normalized<R: Real>(x: R, centre: R, rstd: R, offset: R) -> R {
    (x - centre).mul_add(rstd, offset)
}

/// `x̂ · weight + bias`, rounded once.
#[inline(always)]
pub fn affine<R: Real>(xhat: R, weight: R, bias: R) -> R {
    xhat.mul_add(weight, bias)
}

/// The means over a group that the gradient of the input needs. Their default, both 0, is evaluation mode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BackwardCoefficients<R> {
    /// mean(g), g = dy · weight; 0 for RMSNorm, and in evaluation mode.
    pub mean_g: R,
    /// mean(g · x̂); 0 in evaluation mode.
    pub mean_gx: R,
}

/// `dx = rstd · (wg − mean_g − x̂ · mean_gx)`, where `wg` = dy · weight.
///
/// ```
/// use isonorm_math::BackwardCoefficients;
/// use isonorm_math::normalize::input_gradient;
///
/// // x̂ = −1, 1 and g = 1, 2: means 3/2 and 1/2.
/// let means = BackwardCoefficients { mean_g: 1.5f32, mean_gx: 0.5 };
/// // Two values are normalized to ±1 whatever they are: no gradient.
/// assert_eq!(input_gradient(1.0, -1.0, 1.0, means), 0.0);
/// assert_eq!(input_gradient(2.0, 1.0, 1.0, means), 0.0);
/// ```
#[inline(always)]
pub fn input_gradient<R: Real>(wg: R, xhat: R, rstd: R, coefficients: BackwardCoefficients<R>) -> R {
    (-xhat).mul_add(coefficients.mean_gx, wg - coefficients.mean_g) * rstd
}
