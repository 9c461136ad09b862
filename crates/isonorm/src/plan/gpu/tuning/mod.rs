//! The numbers that only measurements decide, in one place. None of them changes what is right; those of the backward pass
//! change the order of its sums, and so its last bits.
//!
//! Measured on an H200 with kernels in turns with copies; see `docs/tuning.md`.

mod groups;
mod tiles;

use std::ops::RangeInclusive;

pub(super) use self::groups::{ACROSS_RUNS, BY_SEGMENT, LEAST_BYTES, OfPass, RUNS, Runs};
pub(super) use self::tiles::{COLUMNS, GIVEN, HELD, TILES};

use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::Pass;

use crate::Activation;

/// How many accesses a thread makes to a row that a block owns: tried in order, taken when the block's threads come out in the
/// range.
type Shapes = &'static [(u32, RangeInclusive<u32>)];

/// Rows that a block owns, or several, in accesses of 16 bytes.
pub(super) struct Shared {
    /// Accesses to a row that lanes own, at most: otherwise a block of two warps or more does better.
    pub(super) lanes: u64,
    /// How many accesses a thread makes to the row of a block.
    pub(super) block: Shapes,
    /// Bytes of such a row, at most, where a cluster may own it.
    pub(super) most_bytes: u64,
    /// The same, where there are few rows, or no parameters by column.
    pub(super) most_bytes_of_others: u64,
    /// The same for a row of a cluster, and threads of its blocks: with as few blocks as hold the row.
    pub(super) cluster: Shapes,
    /// Threads of a cluster's blocks, at most, where the whole chip may own the row.
    pub(super) most_cluster_threads: u32,
    /// How many accesses a thread makes to a row of the whole chip, threads of its blocks, and blocks, at most: tried in order.
    pub(super) chip: &'static [(u32, u32, u32)],
}

/// Kernels that hold rows in registers.
pub(super) struct Registers {
    /// Threads of a block whose lanes own rows.
    pub(super) lanes_threads: u32,
    /// Rows of `f32`.
    pub(super) wide: Shared,
    /// Rows of 16 bits whose mean is taken off: that takes longer than reading them.
    pub(super) centred_16: Shared,
    /// Rows of 16 bits otherwise.
    pub(super) other_16: Shared,
    /// Accesses of 16 bytes, for smooth activations.
    pub(super) smooth: Shapes,
    /// Accesses of one element.
    pub(super) elements: Shapes,
    /// Rows for each multiprocessor below which a row gets as many threads as there are kernels for.
    pub(super) few_rows: u64,
    /// Rows that shared memory has room for, at most, where they come ahead there.
    pub(super) slots: u32,
    /// Rows for each multiprocessor below which lanes own all rows that they hold: blocks of several teams leave fewer sums.
    pub(super) few_rows_of_lanes: u64,
    /// Threads of each multiprocessor up to which a row that lanes could own gets more of them.
    pub(super) few_threads: u64,
    /// Rows of a team, at least, unless multiprocessors were idle: what a team sums has to be written and read again.
    pub(super) least_rows: u64,
}

const FORWARD_CLUSTER: Shapes = &[(4, 64..=256), (4, 64..=512)];
/// Eight accesses are those of kernels that keep no parameters in registers.
const FORWARD_CLUSTER_WIDE: Shapes = &[(4, 64..=256), (8, 64..=256), (4, 64..=512)];
const FORWARD_CHIP: &[(u32, u32, u32)] = &[(8, 128, 64), (8, 256, u32::MAX), (8, 512, u32::MAX)];

/// Rows of 16 bits: about four accesses, and more where their threads would be too many for several blocks of a multiprocessor.
const FORWARD_16: Shapes = &[
    (2, 64..=64),
    (4, 64..=64),
    (3, 64..=96),
    (4, 96..=160),
    (8, 128..=128),
    (6, 64..=256),
    (8, 64..=512),
    (4, 32..=512),
    (2, 32..=768),
];

