//! Whether a layer and its norm compute the same after folding, on random input.
//!
//! The norm is isonorm's own engine in `f64`; the layer is its definition in `f64`. What is left is the rounding of the
//! folded weights to their type, and so the difference that is allowed is derived from it. With `u` half the type's
//! epsilon, `η` its smallest subnormal and `v` that of `f64`, an output `y = Σ w·x + b` may differ by
//!
//! ```text
//! u·(Σ|w·x| + |b|) + η/2·(Σ|x| + 1) + v·(number of terms + 16)·(all magnitudes that were added, before and after)
//! ```

use isonorm::fold::WeightLayout;
use isonorm::{Affine, DType, Device, Forward, Norm, NormDesc, Over, Pass, Shape, Tensor, Workspace};

use super::probe::{Input, Probe, Sum};

/// Any seed will do; the same one makes reports the same.
const SEED: u64 = 0x150;

/// A layer's tensors.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub layout: WeightLayout,
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}

/// The running statistics of a BatchNorm.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    pub mean: Vec<f64>,
    pub var: Vec<f64>,
    pub eps: f64,
}

/// A norm's tensors, as `f64`.
#[derive(Clone, Debug, Default)]
pub(super) struct NormValues {
    /// `None` for a norm of its input's own statistics.
    pub statistics: Option<Statistics>,
    pub weight: Option<Vec<f64>>,
    pub bias: Option<Vec<f64>>,
}

/// The largest difference, relative to what is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    pub error: f64,
    pub allowed: f64,
}

impl Verdict {
    /// Whether the difference is one of rounding. What overflows proves nothing.
    pub fn passes(&self) -> bool {
        self.error <= self.allowed && self.allowed.is_finite()
    }

    /// The worse of two.
    pub fn worse(self, other: Verdict) -> Verdict {
        if !self.passes() || other.passes() && self.error / self.allowed >= other.error / other.allowed {
            self
        } else {
            other
        }
    }
}

/// Compares `norm(before(x))` with `after(x)`.
pub(super) fn previous(before: &Layer, norm: &NormValues, after: &Layer) -> isonorm::Result<Verdict> {
    let probe = Probe::new(before.layout, before.weight.shape().dims());
    let x = random(probe.inputs * probe.input_positions);
    let unfolded = probe.forward(&before.weight, before.bias.as_ref(), &x);
    let expected = norm.apply(&unfolded, probe.output_positions())?;
    let got = probe.forward(&after.weight, after.bias.as_ref(), &x);
    Ok(compare(&probe, &x, &expected, &got, after))
}

/// Compares `before(norm(x))` with `after(norm without what was folded(x))`.
pub(super) fn next(before: &Layer, norm: &NormValues, after: &Layer) -> isonorm::Result<Verdict> {
    let probe = Probe::new(before.layout, before.weight.shape().dims());
    let x = random(probe.inputs * probe.input_positions);
    let plain = match norm.statistics {
        Some(_) => x.clone(),
        None => NormValues::default().apply(&x, probe.input_positions)?,
    };
    let normalized = norm.apply(&x, probe.input_positions)?;
    let expected = probe.forward(&before.weight, before.bias.as_ref(), &normalized);
    let got = probe.forward(&after.weight, after.bias.as_ref(), &plain);
    Ok(compare(&probe, &plain, &expected, &got, after))
}

/// Numbers in `[-1, 1)`.
fn random(count: usize) -> Vec<Input> {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let number = |_| {
        let value = 2.0 * rng.f64() - 1.0;
        Sum {
            value,
            magnitude: value.abs(),
        }
    };
    (0..count).map(number).collect()
}

