//! The entry points of the GPU: one module of them each, chosen by `--cfg isonorm_module="…"` and `--cfg isonorm_data="…"`.

#[cfg(isonorm_module = "simt")]
mod probe;

#[cfg(isonorm_module = "occupancy")]
mod occupancy;

#[cfg(any(isonorm_module = "ladder_batch_norm", isonorm_module = "ladder_layer_norm"))]
mod ladder;

#[cfg(not(any(isonorm_module = "simt", isonorm_module = "occupancy")))]
mod rows;

#[cfg(not(any(isonorm_module = "simt", isonorm_module = "occupancy")))]
mod tiles;

/// The data's type.
#[cfg(isonorm_data = "bf16")]
type Element = isonorm_math::Bf16;
#[cfg(isonorm_data = "f16")]
type Element = isonorm_math::F16;
#[cfg(not(any(isonorm_data = "bf16", isonorm_data = "f16")))]
#[allow(dead_code, reason = "the ladder has one type")]
type Element = f32;
