//! Kernels for groups that are contiguous in memory: LayerNorm, RMSNorm, and GroupNorm or InstanceNorm of contiguous
//! channels. Here a group is called a row.
//!
//! | file | room |
//! |---|---|
//! | [`forward`] | the forward pass, over what the others do |
//! | [`team`] | who owns a row |
//! | [`access`] | how a thread reaches its part of a row |
//! | [`statistics`] | from a row to what it is normalized with |
//! | [`parameters`] | weight and bias of a row |
//! | [`epilogue`] | activations |
//! | `lanes` | a few numbers side by side |
//! | `list`, [`key`] | which kernels there are, and what the host knows of them |

pub mod access;
pub mod epilogue;
pub mod forward;
#[cfg(not(target_arch = "nvptx64"))]
pub mod key;
mod lanes;
pub(crate) mod list;
pub mod parameters;
pub mod statistics;
pub mod team;

pub use access::Data;
