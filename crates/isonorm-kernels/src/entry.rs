//! The entry points of the GPU: one module of them each, chosen by `--cfg isonorm_module="…"` and `--cfg isonorm_data="…"`.

#[cfg(isonorm_module = "simt")]
mod probe;

#[cfg(isonorm_module = "occupancy")]
mod occupancy;

#[cfg(not(any(isonorm_module = "simt", isonorm_module = "occupancy")))]
mod rows;
