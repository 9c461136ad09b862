//! What kernels are told besides pointers.

use isonorm_kernels::rows::segments::Segments;

use super::Parameters;

/// What a forward kernel is told besides pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Elements from a row to the next.
    pub(crate) stride: u64,
    pub(crate) segments: Segments,
    pub(crate) parameters: Parameters,
    /// Blocks that share a row.
    pub(crate) blocks: u32,
    /// Tiles that a block keeps in shared memory, or rows that come ahead to it.
    pub(crate) kept: u32,
    /// Where blocks of the grid exchange moments.
    pub(crate) exchange: Option<Exchange>,
    /// What the last kernel is told, if there is one besides: it runs where running statistics are updated.
    pub(crate) running: Option<Running>,
}

/// Statistics of rows that are averaged into running ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// Rows of each channel.
    pub(crate) instances: u64,
    pub(crate) channels: u64,
    /// Where the mean and the variance of each row lie in the workspace: the mean only where the caller does not want it.
    pub(crate) statistics: [usize; 2],
}

/// The workspace of an exchange over the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Bytes of the counters, at the start of the workspace; zero before the launch.
    pub(crate) arrived_bytes: usize,
    /// Where the moments start.
    pub(crate) moments_offset: usize,
}

/// What the kernels of a backward pass are told besides pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backward {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Elements from a row to the next.
    pub(crate) stride: u64,
    pub(crate) segments: Segments,
    pub(crate) parameters: Parameters,
    /// Sums of each gradient of weight and bias that are left to be added up, one behind the other: those of blocks of the grid, or of
    /// clusters; by run, of rows.
    pub(crate) parts: u64,
    /// Whether the sums are the gradients.
    pub(crate) are_gradients: bool,
    /// Gradients of the weight.
    pub(crate) gradients: u64,
    /// Rows that come ahead.
    pub(crate) slots: u32,
    /// Bytes of one of these two in the workspace: the weight's first.
    pub(crate) sums_bytes: usize,
    /// Blocks that hold a row.
    pub(crate) blocks: u32,
    /// Blocks that have columns, if the others have rows only for dx.
    pub(crate) apart: Option<Columns>,
}

/// Blocks of a backward pass that have strips of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) blocks: u32,
    /// Threads side by side in a strip.
    pub(crate) lanes: u32,
}

/// What the kernels of a backward pass in two sweeps are told besides pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sweeps {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) parameters: Parameters,
    /// Elements of a run: all columns, where parameters are by column.
    pub(crate) run: u64,
    /// The kernel of both sweeps, or one for each.
    pub(crate) shares: Vec<Share>,
    /// Where a kernel between the sweeps leaves what it has added up of each row, in the workspace, if there is one.
    pub(crate) totals: Option<[usize; 2]>,
    /// Where the parts of the workspace start, and how long those are that are zero before the launch.
    pub(crate) workspace: SweepsWorkspace,
    /// What the last kernel adds up of each parameter: sums that lie one behind the other, for so many parameters.
    pub(crate) gathered: u64,
    /// Whether the sums are the gradients, and there is no such kernel.
    pub(crate) are_gradients: bool,
    pub(crate) parameters_in_all: u64,
}

/// What a block has at a time in a sweep, or in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Elements of a run that a block has.
    pub(crate) part: u64,
    /// Blocks that share a run.
    pub(crate) parts: u32,
    pub(crate) runs_at_once: u32,
    pub(crate) rows_at_once: u32,
    /// Warps that share a stretch of a run.
    pub(crate) warps: u32,
    /// Tiles of a warp that are kept in shared memory.
    pub(crate) kept: u32,
}

/// The workspace of a backward pass in two sweeps, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepsWorkspace {
    /// Of the counters, at the start.
    pub(crate) arrived_bytes: usize,
    /// Where sums of g·x̂ and of g lie.
    pub(crate) sums: [usize; 2],
    /// By column: where the teams' gradients of weight and bias lie.
    pub(crate) gradients: [usize; 2],
}