impl NormValues {
    /// The norm of `[channels, positions]`, carried out by the engine.
    fn apply(&self, x: &[Input], positions: usize) -> isonorm::Result<Vec<Sum>> {
        let channels = x.len() / positions.max(1);
        let values: Vec<f64> = x.iter().map(|x| x.value).collect();
        let normalized = self.engine(&values, channels, positions)?;
        let scale_and_shift = |c: usize| {
            let weight = self.weight.as_ref().map_or(1.0, |w| w[c]);
            let bias = self.bias.as_ref().map_or(0.0, |b| b[c]);
            match &self.statistics {
                Some(s) => {
                    let scale = weight / (s.var[c] + s.eps).sqrt();
                    (scale.abs(), (s.mean[c] * scale).abs() + bias.abs())
                }
                None => (weight.abs(), bias.abs()),
            }
        };
        let magnitude = |(i, (x, y)): (usize, (&Input, &f64))| {
            let (scale, shift) = scale_and_shift(i / positions);
            // Without given statistics, what is scaled is the normalized value, at most √channels.
            let scaled = if self.statistics.is_some() {
                x.magnitude
            } else {
                (channels as f64).sqrt()
            };
            Sum {
                value: *y,
                magnitude: scaled * scale + shift,
            }
        };
        Ok(x.iter().zip(&normalized).enumerate().map(magnitude).collect())
    }

    fn engine(&self, x: &[f64], channels: usize, positions: usize) -> isonorm::Result<Vec<f64>> {
        let norm = if self.statistics.is_some() {
            Norm::Batch
        } else {
            Norm::Layer(Over::Channels)
        };
        let affine = if self.weight.is_some() || self.bias.is_some() {
            Affine::Full
        } else {
            Affine::None
        };
        let mut desc = NormDesc::new(norm, Shape::from([1, channels, positions]))
            .dtype(DType::F64)
            .pass(Pass::Eval)
            .affine(affine);
        if let Some(statistics) = &self.statistics {
            desc = desc.eps(statistics.eps);
        }
        let device = Device::best();
        let plan = device.plan(&desc)?;
        let mut y = vec![0.0; x.len()];
        let weight = self.weight.clone().unwrap_or_else(|| vec![1.0; channels]);
        let bias = self.bias.clone().unwrap_or_else(|| vec![0.0; channels]);
        let mut arguments = Forward::new(x, &mut y);
        if affine.has_weight() {
            arguments = arguments.weight(&weight).bias(&bias);
        }
        if let Some(statistics) = &self.statistics {
            arguments = arguments.running(&statistics.mean, &statistics.var);
        }
        device.forward(&plan, arguments, &mut Workspace::new(&plan))?;
        Ok(y)
    }
}

fn compare(probe: &Probe, x: &[Input], expected: &[Sum], got: &[Sum], after: &Layer) -> Verdict {
    let types = [Some(after.weight.dtype()), after.bias.as_ref().map(Tensor::dtype)];
    let of_types = |f: fn(DType) -> f64| types.into_iter().flatten().map(f).fold(0.0, f64::max);
    let (unit, subnormal) = (of_types(|d| 0.5 * d.epsilon()), of_types(smallest_subnormal));
    let largest = x.iter().map(|x| x.value.abs()).fold(0.0, f64::max);
    let lost = 0.5 * subnormal * (probe.terms() as f64 * largest + 1.0);
    let noise = f64::EPSILON * (probe.terms() as f64 + 16.0);
    let verdict = |(e, g): (&Sum, &Sum)| Verdict {
        error: (e.value - g.value).abs(),
        allowed: unit * g.magnitude + lost + noise * (e.magnitude + g.magnitude),
    };
    let none = Verdict {
        error: 0.0,
        allowed: f64::MIN_POSITIVE,
    };
    expected.iter().zip(got).map(verdict).fold(none, Verdict::worse)
}

fn smallest_subnormal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-24),
        DType::Bf16 => 2f64.powi(-133),
        DType::F32 => 2f64.powi(-149),
        DType::F64 => f64::from_bits(1),
    }
}

#[cfg(test)]
mod tests {
    use isonorm::TensorData;
    use isonorm::fold::{AffineParameters, BatchNormParameters, affine_into_next, batch_norm_into_previous};

    use super::*;

    fn tensor(dtype: DType, shape: &[usize]) -> Tensor {
        let values: Vec<f64> = random(shape.iter().product()).iter().map(|x| x.value).collect();
        Tensor::new(Shape::new(shape).unwrap(), TensorData::from_f64(dtype, &values)).unwrap()
    }

