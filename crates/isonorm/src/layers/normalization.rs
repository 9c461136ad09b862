use std::fmt;

use super::op::Op;
use super::{Gradients, Input, Layer, Saved, StateDict};
use crate::{Result, Tensor};

/// Any normalization layer, for code that holds several kinds. The methods are those of [`Layer`].
///
/// ```
/// use isonorm::Tensor;
/// use isonorm::layers::{BatchNorm, GroupNorm, Normalization};
///
/// let mut layers: Vec<Box<dyn Normalization>> = vec![Box::new(BatchNorm::new(4)), Box::new(GroupNorm::new(2, 4))];
/// let mut x = Tensor::new([2, 4, 1], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
/// for layer in &mut layers {
///     x = layer.forward_train((&x).into())?.0;
/// }
/// assert_eq!(x.shape().dims(), [2, 4, 1]);
/// # Ok::<(), isonorm::Error>(())
/// ```
pub trait Normalization: fmt::Debug + Send + Sync {
    /// The layer's name, such as `BatchNorm`.
    fn name(&self) -> &'static str;

    /// See [`Layer::forward`].
    ///
    /// # Errors
    /// Those of `Layer::forward`.
    fn forward(&self, input: Input<'_>) -> Result<Tensor>;

    /// See [`Layer::forward_train`].
    ///
    /// # Errors
    /// Those of `Layer::forward_train`.
    fn forward_train(&mut self, input: Input<'_>) -> Result<(Tensor, Saved)>;

    /// See [`Layer::forward_eval`].
    ///
    /// # Errors
    /// Those of `Layer::forward_eval`.
    fn forward_eval(&self, input: Input<'_>) -> Result<(Tensor, Saved)>;

    /// See [`Layer::backward`].
    ///
    /// # Errors
    /// Those of `Layer::backward`.
    fn backward(&self, input: Input<'_>, dy: &Tensor, saved: &Saved) -> Result<Gradients>;

    /// See [`Layer::forward_stream`].
    ///
    /// # Errors
    /// Those of `Layer::forward_stream`, and [`Error::InvalidDescription`](crate::Error::InvalidDescription) for every layer but
    /// LayerNorm and RMSNorm.
    fn forward_stream(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)>;

    /// See [`Layer::forward_stream_train`].
    ///
    /// # Errors
    /// Those of [`forward_stream`](Normalization::forward_stream).
    fn forward_stream_train(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor, Saved)>;

    /// See [`Layer::backward_stream`].
    ///
    /// # Errors
    /// Those of `Layer::backward_stream`.
    fn backward_stream(
        &self,
        stream: &Tensor,
        dy: &Tensor,
        dstream: Option<&Tensor>,
        saved: &Saved,
    ) -> Result<Gradients>;

    /// See [`Layer::parameters_mut`].
    fn parameters_mut(&mut self) -> Vec<(&'static str, &mut Tensor)>;

    /// See [`Layer::state_dict`].
    fn state_dict(&self, prefix: &str) -> StateDict;

    /// See [`Layer::load_state_dict`].
    ///
    /// # Errors
    /// Those of `Layer::load_state_dict`.
    fn load_state_dict(&mut self, prefix: &str, state: &StateDict) -> Result<()>;
}

impl<K: Op> Normalization for Layer<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn forward(&self, input: Input<'_>) -> Result<Tensor> {
        self.core.forward(input)
    }

    fn forward_train(&mut self, input: Input<'_>) -> Result<(Tensor, Saved)> {
        self.core.forward_train(input)
    }

    fn forward_eval(&self, input: Input<'_>) -> Result<(Tensor, Saved)> {
        self.core.forward_eval(input)
    }

    fn backward(&self, input: Input<'_>, dy: &Tensor, saved: &Saved) -> Result<Gradients> {
        self.core.backward(input, dy, saved)
    }

    fn forward_stream(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        self.core.forward_stream(x, residual)
    }

    fn forward_stream_train(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor, Saved)> {
        self.core.forward_stream_train(x, residual)
    }

    fn backward_stream(
        &self,
        stream: &Tensor,
        dy: &Tensor,
        dstream: Option<&Tensor>,
        saved: &Saved,
    ) -> Result<Gradients> {
        self.core.backward_stream(stream, dy, dstream, saved)
    }

    fn parameters_mut(&mut self) -> Vec<(&'static str, &mut Tensor)> {
        self.core.trained_mut()
    }

    fn state_dict(&self, prefix: &str) -> StateDict {
        self.core.state_dict(prefix)
    }

    fn load_state_dict(&mut self, prefix: &str, state: &StateDict) -> Result<()> {
        self.core.load_state_dict(prefix, state)
    }
}
