//! The one layer type: what a user calls, whatever the op.

use std::fmt;
use std::marker::PhantomData;

use super::core::Core;
use super::op::{Op, Streaming, Tracking, Trained};
use super::{Gradients, Input, Momentum, Saved, StateDict};
use crate::{Activation, Affine, DType, Device, Result, Shape, Tensor};

/// A normalization layer with its parameters. Use it by the names of its ops: [`BatchNorm`](super::BatchNorm),
/// [`FrozenBatchNorm`](super::FrozenBatchNorm), [`LayerNorm`](super::LayerNorm), [`RmsNorm`](super::RmsNorm),
/// [`GroupNorm`](super::GroupNorm), [`InstanceNorm`](super::InstanceNorm).
///
/// Cloning copies the parameters. Plans are made once for each shape, type and pass, and kept; threads may share a layer.
/// Serialized with serde: what it is and what it has learned, not the device.
pub struct Layer<K: Op> {
    pub(super) core: Core,
    pub(super) op: PhantomData<fn() -> K>,
}

impl<K: Op> Layer<K> {
    pub(super) fn of(core: Core) -> Layer<K> {
        Layer { core, op: PhantomData }
    }

    /// The activation after the affine map (and after the residual). Default: none.
    pub fn activation(mut self, activation: Activation) -> Layer<K> {
        self.core.config.activation = activation;
        self
    }

    /// The number added to the variance (to the mean square for RMSNorm) before the root. Default: 1e-5; for RMSNorm the
    /// machine epsilon of the type that the computation is carried out in. A negative or infinite one or a NaN is an error when
    /// the layer runs.
    pub fn eps(mut self, eps: f64) -> Layer<K> {
        self.core.config.eps = Some(eps);
        self
    }

    /// The type of parameters, their gradients and running statistics, into which those that are there are converted. It must
    /// be `f32` (the default, which goes with input of any type) or the input's.
    pub fn param_dtype(mut self, dtype: DType) -> Layer<K> {
        self.core.set_param_dtype(dtype);
        self
    }

    /// Where the layer runs. Default: [`Device::best`].
    pub fn with_device(mut self, device: Device) -> Layer<K> {
        self.core.set_device(device);
        self
    }

