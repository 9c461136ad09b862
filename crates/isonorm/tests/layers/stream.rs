//! The residual stream: against the addition and the normalization as two steps, and against central differences.

use isonorm::layers::{Gradients, LayerNorm, Normalization, RmsNorm};
use isonorm::{Activation, Affine, DType, Device, Tensor, TensorData};

use crate::{Numbers, perturb, values};

/// Every kind of layer that a stream can go through, for rows of `n` elements, with random parameters.
fn layers(n: usize, param_dtype: DType, activation: Activation) -> Vec<Box<dyn Normalization>> {
    fn boxed(layer: impl Normalization + 'static) -> Box<dyn Normalization> {
        Box::new(layer)
    }
    let (p, a) = (param_dtype, activation);
    let layer_norm = || LayerNorm::new([n]).param_dtype(p).activation(a);
    let rms_norm = || RmsNorm::new([n]).param_dtype(p).activation(a);
    let mut layers = vec![
        boxed(layer_norm()),
        boxed(layer_norm().affine(Affine::None)),
        boxed(LayerNorm::new([2, n]).param_dtype(p).activation(a)),
        boxed(rms_norm()),
        boxed(rms_norm().affine(Affine::Full).eps(1e-3)),
        boxed(rms_norm().with_device(Device::cpu_with_threads(1))),
    ];
    let mut numbers = Numbers::new(11);
    for layer in &mut layers {
        perturb(&mut **layer, &mut numbers);
    }
    layers
}

/// `x + residual`. That it is rounded to `f64` first changes nothing: `f64` has more than twice the digits of the others.
fn sum(x: &Tensor, residual: &Tensor) -> Tensor {
    let sums: Vec<f64> = values(x).iter().zip(values(residual)).map(|(a, b)| a + b).collect();
    Tensor::new(x.shape(), TensorData::from_f64(x.dtype(), &sums)).unwrap()
}

fn close(what: &str, got: &Tensor, expected: &[f64], tolerance: f64) {
    for (i, (got, expected)) in values(got).iter().zip(expected).enumerate() {
        assert!(
            (got - expected).abs() <= tolerance * expected.abs().max(1.0),
            "{what}[{i}] is {got}, expected {expected}"
        );
    }
}

/// What the stream's gradient may differ by from two steps, which round in between.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::Bf16 => 1.0 / 64.0,
        DType::F16 => 1.0 / 512.0,
        DType::F32 => 1e-6,
        DType::F64 => 1e-14,
    }
}

#[test]
fn it_is_the_addition_and_the_normalization_bit_by_bit() {
    let mut numbers = Numbers::new(1);
    for dtype in DType::ALL {
        for n in [1, 7, 64, 1000, 70_000] {
            let (x, residual) = (numbers.tensor([3, 2, n], dtype), numbers.tensor([3, 2, n], dtype));
            let added = sum(&x, &residual);
            for layer in &mut layers(n, DType::F32, Activation::Identity) {
                let (y, stream) = layer.forward_stream(&x, &residual).unwrap();
                assert_eq!(stream, added, "{layer:?} of {dtype}, {n}");
                assert_eq!(y, layer.forward((&added).into()).unwrap(), "{layer:?} of {dtype}, {n}");

                let (trained, stream, saved) = layer.forward_stream_train(&x, &residual).unwrap();
                assert_eq!((&trained, &stream), (&y, &added));
                let (_, apart) = layer.forward_train((&added).into()).unwrap();
                assert_eq!((saved.mean(), saved.rstd()), (apart.mean(), apart.rstd()));
            }
        }
    }
}

#[test]
fn an_activation_comes_behind_it() {
    let mut numbers = Numbers::new(2);
    let (x, residual) = (
        numbers.tensor([5, 2, 40], DType::F32),
        numbers.tensor([5, 2, 40], DType::F32),
    );
    for activation in [Activation::Relu, Activation::Gelu] {
        for layer in layers(40, DType::F32, activation) {
            let (y, stream) = layer.forward_stream(&x, &residual).unwrap();
            assert_eq!(y, layer.forward((&stream).into()).unwrap(), "{layer:?}");
        }
    }
}

/// `layer`'s gradients behind a stream, and those of the normalization alone.
fn both(layer: &mut dyn Normalization, tensors: [&Tensor; 4]) -> (Gradients, Gradients, Gradients) {
    let [x, residual, dy, dstream] = tensors;
    let (_, stream, saved) = layer.forward_stream_train(x, residual).unwrap();
    let last = layer.backward_stream(&stream, dy, None, &saved).unwrap();
    let fused = layer.backward_stream(&stream, dy, Some(dstream), &saved).unwrap();
    let (_, saved) = layer.forward_train((&stream).into()).unwrap();
    (last, fused, layer.backward((&stream).into(), dy, &saved).unwrap())
}

#[test]
fn its_gradient_is_the_norms_plus_that_of_the_stream() {
    let mut numbers = Numbers::new(3);
    for dtype in DType::ALL {
        for (n, activation) in [(1000, Activation::Identity), (24, Activation::Silu)] {
            let [x, residual, dy, dstream] = std::array::from_fn(|_| numbers.tensor([3, 2, n], dtype));
            for mut layer in layers(n, DType::F32, activation) {
                let (last, fused, apart) = both(&mut *layer, [&x, &residual, &dy, &dstream]);
                // Where the stream goes nowhere else, its gradient is the norm's own.
                assert_eq!(last, apart, "{layer:?} of {dtype}");
                assert_eq!((&fused.weight, &fused.bias), (&apart.weight, &apart.bias));
                assert_eq!(fused.residual, None);
                let pairs = values(&apart.input).into_iter().zip(values(&dstream));
                let expected: Vec<f64> = pairs.map(|(dx, d)| dx + d).collect();
                close("dx", &fused.input, &expected, rounding(dtype));
            }
        }
    }
}

