//! What an accumulator's roundings come to.

use isonorm::{DType, NormDesc, Rung};

use super::ladder;
use crate::oracle::{Preactivation, Statistics, Sum, lowest_bit};
use crate::{Case, Data};

/// The most terms that follow each other in one accumulator before accumulators are merged: a block of 4096 elements in
/// 16 lanes.
pub const CHAIN: usize = 256;

/// Roundings of a smooth activation or its derivative: the four units in the last place that the least accurate
/// elementary function of isonorm-math states, and a product.
pub const ACTIVATION: f64 = 10.0;

/// Roundings of the argument of that elementary function.
pub const ARGUMENT: f64 = 4.0;

/// The oracle's own relative error.
const ORACLE: f64 = 8.0 * f64::EPSILON / 2.0;

/// The roundings of a case's accumulator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arithmetic {
    /// Unit roundoff.
    u: f64,
    /// Significant bits.
    bits: i32,
    /// The smallest subnormal number.
    tiny: f64,
    /// The relative error of a mean carried as well as this accumulator allows.
    carry: f64,
    /// Whether the data promises exact sums.
    exact: bool,
    /// Whether a mean is subtracted.
    centred: bool,
    eps: f64,
    /// The published kernel whose arithmetic it is.
    pub(super) rung: Option<Rung>,
}

/// The errors of what a group is normalized with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StatisticsError {
    /// Of the mean.
    pub(super) mean: f64,
    /// Of the variance.
    pub(super) var: f64,
    /// Of rstd, relative.
    pub(super) rstd: f64,
}

impl Arithmetic {
    pub(super) fn of(case: &Case) -> Arithmetic {
        let desc: &NormDesc = &case.desc;
        let wide = desc.get_dtype().accumulator() == DType::F64;
        let u = desc.get_dtype().accumulator().epsilon() / 2.0;
        Arithmetic {
            u,
            bits: if wide { 53 } else { 24 },
            tiny: if wide {
                f64::from_bits(1)
            } else {
                f32::from_bits(1).into()
            },
            carry: if wide { u } else { u * u },
            exact: case.data == Data::Exact,
            centred: desc.get_norm().is_centred(),
            eps: desc.get_eps(),
            rung: case.rung,
        }
    }

    /// The smallest subnormal number.
    pub(super) fn tiny(&self) -> f64 {
        self.tiny
    }

    /// The relative error after this many roundings in a row.
    pub(super) fn gamma(&self, roundings: f64) -> f64 {
        if roundings == 0.0 {
            return 0.0;
        }
        let k = roundings * self.u;
        k / (1.0 - k) + ORACLE
    }

    /// The most roundings that a term goes through in a sum of n.
    fn depth(&self, n: usize) -> f64 {
        self.rung
            .map_or_else(|| Arithmetic::chain(n), |rung| ladder::depth(rung, n))
    }

    /// The same of a product's engine.
    fn chain(n: usize) -> f64 {
        let merges = n.div_ceil(CHAIN).max(1).next_power_of_two().ilog2();
        n.min(CHAIN) as f64 + f64::from(merges)
    }

    /// The relative error of a sum of n terms.
    pub(super) fn sum_of(&self, n: usize) -> f64 {
        self.gamma(self.depth(n))
    }

    /// The error of this sum, its terms taken as they are.
    pub(super) fn sum(&self, sum: &Sum) -> f64 {
        if self.exact && self.rung.is_none() && sum.is_exact_in(self.bits) {
            return 0.0;
        }
        self.sum_of(sum.count) * sum.magnitude + sum.count as f64 * self.tiny
    }

    /// The error of the mean by how it is carried from where it is computed to where it is used.
    fn carried(&self, mean: f64) -> f64 {
        let fits = mean == 0.0 || mean.abs() <= lowest_bit(mean) * 2f64.powi(self.bits);
        if fits { 0.0 } else { self.carry * mean.abs() }
    }

