//! Removes normalizations from a trained network by rewriting the weights around them.
//!
//! **Into the layer before.** In evaluation BatchNorm is an affine map of each channel with constants,
//! `y = s·x + t` where `s = γ/√(σ² + eps)` and `t = β − μ·s`. A convolution or linear layer `x = W∗z + b` before it absorbs
//! it ([`batch_norm_into_previous`]):
//!
//! ```text
//! W'[o, …] = W[o, …]·s[o]        b'[o] = (b[o] − μ[o])·s[o] + β[o]
//! ```
//!
//! The factor belongs to the *output* channel, so the groups of a convolution do not matter; a transposed convolution has
//! its output channels elsewhere, and there they do ([`WeightLayout`]). Stride, padding and dilation never matter.
//!
//! **Into the layer after.** The affine map of LayerNorm or RMSNorm, `y = γ·x̂ + β`, or of a whole BatchNorm in evaluation,
//! `y = s·x + t`, is absorbed by a linear layer `Wy + b` behind it ([`affine_into_next`], [`batch_norm_into_next`]):
//!
//! ```text
//! W'[:, i] = W[:, i]·γ[i]        b' = b + W·β
//! ```
//!
//! Every layer that reads the norm's output has to absorb it (query, key and value projections, say); the norm then has no
//! affine parameters. This is exact for linear layers only: a convolution's padding is zeros that no shift has reached, and
//! so convolutions are refused.
//!
//! Everything is computed in `f64` from the stored values and rounded once, to the type of the weight. Nothing is changed
//! when an error is returned.
//!
//! Sources: Jacob et al., *Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference*
//! (2018), section 3.2, for the first; the second is the distributive law.
//!
//! ```
//! use isonorm::Tensor;
//! use isonorm::fold::{BatchNormParameters, WeightLayout, batch_norm_into_previous};
//!
//! let mut weight = Tensor::new([2, 1, 1, 1], vec![1.0f32, 3.0])?;
//! let mut bias = None;
//! let (mean, var) = (vec![0.5f32, 1.0], vec![4.0f32, 1.0]);
//! let norm = BatchNormParameters::new(&mean, &var).eps(0.0);
//! batch_norm_into_previous(WeightLayout::Conv, &mut weight, &mut bias, &norm)?;
//! assert_eq!(weight.as_slice::<f32>().unwrap(), [0.5, 3.0]);
//! assert_eq!(bias.unwrap().as_slice::<f32>().unwrap(), [-0.25, -1.0]);
//! # Ok::<(), isonorm::Error>(())
//! ```

mod axis;
mod next;
mod parameters;
mod previous;
mod rescale;

pub use axis::WeightLayout;
pub use next::{affine_into_next, batch_norm_into_next};
pub use parameters::{AffineParameters, BatchNormParameters};
pub use previous::batch_norm_into_previous;

use crate::Error;

fn refused(reason: String) -> Error {
    Error::Fold { reason }
}
