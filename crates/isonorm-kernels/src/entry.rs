//! The entry points of the GPU: one module of them each, chosen by `--cfg isonorm_module="…"` and `--cfg isonorm_data="…"`.

#[cfg(isonorm_module = "simt")]
mod probe;

#[cfg(not(isonorm_module = "simt"))]
mod rows;
