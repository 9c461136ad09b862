//! Centring and scaling, forward and backward.
//!
//! # Forward
//!
//! ```text
//! x̂ = (x − mean) · rstd        rstd = 1 / √(variance + eps)
//! y = x̂ · weight + bias
//! ```
//!
//! The mean is carried as two numbers, [`Centre`]: `hi`, the mean rounded, and `lo`, what rounding left. Where
//! |mean| ≫ deviation, every x lies between hi/2 and 2·hi, so `x − hi` is exact by Sterbenz's lemma, and taking `lo`
//! off the small remainder loses nothing. A mean rounded to one number would shift every x̂ by up to
//! half a unit in the last place of the mean, times rstd. (P. H. Sterbenz, *Floating-Point Computation*, 1974,
//! theorem 4.3.1.)
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

/// A mean in two numbers, `hi + lo`; the [module](self) says why.
///
/// ```
/// use isonorm_math::Centre;
/// use isonorm_math::normalize::normalized;
///
/// let mean = 16_777_217.0f64; // 2²⁴ + 1: between two neighbours in f32
/// let centre = Centre::<f32>::from_f64(mean);
/// assert_eq!(f64::from(centre.hi) + f64::from(centre.lo), mean);
/// assert_eq!(normalized(16_777_218.0, centre.hi, centre.lo, 1.0), 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Centre<R> {
    /// The mean, rounded.
    pub hi: R,
    /// The mean less `hi`, rounded.
    pub lo: R,
}

impl<R: Real> Centre<R> {
    /// Splits a mean. For `f64` itself, `lo` is 0.
    #[inline(always)]
    pub fn from_f64(mean: f64) -> Self {
        let hi = R::from_f64(mean);
        let lo = R::from_f64(mean - hi.to_f64());
        Self { hi, lo }
    }

    /// `(x − hi) − lo`: the distance of `x` from the mean.
    #[inline(always)]
    pub fn distance(self, x: R) -> R {
        (x - self.hi) - self.lo
    }
}

/// `x̂ = ((x − hi) − lo) · rstd`, for a mean `hi + lo`.
///
/// Scalars, not a [`Centre`], so that a loop can hold either of them in a vector.
#[inline(always)]
pub fn normalized<R: Real>(x: R, hi: R, lo: R, rstd: R) -> R {
    ((x - hi) - lo) * rstd
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
