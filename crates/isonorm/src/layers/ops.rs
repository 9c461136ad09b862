//! The six layers: their names, constructors and defaults.

use super::config::{Dimensions, Kind};
use super::core::Core;
use super::op;
use super::running::Running;
use super::{Layer, Momentum};
use crate::fold::BatchNormParameters;
use crate::{Affine, Error, Result, Shape};

/// BatchNorm of `N, C` or `N, C, spatial` with one to three spatial dimensions (PyTorch's `BatchNorm1d`, `2d`, `3d`):
/// `y = (x − mean)/√(var + eps)·weight + bias`, statistics of each channel over the batch and all positions; the variance is
/// the biased one, running statistics get the unbiased one.
///
/// By default: affine, running statistics with momentum 0.1, eps 1e-5.
///
/// Source: Ioffe and Szegedy, *Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift*,
/// 2015, algorithms 1 and 2.
///
/// ```
/// use isonorm::layers::{BatchNorm, Momentum};
/// use isonorm::{Layout, Tensor};
///
/// let mut bn = BatchNorm::new(3).momentum(Momentum::Cumulative);
/// let x = Tensor::new([1, 3, 2, 1], vec![0.0f32, 1.0, 2.0, 2.0, 3.0, 6.0])?.with_layout(Layout::ChannelsLast);
/// let (y, _) = bn.forward_train(&x)?;
///
/// // Channel 0 of this channels-last image holds 0 and 2: mean 1, unbiased variance 2.
/// assert_eq!(bn.running_mean().unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0, 4.0]);
/// assert_eq!(bn.running_var().unwrap().as_slice::<f32>().unwrap(), [2.0, 2.0, 8.0]);
/// assert_eq!(y.layout(), Layout::ChannelsLast);
/// # Ok::<(), isonorm::Error>(())
/// ```
pub type BatchNorm = Layer<op::Batch>;

/// BatchNorm whose parameters and statistics are constants (torchvision's `FrozenBatchNorm2d`):
/// `y = (x − running_mean)/√(running_var + eps)·weight + bias` in every pass, with a gradient for `x` only.
///
/// By default the identity with eps 1e-5; made from a trained layer by [`BatchNorm::freeze`] or with
/// [`load_state_dict`](Layer::load_state_dict).
///
/// ```
/// use isonorm::Tensor;
/// use isonorm::layers::{BatchNorm, FrozenBatchNorm};
///
/// let trained = BatchNorm::new(2);
/// let mut frozen = FrozenBatchNorm::new(2);
/// frozen.load_state_dict("", &trained.state_dict(""))?; // num_batches_tracked is dropped
///
/// let x = Tensor::new([1, 2], vec![1.0f32, 2.0])?;
/// let (y, saved) = frozen.forward_train(&x)?;
/// assert_eq!(y, trained.forward(&x)?);
/// assert!(frozen.backward(&x, &y, &saved)?.weight.is_none());
/// # Ok::<(), isonorm::Error>(())
/// ```
pub type FrozenBatchNorm = Layer<op::FrozenBatch>;

/// LayerNorm over the last dimensions, or over the channels of each position:
/// `y = (x − mean)/√(var + eps)·weight + bias`, biased variance.
///
/// By default: affine (`.affine(Affine::Weight)` is PyTorch's `bias=False`), eps 1e-5. With the residual stream of a pre-norm
/// transformer: [`forward_stream`](Layer::forward_stream).
///
/// Source: Ba, Kiros and Hinton, *Layer Normalization*, 2016, equation 4.
///
/// ```
/// use isonorm::Tensor;
/// use isonorm::layers::LayerNorm;
///
/// let layer = LayerNorm::new([2]);
/// let y = layer.forward(&Tensor::new([2, 2], vec![1.0f32, 3.0, 7.0, 7.0])?)?;
/// let y = y.as_slice::<f32>().unwrap();
/// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
/// assert_eq!(y[2..], [0.0, 0.0]); // a constant row is its bias, exactly
/// # Ok::<(), isonorm::Error>(())
/// ```
pub type LayerNorm = Layer<op::Layer>;