#[test]
fn its_gradient_is_that_of_differences() {
    const STEP: f64 = 1e-5;
    let mut numbers = Numbers::new(4);
    let [x, residual, dy, dstream] = std::array::from_fn(|_| numbers.tensor([2, 2, 5], DType::F64));
    let dot = |a: &Tensor, b: &Tensor| values(a).iter().zip(values(b)).map(|(a, b)| a * b).sum::<f64>();
    for mut layer in layers(5, DType::F64, Activation::Silu) {
        let (_, stream, saved) = layer.forward_stream_train(&x, &residual).unwrap();
        let gradients = layer.backward_stream(&stream, &dy, Some(&dstream), &saved).unwrap();
        let loss = |layer: &dyn Normalization, x: &Tensor, residual: &Tensor| {
            let (y, stream) = layer.forward_stream(x, residual).unwrap();
            dot(&y, &dy) + dot(&stream, &dstream)
        };
        let nudged = |t: &Tensor, i: usize, by: f64| {
            let mut nudged = t.clone();
            nudged.as_mut_slice::<f64>().unwrap()[i] += by;
            nudged
        };
        // What a step up and a step down say of the slope.
        let slope = |up: f64, down: f64| (up - down) / (2.0 * STEP);
        let layer = &mut *layer;
        for (i, expected) in values(&gradients.input).into_iter().enumerate() {
            let of_x = [STEP, -STEP].map(|by| loss(layer, &nudged(&x, i, by), &residual));
            let of_residual = [STEP, -STEP].map(|by| loss(layer, &x, &nudged(&residual, i, by)));
            for [up, down] in [of_x, of_residual] {
                let found = slope(up, down);
                assert!(
                    (found - expected).abs() < 1e-7,
                    "{layer:?}: dx[{i}] is {expected}, differences say {found}"
                );
            }
        }
        for (at, (name, gradient)) in gradients.parameters().enumerate() {
            for (i, expected) in values(gradient).into_iter().enumerate() {
                let [up, down] = [STEP, -STEP].map(|by| {
                    let before = layer.parameters_mut()[at].1.clone();
                    *layer.parameters_mut()[at].1 = nudged(&before, i, by);
                    let loss = loss(layer, &x, &residual);
                    *layer.parameters_mut()[at].1 = before;
                    loss
                });
                let found = slope(up, down);
                assert!(
                    (found - expected).abs() < 1e-7,
                    "{layer:?}: {name}[{i}] is {expected}, differences say {found}"
                );
            }
        }
    }
}

#[test]
fn in_place_is_the_same_as_out_of_place() {
    let mut numbers = Numbers::new(5);
    for dtype in DType::ALL {
        let (x, residual) = (numbers.tensor([6, 100], dtype), numbers.tensor([6, 100], dtype));
        let mut layer = LayerNorm::new([100]).activation(Activation::HardSwish);
        perturb(&mut layer, &mut numbers);
        let (mut y, mut stream) = (x.clone(), residual.clone());
        layer.forward_stream_in_place(&mut y, &mut stream).unwrap();
        assert_eq!((y, stream), layer.forward_stream(&x, &residual).unwrap());
    }
}

#[test]
fn an_empty_tensor() {
    let empty = Tensor::zeros([0, 4], DType::F32).unwrap();
    let layer = RmsNorm::new([4]);
    let (y, stream, saved) = layer.forward_stream_train(&empty, &empty).unwrap();
    assert_eq!((&y, &stream), (&empty, &empty));
    let gradients = layer.backward_stream(&stream, &y, Some(&empty), &saved).unwrap();
    assert_eq!(gradients.input, empty);
    assert_eq!(values(&gradients.weight.unwrap()), [0.0; 4]);
}

#[test]
fn two_blocks_of_a_pre_norm_transformer() {
    let mut numbers = Numbers::new(6);
    let [embedded, dlast, dend] = std::array::from_fn(|_| numbers.tensor([3, 8], DType::F64));
    let first = LayerNorm::new([8]).param_dtype(DType::F64);
    let last = RmsNorm::new([8]).param_dtype(DType::F64);
    // Each block's branch is the identity, so that the gradient of a branch is that of what is normalized before it.
    let zeros = Tensor::zeros([3, 8], DType::F64).unwrap();
    let through = |embedded: &Tensor| {
        let (branch, stream, saved) = first.forward_stream_train(embedded, &zeros).unwrap();
        let (y, end, saved_last) = last.forward_stream_train(&branch, &stream).unwrap();
        (y, stream, end, saved, saved_last)
    };
    let (_, stream, end, saved, saved_last) = through(&embedded);
    let behind = last.backward_stream(&end, &dlast, Some(&dend), &saved_last).unwrap();
    // The branch's gradient and the stream's are the same tensor.
    let before = first
        .backward_stream(&stream, &behind.input, Some(&behind.input), &saved)
        .unwrap();

    let loss = |embedded: &Tensor| {
        let (y, _, end, ..) = through(embedded);
        let dot = |a: &Tensor, b: &Tensor| values(a).iter().zip(values(b)).map(|(a, b)| a * b).sum::<f64>();
        dot(&y, &dlast) + dot(&end, &dend)
    };
    for (i, expected) in values(&before.input).into_iter().enumerate() {
        let [up, down] = [1e-5, -1e-5].map(|by| {
            let mut nudged = embedded.clone();
            nudged.as_mut_slice::<f64>().unwrap()[i] += by;
            loss(&nudged)
        });
        let found = (up - down) / 2e-5;
        assert!(
            (found - expected).abs() < 1e-7,
            "dx[{i}] is {expected}, differences say {found}"
        );
    }
}
