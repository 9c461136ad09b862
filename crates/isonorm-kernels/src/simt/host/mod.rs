//! [`simt`](super) as calls of the interpreter.
//!
//! Everything is checked there; what is unsafe on a GPU is unsafe here in name only, so that kernels are the same.

mod asynchronous;
mod memory;
mod together;

pub use asynchronous::*;
pub use memory::*;
pub use together::*;
