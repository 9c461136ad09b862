//! The kernels of tiles.

#![allow(unused_imports, reason = "each module uses some of what the list names")]

use super::Element;
use crate::rows::access::{Elements, Vectors};
use crate::rows::epilogue::{Added, Any, Masked, OfResult, Piecewise, Plain};
use crate::tiles::held::{gradients as held_gradients, values as held_values};
use crate::tiles::list::{backward_kernels, forward_kernels};
use crate::tiles::strips::{gradients, values};
use crate::tiles::{Batched, ByRow, Columns, Given, Group, Groups, Held, Joined, Of, Wide, backward, forward};

macro_rules! entries {
    ($($family:literal by $module:ident :: $function:ident { $($name:ident: $access:ty, $epilogue:ty, $kind:ty, $at_once:literal;)* })*) => {$($(
        /// See the function that it is made of.
        ///
        /// # Safety
        ///
        /// The same.
        #[cfg(isonorm_module = $family)]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(args: $module::Args<Element>) {
            // SAFETY: the caller's.
            unsafe { $module::$function::<Element, Of<$access, $epilogue, $kind>, $at_once>(&args) };
        }
    )*)*};
}

forward_kernels!(entries);
backward_kernels!(entries);
