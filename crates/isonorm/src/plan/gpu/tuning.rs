//! The numbers that only measurements decide, in one place. None of them changes what is right; those of the backward pass
//! change the order of its sums, and so its last bits.
//!
//! Measured on an H200 with kernels in turns with copies; see `docs/tuning.md`.

use std::ops::RangeInclusive;

/// How many accesses a thread makes to a row that a block owns: tried in order, taken when the block's threads come out in the
/// range.
type Shapes = &'static [(u32, RangeInclusive<u32>)];

/// Rows that blocks own, in accesses of 16 bytes.
pub(super) struct Blocks {
    /// How many accesses.
    pub(super) shapes: Shapes,
    /// Bytes of such a row, at most, where a cluster may own it.
    pub(super) most_bytes: u64,
}

/// Kernels that hold rows in registers.
pub(super) struct Registers {
    /// Threads of a block whose lanes own rows.
    pub(super) lanes_threads: u32,
    /// Rows of `f32`.
    pub(super) wide: Blocks,
    /// Rows of 16 bits whose mean is taken off: that takes longer than reading them.
    pub(super) centred_16: Blocks,
    /// Rows of 16 bits otherwise.
    pub(super) other_16: Blocks,
    /// Accesses of 16 bytes, for smooth activations.
    pub(super) smooth: Shapes,
    /// Accesses of one element.
    pub(super) elements: Shapes,
    /// Rows for each multiprocessor below which a row gets as many threads as there are kernels for.
    pub(super) few_rows: u64,
    /// How many accesses a thread makes to a row that a cluster owns, and threads of its blocks: tried in order, with as few
    /// blocks as hold the row.
    pub(super) blocks: Shapes,
    /// Rows that shared memory has room for, at most, where they come ahead there.
    pub(super) slots: u32,
    /// Accesses of 16 bytes to a row that lanes own, at most: a block of two warps does better with more.
    pub(super) lanes_accesses: u64,
    /// Blocks of a grid that does not load ahead and keeps no parameters, as multiples of what a GPU's threads hold: with few
    /// rows a team, a last wave that is not full costs little.
    pub(super) waves: u32,
    /// Rows of a team, at least, unless multiprocessors were idle: what a team sums has to be written and read again.
    pub(super) least_rows: u64,
}

/// The forward pass.
pub(super) const FORWARD: Registers = Registers {
    lanes_threads: 128,
    wide: Blocks {
        shapes: &[
            (8, 64..=256),
            (2, 32..=256),
            (4, 32..=512),
            (8, 64..=512),
            (2, 32..=768),
        ],
        most_bytes: 32 << 10,
    },
    centred_16: Blocks {
        shapes: &[
            (4, 64..=512),
            (2, 32..=256),
            (4, 32..=512),
            (8, 64..=512),
            (2, 32..=768),
        ],
        most_bytes: 32 << 10,
    },
    other_16: Blocks {
        shapes: &[(8, 64..=512), (2, 32..=256), (4, 32..=512), (2, 32..=768)],
        most_bytes: 64 << 10,
    },
    smooth: &[(4, 64..=512), (2, 32..=512)],
    elements: &[(8, 128..=512), (8, 32..=512)],
    few_rows: 2,
    blocks: &[(4, 64..=256), (4, 64..=512)],
    slots: 3,
    lanes_accesses: 96,
    waves: 8,
    least_rows: 1,
};

const BACKWARD_BLOCKS: Blocks = Blocks {
    shapes: &[(2, 64..=512)],
    most_bytes: 16 << 10,
};

/// The backward pass, whose teams sum over their rows: as many as run at once.
pub(super) const BACKWARD: Registers = Registers {
    lanes_threads: 256,
    wide: BACKWARD_BLOCKS,
    centred_16: BACKWARD_BLOCKS,
    other_16: BACKWARD_BLOCKS,
    smooth: &[(1, 32..=128), (2, 64..=512)],
    elements: &[(4, 128..=512), (4, 32..=512)],
    few_rows: 0,
    blocks: &[(2, 64..=256), (2, 64..=512)],
    slots: 2,
    lanes_accesses: 96,
    waves: 1,
    least_rows: 2,
};

/// The backward pass, where runs of columns share a weight and bias.
pub(super) const BACKWARD_RUNS: Registers = Registers {
    blocks: &[(4, 128..=256), (4, 128..=512)],
    least_rows: 1,
    ..BACKWARD
};

/// Kernels of rows that are longer than registers.
pub(super) struct Long {
    /// Threads of a block.
    pub(super) threads: u32,
    /// A row is not spread over so many blocks that each has less than this.
    pub(super) least_share_bytes: u64,
    /// Blocks of a grid in which no two exchange anything, as multiples of what runs at once.
    pub(super) waves: u64,
}

/// Rows that are longer than registers.
pub(super) const LONG: Long = Long {
    threads: 512,
    least_share_bytes: 16 << 10,
    waves: 4,
};

/// The backward pass in two sweeps.
pub(super) struct Sweeps {
    /// Threads of a block.
    pub(super) threads: u32,
    /// Bytes of each tensor that a block has at a time, at most unless there are too many blocks.
    pub(super) share_bytes: u64,
    /// Elements, where shared memory also holds sums of each.
    pub(super) share_elements: u64,
    /// At least, where there are too few rows for the GPU.
    pub(super) least_share_bytes: u64,
}

/// The backward pass in two sweeps.
pub(super) const SWEEPS: Sweeps = Sweeps {
    threads: 256,
    share_bytes: 16 << 10,
    share_elements: 4 << 10,
    least_share_bytes: 4 << 10,
};

/// Warps of a block that adds up what the blocks of a backward pass have summed, at most, and what each adds up at least.
pub(super) const MOST_GATHER_WARPS: u64 = 16;
pub(super) const GATHER_PARTS: u64 = 8;
