//! Folding against layers computed by their definition in `f64`.

#[path = "fold/reference.rs"]
mod reference;

use isonorm::fold::{
    AffineParameters, BatchNormParameters, WeightLayout, affine_into_next, batch_norm_into_next,
    batch_norm_into_previous,
};
use isonorm::{DType, Error, Layout, Shape, Tensor, TensorData};
use proptest::prelude::*;
use reference::Layer;

const EPS: f64 = 1e-5;

/// Deterministic numbers in `[-1, 1)`: a Weyl sequence.
fn numbers(count: usize, seed: u32) -> Vec<f64> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_add(0x9e37_79b9);
        let mixed = (state ^ (state >> 15)).wrapping_mul(0x85eb_ca6b);
        f64::from(mixed ^ (mixed >> 13)) / f64::from(1u32 << 31) - 1.0
    };
    (0..count).map(next).collect()
}

/// Numbers that `dtype` can hold.
fn stored(dtype: DType, values: &[f64]) -> TensorData {
    TensorData::from_f64(dtype, values)
}

struct BatchNorm {
    mean: TensorData,
    var: TensorData,
    weight: Option<TensorData>,
    bias: Option<TensorData>,
}

impl BatchNorm {
    fn random(channels: usize, dtype: DType, affine: bool, seed: u32) -> BatchNorm {
        let var: Vec<f64> = numbers(channels, seed).iter().map(|v| v.abs() * 3.0 + 0.1).collect();
        let parameter = |seed| affine.then(|| stored(dtype, &numbers(channels, seed)));
        BatchNorm {
            mean: stored(dtype, &numbers(channels, seed + 1)),
            var: stored(dtype, &var),
            weight: parameter(seed + 2),
            bias: parameter(seed + 3),
        }
    }

    fn parameters(&self) -> BatchNormParameters<'_> {
        let mut p = BatchNormParameters::new(&self.mean, &self.var).eps(EPS);
        if let (Some(weight), Some(bias)) = (&self.weight, &self.bias) {
            p = p.weight(weight).bias(bias);
        }
        p
    }

    fn apply(&self, x: &[f64]) -> Vec<f64> {
        self.each(x, |x, mean, scale, bias| (x - mean) * scale + bias)
    }

    /// The sum of the magnitudes of what `apply` adds, for sums of magnitudes `x`.
    fn magnitudes(&self, x: &[f64]) -> Vec<f64> {
        self.each(x, |x, mean, scale, bias| (x + mean.abs()) * scale.abs() + bias.abs())
    }

    fn each(&self, x: &[f64], f: impl Fn(f64, f64, f64, f64) -> f64) -> Vec<f64> {
        let (mean, var) = (self.mean.to_f64(), self.var.to_f64());
        let one = |p: &Option<TensorData>, c: usize, missing: f64| p.as_ref().map_or(missing, |p| p.to_f64()[c]);
        let positions = x.len() / mean.len();
        let element = |(i, x): (usize, &f64)| {
            let c = i / positions;
            let scale = one(&self.weight, c, 1.0) / (var[c] + EPS).sqrt();
            f(*x, mean[c], scale, one(&self.bias, c, 0.0))
        };
        x.iter().enumerate().map(element).collect()
    }
}

fn tensor(shape: &[usize], data: impl Into<TensorData>) -> Tensor {
    Tensor::new(Shape::new(shape).unwrap(), data).unwrap()
}

