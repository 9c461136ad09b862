//! Tensors in files: `.npy` and `.safetensors`.
//!
//! Readers are given the file's length, check every size that a header claims against it before they allocate, and
//! refuse what they do not understand with a [`ReadError`]. Files are written beside their final name and put there when
//! complete.

mod elements;
mod error;
pub mod npy;
pub mod safetensors;
mod source;
mod write;

pub use elements::Array;
pub(crate) use elements::{bytes, bytes_mut, write as write_elements};
pub use error::ReadError;
pub(crate) use source::{Format, Source};
pub(crate) use write::{Pending, destination, stage};
