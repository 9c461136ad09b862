//! Kernels for groups that are contiguous in memory, or in long pieces: LayerNorm, RMSNorm, GroupNorm or InstanceNorm of contiguous
//! channels, and BatchNorm of these. Here a group is called a row.
//!
//! | file | room |
//! |---|---|
//! | [`forward`] | the forward pass, over what the others do |
//! | [`long`] | the forward pass over rows that are longer than registers |
//! | [`each`](mod@each) | the forward pass where statistics are given |
//! | [`running`] | from the statistics of rows to running statistics |
//! | [`backward`], [`gather`] | the backward pass, and the sum of what its teams have summed; of few rows by one kernel |
//! | [`pieces`] | rows of millions of elements, whose pieces blocks keep between two readings |
//! | [`two_sweeps`] | the backward pass over rows that registers do not hold, or whose runs of columns share parameters |
//! | [`team`] | who owns a row, and holds it |
//! | [`spread`] | how a long row is spread over blocks |
//! | `data` | element types |
//! | [`access`], [`ragged`], [`halves`], `span` | how a thread reaches its part of a row, also where that begins anywhere, and which part it is |
//! | [`statistics`] | from a row to what it is normalized with |
//! | `ring` | rows that come ahead, in shared memory |
//! | `sums` | what a thread adds up of a long row |
//! | [`parameters`], [`by_column`], `run_of` | weight and bias of a row: of its columns, or of runs of them |
//! | [`segments`] | rows that lie in pieces, each row with a weight and a bias |
//! | [`by_segment`] | rows of channels, each with a weight and a bias, which begin anywhere |
//! | [`across_runs`] | contiguous rows of runs that accesses lie across |
//! | [`epilogue`] | activations |
//! | `quotient` | division by the same number again and again |
//! | `lanes` | a few numbers side by side |
//! | `list`, [`key`] | which kernels there are, and what the host knows of them |

pub mod access;
pub mod across_runs;
pub mod backward;
pub mod by_column;
pub mod by_segment;
mod data;
pub mod each;
pub mod epilogue;
pub mod forward;
pub mod gather;
pub mod halves;
#[cfg(not(target_arch = "nvptx64"))]
pub mod key;
pub mod known;
pub(crate) mod lanes;
pub mod lines;
pub(crate) mod list;
pub mod long;
pub mod parameters;
pub mod pieces;
pub(crate) mod quotient;
pub mod ragged;
pub mod ring;
mod run_of;
pub mod running;
pub mod segments;
mod span;
pub mod spread;
pub mod statistics;
mod sums;
pub mod team;
mod turns;
pub mod two_sweeps;
mod written_out;

pub use data::Data;
