//! Moments merge in any grouping, and normalization keeps its digits far from 0.

use isonorm_math::normalize::{affine, input_gradient, normalized};
use isonorm_math::{BackwardCoefficients, Moments, Normalizer, Real};
use proptest::prelude::*;

/// Two passes: the reference for every other way.
fn two_pass<R: Real>(data: &[R]) -> Moments<R> {
    let mut count = R::ZERO;
    let mut sum = R::ZERO;
    for &x in data {
        count += R::ONE;
        sum += x;
    }
    let mean = if data.is_empty() { R::ZERO } else { sum / count };
    let mut m2 = R::ZERO;
    for &x in data {
        m2 += (x - mean) * (x - mean);
    }
    Moments { count, mean, m2 }
}

fn close(a: Moments<f64>, b: Moments<f64>, scale: f64) -> bool {
    a.count == b.count
        && (a.mean - b.mean).abs() <= 1e-13 * scale
        && (a.m2 - b.m2).abs() <= 1e-13 * scale * scale * a.count
}

proptest! {
    #[test]
    fn merge_agrees_with_two_passes(data in prop::collection::vec(-1e3..1e3f64, 0..60), cut in 0..60usize) {
        let (left, right) = data.split_at(cut.min(data.len()));
        let merged = two_pass(left).merge(two_pass(right));
        prop_assert!(close(merged, two_pass(&data), 1e3));
    }

    #[test]
    fn push_agrees_with_two_passes(data in prop::collection::vec(-1e3..1e3f64, 0..60)) {
        let pushed = data.iter().fold(Moments::EMPTY, |moments, &x| moments.push(x));
        prop_assert!(close(pushed, two_pass(&data), 1e3));
    }

    #[test]
    fn merge_equal_is_symmetric(a in prop::array::uniform4(-1e3..1e3f32), b in prop::array::uniform4(-1e3..1e3f32)) {
        let (a, b) = (two_pass(&a), two_pass(&b));
        prop_assert_eq!(a.merge_equal(b), b.merge_equal(a));
        prop_assert!((a.merge_equal(b).m2 - a.merge(b).m2).abs() <= 1e-6 * a.merge(b).m2);
        prop_assert!((a.merge_equal(b).mean - a.merge(b).mean).abs() <= 1e-3);
    }

    #[test]
    fn an_empty_side_changes_nothing(mean in any::<f32>(), m2 in 0f32..) {
        let some = Moments { count: 3.0, mean, m2 };
        prop_assume!(mean.is_finite());
        prop_assert_eq!(some.merge(Moments::EMPTY), some);
        prop_assert_eq!(Moments::EMPTY.merge(some), some);
    }

    #[test]
    fn a_normalizer_carries_the_mean(mean in -1e9..1e9f64, rstd in 1e-6..1e6f64) {
        let n = Normalizer::<f32>::new(mean, rstd);
        let carried = n.centre.to_f64() - n.offset.to_f64() / rstd;
        prop_assert!((carried - mean).abs() <= 2f64.powi(-47) * mean.abs());
        prop_assert_eq!(Normalizer::<f64>::new(mean, rstd), Normalizer { centre: mean, rstd, offset: 0.0 });
    }
}

#[test]
fn empty_merges_to_empty() {
    let empty = Moments::<f32>::empty();
    assert_eq!(empty.merge(empty), Moments::EMPTY);
    assert_eq!(empty.merge_equal(empty), Moments::EMPTY);
    assert!(empty.variance().is_nan());
}

#[test]
fn a_constant_set_has_no_variance() {
    let one = Moments::EMPTY.push(0.1f32);
    let many = (0..1000).fold(Moments::EMPTY, |all: Moments<f32>, _| all.merge(one));
    assert_eq!(
        many,
        Moments {
            count: 1000.0,
            mean: 0.1,
            m2: 0.0
        }
    );
}

#[test]
fn an_infinite_mean_stays_beside_an_empty_side() {
    let infinite = Moments {
        count: 1.0f32,
        mean: f32::INFINITY,
        m2: 0.0,
    };
    assert_eq!(infinite.merge(Moments::EMPTY), infinite);
    assert_eq!(Moments::EMPTY.merge(infinite).mean, f32::INFINITY);
}

/// Mean 1000 and spread 10⁻³: every digit of x̂ that the data has.
#[test]
fn normalizing_far_from_zero() {
    let data: Vec<f32> = (0..64).map(|i| 1000.0 + i as f32 * 6.103_515_6e-5).collect();
    let wide: Vec<f64> = data.iter().map(|&x| f64::from(x)).collect();
    let moments = two_pass(&wide);
    let rstd = moments.rstd(1e-12);
    let n = Normalizer::<f32>::new(moments.mean, rstd);
    for (&x, &w) in data.iter().zip(&wide) {
        let expected = (w - moments.mean) * rstd;
        let xhat = n.apply(x);
        assert!(
            (f64::from(xhat) - expected).abs() <= 3e-7 * expected.abs(),
            "{xhat} {expected}"
        );
    }
}

#[test]
fn without_variance_the_mean_itself_has_no_number() {
    let n = Normalizer::<f32>::new(0.5, f64::INFINITY);
    assert!(n.apply(0.5).is_nan());
    assert_eq!(n.apply(0.75), f32::INFINITY);
    assert!(Normalizer::<f32>::new(f64::NAN, 1.0).apply(0.0).is_nan());
}

/// The gradient against central differences of Σ dyᵢ · yᵢ.
#[test]
fn input_gradient_is_the_derivative() {
    let (x, weight, bias) = ([0.3, -1.2, 2.5, 0.7, -0.4], [1.5, -0.5, 0.8, 2.0, 1.0], 0.25);
    let dy = [0.2, 1.0, -0.7, 0.4, 0.9];
    let eps = 1e-5;
    let loss = |x: &[f64; 5]| -> f64 {
        let moments = two_pass(x);
        let rstd = moments.rstd(eps);
        (0..5)
            .map(|i| dy[i] * affine(normalized(x[i], moments.mean, rstd, 0.0), weight[i], bias))
            .sum()
    };
    let moments = two_pass(&x);
    let rstd = moments.rstd(eps);
    let xhat = x.map(|x| normalized(x, moments.mean, rstd, 0.0));
    let wg: Vec<f64> = (0..5).map(|i| dy[i] * weight[i]).collect();
    let coefficients = BackwardCoefficients {
        mean_g: wg.iter().sum::<f64>() / 5.0,
        mean_gx: wg.iter().zip(&xhat).map(|(g, x)| g * x).sum::<f64>() / 5.0,
    };
    for i in 0..5 {
        let (mut above, mut below) = (x, x);
        above[i] += 1e-5;
        below[i] -= 1e-5;
        let expected = (loss(&above) - loss(&below)) / 2e-5;
        let gradient = input_gradient(wg[i], xhat[i], rstd, coefficients);
        assert!((gradient - expected).abs() < 1e-8, "{gradient} {expected}");
    }
    let constant_statistics = BackwardCoefficients::default();
    assert_eq!(input_gradient(2.0, 3.0, 0.5, constant_statistics), 1.0);
}
