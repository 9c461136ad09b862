//! Kernels for groups that are not contiguous in memory: BatchNorm, and GroupNorm or InstanceNorm of channels-last tensors.
//!
//! A *tile* is some groups that lie side by side, with all of their elements: `width` neighbouring elements of each of `rows` rows
//! of memory. The blocks of a *team* share a tile, hold it in shared memory between its statistics and its results, and tell each
//! other their sums through global memory. So each element is read once and written once.
//!
//! While the sums of a tile are on their way the tile before is finished, and as its elements leave shared memory, those of the
//! tile after next take their places. What shared memory does not hold is read again, newest first.
//!
//! | file | room |
//! |---|---|
//! | [`forward`], [`backward`] | the two passes |
//! | [`tiling`] | where a tile lies, and what a thread has of it |
//! | `areas` | what lies where in shared memory |
//! | `columns` | what is the same for all rows of a column |
//! | `slots` | tiles in shared memory |
//! | `fold` | from threads' sums to a block's |
//! | `exchange` | from blocks' sums to a team's |
//! | `list`, [`key`] | which kernels there are, and what the host knows of them |

mod areas;
pub mod backward;
mod columns;
mod exchange;
mod fold;
pub mod forward;
#[cfg(not(target_arch = "nvptx64"))]
pub mod key;
pub(crate) mod list;
mod slots;
pub mod tiling;

pub use self::areas::{MOST_SLOTS, MOST_UNITS, head_bytes};
pub use self::exchange::message_words;

use core::marker::PhantomData;

use crate::rows::access::Access;
use crate::rows::epilogue::Epilogue;

/// Threads of a block: a number that kernels know, so that what a thread has in shared memory lies at constant distances.
pub const THREADS: u32 = 256;

/// What a kernel is specialised on, besides the element type.
pub trait Spec {
    /// The width of an access.
    type Access: Access;
    /// The class of the activation.
    type Epilogue: Epilogue;
    /// Whether mean and variance are told, as in evaluation mode; otherwise they are those of the groups.
    const GIVEN: bool;
    /// Whether a tile is one group, so that all elements of an access have the same statistics and parameters.
    const ONE: bool;
}

/// A [`Spec`], spelled out.
pub struct Of<A, E, const GIVEN: bool, const ONE: bool>(PhantomData<(A, E)>);

impl<A: Access, E: Epilogue, const GIVEN: bool, const ONE: bool> Spec for Of<A, E, GIVEN, ONE> {
    type Access = A;
    type Epilogue = E;
    const GIVEN: bool = GIVEN;
    const ONE: bool = ONE;
}