/// The forward pass.
pub(super) const FORWARD: Registers = Registers {
    lanes_threads: 64,
    wide: Shared {
        lanes: 192,
        block: &[
            (2, 32..=128),
            (4, 96..=128),
            (8, 64..=256),
            (2, 32..=256),
            (4, 32..=512),
            (8, 64..=512),
            (2, 32..=768),
        ],
        most_bytes: 32 << 10,
        most_bytes_of_others: 32 << 10,
        cluster: FORWARD_CLUSTER_WIDE,
        most_cluster_threads: 512,
        chip: FORWARD_CHIP,
    },
    centred_16: Shared {
        lanes: 128,
        block: FORWARD_16,
        most_bytes: 32 << 10,
        most_bytes_of_others: 32 << 10,
        cluster: FORWARD_CLUSTER,
        most_cluster_threads: 256,
        chip: FORWARD_CHIP,
    },
    other_16: Shared {
        lanes: 128,
        block: FORWARD_16,
        most_bytes: 32 << 10,
        most_bytes_of_others: 32 << 10,
        cluster: FORWARD_CLUSTER,
        most_cluster_threads: 256,
        chip: FORWARD_CHIP,
    },
    smooth: &[(8, 128..=256), (4, 64..=512), (2, 32..=512)],
    elements: &[(8, 128..=512), (8, 32..=512)],
    few_rows: 2,
    slots: 3,
    few_rows_of_lanes: 0,
    few_threads: 256,
    least_rows: 1,
};

const BACKWARD_WIDE: Shared = Shared {
    lanes: 256,
    block: &[(2, 64..=512)],
    most_bytes: 16 << 10,
    most_bytes_of_others: 16 << 10,
    cluster: &[(2, 64..=256), (2, 64..=512)],
    most_cluster_threads: 256,
    chip: &[(4, 128, 64), (4, 256, u32::MAX), (8, 512, u32::MAX)],
};

const BACKWARD_16: Shared = Shared {
    lanes: 96,
    most_cluster_threads: 512,
    chip: &[(2, 128, 64), (2, 256, u32::MAX), (2, 512, u32::MAX), (4, 512, u32::MAX)],
    ..BACKWARD_WIDE
};

/// The backward pass, whose teams sum over their rows: as many as run at once.
pub(super) const BACKWARD: Registers = Registers {
    lanes_threads: 256,
    wide: BACKWARD_WIDE,
    centred_16: BACKWARD_16,
    other_16: BACKWARD_16,
    smooth: &[(1, 32..=128), (2, 64..=512)],
    elements: &[(4, 128..=512), (4, 32..=512)],
    few_rows: 0,
    slots: 2,
    few_rows_of_lanes: 64,
    few_threads: 0,
    least_rows: 2,
};

/// The backward pass, where nothing is summed over rows.
pub(super) const BACKWARD_ROWS: Registers = Registers {
    least_rows: 1,
    ..BACKWARD
};

/// How long channels of N, C, spatial take with a smooth activation, in percent of estimates that do not know of one: of 16 bits an element, and of 32;
/// forward and backward.
const SMOOTH: [[u64; 2]; 2] = [[124, 106], [133, 100]];

/// That for an activation, smooth or not, of elements of so many bytes.
pub(super) fn with_activation(nanoseconds: u64, pass: Pass, activation: Activation, bytes: u32) -> u64 {
    if Class::Piecewise.has(activation) {
        return nanoseconds;
    }
    nanoseconds * SMOOTH[usize::from(pass == Pass::Backward)][usize::from(bytes == 4)] / 100
}

/// The backward pass over few rows, by blocks that have strips of columns beside those that have rows.
pub(super) struct Apart {
    /// Threads of blocks whose warps have rows; or twice as many, where that saves a round of waiting.
    pub(super) threads: u32,
    /// Threads side by side in a strip, at most: a power of two.
    pub(super) most_lanes: u32,
    /// Blocks that have strips, at most, in percent of the multiprocessors.
    pub(super) most_blocks: u64,
    /// The share of the last-level cache that holds x and dy until they are read again, in percent.
    pub(super) cached: u64,
    /// Threads of blocks that share a row, at least.
    pub(super) least_threads: u32,
    /// Bytes of x and dy of rows that blocks share, at most: of 16 bits an element, and of 32.
    pub(super) most_shared: [u64; 2],
    /// Elements of a row of 16 bits, at most, of which twice those bytes may be.
    pub(super) short_shared: u64,
    /// Nanoseconds that it takes besides moving bytes, by an estimate: of 16 bits an element, and of 32.
    pub(super) once: [u64; 2],
    /// Picoseconds for each row, at least.
    pub(super) row: [u64; 2],
    /// Nanoseconds for each time that a thread has waited for rows of a strip, at least; twice as many in blocks of fewer than half those threads.
    pub(super) round: u64,
    /// Where blocks have more threads, so that few of them are on a multiprocessor, in percent of what moving bytes takes.
    pub(super) crowded: u64,
    /// Nanoseconds that others take besides moving bytes, to sum over rows first and add up these sums after: of 32 bits.
    pub(super) after: u64,
    /// Of 16 bits, where blocks have rows: LayerNorm, and RMSNorm.
    pub(super) after_blocks: [u64; 2],
    /// And where lanes do, with picoseconds for each column.
    pub(super) after_lanes: u64,
    pub(super) after_column: u64,
}

