//! The entry points of the GPU: one module of kernels each, chosen by `--cfg isonorm_module="…"`.
//!
//! The names are those of `rows::forward::Key::name`.

#![allow(unused_imports, unused_macros)]

#[cfg(isonorm_module = "simt")]
mod probe;

use isonorm_math::activation::Identity;
use isonorm_math::{Bf16, F16};

use crate::rows::forward::{Args, forward};

macro_rules! rows_forward {
    ($data:ty: $($name:ident = $vectors:literal $centred:literal $block:literal $activation:ident;)*) => {$(
        /// See [`forward`].
        ///
        /// # Safety
        ///
        /// See [`forward`].
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(args: Args<$data>) {
            // SAFETY: the caller's.
            unsafe { forward::<$data, $activation, $vectors, $centred, $block>(&args) };
        }
    )*};
}

#[cfg(isonorm_module = "rows_forward_f32")]
rows_forward! { f32:
    rows_forward_f32_layer_warp_v1 = 1 true false Identity;
    rows_forward_f32_layer_warp_v2 = 2 true false Identity;
    rows_forward_f32_layer_warp_v4 = 4 true false Identity;
    rows_forward_f32_layer_block_v1 = 1 true true Identity;
    rows_forward_f32_layer_block_v2 = 2 true true Identity;
    rows_forward_f32_layer_block_v4 = 4 true true Identity;
    rows_forward_f32_rms_warp_v1 = 1 false false Identity;
    rows_forward_f32_rms_warp_v2 = 2 false false Identity;
    rows_forward_f32_rms_warp_v4 = 4 false false Identity;
    rows_forward_f32_rms_block_v1 = 1 false true Identity;
    rows_forward_f32_rms_block_v2 = 2 false true Identity;
    rows_forward_f32_rms_block_v4 = 4 false true Identity;
}

#[cfg(isonorm_module = "rows_forward_f16")]
rows_forward! { F16:
    rows_forward_f16_layer_warp_v1 = 1 true false Identity;
    rows_forward_f16_layer_warp_v2 = 2 true false Identity;
    rows_forward_f16_layer_warp_v4 = 4 true false Identity;
    rows_forward_f16_layer_block_v1 = 1 true true Identity;
    rows_forward_f16_layer_block_v2 = 2 true true Identity;
    rows_forward_f16_layer_block_v4 = 4 true true Identity;
    rows_forward_f16_rms_warp_v1 = 1 false false Identity;
    rows_forward_f16_rms_warp_v2 = 2 false false Identity;
    rows_forward_f16_rms_warp_v4 = 4 false false Identity;
    rows_forward_f16_rms_block_v1 = 1 false true Identity;
    rows_forward_f16_rms_block_v2 = 2 false true Identity;
    rows_forward_f16_rms_block_v4 = 4 false true Identity;
}

#[cfg(isonorm_module = "rows_forward_bf16")]
rows_forward! { Bf16:
    rows_forward_bf16_layer_warp_v1 = 1 true false Identity;
    rows_forward_bf16_layer_warp_v2 = 2 true false Identity;
    rows_forward_bf16_layer_warp_v4 = 4 true false Identity;
    rows_forward_bf16_layer_block_v1 = 1 true true Identity;
    rows_forward_bf16_layer_block_v2 = 2 true true Identity;
    rows_forward_bf16_layer_block_v4 = 4 true true Identity;
    rows_forward_bf16_rms_warp_v1 = 1 false false Identity;
    rows_forward_bf16_rms_warp_v2 = 2 false false Identity;
    rows_forward_bf16_rms_warp_v4 = 4 false false Identity;
    rows_forward_bf16_rms_block_v1 = 1 false true Identity;
    rows_forward_bf16_rms_block_v2 = 2 false true Identity;
    rows_forward_bf16_rms_block_v4 = 4 false true Identity;
}