/// RMSNorm over the last dimensions, or over the channels of each position: `y = x/√(mean(x²) + eps)·weight`.
///
/// By default: a weight and no bias, eps the machine epsilon of the type that the computation is carried out in (`f64` for
/// `f64` input, else `f32`). With the residual stream of a pre-norm transformer: [`forward_stream`](Layer::forward_stream).
///
/// Source: Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019, equation 4.
///
/// ```
/// use isonorm::Tensor;
/// use isonorm::layers::RmsNorm;
///
/// let y = RmsNorm::new([2]).forward(&Tensor::new([1, 2], vec![3.0f64, -3.0])?)?;
/// assert!((y.as_slice::<f64>().unwrap()[1] + 1.0).abs() < 1e-15);
/// # Ok::<(), isonorm::Error>(())
/// ```
pub type RmsNorm = Layer<op::Rms>;

/// GroupNorm of `N, C, spatial` with any number of spatial dimensions, also none: `y = (x − mean)/√(var + eps)·weight + bias`,
/// statistics of each sample over a group of neighbouring channels and all positions, biased variance.
///
/// By default: affine (parameters per channel), eps 1e-5.
///
/// Source: Wu and He, *Group Normalization*, 2018, equations 1, 2, 6 and 7.
///
/// ```
/// use isonorm::Tensor;
/// use isonorm::layers::GroupNorm;
///
/// let x = Tensor::new([1, 4, 1], vec![1.0f32, 1.0, 5.0, 5.0])?;
/// let y = GroupNorm::new(2, 4).forward(&x)?;
/// assert_eq!(y.as_slice::<f32>().unwrap(), [0.0; 4]); // each group is constant
/// # Ok::<(), isonorm::Error>(())
/// ```
pub type GroupNorm = Layer<op::Group>;

/// InstanceNorm of `N, C, spatial` with one to three spatial dimensions (PyTorch's `InstanceNorm1d`, `2d`, `3d`):
/// `y = (x − mean)/√(var + eps)·weight + bias`, statistics of each channel of each sample over all positions, biased variance.
///
/// By default: no affine parameters, no running statistics, eps 1e-5. Running statistics, if there are any, get the average of
/// the samples' statistics. Two things differ from PyTorch, whose InstanceNorm never raises `num_batches_tracked` and takes
/// `momentum=None` for "never update": this layer counts, and [`Momentum::Cumulative`] averages.
///
/// Source: Ulyanov, Vedaldi and Lempitsky, *Instance Normalization: The Missing Ingredient for Fast Stylization*, 2016,
/// equation 3.
///
/// ```
/// use isonorm::layers::InstanceNorm;
/// use isonorm::{Affine, Tensor};
///
/// let mut layer = InstanceNorm::new(1).affine(Affine::Full).track_running_stats(true);
/// let x = Tensor::new([2, 1, 2], vec![0.0f32, 2.0, 4.0, 8.0])?; // means 1 and 6
/// layer.forward_train(&x)?;
/// assert_eq!(layer.running_mean().unwrap().as_slice::<f32>().unwrap(), [0.35]); // 0.1·3.5
/// # Ok::<(), isonorm::Error>(())
/// ```
pub type InstanceNorm = Layer<op::Instance>;

impl BatchNorm {
    /// For inputs of this many channels.
    pub fn new(channels: usize) -> BatchNorm {
        Layer::of(Core::new(Kind::Batch, [channels].into(), Affine::Full, true))
    }

