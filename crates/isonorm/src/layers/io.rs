//! What goes through a layer.

use crate::{Error, NormDesc, Result, Tensor, TensorData};

/// What a layer normalizes: `x`, and perhaps a residual that is added before the activation.
///
/// ```
/// use isonorm::layers::{BatchNorm, Input};
/// use isonorm::{Activation, Tensor};
///
/// let layer = BatchNorm::new(1).activation(Activation::Relu);
/// let x = Tensor::new([2, 1], vec![1.0f32, -1.0])?;
/// let shortcut = Tensor::new([2, 1], vec![-3.0f32, 3.0])?;
///
/// let plain = layer.forward(&x)?; // relu(norm(x))
/// let fused = layer.forward(Input::new(&x).residual(&shortcut))?; // relu(norm(x) + shortcut)
/// assert_eq!(fused.as_slice::<f32>().unwrap()[0], 0.0);
/// # Ok::<(), isonorm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    x: &'a Tensor,
    residual: Option<&'a Tensor>,
}

impl<'a> Input<'a> {
    /// `x` alone; a `&Tensor` does as well.
    pub fn new(x: &'a Tensor) -> Input<'a> {
        Input { x, residual: None }
    }

    /// A tensor of the shape, type and layout of `x` that is added between the affine map and the activation.
    pub fn residual(self, residual: &'a Tensor) -> Input<'a> {
        Input {
            residual: Some(residual),
            ..self
        }
    }

    /// The tensor that is normalized.
    pub fn x(&self) -> &'a Tensor {
        self.x
    }

    /// The tensor that is added, if there is one.
    pub fn get_residual(&self) -> Option<&'a Tensor> {
        self.residual
    }
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(x: &'a Tensor) -> Input<'a> {
        Input::new(x)
    }
}

/// What a forward pass keeps for the backward pass, besides its input (a residual stream's besides the stream): statistics, a
/// few numbers a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The description of the backward pass that this is for.
    pub(super) desc: NormDesc,
    pub(super) statistics: Statistics,
}

/// Where a forward pass took its statistics from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statistics {
    /// From `x`. The mean is `f64`, so that the gradient is right where the mean is much larger than the spread.
    OfInput { mean: Option<TensorData>, rstd: TensorData },
    /// Running mean and variance as they were.
    Running { mean: Tensor, var: Tensor },
}

impl Saved {
    /// The mean of each group, in `f64`; `None` for an RMSNorm and when running statistics were used. The number and order
    /// of groups is the [`Geometry`](crate::Geometry)'s.
    pub fn mean(&self) -> Option<&[f64]> {
        match &self.statistics {
            Statistics::OfInput { mean, .. } => mean.as_ref()?.as_slice(),
            Statistics::Running { .. } => None,
        }
    }

    /// `1/√(variance + eps)` of each group, in `f64` for `f64` input and `f32` otherwise; `None` when running statistics were
    /// used.
    pub fn rstd(&self) -> Option<&TensorData> {
        match &self.statistics {
            Statistics::OfInput { rstd, .. } => Some(rstd),
            Statistics::Running { .. } => None,
        }
    }

    /// That this was saved for the backward pass of this description.
    pub(super) fn check_for(&self, desc: &NormDesc) -> Result<()> {
        if *desc == self.desc {
            return Ok(());
        }
        let reason = format!("what was saved is for `{}`, not for `{desc}`", self.desc);
        Err(Error::PlanMismatch { op: desc.op(), reason })
    }
}

/// What a backward pass returns: the gradients, each like what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Of `x`; behind a [residual stream](super::Layer::backward_stream) of both `x` and the residual.
    pub input: Tensor,
    /// Of the weight, where there is one that is trained.
    pub weight: Option<Tensor>,
    /// Of the bias, where there is one that is trained.
    pub bias: Option<Tensor>,
    /// Of the residual that was added before the activation, where there is one.
    pub residual: Option<Tensor>,
}

impl Gradients {
    /// Those of the parameters with their names, in the order of [`Layer::parameters_mut`](super::Layer::parameters_mut).
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let named = [("weight", &self.weight), ("bias", &self.bias)];
        named
            .into_iter()
            .filter_map(|(name, gradient)| Some((name, gradient.as_ref()?)))
    }
}