    /// Inference: with running statistics where the layer keeps them, else with those of `x`.
    ///
    /// # Errors
    /// When `x` does not fit the parameters ([`Error::ShapeMismatch`](crate::Error::ShapeMismatch)), its rank or type is not
    /// one that the op and the parameters allow ([`Error::InvalidDescription`](crate::Error::InvalidDescription)), or the
    /// residual is not like `x`.
    pub fn forward<'a>(&self, input: impl Into<Input<'a>>) -> Result<Tensor> {
        self.core.forward(input.into())
    }

    /// [`forward`](Layer::forward), the result written over `x`.
    ///
    /// # Errors
    /// Those of `forward`, and [`Error::InPlace`](crate::Error::InPlace) for a BatchNorm or InstanceNorm without running
    /// statistics. `x` is unchanged then.
    pub fn forward_in_place(&self, x: &mut Tensor) -> Result<()> {
        self.core.forward_in_place(x)
    }

    /// Training: with the statistics of `x`, which also update the running ones and the counter of batches (an empty batch
    /// counts, and updates no statistics). A [`FrozenBatchNorm`](super::FrozenBatchNorm) does the same as
    /// [`forward_eval`](Layer::forward_eval).
    ///
    /// # Errors
    /// Those of [`forward`](Layer::forward), and [`Error::InvalidDescription`](crate::Error::InvalidDescription) when a group
    /// has one value only. The layer is unchanged then.
    pub fn forward_train<'a>(&mut self, input: impl Into<Input<'a>>) -> Result<(Tensor, Saved)> {
        self.core.forward_train(input.into())
    }

    /// [`forward`](Layer::forward), to be followed by [`backward`](Layer::backward): fine-tuning with the running statistics
    /// held constant.
    ///
    /// # Errors
    /// Those of `forward`.
    pub fn forward_eval<'a>(&self, input: impl Into<Input<'a>>) -> Result<(Tensor, Saved)> {
        self.core.forward_eval(input.into())
    }

    /// The gradients of [`forward_train`](Layer::forward_train) or [`forward_eval`](Layer::forward_eval), whichever returned
    /// `saved`. Takes the same input as that call, and comes before the parameters change.
    ///
    /// # Errors
    /// When `dy` is not like `x`, or `saved` comes from another problem
    /// ([`Error::PlanMismatch`](crate::Error::PlanMismatch)).
    pub fn backward<'a>(&self, input: impl Into<Input<'a>>, dy: &Tensor, saved: &Saved) -> Result<Gradients> {
        self.core.backward(input.into(), dy, saved)
    }

    /// The factor of the affine map.
    pub fn weight(&self) -> Option<&Tensor> {
        self.core.parameters.weight.as_ref()
    }

    /// The addend of the affine map.
    pub fn bias(&self) -> Option<&Tensor> {
        self.core.parameters.bias.as_ref()
    }

    /// The running mean of each channel.
    pub fn running_mean(&self) -> Option<&Tensor> {
        self.core.running.as_ref().map(|r| &r.mean)
    }

    /// The running (unbiased) variance of each channel.
    pub fn running_var(&self) -> Option<&Tensor> {
        self.core.running.as_ref().map(|r| &r.var)
    }

    /// What an optimizer updates, with names; [`Gradients::parameters`] has the same order. Empty for a frozen layer.
    pub fn parameters_mut(&mut self) -> Vec<(&'static str, &mut Tensor)> {
        self.core.trained_mut()
    }

    /// The shape of weight, bias and running statistics.
    pub fn shape(&self) -> Shape {
        self.core.config.shape
    }

    /// Where the layer runs.
    pub fn device(&self) -> &Device {
        self.core.engine.device()
    }

    /// Everything the layer has learned, under PyTorch's names: `weight`, `bias`, `running_mean`, `running_var`,
    /// `num_batches_tracked`, as far as it has them. `prefix` is the layer's place in a model, such as `layer1.0.bn1`; it may
    /// be empty.
    ///
    /// ```
    /// use isonorm::layers::BatchNorm;
    ///
    /// let state = BatchNorm::new(4).state_dict("bn1");
    /// let names: Vec<_> = state.keys().map(String::as_str).collect();
    /// assert_eq!(names, ["bn1.bias", "bn1.num_batches_tracked", "bn1.running_mean", "bn1.running_var", "bn1.weight"]);
    /// ```
    pub fn state_dict(&self, prefix: &str) -> StateDict {
        self.core.state_dict(prefix)
    }

    /// Takes over what [`state_dict`](Layer::state_dict) (or PyTorch) wrote, converted to this layer's
    /// [`param_dtype`](Layer::param_dtype). Names outside of `prefix` belong to other layers.
    ///
    /// A missing `num_batches_tracked` leaves the counter as it is, 0 in a new layer: checkpoints older than PyTorch 0.4.1
    /// have none. [`FrozenBatchNorm`](super::FrozenBatchNorm) ignores it.
    ///
    /// # Errors
    /// [`Error::StateDict`](crate::Error::StateDict) with every name that is missing, unexpected or of another shape. Nothing
    /// has been loaded then.
    pub fn load_state_dict(&mut self, prefix: &str, state: &StateDict) -> Result<()> {
        self.core.load_state_dict(prefix, state)
    }
}

impl<K: Trained> Layer<K> {
    /// Which affine parameters there are. New ones are the identity: weight 1, bias 0.
    pub fn affine(mut self, affine: Affine) -> Layer<K> {
        self.core.set_affine(affine);
        self
    }
}

impl<K: Tracking> Layer<K> {
    /// How running statistics follow the batches. Default: [`Momentum::Exponential`] with 0.1.
    pub fn momentum(mut self, momentum: Momentum) -> Layer<K> {
        self.core.config.momentum = momentum;
        self
    }

    /// Whether there are running statistics. Without them, inference uses the statistics of `x`. New ones have mean 0 and
    /// variance 1.
    pub fn track_running_stats(mut self, tracks: bool) -> Layer<K> {
        self.core.set_tracking(tracks);
        self
    }

    /// The number of training batches so far, where there are running statistics.
    pub fn num_batches_tracked(&self) -> Option<u64> {
        self.core.running.as_ref().map(|r| r.batches)
    }
}

