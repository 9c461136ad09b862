//! Kernels for groups that are not contiguous in memory: BatchNorm, GroupNorm or InstanceNorm of channels-last tensors, and LayerNorm
//! or RMSNorm over the channels of channels-first ones.
//!
//! A *tile* is some groups that lie side by side, with all of their elements: `width` neighbouring elements of each of `rows` rows
//! of memory. The blocks of a *team* share a tile, hold it in shared memory between its statistics and its results, and tell each
//! other their sums through global memory. So each element is read once and written once. Of a group that is too wide for a block's threads,
//! they share the columns, too.
//!
//! While the sums of a tile are on their way the tile before is finished, and as its elements leave shared memory, those of the
//! tile after next take their places. What shared memory does not hold is read again, newest first.
//!
//! | file | room |
//! |---|---|
//! | [`forward`], [`backward`] | the two passes |
//! | [`strips`] | both passes over tiles of columns that the whole chip shares |
//! | [`held`] | both passes over tiles that registers hold |
//! | [`tiling`] | where a tile lies, and what a thread has of it |
//! | `areas` | what lies where in shared memory |
//! | `columns` | what is the same for all rows of a column |
//! | `row` | what is the same for all columns of a row |
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
pub mod held;
#[cfg(not(target_arch = "nvptx64"))]
pub mod key;
pub(crate) mod list;
mod row;
mod slots;
pub mod strips;
pub mod tiling;

pub use self::areas::{MOST_SLOTS, MOST_UNITS, head_bytes, row_bytes, sum_bytes};
pub use self::exchange::message_words;

use core::marker::PhantomData;

use crate::rows::access::Access;
use crate::rows::epilogue::Epilogue;

/// Threads of a block: a number that kernels know, so that what a thread has in shared memory lies at constant distances.
pub const THREADS: u32 = 256;

/// Whose statistics and parameters the elements of an access have, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Group`]
    Group,
    /// [`Groups`]
    Groups,
    /// [`Given`]
    Given,
    /// [`ByRow`]
    ByRow,
    /// [`Wide`]
    Wide,
    /// [`Columns`]
    Columns,
    /// [`Joined`]
    Joined,
    /// [`Batched`]
    Batched,
    /// [`Held`]
    Held,
}

impl Kind {
    /// Whether its kernels are those of [`strips`].
    pub const fn is_strips(self) -> bool {
        matches!(self, Kind::Columns | Kind::Joined | Kind::Batched)
    }
}

/// Whose statistics and parameters the elements of an access have.
pub trait OfKind {
    /// Which kind.
    const KIND: Kind;
}

/// A tile is one group, and all elements of an access have the same statistics and parameters.
pub struct Group;

/// Groups lie side by side, or one has several parameters side by side.
pub struct Groups;

/// Mean and variance are told, as in evaluation mode; otherwise they are those of the groups.
pub struct Given;

/// Groups lie side by side, and weight and bias belong to their rows, which all groups have: LayerNorm and RMSNorm over the channels
/// of N, C, spatial.
pub struct ByRow;

/// A tile is a part of the columns of one group, each of which has parameters of its own: GroupNorm of channels-last tensors with so many
/// channels in a group that no block has one thread for each. The blocks of a team share the parts, and then the rows.
pub struct Wide;

/// Each column of a tile is a group, with parameters of its own: BatchNorm of channels-last tensors, and of `[N, C]`, by the kernels of
/// [`strips`].
pub struct Columns;

/// As [`Columns`], of rows of memory several of which are one row of the tile: so few groups lie side by side that their rows have no whole
/// number of accesses.
pub struct Joined;

/// Each group is some neighbouring columns of a tensor of a batch, and each column has parameters of its own: GroupNorm and InstanceNorm of
/// channels-last tensors, by the kernels of [`strips`]. All tiles have as many columns.
pub struct Batched;

/// Groups lie side by side, of each row as many elements as an access has, at least, with parameters of their own; and registers hold a tile:
/// BatchNorm of N, C, spatial with small images, by the kernels of [`held`].
pub struct Held;

impl OfKind for Held {
    const KIND: Kind = Kind::Held;
}

impl OfKind for Batched {
    const KIND: Kind = Kind::Batched;
}

impl OfKind for Joined {
    const KIND: Kind = Kind::Joined;
}

impl OfKind for Columns {
    const KIND: Kind = Kind::Columns;
}

impl OfKind for Group {
    const KIND: Kind = Kind::Group;
}

impl OfKind for Groups {
    const KIND: Kind = Kind::Groups;
}

impl OfKind for Given {
    const KIND: Kind = Kind::Given;
}

impl OfKind for ByRow {
    const KIND: Kind = Kind::ByRow;
}

impl OfKind for Wide {
    const KIND: Kind = Kind::Wide;
}

/// What a kernel is specialised on, besides the element type.
pub trait Spec {
    /// The width of an access.
    type Access: Access;
    /// The class of the activation.
    type Epilogue: Epilogue;
    /// Whose statistics and parameters the elements of an access have.
    const KIND: Kind;
    /// See [`Given`].
    const GIVEN: bool = matches!(Self::KIND, Kind::Given);
    /// See [`Group`].
    const ONE: bool = matches!(Self::KIND, Kind::Group);
    /// See [`ByRow`].
    const BY_ROW: bool = matches!(Self::KIND, Kind::ByRow);
    /// See [`Joined`].
    const JOINED: bool = matches!(Self::KIND, Kind::Joined);
    /// See [`Batched`].
    const BATCHED: bool = matches!(Self::KIND, Kind::Batched);
    /// See [`Wide`].
    const WIDE: bool = matches!(Self::KIND, Kind::Wide);
}

/// A [`Spec`], spelled out.
pub struct Of<A, E, K>(PhantomData<(A, E, K)>);

impl<A: Access, E: Epilogue, K: OfKind> Spec for Of<A, E, K> {
    type Access = A;
    type Epilogue = E;
    const KIND: Kind = K::KIND;
}
