//! What the user asks for: an op, a shape, types, the epilogue and the pass. Checked, typed, no memory attached.
//!
//! ```
//! use isonorm::{Activation, DType, NormDesc, Pass};
//!
//! let desc = NormDesc::batch_norm([64, 256, 56, 56])
//!     .channels_last()
//!     .dtype(DType::Bf16)
//!     .activation(Activation::Relu)
//!     .pass(Pass::Train);
//! assert_eq!(desc.to_string(), "batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 param=f32 act=relu pass=train");
//! assert_eq!(desc.to_string().parse::<NormDesc>().unwrap(), desc);
//! ```

mod check;
mod dtype;
mod problem;
mod residual;
mod shape;

pub use dtype::DType;
pub(crate) use problem::activation_as_name;
pub use problem::parse_activation;
pub use residual::Residual;
pub use shape::{MAX_RANK, Shape};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Activation;

/// The dimensions that LayerNorm and RMSNorm take their statistics over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Over {
    /// The last `n` dimensions (PyTorch's `normalized_shape`); the affine parameters have their shape.
    Last(usize),
    /// The channels of each position: dimension 1 of `N, C, spatial`; the affine parameters have shape `[C]`.
    Channels,
}

/// Which normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// Statistics of each channel over the batch and all positions (Ioffe and Szegedy, 2015).
    Batch,
    /// Statistics of each row (Ba, Kiros and Hinton, 2016).
    Layer(Over),
    /// The root mean square of each row; nothing is subtracted (Zhang and Sennrich, 2019).
    Rms(Over),
    /// Statistics of each sample over a group of channels and all positions (Wu and He, 2018).
    Group {
        /// The number of groups; it divides the number of channels.
        groups: usize,
    },
    /// Statistics of each channel of each sample over all positions (Ulyanov, Vedaldi and Lempitsky, 2016).
    Instance,
}

impl Norm {
    /// The op's name in problem strings and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Norm::Batch => "batchnorm",
            Norm::Layer(_) => "layernorm",
            Norm::Rms(_) => "rmsnorm",
            Norm::Group { .. } => "groupnorm",
            Norm::Instance => "instancenorm",
        }
    }

    /// Whether a mean is subtracted: true for all but RMSNorm.
    pub const fn is_centred(self) -> bool {
        !matches!(self, Norm::Rms(_))
    }

    /// Whether there are running statistics, which the evaluation passes use: BatchNorm and InstanceNorm.
    pub const fn has_running_statistics(self) -> bool {
        matches!(self, Norm::Batch | Norm::Instance)
    }

    /// Whether dimension 1 is a channel dimension (false for rows of any rank).
    pub const fn has_channels(self) -> bool {
        !matches!(self, Norm::Layer(Over::Last(_)) | Norm::Rms(Over::Last(_)))
    }
}

/// The order of a tensor's elements in memory. Shapes are always written `N, C, spatial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// `N, C, spatial`: row-major in the order of the shape (PyTorch's `contiguous_format`).
    #[default]
    ChannelsFirst,
    /// `N, spatial, C` (PyTorch's `channels_last`).
    ChannelsLast,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::ChannelsFirst => "channels_first",
            Layout::ChannelsLast => "channels_last",
        })
    }
}

/// Which affine parameters there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Affine {
    /// None: `y = x̂`.
    None,
    /// A weight only: `y = x̂·weight`.
    Weight,
    /// Weight and bias: `y = x̂·weight + bias`.
    Full,
}

impl Affine {
    /// Whether there is a weight.
    pub const fn has_weight(self) -> bool {
        !matches!(self, Affine::None)
    }

    /// Whether there is a bias.
    pub const fn has_bias(self) -> bool {
        matches!(self, Affine::Full)
    }
}

/// What is computed, and from which statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Forward with the statistics of `x`; they can be saved for the backward pass, and BatchNorm and InstanceNorm can
    /// update running statistics with them.
    #[default]
    Train,
    /// The statistics of `x`, and nothing besides: what the ranks of a synchronized BatchNorm tell each other, before each normalizes
    /// with those of all by [`Pass::Eval`]. Of BatchNorm; see [`NormDesc::moments`].
    Moments,
    /// Forward for inference. BatchNorm and InstanceNorm use running statistics (a frozen BatchNorm is this pass);
    /// the others have none, and use those of `x`.
    Eval,
    /// The gradients of [`Pass::Train`].
    Backward,
    /// The gradients of [`Pass::Eval`]: running statistics are constants; or those that depend on `x` as well, where the caller gives the
    /// means that their gradients need ([`BackwardArguments::means`](crate::BackwardArguments::means)).
    BackwardEval,
}

