//! Layers that own their parameters: [`BatchNorm`], [`FrozenBatchNorm`], [`LayerNorm`], [`RmsNorm`], [`GroupNorm`],
//! [`InstanceNorm`]. Defaults, semantics and state-dict names are PyTorch's.
//!
//! ```
//! use isonorm::layers::BatchNorm;
//! use isonorm::{Activation, Tensor};
//!
//! let mut bn = BatchNorm::new(2).activation(Activation::Relu);
//! let x = Tensor::new([4, 2], vec![1.0f32, 5.0, 2.0, 6.0, 3.0, 7.0, 4.0, 8.0])?;
//!
//! // Training: batch statistics, running statistics updated, gradients.
//! let (y, saved) = bn.forward_train(&x)?;
//! let gradients = bn.backward(&x, &y, &saved)?;
//! assert_eq!(gradients.input.shape(), x.shape());
//! assert_eq!(gradients.weight.unwrap().shape().dims(), [2]);
//!
//! // Inference: running statistics.
//! let y = bn.forward(&x)?;
//! assert_eq!(y.shape(), x.shape());
//! assert_eq!(bn.num_batches_tracked(), Some(1));
//! # Ok::<(), isonorm::Error>(())
//! ```
//!
//! # Input
//! Every rank that the op allows, `f16`, `bf16`, `f32` or `f64`, channels first or last ([`Tensor::layout`](crate::Tensor::layout));
//! the output has the shape, type and layout of the input. A tensor that is added before the activation goes beside `x`:
//! see [`Input`].
//!
//! # The three forward passes
//! | | statistics | keeps for backward |
//! |---|---|---|
//! | [`forward`](Layer::forward) | running ones, or those of `x` where there are none | nothing |
//! | [`forward_train`](Layer::forward_train) | those of `x`; updates the running ones | mean and rstd |
//! | [`forward_eval`](Layer::forward_eval) | as `forward`: for fine-tuning with statistics held constant | what they were |
//!
//! One [`backward`](Layer::backward) serves the last two.
//!
//! # The residual stream
//! The blocks of a pre-norm transformer add to a stream and normalize the sum. [`LayerNorm`] and [`RmsNorm`] over the last
//! dimensions do both in one pass: [`forward_stream`](Layer::forward_stream) for inference, also
//! [in place](Layer::forward_stream_in_place), [`forward_stream_train`](Layer::forward_stream_train) and
//! [`backward_stream`](Layer::backward_stream) for training. They return the stream beside `y`.
//!
//! All six are one type, [`Layer`], marked with its op, so that what they share is written once; [`Normalization`] is the
//! trait for code that holds them behind `dyn`.

mod cache;
mod config;
mod core;
mod execute;
mod io;
mod layer;
mod normalization;
pub mod op;
mod ops;
mod running;
mod state;
mod stored;
mod stream;

pub use io::{Gradients, Input, Saved};
pub use layer::Layer;
pub use normalization::Normalization;
pub use ops::{BatchNorm, FrozenBatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
pub use running::Momentum;
pub use state::{StateDict, StateValue};
