//! Running statistics: PyTorch's semantics, step by step.

use isonorm::layers::{BatchNorm, FrozenBatchNorm, InstanceNorm, Momentum};
use isonorm::{DType, Tensor};

use crate::{Numbers, values};

/// Mean and unbiased variance of each of the `channels` of `N, C, spatial` values, by the definition.
fn statistics(v: &[f64], channels: usize, spatial: usize) -> Vec<(f64, f64)> {
    let of = |c: usize| {
        v.iter()
            .enumerate()
            .filter(move |(i, _)| i / spatial % channels == c)
            .map(|(_, x)| *x)
    };
    (0..channels)
        .map(|c| {
            let n = of(c).count() as f64;
            let mean = of(c).sum::<f64>() / n;
            (mean, of(c).map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0))
        })
        .collect()
}

fn close(got: &Tensor, expected: impl Iterator<Item = f64>, tolerance: f64) {
    for (got, expected) in values(got).into_iter().zip(expected) {
        assert!(
            (got - expected).abs() <= tolerance * expected.abs().max(1.0),
            "got {got}, expected {expected}"
        );
    }
}

/// A thousand batches of one to seven samples through a layer and through the definition.
fn thousand_steps(momentum: Momentum, dtype: DType, tolerance: f64) {
    let mut layer = BatchNorm::new(3).momentum(momentum).param_dtype(dtype);
    let mut expected = [(0.0, 1.0); 3];
    let mut numbers = Numbers::new(11);
    for step in 1..=1000usize {
        let x = numbers.tensor([1 + step % 7, 3, 4], dtype);
        layer.forward_train(&x).unwrap();
        let factor = match momentum {
            Momentum::Exponential(m) => m,
            Momentum::Cumulative => 1.0 / step as f64,
        };
        for (running, batch) in expected.iter_mut().zip(statistics(&values(&x), 3, 4)) {
            running.0 += factor * (batch.0 - running.0);
            running.1 += factor * (batch.1 - running.1);
        }
    }
    close(layer.running_mean().unwrap(), expected.iter().map(|s| s.0), tolerance);
    close(layer.running_var().unwrap(), expected.iter().map(|s| s.1), tolerance);
    assert_eq!(layer.num_batches_tracked(), Some(1000));
}

#[test]
fn a_thousand_steps_with_momentum() {
    // Each step rounds once; an exponential average forgets, so at most 1/momentum roundings add up.
    thousand_steps(Momentum::Exponential(0.1), DType::F64, 1e-14);
    thousand_steps(Momentum::Exponential(0.1), DType::F32, 2e-6);
}

#[test]
fn a_thousand_steps_of_the_cumulative_average() {
    // A cumulative average keeps each of its thousand roundings.
    thousand_steps(Momentum::Cumulative, DType::F64, 1e-13);
    thousand_steps(Momentum::Cumulative, DType::F32, 6e-5);
}

#[test]
fn the_first_batch_of_a_cumulative_average_replaces_the_initial_values() {
    let mut layer = BatchNorm::new(1).momentum(Momentum::Cumulative);
    layer
        .forward_train(&Tensor::new([2, 1], vec![1.0f32, 3.0]).unwrap())
        .unwrap();
    assert_eq!(values(layer.running_mean().unwrap()), [2.0]);
    assert_eq!(values(layer.running_var().unwrap()), [2.0]);
}

#[test]
fn output_uses_the_biased_variance_and_running_var_the_unbiased() {
    let mut layer = BatchNorm::new(1).eps(0.0).momentum(Momentum::Exponential(1.0));
    let (y, _) = layer
        .forward_train(&Tensor::new([2, 1], vec![-1.0f32, 1.0]).unwrap())
        .unwrap();
    assert_eq!(values(&y), [-1.0, 1.0]);
    assert_eq!(values(layer.running_var().unwrap()), [2.0]);
}