impl Pass {
    /// Whether this pass computes gradients.
    pub const fn is_backward(self) -> bool {
        matches!(self, Pass::Backward | Pass::BackwardEval)
    }
}

/// A normalization problem: everything that decides *what* is computed. Build one with [`NormDesc::batch_norm`] and its
/// siblings, or parse a problem string. Serialized as its problem string.
#[derive(Clone, Copy, Debug)]
pub struct NormDesc {
    pub(crate) norm: Norm,
    pub(crate) shape: Shape,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) param_dtype: Option<DType>,
    pub(crate) affine: Affine,
    pub(crate) activation: Activation,
    pub(crate) residual: Residual,
    pub(crate) pass: Pass,
    pub(crate) eps: Option<f64>,
    pub(crate) in_place: bool,
}

impl PartialEq for NormDesc {
    /// Equal when the same thing is computed: a default said aloud is still the default.
    fn eq(&self, other: &NormDesc) -> bool {
        let key = |d: &NormDesc| {
            let what = (d.norm, d.shape, d.layout, d.dtype, d.get_param_dtype(), d.affine);
            (what, d.activation, d.residual, d.pass, d.get_eps(), d.in_place)
        };
        key(self) == key(other)
    }
}

/// Bytes of a tensor for which a mask has one.
pub(crate) const MASK_SHARE: usize = 16;

/// PyTorch's default `eps` of every op but RMSNorm.
pub const DEFAULT_EPS: f64 = 1e-5;

impl NormDesc {
    /// A description of this op and shape with the defaults: `f32`, channels first, full affine (RMSNorm: weight only), no
    /// epilogue, [`Pass::Train`].
    pub fn new(norm: Norm, shape: impl Into<Shape>) -> NormDesc {
        NormDesc {
            norm,
            shape: shape.into(),
            layout: Layout::ChannelsFirst,
            dtype: DType::F32,
            param_dtype: None,
            affine: if norm.is_centred() {
                Affine::Full
            } else {
                Affine::Weight
            },
            activation: Activation::Identity,
            residual: Residual::None,
            pass: Pass::Train,
            eps: None,
            in_place: false,
        }
    }

    /// BatchNorm of `N, C` or `N, C, spatial` with one to three spatial dimensions.
    pub fn batch_norm(shape: impl Into<Shape>) -> NormDesc {
        NormDesc::new(Norm::Batch, shape)
    }

    /// LayerNorm over the last `dims` dimensions.
    pub fn layer_norm(shape: impl Into<Shape>, dims: usize) -> NormDesc {
        NormDesc::new(Norm::Layer(Over::Last(dims)), shape)
    }

    /// RMSNorm over the last `dims` dimensions.
    pub fn rms_norm(shape: impl Into<Shape>, dims: usize) -> NormDesc {
        NormDesc::new(Norm::Rms(Over::Last(dims)), shape)
    }

    /// GroupNorm of `N, C, spatial` with any number of spatial dimensions, also none.
    pub fn group_norm(shape: impl Into<Shape>, groups: usize) -> NormDesc {
        NormDesc::new(Norm::Group { groups }, shape)
    }

    /// InstanceNorm of `N, C, spatial` with one to three spatial dimensions. No affine parameters unless asked for, as in
    /// PyTorch.
    pub fn instance_norm(shape: impl Into<Shape>) -> NormDesc {
        NormDesc::new(Norm::Instance, shape).affine(Affine::None)
    }

    /// Elements in memory in the order `N, spatial, C`. The shape stays `N, C, spatial`.
    pub fn channels_last(self) -> NormDesc {
        self.layout(Layout::ChannelsLast)
    }

    /// The order of elements in memory.
    pub fn layout(self, layout: Layout) -> NormDesc {
        NormDesc { layout, ..self }
    }

    /// The type of `x`, `y`, the residual and their gradients.
    pub fn dtype(self, dtype: DType) -> NormDesc {
        NormDesc { dtype, ..self }
    }

    /// The type of weight, bias, their gradients and the running statistics. The default is `f32` for `f16` and `bf16`
    /// data, and the data's type otherwise.
    pub fn param_dtype(self, dtype: DType) -> NormDesc {
        NormDesc {
            param_dtype: Some(dtype),
            ..self
        }
    }

    /// Which affine parameters there are.
    pub fn affine(self, affine: Affine) -> NormDesc {
        NormDesc { affine, ..self }
    }

    /// The activation after the affine map (and after the residual).
    pub fn activation(self, activation: Activation) -> NormDesc {
        NormDesc { activation, ..self }
    }

