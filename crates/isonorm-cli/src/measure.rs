//! What is said about a few times of the same thing.

/// The value below which this share of the samples lies, interpolated; 0 without samples.
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = share * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

/// The middle sample.
pub(crate) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// The least sample.
pub(crate) fn least(samples: &[f64]) -> f64 {
    quantile(samples, 0.0)
}

/// How far the samples lie apart: the 10th to the 90th percentile, as a share of the median.
pub(crate) fn spread(samples: &[f64]) -> f64 {
    let median = median(samples);
    if median > 0.0 {
        (quantile(samples, 0.9) - quantile(samples, 0.1)) / median
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let samples = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(
            (least(&samples), median(&samples), quantile(&samples, 1.0)),
            (1.0, 2.5, 4.0)
        );
        assert_eq!((median(&[]), spread(&[])), (0.0, 0.0));
    }
}
