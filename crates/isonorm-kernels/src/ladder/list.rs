//! All kernels of the ladder, by the arguments that they take.

use super::{BatchNorm, LayerNorm};

/// Calls a macro with the kernels of BatchNorm, file and name of each, behind what else it is to be given.
macro_rules! batch_norm_kernels {
    ($callback:ident $($before:tt)*) => {
        $callback! {
            $($before)* bn_tile_nc::bn_tile_nc bn_naive::bn_naive_mean bn_naive::bn_naive_variance bn_naive::bn_naive_normalize
            bn_welford_block::bn_welford_block bn_welford_warp::bn_welford_warp bn_welford_fused::bn_welford_fused
            bn_relu_train::bn_relu_train bn_relu_eval::bn_relu_eval bn_eval_vec4::bn_eval_scale bn_eval_vec4::bn_eval_vec4
            bn_relu_backward::bn_relu_backward
        }
    };
}

/// Calls a macro with the kernels of LayerNorm, likewise.
macro_rules! layer_norm_kernels {
    ($callback:ident $($before:tt)*) => {
        $callback! { $($before)* ln_naive::ln_naive ln_shared::ln_shared ln_shuffle::ln_shuffle ln_vec4::ln_vec4 }
    };
}

#[cfg(target_arch = "nvptx64")]
#[allow(unused_imports, reason = "a module has the kernels of one")]
pub(crate) use {batch_norm_kernels, layer_norm_kernels};

/// A kernel's name and what its threads do.
pub type Listed<A> = (&'static str, unsafe fn(&A));

macro_rules! listed {
    ($($file:ident::$name:ident)*) => {
        [$((stringify!($name), super::$file::$name as unsafe fn(&_)),)*]
    };
}

/// The kernels of BatchNorm: family `ladder_batch_norm`.
pub fn batch_norm() -> [Listed<BatchNorm>; 12] {
    batch_norm_kernels!(listed)
}

/// The kernels of LayerNorm: family `ladder_layer_norm`.
pub fn layer_norm() -> [Listed<LayerNorm>; 4] {
    layer_norm_kernels!(listed)
}
