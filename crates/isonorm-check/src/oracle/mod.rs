//! Every op from its definition, in `f64` with compensated sums: the truth that engines are compared with.
//!
//! Nothing here is shared with the engines. Elements find their group and their parameters by logical coordinates
//! (`N, C, spatial`) and the layout, not by isonorm's geometry, so that a mistake in the geometry shows.
//!
//! ```text
//! mean = Σ x / n                      0 for RMSNorm
//! var  = Σ (x − mean)² / n            the mean square for RMSNorm
//! x̂    = (x − mean) / √(var + eps)
//! y    = f(x̂ · weight + bias + residual)
//! running = (1 − factor) · running + factor · batch     var · n/(n−1); InstanceNorm: averaged over the instances
//!
//! dz   = dy · f′(z)                   also the residual's gradient; residual=masked, residual=result: dy where the mask has a bit or y is not 0, else 0
//! dw   = Σ dz · x̂,  db = Σ dz         over the elements that share the parameter
//! g    = dz · weight
//! stream = x + residual               residual=stream: rounded as it is stored, and x in all of the above
//! dx   = (g − Σ g / n − x̂ · Σ g·x̂ / n) / √(var + eps)   the first mean is 0 for RMSNorm, both for running statistics
//!        + dstream                    residual=stream
//!        with means that are told: (g − weight · mean_g − x̂ · weight · mean_gx) / √(var + eps)
//! ```
//!
//! Sums carry their rounding errors along ([`Sum`]), the mean is two numbers, and differences from it are taken with
//! both: results are within a few units of 2⁻⁵³ times the size of what they are summed from, also where mean/deviation
//! is 10¹².

pub mod activation;
mod backward;
mod forward;
mod index;
mod statistics;
mod sum;

pub use backward::{Backward, GroupSums, backward};
pub use forward::{Forward, Preactivation, forward};
pub use index::Index;
pub use statistics::{Statistics, statistics};
pub use sum::Sum;
pub(crate) use sum::lowest_bit;
