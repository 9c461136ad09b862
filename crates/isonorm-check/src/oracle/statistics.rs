//! Mean, variance and rstd of each group.

use isonorm::{NormDesc, TensorData};

use super::{Index, Sum};
use crate::engine::Running;

/// The statistics that a group is normalized with, and the sums they came from.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// The number of elements of the group.
    pub count: usize,
    /// The mean, rounded to `f64`; 0 for RMSNorm.
    pub mean: f64,
    /// What rounding left of the mean.
    pub mean_rest: f64,
    /// The biased variance; the mean square for RMSNorm.
    pub var: f64,
    /// 1/√(var + eps).
    pub rstd: f64,
    /// The second largest |x − mean|, beyond which no median of three or more elements lies; 0 when the statistics were given, or of
    /// one element.
    pub median_distance: f64,
    /// The largest |x|; 0 when the statistics were given.
    pub largest: f64,
    /// Σ x; no terms when the statistics were given.
    pub values: Sum,
    /// Σ |x − mean|; no terms when the statistics were given.
    pub distances: Sum,
    /// Σ (x − mean)²; no terms when the statistics were given.
    pub squares: Sum,
}

impl Statistics {
    /// `x − mean`, for x far from or near the mean.
    pub fn distance(&self, x: f64) -> f64 {
        (x - self.mean) - self.mean_rest
    }

    fn of(values: impl Iterator<Item = f64> + Clone, centred: bool, eps: f64) -> Statistics {
        let mut s = Statistics::given(0.0, 0.0, eps);
        s.values = values.clone().collect();
        s.largest = values.clone().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        s.count = s.values.count;
        if centred {
            (s.mean, s.mean_rest) = s.values.over(s.count);
        }
        s.distances = values.clone().map(|x| s.distance(x).abs()).collect();
        s.median_distance = second_largest(values.clone().map(|x| s.distance(x).abs()));
        s.squares = values.map(|x| s.distance(x).powi(2)).collect();
        s.var = s.squares.over(s.count).0;
        s.rstd = 1.0 / (s.var + eps).sqrt();
        s
    }

    fn given(mean: f64, var: f64, eps: f64) -> Statistics {
        Statistics {
            count: 0,
            mean,
            mean_rest: 0.0,
            var,
            rstd: 1.0 / (var + eps).sqrt(),
            median_distance: 0.0,
            largest: 0.0,
            values: Sum::default(),
            distances: Sum::default(),
            squares: Sum::default(),
        }
    }
}

/// The second largest of some distances, NaN if one is; 0 of fewer than two.
fn second_largest(distances: impl Iterator<Item = f64>) -> f64 {
    let (mut largest, mut second) = (0.0f64, 0.0f64);
    for distance in distances {
        if distance.is_nan() {
            return f64::NAN;
        }
        second = second.max(distance.min(largest));
        largest = largest.max(distance);
    }
    second
}

/// The statistics of every group: of `x`, or the running ones where the description uses those.
pub fn statistics(desc: &NormDesc, index: &Index, x: &[f64], running: Option<&Running>) -> Vec<Statistics> {
    let eps = desc.get_eps();
    if let (true, Some(running)) = (desc.uses_running_statistics(), running) {
        let (mean, var) = (running.mean.to_f64(), running.var.to_f64());
        let of_channel = |&c: &usize| Statistics::given(mean[c], var[c], eps);
        return index.channel.iter().map(of_channel).collect();
    }
    let centred = desc.get_norm().is_centred();
    let of_group = |g| Statistics::of(index.members(g).iter().map(|&i| x[i]), centred, eps);
    (0..index.groups()).map(of_group).collect()
}

/// An optional tensor's values.
pub(super) fn values(data: &Option<TensorData>) -> Option<Vec<f64>> {
    data.as_ref().map(TensorData::to_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_largest_counts_equal_ones() {
        let of = |distances: &[f64]| second_largest(distances.iter().copied());
        assert_eq!((of(&[]), of(&[3.0]), of(&[3.0, 3.0])), (0.0, 0.0, 3.0));
        assert_eq!((of(&[1.0, 9.0, 4.0]), of(&[9.0, 4.0, 1.0])), (4.0, 4.0));
        assert!(of(&[1.0, f64::NAN]).is_nan());
    }
}
