//! [`simt`](super) as instructions of the GPU.

mod alone;
mod asynchronous;
mod shared;
mod together;

pub use alone::*;
pub use asynchronous::*;
pub use shared::*;
pub use together::*;
