//! What is added besides a bias.

use serde::{Deserialize, Serialize};

/// The second tensor of `x`'s shape that a pass adds, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Residual {
    /// None.
    #[default]
    None,
    /// Added before the activation: `y = f(x̂·weight + bias + residual)`, as behind the convolutions of a ResNet.
    Add,
    /// [`Residual::Add`] before a ReLU, whose *mask* the forward pass writes besides: which elements of `y` are not 0, in a sixteenth of the
    /// bytes of `y` (see [`NormDesc::mask_elements`](crate::NormDesc::mask_elements)). The backward pass reads the mask, and neither the residual nor the bias: less memory is
    /// moved, and less has to be kept. Of BatchNorm.
    Masked,
    /// [`Residual::Add`] before a ReLU, whose backward pass reads `y` instead of the residual and the bias: the gradient passes where `y` is not 0.
    /// Nothing has to be kept that is not kept anyway, where a layer behind this one keeps its input. Of BatchNorm.
    Result,
    /// The residual stream of a pre-norm transformer: `stream = x + residual` is an output, and is what LayerNorm or RMSNorm
    /// over the last dimensions normalizes.
    Stream,
}

impl Residual {
    /// Its name in problem strings.
    pub const fn name(self) -> &'static str {
        match self {
            Residual::None => "none",
            Residual::Add => "add",
            Residual::Masked => "masked",
            Residual::Result => "result",
            Residual::Stream => "stream",
        }
    }
}

impl From<bool> for Residual {
    /// [`Residual::Add`], or none.
    fn from(add: bool) -> Residual {
        if add { Residual::Add } else { Residual::None }
    }
}