    /// What [`fold`](crate::fold) takes to remove this layer from a network; `None` without running statistics. The
    /// activation is not part of it and stays.
    ///
    /// ```
    /// use isonorm::Tensor;
    /// use isonorm::fold::{WeightLayout, batch_norm_into_previous};
    /// use isonorm::layers::BatchNorm;
    ///
    /// let layer = BatchNorm::new(2).eps(3.0); // variance 1, so 1/√(1 + 3)
    /// let (mut weight, mut bias) = (Tensor::new([2, 1], vec![2.0f32, 4.0])?, None);
    /// if let Some(parameters) = layer.fold_parameters() {
    ///     batch_norm_into_previous(WeightLayout::Linear, &mut weight, &mut bias, &parameters)?;
    /// }
    /// assert_eq!(weight.as_slice::<f32>().unwrap(), [1.0, 2.0]);
    /// # Ok::<(), isonorm::Error>(())
    /// ```
    pub fn fold_parameters(&self) -> Option<BatchNormParameters<'_>> {
        self.core.fold_parameters()
    }

    /// The same function as in inference now, as constants. A layer without affine parameters gets the identity's.
    ///
    /// # Errors
    /// [`Error::MissingArgument`] without running statistics.
    pub fn freeze(&self) -> Result<FrozenBatchNorm> {
        let Some(running) = &self.core.running else {
            let why = "a frozen layer has no other statistics";
            return Err(Error::MissingArgument {
                op: self.core.config.op(),
                tensor: "running_mean and running_var",
                why,
            });
        };
        let mut core = self.core.clone();
        core.config.kind = Kind::FrozenBatch;
        core.config.momentum = Momentum::default();
        core.running = Some(Running {
            batches: 0,
            ..running.clone()
        });
        core.set_affine(Affine::Full);
        Ok(Layer::of(core))
    }
}

impl FrozenBatchNorm {
    /// As [`BatchNorm::fold_parameters`]; a frozen layer always has them.
    pub fn fold_parameters(&self) -> Option<BatchNormParameters<'_>> {
        self.core.fold_parameters()
    }

    /// For inputs of this many channels: weight 1, bias 0, mean 0, variance 1.
    pub fn new(channels: usize) -> FrozenBatchNorm {
        Layer::of(Core::new(Kind::FrozenBatch, [channels].into(), Affine::Full, true))
    }
}

impl LayerNorm {
    /// Over the last dimensions of the input, which must have this shape (PyTorch's `normalized_shape`), as must weight and
    /// bias.
    ///
    /// # Panics
    /// When parameters of this shape do not fit in memory.
    pub fn new(normalized_shape: impl Into<Shape>) -> LayerNorm {
        Layer::of(Core::new(
            Kind::Layer(Dimensions::Last),
            normalized_shape.into(),
            Affine::Full,
            false,
        ))
    }

    /// Over the channels of each position of `N, C, spatial`, as ConvNeXt does; weight and bias have shape `[channels]`.
    pub fn over_channels(channels: usize) -> LayerNorm {
        Layer::of(Core::new(
            Kind::Layer(Dimensions::Channels),
            [channels].into(),
            Affine::Full,
            false,
        ))
    }
}

impl RmsNorm {
    /// Over the last dimensions of the input, which must have this shape (PyTorch's `normalized_shape`), as must the weight.
    ///
    /// # Panics
    /// When parameters of this shape do not fit in memory.
    pub fn new(normalized_shape: impl Into<Shape>) -> RmsNorm {
        Layer::of(Core::new(
            Kind::Rms(Dimensions::Last),
            normalized_shape.into(),
            Affine::Weight,
            false,
        ))
    }

    /// Over the channels of each position of `N, C, spatial`; the weight has shape `[channels]`.
    pub fn over_channels(channels: usize) -> RmsNorm {
        Layer::of(Core::new(
            Kind::Rms(Dimensions::Channels),
            [channels].into(),
            Affine::Weight,
            false,
        ))
    }
}

impl GroupNorm {
    /// This many groups of equally many of the input's channels. That the one divides the other is checked when the layer runs.
    pub fn new(groups: usize, channels: usize) -> GroupNorm {
        Layer::of(Core::new(
            Kind::Group { groups },
            [channels].into(),
            Affine::Full,
            false,
        ))
    }
}

impl InstanceNorm {
    /// For inputs of this many channels.
    pub fn new(channels: usize) -> InstanceNorm {
        Layer::of(Core::new(Kind::Instance, [channels].into(), Affine::None, false))
    }
}
