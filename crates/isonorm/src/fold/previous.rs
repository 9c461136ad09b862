use super::axis::{ChannelAxis, WeightLayout};
use super::parameters::BatchNormParameters;
use super::rescale::{self, bias_values, rounded_bias};
use crate::{Result, Tensor};

/// Folds a BatchNorm in evaluation into the convolution or linear layer before it:
///
/// ```text
/// W' = W·γ/√(σ² + eps)        b' = (b − μ)·γ/√(σ² + eps) + β
/// ```
///
/// `weight` and a bias that is there keep their types; one that is missing is added, in the type of the weight. The
/// BatchNorm is then the identity and can be dropped.
///
/// # Errors
/// [`Error::Fold`](crate::Error::Fold) when the weight's shape does not fit `layout`, when the number of output channels is
/// not that of the parameters, when `var + eps` has no reciprocal root, or when a result is not finite in its type. Nothing
/// has been changed then.
pub fn batch_norm_into_previous(
    layout: WeightLayout,
    weight: &mut Tensor,
    bias: &mut Option<Tensor>,
    norm: &BatchNormParameters<'_>,
) -> Result<()> {
    let axis = ChannelAxis::output(layout, weight)?;
    let outputs = axis.total();
    let why = format!("the {layout} weight {} has {outputs} outputs", weight.shape());
    let channels = norm.channels(outputs, &why)?;

    let old = bias_values(bias.as_ref(), outputs, &why)?;
    let new: Vec<f64> = old
        .iter()
        .zip(&channels)
        .map(|(b, c)| (b - c.mean) * c.scale + c.bias)
        .collect();
    let new = rounded_bias(bias.as_ref(), weight.dtype(), &new)?;

    let scales: Vec<f64> = channels.iter().map(|c| c.scale).collect();
    rescale::channels(weight, &axis, &scales)?;
    *bias = Some(new);
    Ok(())
}