    /// The errors of statistics that the engine computes.
    pub(super) fn computed(&self, s: &Statistics) -> StatisticsError {
        if let Some(rung) = self.rung {
            let (mean, var) = ladder::statistics(self, rung, s);
            return self.with_rstd(s, mean, var);
        }
        let n = s.count as f64;
        let exact =
            self.exact && s.mean_rest == 0.0 && s.values.is_exact_in(self.bits) && s.squares.is_exact_in(self.bits);
        if self.centred && s.distances.magnitude == 0.0 {
            return self.with_rstd(s, 0.0, 0.0);
        }
        if exact {
            return self.with_rstd(s, self.carried(s.mean), self.gamma(2.0) * s.var);
        }
        let relative = self.gamma(self.depth(s.count) + 2.0);
        let squares = self.gamma(self.depth(s.count) + 6.0);
        if !self.centred {
            return self.with_rstd(s, 0.0, squares * s.var + self.tiny);
        }
        let distance = s.distances.magnitude / n;
        let guess = relative * s.values.magnitude / n;
        let about = guess + s.median_distance;
        let mean = relative * (distance + about) + self.carry * s.mean.abs() + self.tiny;
        let of_shift = 2.0 * self.gamma(3.0) * about * distance;
        let off = guess.max(s.median_distance.min((3.0 * s.var).sqrt()));
        let var = squares * (s.var + off * off) + 2.0 * off * mean + of_shift + mean * mean + self.tiny;
        self.with_rstd(s, mean, var)
    }

    /// The errors of statistics that are given as they are.
    pub(super) fn given(&self, s: &Statistics) -> StatisticsError {
        self.with_rstd(s, self.carried(s.mean), 0.0)
    }

    fn with_rstd(&self, s: &Statistics, mean: f64, var: f64) -> StatisticsError {
        let radicand = s.var + self.eps;
        if self.rung.is_some() && var >= radicand {
            // Anything may come of it, also the root of a negative number.
            let rstd = f64::INFINITY;
            return StatisticsError { mean, var, rstd };
        }
        let smallest = (radicand - var).max(self.eps);
        // A variance is not below 0, so that what is too large may be off by more than what is too small.
        let (larger, smaller) = (
            (radicand / smallest).sqrt() - 1.0,
            1.0 - (radicand / (radicand + var)).sqrt(),
        );
        let rstd = larger.max(smaller) + self.gamma(4.0);
        StatisticsError { mean, var, rstd }
    }

    /// The errors of saved statistics: what was saved less the truth.
    pub(super) fn saved(&self, s: &Statistics, mean: f64, rstd: f64) -> StatisticsError {
        let off = ((mean - s.mean) - s.mean_rest).abs();
        StatisticsError {
            mean: if self.centred { off + self.carried(mean) } else { 0.0 },
            var: 0.0,
            rstd: (rstd / s.rstd - 1.0).abs() + self.gamma(1.0),
        }
    }

    /// The error of x̂.
    pub(super) fn xhat(&self, s: &Statistics, e: &StatisticsError, xhat: f64) -> f64 {
        if e.rstd == f64::INFINITY {
            return f64::INFINITY;
        }
        let shifted = self.rung.map_or(0.0, |rung| ladder::shift(self, rung, s, xhat));
        if xhat == 0.0 && e.mean == 0.0 && shifted == 0.0 {
            return 0.0;
        }
        let of_mean = s.rstd * (1.0 + e.rstd) * e.mean;
        xhat.abs() * (self.gamma(3.0) + e.rstd) + of_mean + shifted * (1.0 + e.rstd) + self.tiny
    }

    /// The error of the pre-activation, from that of x̂.
    pub(super) fn preactivation(&self, p: &Preactivation, xhat: f64) -> f64 {
        let of_xhat = if xhat == 0.0 { 0.0 } else { p.weight.abs() * xhat };
        of_xhat + self.gamma(p.roundings as f64) * p.magnitude
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sums_are_chains_and_long_ones_trees() {
        assert_eq!(Arithmetic::chain(1), 1.0);
        assert_eq!(Arithmetic::chain(100), 100.0);
        assert_eq!(Arithmetic::chain(CHAIN), CHAIN as f64);
        assert_eq!(Arithmetic::chain(CHAIN + 1), CHAIN as f64 + 1.0);
        assert_eq!(Arithmetic::chain(16 * CHAIN), CHAIN as f64 + 4.0);
    }
}
