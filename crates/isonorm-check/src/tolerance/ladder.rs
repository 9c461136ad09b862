//! How far the ladder's rungs may be from the truth, each for the arithmetic that it was published with. Sums are bounded as everywhere
//! here, by γ of the roundings that a term goes through: one for each element of its thread, then one for each step that joins two threads.
//!
//! * **E\[x²\] − E\[x\]²**: |mean′ − mean| ≤ γ(depth + 2)·Σ|x|/n =: δ. The mean square is off by γ(depth + 3)·(var + mean²), the square
//!   of mean′ by 2·|mean|·δ + δ² and a rounding, and so is their difference: where mean² is 2²⁴ variances, that is all there is. If it is
//!   the variance and more, nothing is promised.
//! * **Two passes**: δ as above. Squared distances from mean′ add up to n·(var + δ²), off by γ(depth + 5) of that.
//! * **Welford**: the kth step rounds the mean to u·max|x| and divides what went before by k, so that a chain of k is off by γ(k)·max|x| at
//!   the most, and a merge adds γ(3)·max|x|: δ = γ(k + 3·merges + 2)·max|x|. Each distance is off by 2·δ; the distances of a chain have
//!   squares that add up to twice its own M2 at the most, those of merges to M2, hence (Cauchy, Schwarz) 8·δ·√var + 4·δ², besides
//!   γ(k + 6·merges + 8)·var.
//! * **Scale and shift**: x·s and mean·s are rounded each for itself: γ(4)·(|x̂| + 2·rstd·|mean|) instead of γ(3)·|x̂|.

use isonorm::{Rung, Variance};

use super::arithmetic::Arithmetic;
use crate::oracle::Statistics;

/// Elements of a group that are one thread's, and steps that join threads.
fn chain(rung: Rung, n: usize) -> (f64, f64) {
    let threads = rung.threads_of_group();
    // Accesses of four numbers are shared out whole, and one is taken by itself.
    let whole = if rung == Rung::LnVec4 { 4 } else { 1 };
    let own = n.div_ceil(threads as usize * whole) * whole + usize::from(whole > 1);
    (own as f64, f64::from(threads.ilog2()))
}

/// Roundings that a term of a sum of n goes through.
pub(super) fn depth(rung: Rung, n: usize) -> f64 {
    let (own, joined) = chain(rung, n);
    own + joined
}

/// The errors of the mean and of the variance that it computes.
pub(super) fn statistics(a: &Arithmetic, rung: Rung, s: &Statistics) -> (f64, f64) {
    let (n, depth) = (s.count as f64, depth(rung, s.count));
    let mean = a.gamma(depth + 2.0) * s.values.magnitude / n + a.tiny();
    match rung.variance() {
        Variance::Given => (0.0, 0.0),
        Variance::Squares => {
            let square = s.mean * s.mean;
            let of_squares = a.gamma(depth + 3.0) * (s.var + square);
            (
                mean,
                of_squares + 2.0 * s.mean.abs() * mean + mean * mean + a.gamma(2.0) * square + n * a.tiny(),
            )
        }
        Variance::TwoPass => {
            let about = s.var + mean * mean;
            (mean, a.gamma(depth + 5.0) * about + mean * mean + n * a.tiny())
        }
        Variance::Welford => {
            let (own, merges) = chain(rung, s.count);
            let mean = a.gamma(own + 3.0 * merges + 2.0) * s.largest + a.tiny();
            let own = a.gamma(own + 6.0 * merges + 8.0) * s.var;
            (mean, own + 8.0 * mean * s.var.sqrt() + 4.0 * mean * mean + n * a.tiny())
        }
    }
}

/// What x̂ is off by where x is scaled and shifted instead of centred.
pub(super) fn shift(a: &Arithmetic, rung: Rung, s: &Statistics, xhat: f64) -> f64 {
    if !rung.scales_and_shifts() {
        return 0.0;
    }
    a.gamma(4.0) * (xhat.abs() + 2.0 * s.rstd * s.mean.abs())
}
