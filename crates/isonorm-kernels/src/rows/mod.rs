//! Kernels for groups that are contiguous in memory: LayerNorm, RMSNorm, and GroupNorm or InstanceNorm of contiguous
//! channels. Here a group is called a row.

pub mod forward;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
mod registers;
mod team;

pub use registers::Data;
