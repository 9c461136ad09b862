//! Random inputs for any problem.

use fastrand::Rng;
use isonorm::{DType, Device, Norm, NormDesc, Pass, Scalar, TensorData};

use crate::call::{Inputs, statistics_of};
use crate::error::Result;

/// The same numbers every time.
const SEED: u64 = 0x150_0912;

/// All that this problem reads, with values like those of a network: tensors of zero mean and unit variance, weights and
/// variances about one.
pub(crate) fn inputs(desc: &NormDesc, elements: usize, parameters: usize, device: &Device) -> Result<Inputs> {
    let mut rng = Rng::with_seed(SEED);
    let mut tensor = |wanted: bool| wanted.then(|| normal(&mut rng, desc.get_dtype(), elements, 0.0, 1.0));
    let backward = desc.get_pass().is_backward();
    let (x, dy) = (tensor(true), tensor(backward));
    // Of a masked one the forward pass reads the residual, and the backward pass the mask: any bytes. Or the result, any numbers.
    let is_kept = !(backward && desc.has_mask() || desc.reads_result());
    let residual = tensor(is_kept && desc.has_residual() || desc.has_stream() && !backward);
    let result = tensor(desc.reads_result());
    let dstream = tensor(desc.has_stream() && backward);
    let x = x.unwrap_or_else(|| TensorData::zeros(desc.get_dtype(), elements));
    let mask =
        (backward && desc.has_mask()).then(|| normal(&mut rng, desc.get_dtype(), desc.mask_elements(), 0.0, 1.0));
    let mut parameter =
        |wanted: bool, mean: f64| wanted.then(|| normal(&mut rng, desc.get_param_dtype(), parameters, mean, 0.1));
    // What PyTorch keeps by default: running statistics for BatchNorm's training, none for InstanceNorm's.
    let running = desc.uses_running_statistics() || (desc.get_norm() == Norm::Batch && desc.get_pass() == Pass::Train);
    let affine = desc.get_affine();
    Ok(Inputs {
        saved: match desc.get_pass() == Pass::Backward || (backward && !desc.uses_running_statistics()) {
            true => statistics_of(desc, &x, device)?,
            false => [None, None],
        },
        x,
        dy,
        residual,
        mask,
        result,
        dstream,
        weight: parameter(affine.has_weight(), 1.0),
        bias: parameter(affine.has_bias(), 0.0),
        running: parameter(running, 0.0).zip(parameter(running, 1.0)).map(<[_; 2]>::from),
    })
}

fn normal(rng: &mut Rng, dtype: DType, len: usize, mean: f64, deviation: f64) -> TensorData {
    match dtype {
        DType::F16 => values::<isonorm::f16>(rng, len, mean, deviation).into(),
        DType::Bf16 => values::<isonorm::bf16>(rng, len, mean, deviation).into(),
        DType::F32 => values::<f32>(rng, len, mean, deviation).into(),
        DType::F64 => values::<f64>(rng, len, mean, deviation).into(),
    }
}

/// Nearly normal: sums of four uniform numbers, which are cheap.
fn values<T: Scalar>(rng: &mut Rng, len: usize, mean: f64, deviation: f64) -> Vec<T> {
    /// The sum of four uniform 16-bit numbers has this mean, and the root of four times their variance.
    const MEAN: f64 = 4.0 * 32767.5;
    let scale = deviation / (2.0 * 65536.0 / 12f64.sqrt());
    let one = |bits: u64| {
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        T::from_f64(mean + (sum as f64 - MEAN) * scale)
    };
    (0..len).map(|_| one(rng.u64(..))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Summary;

    #[test]
    fn values_have_the_mean_and_deviation_asked_for() {
        let s = Summary::of(&normal(&mut Rng::with_seed(1), DType::F32, 100_000, 1.0, 0.5));
        assert!(
            (s.mean.unwrap() - 1.0).abs() < 0.01 && (s.std.unwrap() - 0.5).abs() < 0.01,
            "{s:?}"
        );
    }
}
