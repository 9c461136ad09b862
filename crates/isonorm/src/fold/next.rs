use super::axis::{ChannelAxis, WeightLayout};
use super::parameters::{AffineParameters, BatchNormParameters};
use super::rescale::{self, bias_values, rounded_bias};
use crate::{Result, Tensor};

/// Folds the weight and bias of a LayerNorm or RMSNorm into a linear layer that reads the norm's output:
///
/// ```text
/// W' = W·diag(γ)        b' = b + W·β
/// ```
///
/// Call it for each layer that reads the norm; then the norm has no affine parameters any more (weight one, bias zero). A
/// missing bias is added, in the type of the weight, when the norm has one. The norm may span several dimensions that the
/// layer reads flattened.
///
/// # Errors
/// [`Error::Fold`](crate::Error::Fold) when the weight's shape does not fit `layout`, when the number of inputs is not that
/// of the parameters, when `layout` is a convolution, or when a result is not finite in its type. Nothing has been changed
/// then.
pub fn affine_into_next(
    layout: WeightLayout,
    weight: &mut Tensor,
    bias: &mut Option<Tensor>,
    norm: &AffineParameters<'_>,
) -> Result<()> {
    let axis = ChannelAxis::input(layout, weight)?;
    let (scales, shifts) = norm.read(axis.total(), &why(layout, weight, &axis))?;
    let shifts = norm.has_bias().then_some(shifts);
    fold(layout, &axis, weight, bias, &scales, shifts.as_deref())
}

/// Folds a whole BatchNorm in evaluation into the linear layer after it:
///
/// ```text
/// s = γ/√(σ² + eps)        W' = W·diag(s)        b' = b + W·(β − μ·s)
/// ```
///
/// A missing bias is added, in the type of the weight. The BatchNorm is then the identity and can be dropped.
///
/// # Errors
/// As [`affine_into_next`], and when `var + eps` has no reciprocal root.
pub fn batch_norm_into_next(
    layout: WeightLayout,
    weight: &mut Tensor,
    bias: &mut Option<Tensor>,
    norm: &BatchNormParameters<'_>,
) -> Result<()> {
    let axis = ChannelAxis::input(layout, weight)?;
    let channels = norm.channels(axis.total(), &why(layout, weight, &axis))?;
    let scales: Vec<f64> = channels.iter().map(|c| c.scale).collect();
    let shifts: Vec<f64> = channels.iter().map(|c| c.bias - c.mean * c.scale).collect();
    fold(layout, &axis, weight, bias, &scales, Some(&shifts))
}

fn why(layout: WeightLayout, weight: &Tensor, axis: &ChannelAxis) -> String {
    format!("the {layout} weight {} has {} inputs", weight.shape(), axis.total())
}

fn fold(
    layout: WeightLayout,
    axis: &ChannelAxis,
    weight: &mut Tensor,
    bias: &mut Option<Tensor>,
    scales: &[f64],
    shifts: Option<&[f64]>,
) -> Result<()> {
    // A linear layer repeats its inputs for each output, or has its outputs innermost.
    let outputs = axis.repeat * axis.inner;
    let new = match shifts {
        None => None,
        Some(shifts) => {
            let why = format!("the {layout} weight {} has {outputs} outputs", weight.shape());
            let mut sums = bias_values(bias.as_ref(), outputs, &why)?;
            rescale::add_product(weight, axis, shifts, &mut sums);
            Some(rounded_bias(bias.as_ref(), weight.dtype(), &sums)?)
        }
    };
    rescale::channels(weight, axis, scales)?;
    if new.is_some() {
        *bias = new;
    }
    Ok(())
}
