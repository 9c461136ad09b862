//! The kernels of the ladder.

#![allow(unused_imports, unused_macros, reason = "each module has one of the lists")]

use crate::ladder::list::{batch_norm_kernels, layer_norm_kernels};
use crate::ladder::{self, BatchNorm, LayerNorm};

macro_rules! entries {
    ($args:ty: $($file:ident::$name:ident)*) => {$(
        /// See the function of this name.
        ///
        /// # Safety
        ///
        /// The same.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(args: $args) {
            // SAFETY: the caller's.
            unsafe { ladder::$file::$name(&args) };
        }
    )*};
}

#[cfg(isonorm_module = "ladder_batch_norm")]
batch_norm_kernels!(entries BatchNorm:);

#[cfg(isonorm_module = "ladder_layer_norm")]
layer_norm_kernels!(entries LayerNorm:);
