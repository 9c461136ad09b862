//! What code that reads weight and bias takes for granted of them: asked once a row, not at each number.

use super::parameters::Affine;

/// What is known of weight and bias.
pub trait Known {
    /// Whether they have the data's type, of 16 bits.
    const NARROW: bool;
    /// Whether there is a weight, and a bias; `None` where that is to be asked, which takes an instruction more for each number.
    const THERE: [Option<bool>; 2];

    /// Whether it is so.
    #[doc(hidden)]
    #[inline(always)]
    fn holds<T>(affine: &Affine) -> bool {
        let is_known = |base: *const u8, there: Option<bool>| there.is_none_or(|there| there != base.is_null());
        let [weight, bias] = Self::THERE;
        affine.is_narrow::<T>() == Self::NARROW && is_known(affine.weight, weight) && is_known(affine.bias, bias)
    }
}

/// Their type, and nothing else.
pub struct OfType<const NARROW: bool>;

impl<const NARROW: bool> Known for OfType<NARROW> {
    const NARROW: bool = NARROW;
    const THERE: [Option<bool>; 2] = [None; 2];
}

/// What most calls have: the type of 16-bit data, a weight, and a bias if `BIAS`. In `f32`, where kernels wait for memory, it would be no faster.
pub struct Usual<const BIAS: bool>;

impl<const BIAS: bool> Known for Usual<BIAS> {
    const NARROW: bool = true;
    const THERE: [Option<bool>; 2] = [Some(true), Some(BIAS)];
}
