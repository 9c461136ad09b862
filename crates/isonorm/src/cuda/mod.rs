//! NVIDIA GPUs: the driver is loaded when the first function here is called; without one, that is an error like any other
//! ([`Error::NoGpu`](crate::Error::NoGpu)).
//!
//! ```no_run
//! use isonorm::NormDesc;
//! use isonorm::cuda::{Device, Forward, Workspace};
//!
//! let gpu = Device::first()?;
//! let plan = gpu.plan(&NormDesc::layer_norm([4096, 1024], 1))?;
//! let stream = gpu.stream()?;
//!
//! let x = stream.upload(&vec![1.0f32; 4096 * 1024])?;
//! let (weight, bias) = (stream.upload(&[1.0f32; 1024])?, stream.upload(&[0.5f32; 1024])?);
//! let mut y = stream.zeros::<f32>(4096 * 1024)?;
//! stream.forward(&plan, Forward::new(&x, &mut y).weight(&weight).bias(&bias), Workspace::Pool)?; // returns at once
//! assert_eq!(y.to_vec()?[0], 0.5); // waits
//! # Ok::<(), isonorm::Error>(())
//! ```
//!
//! # Three layers
//! | | arguments | what the caller vouches for |
//! |---|---|---|
//! | safe | [`Buffer`]s | nothing |
//! | raw | [`View::from_raw`], [`Stream::from_raw`] | that memory and streams live long enough; where pointers point is asked of the driver |
//! | raw, unasked | [`View::from_raw_of`] | also that the memory is the GPU's |
//!
//! # Order
//! A [`Buffer`] belongs to a [`Stream`]. Work on it in another stream waits for its own, and its own for that work: events do
//! it, and the host never waits but for copies to and from it.
//!
//! # Graphs
//! Calls can be captured ([`Stream::capture`]) once their plan is prepared ([`Plan::prepare`]): kernels cannot be loaded while
//! a stream is captured. What is not captured is launched as a graph, too, from a plan's second call into a stream on, with the
//! arguments of each call: it costs the host less than a kernel's launch. Such a graph takes 112 KB of the GPU's memory (an
//! H200), and a stream has 256 at most.
//!
//! # Without a GPU
//! [`GpuPlan`](crate::GpuPlan) plans for any GPU. With the feature `interpreter`, `Interpreter` runs the planned kernels on the host,
//! slowly and strictly.

mod any;
mod buffer;
mod device;
mod driver;
mod graph;
#[cfg(feature = "interpreter")]
mod interpreter;
mod launch;
mod modules;
mod plan;
mod stream;
mod view;

#[doc(hidden)]
pub use isonorm_kernels::ablation::Ablation;

pub use any::AnyBuffer;
pub use buffer::Buffer;
pub use device::Device;
pub use graph::{Event, Graph};
#[cfg(feature = "interpreter")]
pub use interpreter::{Interpreter, Moved};
pub use launch::Workspace;
pub use plan::Plan;
pub use stream::Stream;
pub use view::{View, ViewMut};

use crate::Result;
use crate::launch::{BackwardArguments, ForwardArguments};

/// The arguments of a forward pass on a GPU.
pub type Forward<'a> = ForwardArguments<View<'a>, ViewMut<'a>>;

/// The arguments of a backward pass on a GPU.
pub type Backward<'a> = BackwardArguments<View<'a>, ViewMut<'a>>;

/// The newest CUDA version that the driver supports, such as `12.8`.
///
/// # Errors
/// [`Error::NoGpu`](crate::Error::NoGpu) without a driver.
pub fn driver_version() -> Result<String> {
    let version = driver::version()?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}