    fn norm(channels: usize) -> NormValues {
        let values: Vec<f64> = (1..=channels).map(|c| 0.5 * c as f64).collect();
        NormValues {
            statistics: Some(Statistics {
                mean: values.clone(),
                var: values.clone(),
                eps: 1e-5,
            }),
            weight: Some(values.clone()),
            bias: Some(values),
        }
    }

    /// A layer of four outputs before and after folding.
    fn folded(layout: WeightLayout, shape: &[usize], dtype: DType) -> (Layer, NormValues, Layer) {
        let (before, norm) = (
            Layer {
                layout,
                weight: tensor(dtype, shape),
                bias: None,
            },
            norm(4),
        );
        let mut after = before.clone();
        let Statistics { mean, var, eps } = norm.statistics.as_ref().unwrap();
        let parameters = BatchNormParameters::new(mean, var).eps(*eps);
        let parameters = parameters
            .weight(norm.weight.as_ref().unwrap())
            .bias(norm.bias.as_ref().unwrap());
        batch_norm_into_previous(layout, &mut after.weight, &mut after.bias, &parameters).unwrap();
        (before, norm, after)
    }

    const LAYERS: [(WeightLayout, &[usize]); 7] = [
        (WeightLayout::Linear, &[4, 3]),
        (WeightLayout::LinearTransposed, &[3, 4]),
        (WeightLayout::Conv, &[4, 3, 5]),
        (WeightLayout::Conv, &[4, 1, 3, 2]),
        (WeightLayout::Conv, &[4, 3, 1, 2, 3]),
        (WeightLayout::ConvTranspose { groups: 1 }, &[3, 4, 3, 3]),
        (WeightLayout::ConvTranspose { groups: 2 }, &[6, 2, 2, 3]),
    ];

    #[test]
    fn what_was_folded_rightly_passes_and_is_close_to_the_bound() {
        for dtype in DType::ALL {
            for (layout, shape) in LAYERS {
                let (before, norm, after) = folded(layout, shape, dtype);
                let verdict = previous(&before, &norm, &after).unwrap();
                assert!(verdict.passes(), "{layout} {dtype}: {verdict:?}");
                assert!(
                    verdict.error > 0.0 && verdict.allowed < 1000.0 * dtype.epsilon(),
                    "{layout} {dtype}: {verdict:?}"
                );
            }
        }
    }

    #[test]
    fn mistakes_fail() {
        for dtype in DType::ALL {
            for (layout, shape) in LAYERS {
                let (before, norm, after) = folded(layout, shape, dtype);
                let fails = |after: &Layer| !previous(&before, &norm, after).unwrap().passes();
                let mut no_bias = after.clone();
                no_bias.bias = None;
                let unscaled = Layer {
                    weight: before.weight.clone(),
                    ..after.clone()
                };
                let mut last = after.clone();
                let mut values = last.weight.data().to_f64();
                values.iter_mut().last().into_iter().for_each(|v| *v = f64::NAN);
                *last.weight.data_mut() = TensorData::from_f64(dtype, &values);
                assert!(fails(&no_bias) && fails(&unscaled) && fails(&last), "{layout} {dtype}");
            }
        }
        let (before, norm, _) = folded(WeightLayout::ConvTranspose { groups: 1 }, &[4, 4, 2], DType::F32);
        let (.., wrong_axis) = folded(WeightLayout::Conv, &[4, 4, 2], DType::F32);
        assert!(!previous(&before, &norm, &wrong_axis).unwrap().passes());
    }

    #[test]
    fn the_layer_after_a_norm() {
        for (layout, shape) in [(WeightLayout::Linear, [3, 4]), (WeightLayout::LinearTransposed, [4, 3])] {
            let before = Layer {
                layout,
                weight: tensor(DType::F32, &shape),
                bias: None,
            };
            let affine = NormValues {
                statistics: None,
                ..norm(4)
            };
            let mut after = before.clone();
            let (gamma, beta) = (affine.weight.as_ref().unwrap(), affine.bias.as_ref().unwrap());
            let parameters = AffineParameters::new().weight(gamma).bias(beta);
            affine_into_next(layout, &mut after.weight, &mut after.bias, &parameters).unwrap();
            assert!(next(&before, &affine, &after).unwrap().passes());
            assert!(!next(&before, &affine, &before).unwrap().passes());
        }
    }
}