    /// Whether a tensor of `x`'s shape is added, and where; `true` is [`Residual::Add`].
    pub fn residual(self, residual: impl Into<Residual>) -> NormDesc {
        NormDesc {
            residual: residual.into(),
            ..self
        }
    }

    /// What is computed.
    pub fn pass(self, pass: Pass) -> NormDesc {
        NormDesc { pass, ..self }
    }

    /// The description of the pass over the same `x` that only takes its statistics ([`Pass::Moments`]): without what this one does with
    /// each element.
    pub fn moments(self) -> NormDesc {
        NormDesc {
            affine: Affine::None,
            activation: Activation::Identity,
            residual: Residual::None,
            pass: Pass::Moments,
            in_place: false,
            ..self
        }
    }

    /// The number added to the variance (to the mean square for RMSNorm) before the root.
    pub fn eps(self, eps: f64) -> NormDesc {
        NormDesc { eps: Some(eps), ..self }
    }

    /// Whether the result overwrites its input: `y` over `x` forward, `dx` over `dy` backward.
    pub fn in_place(self, in_place: bool) -> NormDesc {
        NormDesc { in_place, ..self }
    }

    /// The op.
    pub fn get_norm(&self) -> Norm {
        self.norm
    }

    /// The op's name in problem strings and errors.
    pub fn op(&self) -> &'static str {
        self.norm.name()
    }

    /// The shape of `x`, in the order `N, C, spatial` whatever the layout.
    pub fn get_shape(&self) -> Shape {
        self.shape
    }

    /// The order of elements in memory.
    pub fn get_layout(&self) -> Layout {
        self.layout
    }

    /// The type of `x`, `y`, the residual and their gradients.
    pub fn get_dtype(&self) -> DType {
        self.dtype
    }

    /// The type of weight, bias, their gradients and the running statistics.
    pub fn get_param_dtype(&self) -> DType {
        self.param_dtype.unwrap_or(self.dtype.accumulator())
    }

    /// The type of the saved mean and rstd.
    pub fn get_statistics_dtype(&self) -> DType {
        self.dtype.accumulator()
    }

    /// Which affine parameters there are.
    pub fn get_affine(&self) -> Affine {
        self.affine
    }

    /// The activation.
    pub fn get_activation(&self) -> Activation {
        self.activation
    }

    /// Whether a tensor of `x`'s shape is added, and where.
    pub fn get_residual(&self) -> Residual {
        self.residual
    }

    /// Whether a residual is added before the activation.
    pub fn has_residual(&self) -> bool {
        matches!(self.residual, Residual::Add | Residual::Masked | Residual::Result)
    }

    /// Whether the forward pass writes the mask of a ReLU, and the backward pass reads it.
    pub fn has_mask(&self) -> bool {
        self.residual == Residual::Masked
    }

    /// Whether the backward pass reads the result of a ReLU rather than what the ReLU was of.
    pub fn reads_result(&self) -> bool {
        self.residual == Residual::Result && self.pass.is_backward()
    }

    /// The size of the mask, in elements of the data's type: a sixteenth of those of `x`, rounded up. What they hold are bytes, one for each 16
    /// bytes of `y` in the order of memory; bit k of it (the lowest is bit 0) is set where element k of those 16 bytes is not 0. So an element has
    /// one bit where it has 16.
    pub fn mask_elements(&self) -> usize {
        self.shape
            .elements()
            .map_or(0, |elements| elements.div_ceil(MASK_SHARE))
    }

    /// Whether `x + residual` is normalized, and is a second output.
    pub fn has_stream(&self) -> bool {
        self.residual == Residual::Stream
    }

    /// What is computed.
    pub fn get_pass(&self) -> Pass {
        self.pass
    }

    /// The number added before the root: as given, or [`DEFAULT_EPS`], or for RMSNorm the machine epsilon of the type that
    /// the computation is carried out in.
    pub fn get_eps(&self) -> f64 {
        self.eps.unwrap_or(if self.norm.is_centred() {
            DEFAULT_EPS
        } else {
            self.dtype.accumulator().epsilon()
        })
    }

    /// Whether the result overwrites its input.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// Whether the statistics are given (running mean and variance) rather than computed from `x`.
    pub fn uses_running_statistics(&self) -> bool {
        self.norm.has_running_statistics() && matches!(self.pass, Pass::Eval | Pass::BackwardEval)
    }

    /// Whether the backward pass has to know the pre-activation, and so needs the bias and the residual again.
    pub fn backward_needs_preactivation(&self) -> bool {
        self.activation != Activation::Identity && !matches!(self.residual, Residual::Masked | Residual::Result)
    }
}
