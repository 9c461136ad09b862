//! What a tensor's values are like.

use isonorm::{Scalar, TensorData};
use rayon::prelude::*;
use serde::Serialize;

/// Elements that one task looks at. Fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 1 << 16;

/// Statistics of the finite values; `None` when there are none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) mean: Option<f64>,
    /// The population's standard deviation.
    pub(crate) std: Option<f64>,
    /// How many values are NaN or infinite.
    pub(crate) non_finite: usize,
}

impl Summary {
    pub(crate) fn of(data: &TensorData) -> Summary {
        match data {
            TensorData::F16(v) => summary(v),
            TensorData::Bf16(v) => summary(v),
            TensorData::F32(v) => summary(v),
            TensorData::F64(v) => summary(v),
        }
    }
}

fn summary<T: Scalar>(values: &[T]) -> Summary {
    let finite = |chunk: &[T]| {
        chunk
            .iter()
            .map(|v| v.to_f64())
            .filter(|v| v.is_finite())
            .collect::<Vec<_>>()
    };
    let parts: Vec<_> = values
        .par_chunks(CHUNK)
        .map(|chunk| {
            let finite = finite(chunk);
            let extremes = (
                finite.iter().copied().reduce(f64::min),
                finite.iter().copied().reduce(f64::max),
            );
            (finite.len(), extremes, finite.iter().sum::<f64>())
        })
        .collect();
    let count: usize = parts.iter().map(|p| p.0).sum();
    let divided = |sum: f64| (count > 0).then(|| sum / count as f64);
    let mean = divided(parts.iter().map(|p| p.2).sum());
    let squares: Vec<f64> = values
        .par_chunks(CHUNK)
        .map(|chunk| finite(chunk).iter().map(|v| (v - mean.unwrap_or(0.0)).powi(2)).sum())
        .collect();
    Summary {
        min: parts.iter().filter_map(|p| p.1.0).reduce(f64::min),
        max: parts.iter().filter_map(|p| p.1.1).reduce(f64::max),
        mean,
        std: divided(squares.iter().sum()).map(f64::sqrt),
        non_finite: values.len() - count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_finite_are_counted_and_left_out() {
        let s = Summary::of(&vec![1.0f32, f32::NAN, 3.0, f32::INFINITY].into());
        let expected = Summary {
            min: Some(1.0),
            max: Some(3.0),
            mean: Some(2.0),
            std: Some(1.0),
            non_finite: 2,
        };
        assert_eq!(s, expected);
    }

    #[test]
    fn nothing_has_no_statistics() {
        let s = Summary::of(&Vec::<f64>::new().into());
        assert_eq!((s.min, s.max, s.mean, s.std, s.non_finite), (None, None, None, None, 0));
    }
}