/// Runs layer and norm, then the folded layer, and compares.
fn check_previous(layer: &Layer, dtype: DType, with_bias: bool, affine: bool, seed: u32) {
    let shape = layer.weight_shape();
    let elements: usize = shape.iter().product();
    let norm_dtype = if seed.is_multiple_of(2) {
        dtype
    } else {
        dtype.accumulator()
    };
    let norm = BatchNorm::random(layer.outputs, norm_dtype, affine, seed);
    let mut weight = tensor(&shape, stored(dtype, &numbers(elements, seed + 5)));
    let mut bias = with_bias.then(|| tensor(&[layer.outputs], stored(dtype, &numbers(layer.outputs, seed + 6))));

    let size = layer.kernel.iter().max().map_or(1, |k| layer.dilation * (k - 1) + 2);
    let x = numbers(layer.inputs * size.pow(layer.kernel.len() as u32), seed + 7);
    let zeros = || vec![0.0; layer.outputs];
    let bias_before = bias.as_ref().map_or_else(zeros, |b| b.data().to_f64());
    let weight_before = weight.data().clone();
    let before = layer.forward(&x, size, &weight_before.to_f64(), &bias_before);
    let expected = norm.apply(&before);

    batch_norm_into_previous(layer.layout, &mut weight, &mut bias, &norm.parameters()).unwrap();
    assert_eq!((weight.shape().dims(), weight.dtype()), (&shape[..], dtype));
    let bias = bias.expect("folding adds a bias");
    assert_eq!(bias.dtype(), dtype);
    let got = layer.forward(&x, size, &weight.data().to_f64(), &bias.data().to_f64());

    assert_eq!(got.len(), expected.len());
    let allowed = {
        let magnitudes = |v: &TensorData| v.to_f64().iter().map(|w| w.abs()).collect::<Vec<_>>();
        let sums =
            |weight: &[f64], bias: &[f64]| layer.forward(&magnitudes(&TensorData::from(x.clone())), size, weight, bias);
        // Each stored number is rounded once, by half an epsilon of its size or half a subnormal, and sums like the rest.
        let rounded = sums(&magnitudes(weight.data()), &magnitudes(bias.data()));
        let lost = sums(&vec![1.0; elements], &vec![1.0; layer.outputs]);
        // The two ways of computing in `f64` differ by its own rounding of everything that was added.
        let bias_before: Vec<f64> = bias_before.iter().map(|b| b.abs()).collect();
        let added = norm.magnitudes(&sums(&magnitudes(&weight_before), &bias_before));
        let bound = move |i: usize| {
            0.5 * dtype.epsilon() * rounded[i]
                + 0.5 * smallest_subnormal(dtype) * lost[i]
                + 256.0 * f64::EPSILON * added[i]
        };
        (0..got.len()).map(bound).collect::<Vec<f64>>()
    };
    for (i, ((got, expected), allowed)) in got.iter().zip(&expected).zip(&allowed).enumerate() {
        assert!(
            (got - expected).abs() <= *allowed,
            "{layer:?} {dtype}: element {i} is {got}, expected {expected} within {allowed}"
        );
    }
}

fn smallest_subnormal(dtype: DType) -> f64 {
    2f64.powi(match dtype {
        DType::F16 => -24,
        DType::Bf16 => -133,
        DType::F32 => -149,
        DType::F64 => -1074,
    })
}

fn layer(layout: WeightLayout, groups: usize, kernel: &[usize]) -> Layer {
    Layer {
        layout,
        inputs: 6,
        outputs: 4,
        groups,
        kernel: kernel.to_vec(),
        stride: 1,
        padding: 0,
        dilation: 1,
    }
}

fn every_layer() -> Vec<Layer> {
    let mut layers = vec![
        layer(WeightLayout::Linear, 1, &[]),
        layer(WeightLayout::LinearTransposed, 1, &[]),
    ];
    for kernel in [&[3][..], &[2, 3], &[2, 1, 3]] {
        for groups in [1, 2] {
            for layout in [WeightLayout::Conv, WeightLayout::ConvTranspose { groups }] {
                let plain = layer(layout, groups, kernel);
                layers.push(Layer {
                    stride: 2,
                    padding: 1,
                    dilation: 2,
                    ..plain.clone()
                });
                layers.push(plain);
            }
        }
    }
    layers
}

#[test]
fn every_layer_type_bias_and_affine() {
    for (seed, layer) in every_layer().iter().enumerate() {
        for dtype in DType::ALL {
            for (with_bias, affine) in [(true, true), (true, false), (false, true), (false, false)] {
                check_previous(layer, dtype, with_bias, affine, seed as u32);
            }
        }
    }
}

#[test]
fn depthwise() {
    for layout in [WeightLayout::Conv, WeightLayout::ConvTranspose { groups: 4 }] {
        let layer = Layer {
            inputs: 4,
            ..layer(layout, 4, &[3, 3])
        };
        check_previous(&layer, DType::F32, true, true, 3);
    }
}

