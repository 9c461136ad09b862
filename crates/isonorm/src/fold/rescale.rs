//! The arithmetic on weights of any type: in `f64`, rounded once, all or nothing.

use rayon::prelude::*;

use super::axis::ChannelAxis;
use super::refused;
use crate::{DType, Result, Scalar, Shape, Tensor, TensorData};

/// Multiplies every element by the factor of its channel.
pub(super) fn channels(weight: &mut Tensor, axis: &ChannelAxis, scales: &[f64]) -> Result<()> {
    let shape = weight.shape();
    match weight.data_mut() {
        TensorData::F16(w) => scale(w, axis, scales, shape),
        TensorData::Bf16(w) => scale(w, axis, scales, shape),
        TensorData::F32(w) => scale(w, axis, scales, shape),
        TensorData::F64(w) => scale(w, axis, scales, shape),
    }
}

fn scale<T: Scalar>(weight: &mut [T], axis: &ChannelAxis, scales: &[f64], shape: Shape) -> Result<()> {
    if weight.is_empty() {
        return Ok(());
    }
    let of_row = |row: usize| &scales[axis.first_channel(row)..][..axis.channels];
    let overflow = weight
        .par_chunks_exact(axis.row())
        .enumerate()
        .find_map_first(|(row, elements)| {
            let channels = elements.chunks_exact(axis.inner).zip(of_row(row));
            let results = channels.flat_map(|(c, s)| c.iter().map(move |w| scaled(*w, *s)));
            let at = results.enumerate().find(|(_, w)| !w.to_f64().is_finite());
            at.map(|(i, w)| (row * axis.row() + i, w.to_f64()))
        });
    if let Some((index, value)) = overflow {
        return Err(refused(format!(
            "element {index} of the weight {shape} becomes {value} in {}",
            T::DTYPE
        )));
    }
    weight
        .par_chunks_exact_mut(axis.row())
        .enumerate()
        .for_each(|(row, elements)| {
            for (channel, s) in elements.chunks_exact_mut(axis.inner).zip(of_row(row)) {
                channel.iter_mut().for_each(|w| *w = scaled(*w, *s));
            }
        });
    Ok(())
}

fn scaled<T: Scalar>(weight: T, scale: f64) -> T {
    T::from_f64(weight.to_f64() * scale)
}

/// Adds the linear layer's product with `shifts` to `sums`, one an output.
pub(super) fn add_product(weight: &Tensor, axis: &ChannelAxis, shifts: &[f64], sums: &mut [f64]) {
    match weight.data() {
        TensorData::F16(w) => product(w, axis, shifts, sums),
        TensorData::Bf16(w) => product(w, axis, shifts, sums),
        TensorData::F32(w) => product(w, axis, shifts, sums),
        TensorData::F64(w) => product(w, axis, shifts, sums),
    }
}

fn product<T: Scalar>(weight: &[T], axis: &ChannelAxis, shifts: &[f64], sums: &mut [f64]) {
    if weight.is_empty() {
        return;
    }
    let rows = weight.par_chunks_exact(axis.row());
    rows.zip(sums.par_chunks_exact_mut(axis.inner)).for_each(|(row, sums)| {
        for (channel, t) in row.chunks_exact(axis.inner).zip(shifts) {
            for (sum, w) in sums.iter_mut().zip(channel) {
                *sum += w.to_f64() * t;
            }
        }
    });
}

/// The bias as `f64`, zeros when there is none.
pub(super) fn bias_values(bias: Option<&Tensor>, outputs: usize, why: &str) -> Result<Vec<f64>> {
    match bias {
        None => Ok(vec![0.0; outputs]),
        Some(bias) if bias.data().len() == outputs => Ok(bias.data().to_f64()),
        Some(bias) => Err(refused(format!(
            "the layer's bias has shape {}, expected {outputs} ({why})",
            bias.shape()
        ))),
    }
}

/// A bias of these values, in the type and shape of the one that was, or else in the weight's type.
pub(super) fn rounded_bias(old: Option<&Tensor>, dtype: DType, values: &[f64]) -> Result<Tensor> {
    let dtype = old.map_or(dtype, Tensor::dtype);
    let shape = old.map_or(Shape::from([values.len()]), Tensor::shape);
    let data = TensorData::from_f64(dtype, values);
    if let Some((i, v)) = data.to_f64().into_iter().enumerate().find(|(_, v)| !v.is_finite()) {
        return Err(refused(format!("bias[{i}] becomes {v} in {dtype}")));
    }
    Tensor::new(shape, data)
}