/// The backward pass over few rows.
pub(super) const APART: Apart = Apart {
    threads: 256,
    most_lanes: 16,
    most_blocks: 50,
    cached: 67,
    least_threads: 128,
    most_shared: [9 << 20, 5 << 20],
    short_shared: 16384,
    once: [900, 900],
    row: [1050, 600],
    round: 300,
    crowded: 35,
    after: 2700,
    after_blocks: [8500, 5300],
    after_lanes: 2450,
    after_column: 3800,
};

/// Kernels of rows that are longer than registers.
pub(super) struct Long {
    /// Threads of a block.
    pub(super) threads: u32,
    /// A row is not spread over so many blocks that each has less than this.
    pub(super) least_share_bytes: u64,
    /// Bytes of a row that shared memory holds whole, at least; and of 16 bits an element, with a weight and bias of runs and a smooth activation.
    pub(super) least_shared_bytes: u64,
    pub(super) least_smooth_bytes: u64,
    /// Such rows that there are for each multiprocessor, at least: so many that the first and the last ones, which have less company, do not matter;
    /// and of those that are shorter than others.
    pub(super) rows_of_sm: u64,
    pub(super) smooth_rows_of_sm: u64,
    /// Rows of runs that a multiprocessor has room for, of which fewer are enough, and how many these are.
    pub(super) many_of_sm: u32,
    pub(super) few_rows_of_sm: u64,
    /// How many more of them than there is room for at once make it worth a second round, in percent.
    pub(super) second_round: u64,
    /// Bytes of rows in a multiprocessor's registers that are enough to keep memory busy.
    pub(super) register_bytes: u64,
    /// Threads of a block, where these have the same columns of all rows.
    pub(super) down_threads: u32,
    /// Rows whose parameters are read once where a row or two are worked on at a time.
    pub(super) kept_rows: u64,
}

/// Rows that are longer than registers.
pub(super) const LONG: Long = Long {
    threads: 512,
    least_share_bytes: 16 << 10,
    least_shared_bytes: 24 << 10,
    least_smooth_bytes: 12 << 10,
    rows_of_sm: 20,
    smooth_rows_of_sm: 30,
    many_of_sm: 4,
    few_rows_of_sm: 3,
    second_round: 50,
    register_bytes: 64 << 10,
    down_threads: 256,
    kept_rows: 2,
};

/// Rows in pieces.
pub(super) struct Pieces {
    /// Threads of a block.
    pub(super) threads: u32,
    /// Blocks that share a multiprocessor's shared memory, at most.
    pub(super) most_blocks: u32,
    /// What is to be kept of rows at least, in percent, for one to be on its way while the sums of another are waited for.
    pub(super) kept_of_two: u64,
}

