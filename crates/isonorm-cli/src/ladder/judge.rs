//! Results against double precision. Groups have nothing to do with each other, so of large tensors some are compared, from the first to
//! the last.

use isonorm::{DType, Geometry, NormDesc, Rung, Shape, TensorData};
use isonorm_check::{BackwardInputs, Case, ForwardInputs, Output, Running, oracle, tolerance};

use crate::call::Inputs;
use crate::error::Result;

/// So many elements are compared, at most, unless one group has more.
const MOST: usize = 1 << 22;

/// What came of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    /// The largest |y − y64|; `None` where a result is not finite.
    pub(super) error: Option<f64>,
    /// The largest bound; `None` where nothing is promised.
    pub(super) bound: Option<f64>,
    /// Whether every element lies within its own.
    pub(super) right: bool,
}

/// Compares `y`, or `dx`, of a problem on `f32` tensors with its definition; within what the arithmetic of a rung, or of the product, allows.
pub(super) fn judge(desc: &NormDesc, rung: Option<Rung>, inputs: &Inputs, got: &TensorData) -> Result<Judged> {
    let g = Geometry::of(desc)?;
    let group = g.outer * g.inner;
    let count = (MOST / group.max(1)).clamp(1, g.kept);
    let chosen: Vec<usize> = (0..count).map(|i| i * (g.kept - 1) / (count - 1).max(1)).collect();
    let tensor = |data: &TensorData| pick(data, &g, &chosen);
    let channel = |data: &TensorData| {
        let values = data.to_f64();
        TensorData::from_f64(DType::F32, &chosen.iter().map(|&c| values[c]).collect::<Vec<_>>())
    };
    let sub = desc_of(desc, count);
    let case = Case { rung, ..Case::new(sub) };
    let by_channel = |data: &Option<TensorData>| data.as_ref().map(channel);
    let running = inputs.running.as_ref().map(|[mean, var]| Running {
        mean: channel(mean),
        var: channel(var),
    });
    let (output, expected) = match &inputs.dy {
        None => {
            let inputs = ForwardInputs {
                x: tensor(&inputs.x),
                weight: by_channel(&inputs.weight),
                bias: by_channel(&inputs.bias),
                residual: None,
                running: running.filter(|_| sub.uses_running_statistics()),
                factor: 0.0,
                saved: None,
            };
            let truth = oracle::forward(&sub, &inputs);
            (Output::Y, tolerance::forward(&case, &inputs, &truth))
        }
        Some(dy) => {
            let inputs = BackwardInputs {
                x: tensor(&inputs.x),
                dy: tensor(dy),
                weight: by_channel(&inputs.weight),
                bias: by_channel(&inputs.bias),
                residual: None,
                mask: None,
                result: None,
                dstream: None,
                running: None,
                means: None,
                mean: by_channel(&inputs.saved[0]),
                rstd: by_channel(&inputs.saved[1]),
                without_dx: false,
                without_dweight: false,
            };
            let truth = oracle::backward(&sub, &inputs);
            (Output::Dx, tolerance::backward(&case, &inputs, &truth))
        }
    };
    let mut judged = Judged {
        error: Some(0.0),
        bound: Some(0.0),
        right: true,
    };
    let larger = |old: Option<f64>, new: f64| old.filter(|_| new.is_finite()).map(|old| old.max(new));
    for expected in expected.iter().filter(|expected| expected.output == output) {
        for (i, got) in tensor(got).to_f64().into_iter().enumerate() {
            let slack = expected.slack[i];
            judged.error = larger(judged.error, (got - expected.values[i]).abs());
            judged.bound = larger(judged.bound, slack);
            judged.right &= slack == f64::INFINITY || expected.used(i, got, DType::F32) <= 1.0;
        }
    }
    Ok(judged)
}

/// The same problem of so many channels, or rows.
fn desc_of(desc: &NormDesc, count: usize) -> NormDesc {
    let mut dims = desc.get_shape().dims().to_vec();
    if desc.get_norm().has_channels() {
        dims[1] = count;
    } else {
        dims = vec![count, dims.last().copied().unwrap_or(1)];
    }
    NormDesc::new(desc.get_norm(), Shape::new(&dims).unwrap_or(desc.get_shape()))
        .affine(desc.get_affine())
        .activation(desc.get_activation())
        .pass(desc.get_pass())
        .eps(desc.get_eps())
}

/// The elements of these groups: channels of every image, or rows.
fn pick(data: &TensorData, g: &Geometry, groups: &[usize]) -> TensorData {
    let TensorData::F32(all) = data else {
        return data.clone();
    };
    let mut some = Vec::with_capacity(g.outer * groups.len() * g.inner);
    for outer in 0..g.outer {
        for &group in groups {
            let start = (outer * g.kept + group) * g.inner;
            some.extend_from_slice(&all[start..start + g.inner]);
        }
    }
    TensorData::F32(some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_picked_out_of_every_image() {
        let desc = NormDesc::batch_norm([2, 3, 2]);
        let g = Geometry::of(&desc).unwrap();
        let data = TensorData::F32((0..12).map(|i| i as f32).collect());
        let TensorData::F32(some) = pick(&data, &g, &[0, 2]) else {
            panic!("it was f32");
        };
        assert_eq!(some, [0.0, 1.0, 4.0, 5.0, 6.0, 7.0, 10.0, 11.0]);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let desc = Rung::LnNaive.desc([2, 4]);
        let inputs = Inputs::of(TensorData::F32(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        let row = [-1.3416402, -0.4472134, 0.4472134, 1.3416402f32];
        let right = TensorData::F32([row, row].concat());
        let judged = judge(&desc, None, &inputs, &right).unwrap();
        assert!(judged.right && judged.error.unwrap() < 1e-6, "{judged:?}");
        let mut wrong = [row, row].concat();
        wrong[5] = 0.5;
        let judged = judge(&desc, None, &inputs, &TensorData::F32(wrong)).unwrap();
        assert!(!judged.right && judged.error.unwrap() > 0.9, "{judged:?}");
        let lost = TensorData::F32(vec![f32::NAN; 8]);
        let judged = judge(&desc, None, &inputs, &lost).unwrap();
        assert!(!judged.right && judged.error.is_none(), "{judged:?}");
    }
}
