//! Activations that are short enough to be written out where they are usual.

use isonorm_math::Brief;
use isonorm_math::activation::{Gelu, Pointwise, Silu};

use super::lanes::Lanes;

/// A smooth activation that is written out for every number of a row where it is usual: others are a loop, which is there once.
#[derive(Clone, Copy)]
pub(crate) enum WrittenOut {
    Silu,
    Gelu,
}

impl WrittenOut {
    /// f(z).
    #[inline(always)]
    pub(super) fn apply<L: Lanes>(self, z: L) -> L {
        match self {
            WrittenOut::Silu => z.map(|z| Silu.apply(Brief(z)).0),
            WrittenOut::Gelu => z.map(|z| Gelu.apply(Brief(z)).0),
        }
    }

    /// f′(z) of a number.
    #[inline(always)]
    pub(crate) fn slope(self, z: f32) -> f32 {
        match self {
            WrittenOut::Silu => Silu.derivative(Brief(z)).0,
            WrittenOut::Gelu => Gelu.derivative(Brief(z)).0,
        }
    }

    /// The slopes of the numbers of a part, a few at a time, which takes fewer registers.
    #[inline(always)]
    pub(crate) fn slopes_in_turn<L: Lanes>(self, z: L) -> L {
        z.map_rolled(|z| self.slope(z))
    }
}
