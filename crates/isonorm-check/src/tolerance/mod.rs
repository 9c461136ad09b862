//! How far an engine may be from the oracle: derived from the arithmetic that it is allowed, never from what it was seen
//! to do.
//!
//! # The arithmetic
//!
//! Data is converted exactly to an accumulator's type with unit roundoff u (2⁻²⁴ for `f16`, `bf16` and `f32` data, 2⁻⁵³
//! for `f64`), and results are rounded once to the output's type. With γ(k) = k·u / (1 − k·u), the usual bound of k
//! roundings in a row, and x′ for what the engine has in place of x:
//!
//! * **Sums.** At most [`CHAIN`] terms follow each other in one accumulator; then accumulators are merged in pairs, or in
//!   higher precision. So a sum of n terms t is off by at most γ(depth)·Σ|t|, depth = min(n, CHAIN) + ⌈log₂(n/CHAIN)⌉,
//!   and by a smallest subnormal a term. Where the case's data is exact and every term is a multiple of a bit that keeps
//!   all partial sums within the significand, a sum is off by nothing.
//! * **Mean.** Of distances from a guess or a shift, which is off by e: from a first mean, whose own sum is off by
//!   e₀ = γ(depth)·Σ|x|/n, or from a median of elements, which is no farther from the mean than the second farthest of
//!   all, e₁. So |mean′ − mean| ≤ γ(depth + 2)·(Σ|x − mean|/n + e₀ + e₁), and it is carried in two numbers (u²·|mean|)
//!   or in one `f64`. A mean rounded to one `f32` is off by u·|mean|: too much where |mean| is 10⁶ deviations, and not
//!   allowed.
//! * **Variance.** Squared distances from a point that is off the mean by δ, less δ². The point is the guess; or the
//!   shift, as long as at least a quarter of the squares is left: δ ≤ max(e₀, min(e₁, √(3·var))). So |var′ − var| ≤
//!   γ(depth + 6)·(var + δ²) + 2·δ·|mean′ − mean| + 2·γ(3)·(e₀ + e₁)·Σ|x − mean|/n + |mean′ − mean|². This is what
//!   E\[x²\] − E\[x\]² does not keep: its δ is the mean.
//! * **rstd.** From ρ = |var′ − var| and var + eps, without approximation; and four roundings.
//! * **x̂** = (x − mean)·rstd: three roundings, rstd's relative error, and rstd·|mean′ − mean|.
//! * **z** = x̂·weight + bias + residual: a rounding of the magnitudes for each operation that has something to do.
//! * **y** = f(z): f's largest slope near z times z's error; where f is not piecewise linear, [`ARGUMENT`] roundings of z
//!   and [`ACTIVATION`] roundings of y.
//! * **Constant groups** have x̂ = 0 with no error at all, so that their y is f(bias + residual).
//!
//! Backward, statistics come saved: their error is the difference between what was saved and the truth, no bound. The mean
//! in `f32` is off by up to u·|mean|, which rstd multiplies; kept in `f64` (`mean=f64`) it is not.
//!
//! * **dz** = dy·f′(z): f's largest curvature near z times z's error; where z is so near a kink that it may be on the
//!   other side, the height of the jump; and [`ACTIVATION`] roundings of what f′ is the difference of.
//! * **g** = dz·weight. **Σ g** and **Σ g·x̂** have the errors of their terms, and the sum's own. What cancels in them is
//!   in Σ|g| and Σ|g·x̂|: conditioning is no excuse, and no surprise. rstd may come after the products g·(x − mean), which
//!   makes it rstd smallest subnormals a term.
//! * **dx** = rstd·(g − Σg/n − x̂·Σgx̂/n): first-order errors of every factor, three roundings of the magnitudes; and one of the
//!   sum, where the gradient of a residual stream is added.
//! * **stream** = x + residual: what the definition says, bit by bit.
//! * **dweight**, **dbias**: sums with the errors of their terms.
//!
//! # The ladder
//!
//! A rung has the arithmetic that it was published with; its bounds are in `tolerance/ladder.rs`.
//!
//! # The last rounding
//!
//! What the engine has before it rounds lies in truth ± tolerance. Rounding is monotone, so the result lies between the
//! two ends, rounded ([`Expected::interval`]). Nothing is added for this rounding: an output of 16 bits has to be one of
//! one or two numbers, also where it overflows or is subnormal.
//!
//! The oracle's own error, a few units of 2⁻⁵³, is part of every γ.

mod activation;
mod arithmetic;
mod backward;
mod forward;
mod ladder;
mod rounding;

pub use arithmetic::{ACTIVATION, ARGUMENT, CHAIN};
pub use backward::backward;
pub use forward::forward;

use isonorm::DType;

use crate::engine::Output;

/// What an output has to be.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Which output.
    pub output: Output,
    /// The truth, in the order of memory.
    pub values: Vec<f64>,
    /// How far from it an engine may be before it rounds to the output's type. Infinite: anything goes, even nothing.
    pub slack: Vec<f64>,
}

impl Expected {
    /// How much of the slack the `i`-th element needs to be `got`: 0 when it is the truth rounded, 1 when what was rounded
    /// may just so have been that far off, more than 1 when it was too far off.
    pub fn used(&self, i: usize, got: f64, dtype: DType) -> f64 {
        let (value, slack) = (self.values[i], self.slack[i]);
        let (low, high) = self.interval(i, dtype);
        if got == rounding::nearest(dtype, value) {
            return 0.0;
        }
        let needed = (rounding::boundary(dtype, got, value) - value).abs();
        let used = if slack > 0.0 { needed / slack } else { f64::INFINITY };
        // The two criteria differ by rounding errors of this function only.
        if (low..=high).contains(&got) {
            used.min(1.0)
        } else {
            used.max(1.0 + f64::EPSILON)
        }
    }

    /// The smallest and the largest number of this type that the `i`-th element may be.
    pub fn interval(&self, i: usize, dtype: DType) -> (f64, f64) {
        let (value, slack) = (self.values[i], self.slack[i]);
        // A slack that is not a number comes from a value that is not finite, which is compared for what it is.
        let slack = if slack.is_nan() { 0.0 } else { slack };
        (
            rounding::nearest(dtype, value - slack),
            rounding::nearest(dtype, value + slack),
        )
    }
}
