//! The kernels of rows.

// Each module uses some of what the list names.
#![allow(unused_imports)]

use crate::rows::access::{Elements, Vectors};
use crate::rows::epilogue::{Piecewise, Plain, Smooth};
use crate::rows::forward::{Args, Of, forward};
use crate::rows::list::forward_kernels;
use crate::rows::parameters::{ByColumn, ByRun};
use crate::rows::statistics::{Centred, Given, Uncentred};
use crate::rows::team::{Block, Lanes};

/// The data's type.
#[cfg(isonorm_data = "bf16")]
type Element = isonorm_math::Bf16;
#[cfg(isonorm_data = "f16")]
type Element = isonorm_math::F16;
#[cfg(not(any(isonorm_data = "bf16", isonorm_data = "f16")))]
type Element = f32;

macro_rules! entries {
    ($($family:literal { $($name:ident: $statistics:ty, $team:ty, $access:ty, $accesses:literal, $map:ty, $epilogue:ty,
        $residual:literal, $ahead:literal;)* })*) => {$($(
        /// See [`forward`].
        ///
        /// # Safety
        ///
        /// See [`forward`].
        #[cfg(isonorm_module = $family)]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(args: Args<Element>) {
            // SAFETY: the caller's.
            unsafe { forward::<Element, Of<$statistics, $team, $access, $map, $epilogue, $residual, $ahead>, $accesses>(&args) };
        }
    )*)*};
}

forward_kernels!(entries);