#[test]
fn inference_uses_and_keeps_the_running_statistics() {
    let mut layer = BatchNorm::new(1).eps(0.0).momentum(Momentum::Exponential(1.0));
    layer
        .forward_train(&Tensor::new([2, 1], vec![3.0f32, 7.0]).unwrap())
        .unwrap(); // mean 5, variance 8
    let before = layer.state_dict("");
    let x = Tensor::new([1, 1], vec![9.0f32]).unwrap();
    let y = values(&layer.forward(&x).unwrap())[0];
    assert!((y - 4.0 / 8f64.sqrt()).abs() < 1e-6);
    let (eval, saved) = layer.forward_eval(&x).unwrap();
    assert_eq!((values(&eval)[0], saved.mean(), saved.rstd()), (y, None, None));
    assert_eq!(layer.state_dict(""), before);
}

#[test]
fn backward_goes_through_the_statistics_that_forward_eval_saw() {
    let mut layer = BatchNorm::new(1).momentum(Momentum::Exponential(1.0));
    let x = Tensor::new([2, 1], vec![3.0f32, 7.0]).unwrap();
    let dy = Tensor::new([2, 1], vec![1.0f32, 2.0]).unwrap();
    let (_, saved) = layer.forward_eval(&x).unwrap();
    let before = layer.backward(&x, &dy, &saved).unwrap();
    layer.forward_train(&x).unwrap();
    assert_eq!(layer.backward(&x, &dy, &saved).unwrap(), before);
}

#[test]
fn a_frozen_layer_never_changes() {
    let mut trained = BatchNorm::new(2);
    let mut numbers = Numbers::new(12);
    trained.forward_train(&numbers.tensor([9, 2, 3], DType::F32)).unwrap();
    let mut frozen = trained.freeze().unwrap();
    let before = frozen.state_dict("");
    assert_eq!(before.len(), 4);

    let x = numbers.tensor([1, 2], DType::F32); // one value a channel is fine here
    let (y, _) = frozen.forward_train(&x).unwrap();
    assert_eq!(y, trained.forward(&x).unwrap());
    assert_eq!(y, frozen.forward(&x).unwrap());
    assert_eq!(frozen.state_dict(""), before);
    assert!(frozen.parameters_mut().is_empty());
    assert!(BatchNorm::new(2).track_running_stats(false).freeze().is_err());
    assert_eq!(FrozenBatchNorm::new(2).state_dict("").len(), 4);
}

#[test]
fn instance_norm_averages_over_the_samples() {
    let mut layer = InstanceNorm::new(2).track_running_stats(true);
    let x = Numbers::new(13).tensor([3, 2, 5], DType::F64);
    layer.forward_train(&x).unwrap();
    // As six channels of one sample, then averaged over the samples.
    let each = statistics(&values(&x), 6, 5);
    let average = |c: usize, pick: fn(&(f64, f64)) -> f64| (0..3).map(|n| pick(&each[n * 2 + c])).sum::<f64>() / 3.0;
    close(
        layer.running_mean().unwrap(),
        (0..2).map(|c| 0.1 * average(c, |s| s.0)),
        1e-7,
    );
    close(
        layer.running_var().unwrap(),
        (0..2).map(|c| 0.9 + 0.1 * average(c, |s| s.1)),
        1e-7,
    );
    assert_eq!(layer.num_batches_tracked(), Some(1));
}

#[test]
fn an_empty_batch_counts_and_changes_nothing_else() {
    for momentum in [Momentum::default(), Momentum::Cumulative] {
        let mut layer = BatchNorm::new(2).momentum(momentum);
        let x = Tensor::zeros([0, 2, 3], DType::F32).unwrap();
        let (y, saved) = layer.forward_train(&x).unwrap();
        assert_eq!(y, x);
        assert_eq!(values(layer.running_mean().unwrap()), [0.0; 2]);
        assert_eq!(values(layer.running_var().unwrap()), [1.0; 2]);
        assert_eq!(layer.num_batches_tracked(), Some(1));
        let gradients = layer.backward(&x, &x, &saved).unwrap();
        assert_eq!(gradients.input, x);
        assert_eq!(values(&gradients.weight.unwrap()), [0.0; 2]);
        assert_eq!(values(&gradients.bias.unwrap()), [0.0; 2]);
        assert_eq!(layer.forward(&x).unwrap(), x);
    }
    let mut layer = InstanceNorm::new(2).track_running_stats(true);
    layer
        .forward_train(&Tensor::zeros([0, 2, 3], DType::F32).unwrap())
        .unwrap();
    assert_eq!(values(layer.running_mean().unwrap()), [0.0; 2]);
}