impl<K: Streaming> Layer<K> {
    /// The step of a pre-norm transformer from one block to the next, for inference: adds what a block returns, `x`, to the
    /// stream so far, `residual`, and normalizes the sum. Returns the normalized tensor and the sum, the new stream.
    ///
    /// One pass over memory does both. For layers over the last dimensions.
    ///
    /// ```
    /// use isonorm::Tensor;
    /// use isonorm::layers::RmsNorm;
    ///
    /// let norm = RmsNorm::new([2]);
    /// let stream = Tensor::new([1, 2], vec![1.0f32, 5.0])?;
    /// let attention = Tensor::new([1, 2], vec![2.0f32, -2.0])?;
    ///
    /// let (y, stream) = norm.forward_stream(&attention, &stream)?;
    /// assert_eq!(stream.as_slice::<f32>().unwrap(), [3.0, 3.0]);
    /// assert_eq!(y, norm.forward(&stream)?);
    /// # Ok::<(), isonorm::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`forward`](Layer::forward), and [`Error::InvalidDescription`](crate::Error::InvalidDescription) for a layer
    /// over channels.
    pub fn forward_stream(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        self.core.forward_stream(x, residual)
    }

    /// [`forward_stream`](Layer::forward_stream), the new stream written over the old one and the normalized tensor over `x`.
    ///
    /// # Errors
    /// Those of `forward_stream`. Both tensors are unchanged then.
    pub fn forward_stream_in_place(&self, x: &mut Tensor, stream: &mut Tensor) -> Result<()> {
        self.core.forward_stream_in_place(x, stream)
    }

    /// [`forward_stream`](Layer::forward_stream), to be followed by [`backward_stream`](Layer::backward_stream), which needs
    /// the new stream again and neither `x` nor `residual`. Nothing of the layer changes.
    ///
    /// ```
    /// use isonorm::Tensor;
    /// use isonorm::layers::LayerNorm;
    ///
    /// let norm = LayerNorm::new([2]);
    /// let stream = Tensor::new([1, 2], vec![1.0f32, 2.0])?;
    /// let attention = Tensor::new([1, 2], vec![0.0f32, 2.0])?;
    /// let (y, stream, saved) = norm.forward_stream_train(&attention, &stream)?;
    ///
    /// // What is behind has gradients for both: dy by way of the next block, dstream past it.
    /// let (dy, dstream) = (&y, Tensor::new([1, 2], vec![1.0f32, -1.0])?);
    /// let gradients = norm.backward_stream(&stream, dy, Some(&dstream), &saved)?;
    /// let dattention = &gradients.input; // and the dstream of the step before
    /// assert_eq!(dattention.shape(), attention.shape());
    /// # Ok::<(), isonorm::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `forward_stream`.
    pub fn forward_stream_train(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor, Saved)> {
        self.core.forward_stream_train(x, residual)
    }

    /// The gradients of [`forward_stream_train`](Layer::forward_stream_train), which returned `stream` and `saved`. `dy` is the
    /// gradient of the normalized tensor; `dstream` the one that the stream has from where it goes on, `None` where it ends here.
    /// [`Gradients::input`] is that of `x` and, being the same, that of the residual; [`Gradients::residual`] is `None`.
    ///
    /// # Errors
    /// When `dy` or `dstream` is not like `stream`, or `saved` comes from another problem or from a pass without a stream
    /// ([`Error::PlanMismatch`](crate::Error::PlanMismatch)).
    pub fn backward_stream(
        &self,
        stream: &Tensor,
        dy: &Tensor,
        dstream: Option<&Tensor>,
        saved: &Saved,
    ) -> Result<Gradients> {
        self.core.backward_stream(stream, dy, dstream, saved)
    }
}

impl<K: Op> Clone for Layer<K> {
    fn clone(&self) -> Layer<K> {
        Layer::of(self.core.clone())
    }
}

impl<K: Op> fmt::Debug for Layer<K> {
    /// What the layer is; not its parameters' values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.core.config;
        f.debug_struct(K::NAME)
            .field("shape", &config.shape)
            .field("affine", &self.core.parameters.affine())
            .field("tracks_running_stats", &self.core.running.is_some())
            .field("activation", &config.activation)
            .field("eps", &config.eps)
            .field("momentum", &config.momentum)
            .field("param_dtype", &config.param_dtype)
            .finish()
    }
}