#[test]
fn a_channels_last_transposed_weight_scales_the_same_elements() {
    let layout = WeightLayout::ConvTranspose { groups: 2 };
    let norm = BatchNorm::random(4, DType::F64, true, 9);
    let mut first = tensor(&[4, 2, 3], numbers(24, 1));
    let moved: Vec<f64> = (0..24)
        .map(|i| {
            let (input, tap, output) = (i / 6, i / 2 % 3, i % 2);
            numbers(24, 1)[(input * 2 + output) * 3 + tap]
        })
        .collect();
    let mut last = tensor(&[4, 2, 3], moved).with_layout(Layout::ChannelsLast);
    batch_norm_into_previous(layout, &mut first, &mut None, &norm.parameters()).unwrap();
    batch_norm_into_previous(layout, &mut last, &mut None, &norm.parameters()).unwrap();
    let (first, last) = (first.data().to_f64(), last.data().to_f64());
    for (i, value) in last.iter().enumerate() {
        let (input, tap, output) = (i / 6, i / 2 % 3, i % 2);
        assert_eq!(*value, first[(input * 2 + output) * 3 + tap]);
    }
}

/// Folds an affine map and a BatchNorm into the linear layer after them, in both storage orders.
fn check_next(dtype: DType, layout: WeightLayout, with_bias: bool, seed: u32) {
    let layer = layer(layout, 1, &[]);
    let norm = BatchNorm::random(layer.inputs, dtype, true, seed);
    let fresh = || {
        let weight = tensor(&layer.weight_shape(), stored(dtype, &numbers(24, seed + 5)));
        let bias = with_bias.then(|| tensor(&[4], stored(dtype, &numbers(4, seed + 6))));
        (weight, bias)
    };
    let run = |x: &[f64], weight: &Tensor, bias: &Option<Tensor>| {
        let bias = bias.as_ref().map_or(vec![0.0; 4], |b| b.data().to_f64());
        layer.forward(x, 1, &weight.data().to_f64(), &bias)
    };
    let x = numbers(layer.inputs, seed + 7);
    let tolerance = 8.0 * dtype.epsilon().max(1e-14);
    let close = |got: Vec<f64>, expected: Vec<f64>| {
        for (g, e) in got.iter().zip(&expected) {
            assert!(
                (g - e).abs() <= tolerance,
                "{layout} {dtype}: got {got:?}, expected {expected:?}"
            );
        }
    };

    let (mut weight, mut bias) = fresh();
    let expected = run(&norm.apply(&x), &weight, &bias);
    batch_norm_into_next(layout, &mut weight, &mut bias, &norm.parameters()).unwrap();
    close(run(&x, &weight, &bias), expected);

    let (mut weight, mut bias) = fresh();
    let (gamma, beta) = (norm.weight.as_ref().unwrap(), norm.bias.as_ref().unwrap());
    let scaled = x
        .iter()
        .zip(gamma.to_f64())
        .zip(beta.to_f64())
        .map(|((x, g), b)| x * g + b);
    let expected = run(&scaled.collect::<Vec<_>>(), &weight, &bias);
    affine_into_next(
        layout,
        &mut weight,
        &mut bias,
        &AffineParameters::new().weight(gamma).bias(beta),
    )
    .unwrap();
    close(run(&x, &weight, &bias), expected);
}

#[test]
fn into_the_linear_layer_after() {
    for dtype in DType::ALL {
        for layout in [WeightLayout::Linear, WeightLayout::LinearTransposed] {
            check_next(dtype, layout, true, 2);
            check_next(dtype, layout, false, 4);
        }
    }
}