/// Rows in pieces.
pub(super) const PIECES: Pieces = Pieces {
    threads: 256,
    most_blocks: 3,
    kept_of_two: 75,
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

/// Threads of a block, where statistics are given.
pub(super) const EACH_THREADS: u32 = 256;

/// The backward pass in two sweeps.
pub(super) const SWEEPS: Sweeps = Sweeps {
    threads: 256,
    share_bytes: 16 << 10,
    share_elements: 4 << 10,
    least_share_bytes: 4 << 10,
};

/// What a warp adds up at least of what the blocks of a backward pass have summed, and warps that share the sums of a column at most.
pub(super) const GATHER_PARTS: u64 = 8;
pub(super) const MOST_GATHER_WARPS: u64 = 16;
/// Warps of such a block, at least about; they have as many columns as they do not share.
pub(super) const LEAST_GATHER_WARPS: u32 = 4;

/// Columns from which on its threads have several.
pub(super) const WIDE_GATHER: u64 = 16 << 10;

/// Nanoseconds until a kernel's first data comes, and from its last to the end.
pub(super) const LAUNCH: u64 = 4000;

/// Channels in several segments.
pub(super) struct Segments {
    /// Bytes of a segment, at least.
    pub(super) least_bytes: u64,
    /// Threads of blocks of the whole chip, at most about.
    pub(super) chip_threads: &'static [u32],
    /// Threads of a cluster's block, at least.
    pub(super) cluster_threads: u32,
    /// The estimate of the forward pass, and of the backward pass, where segments are whole accesses, or halves of them.
    pub(super) passes: [SegmentsPass; 2],
    /// How long memory takes by halves, in percent of what it takes otherwise: where the last-level cache holds two tensors, and where it does not.
    pub(super) halves: [[u64; 2]; 2],
    /// The estimate of both passes where segments begin anywhere.
    pub(super) ragged: [RaggedPass; 2],
    /// How long an access takes where a thread has many of them, with slopes of 16 bits each, in percent.
    pub(super) crowded: u64,
}

/// How long a pass over channels in segments takes, by an estimate: of whichever takes longer, moving bytes or, where segments begin anywhere, accesses, and
/// besides that.
pub(super) struct SegmentsPass {
    /// Nanoseconds until the first data comes, and from the last to the end.
    pub(super) start: u64,
    /// Nanoseconds of a row of a block, of a cluster, and of blocks of the whole chip.
    pub(super) step: [u64; 3],
    /// Picoseconds of a row, for each thread of a block, which waits for all of them.
    pub(super) thread: u64,
    /// Picoseconds of a row, for each block that a multiprocessor has of it.
    pub(super) block: u64,
    /// Picoseconds of a row, for each block that shares it: of a cluster, and of the whole chip.
    pub(super) shared: [u64; 2],
    /// How long memory takes, in percent of the time of a copy.
    pub(super) memory: u64,
    /// How long it takes where no row is on its way while another is worked on, in percent of that.
    pub(super) alone: u64,
}

/// The same where segments begin anywhere.
pub(super) struct RaggedPass {
    /// What there is besides accesses.
    pub(super) pass: SegmentsPass,
    /// Picoseconds of an access of a warp: of 16 bits an element, and of 32.
    pub(super) access: [u64; 2],
    /// What it takes where a kernel's threads have [`FEW_ACCESSES`] at most, in percent.
    pub(super) few: u64,
    /// What an access takes of it that a kernel's threads have, but not these, in percent.
    pub(super) unused: u64,
    /// How much longer an access takes with a single warp on a multiprocessor, in percent; less with more of them.
    pub(super) waits: u64,
    /// Picoseconds that each end of such a segment takes besides, of 16 bits an element: of a tensor that the last-level cache holds, where
    /// others' elements at the ends are read once, and of a larger one; and of 32.
    pub(super) ends: [u64; 2],
    pub(super) wide_ends: u64,
}

/// Accesses of a thread, where segments begin anywhere, of which each takes more time than of more.
pub(super) const FEW_ACCESSES: u32 = 5;

/// Channels in several segments.
pub(super) const SEGMENTS: Segments = Segments {
    least_bytes: 64,
    chip_threads: &[128, 256, 512],
    cluster_threads: 64,
    passes: [
        SegmentsPass {
            start: 2940,
            step: [338, 233, 1210],
            thread: 1990,
            block: 100_000,
            shared: [53_000, 400],
            memory: 76,
            alone: 120,
        },
        SegmentsPass {
            start: 4450,
            step: [46, 287, 1550],
            thread: 1030,
            block: 14_000,
            shared: [5000, 100],
            memory: 78,
            alone: 116,
        },
    ],
    halves: [[80, 144], [121, 144]],
    ragged: [
        RaggedPass {
            pass: SegmentsPass {
                start: 3930,
                step: [431, 160, 851],
                thread: 1230,
                block: 94_300,
                shared: [10_600, 563],
                memory: 92,
                alone: 109,
            },
            access: [87_700, 56_500],
            few: 114,
            unused: 27,
            waits: 558,
            ends: [41, 25],
            wide_ends: 85,
        },
        RaggedPass {
            pass: SegmentsPass {
                start: 4020,
                step: [184, 57, 1090],
                thread: 557,
                block: 5340,
                shared: [1520, 400],
                memory: 98,
                alone: 100,
            },
            access: [125_300, 106_600],
            few: 124,
            unused: 27,
            waits: 369,
            ends: [58, 18],
            wide_ends: 114,
        },
    ],
    crowded: 130,
};