#[test]
fn an_rms_norm_adds_no_bias() {
    let mut weight = tensor(&[2, 3], vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let mut bias = None;
    let gamma = vec![2f32, 0.5, -1.0];
    let norm = AffineParameters::new().weight(&gamma);
    affine_into_next(WeightLayout::Linear, &mut weight, &mut bias, &norm).unwrap();
    assert_eq!(weight.as_slice::<f32>().unwrap(), [2.0, 1.0, -3.0, 8.0, 2.5, -6.0]);
    assert_eq!(bias, None);
}

#[test]
fn empty_weights_fold_to_empty_weights() {
    let none: Vec<f32> = vec![];
    let norm = BatchNormParameters::new(&none, &none);
    for (shape, layout) in [
        ([0, 3, 2], WeightLayout::Conv),
        ([4, 0, 2], WeightLayout::ConvTranspose { groups: 2 }),
    ] {
        let (mut weight, mut bias) = (tensor(&shape, none.clone()), None);
        batch_norm_into_previous(layout, &mut weight, &mut bias, &norm).unwrap();
        assert_eq!(bias.unwrap().shape().dims(), [0]);
    }
    // No inputs: every output is the constant β.
    let norm = BatchNorm::random(2, DType::F32, true, 1);
    let (mut weight, mut bias) = (tensor(&[2, 0], none), None);
    batch_norm_into_previous(WeightLayout::Linear, &mut weight, &mut bias, &norm.parameters()).unwrap();
    assert_eq!(bias.unwrap().data().len(), 2);
}

/// The reason of the refusal, after checking that nothing was changed.
fn refusal(layout: WeightLayout, weight: &Tensor, bias: Option<Tensor>, norm: BatchNormParameters<'_>) -> String {
    let (mut w, mut b) = (weight.clone(), bias.clone());
    match batch_norm_into_previous(layout, &mut w, &mut b, &norm) {
        Err(Error::Fold { reason }) => {
            assert_eq!((&w, b), (weight, bias));
            reason
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn refusals_say_what_does_not_fit() {
    let (two, three) = (vec![1f32; 2], vec![1f32; 3]);
    let weight = tensor(&[2, 1, 1, 1], vec![1f32, 2.0]);
    let given = BatchNormParameters::new(&two, &two);
    fn conv(weight: &Tensor, norm: BatchNormParameters<'_>) -> String {
        refusal(WeightLayout::Conv, weight, None, norm)
    }
    assert_eq!(
        conv(&weight, BatchNormParameters::new(&three, &three)),
        "running_mean has 3 elements, expected 2 (the conv weight 2x1x1x1 has 2 outputs)"
    );
    assert_eq!(
        conv(&weight, given.eps(f64::NAN)),
        "eps must be finite and not negative, got NaN"
    );
    assert_eq!(
        conv(&weight, BatchNormParameters::new(&two, &vec![1f32, -1.0])),
        "running_var[1] is -1, and with eps 0.00001 that has no reciprocal root"
    );
    assert_eq!(
        conv(&weight, BatchNormParameters::new(&vec![1f32, f32::NAN], &two)),
        "running_mean[1] is NaN"
    );
    assert_eq!(
        conv(
            &weight,
            BatchNormParameters::new(&vec![0f32; 2], &two).weight(&vec![1f64, 1e300])
        ),
        "element 1 of the weight 2x1x1x1 becomes inf in f32"
    );
    assert_eq!(
        conv(&weight, given.bias(&vec![1e39f64, 1.0])),
        "bias[0] becomes inf in f32"
    );
    assert_eq!(
        refusal(WeightLayout::Linear, &weight, None, given),
        "expected a linear weight [out, in], got shape 2x1x1x1"
    );
    assert_eq!(
        refusal(WeightLayout::ConvTranspose { groups: 3 }, &weight, None, given),
        "the 2 input channels of the transposed convolution (weight 2x1x1x1) do not divide into 3 groups"
    );
    assert_eq!(
        refusal(WeightLayout::Conv, &weight, Some(tensor(&[3], three.clone())), given),
        "the layer's bias has shape 3, expected 2 (the conv weight 2x1x1x1 has 2 outputs)"
    );
}

#[test]
fn a_convolution_after_the_norm_is_refused() {
    let ones = vec![1f32; 2];
    let mut weight = tensor(&[1, 2, 3], vec![1f32; 6]);
    let error = batch_norm_into_next(
        WeightLayout::Conv,
        &mut weight,
        &mut None,
        &BatchNormParameters::new(&ones, &ones),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "fold: a norm cannot be folded into the conv after it (weight 1x2x3): the zeros of its padding are not normalized"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_layer_computes_the_same_after_folding(
        widths in (1usize..4, 1usize..4, 1usize..4),
        kernel in prop::collection::vec(1usize..4, 1..4),
        geometry in (1usize..3, 0usize..2, 1usize..3),
        (transposed, with_bias, affine) in any::<(bool, bool, bool)>(),
        dtype in prop::sample::select(&DType::ALL[..]),
        seed in 0u32..1 << 20,
    ) {
        let (groups, inputs, outputs) = (widths.0, widths.0 * widths.1, widths.0 * widths.2);
        let (stride, padding, dilation) = geometry;
        // More padding than the kernel is wide would leave a transposed convolution without outputs.
        let padding = if transposed && kernel.contains(&1) { 0 } else { padding };
        let layout = if transposed { WeightLayout::ConvTranspose { groups } } else { WeightLayout::Conv };
        let layer = Layer { layout, inputs, outputs, groups, kernel, stride, padding, dilation };
        check_previous(&layer, dtype, with_bias, affine, seed);
    }
}
