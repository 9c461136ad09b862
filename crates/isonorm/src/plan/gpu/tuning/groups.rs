//! Those of contiguous rows with several weights and biases each, groups of channels; and of lines of rows, segments too.

use isonorm_kernels::rows::lines::MOST_LINES;

/// How long a pass takes by an estimate: as long as moving bytes does, or instructions, whichever is longer, and a start.
pub(crate) struct OfPass {
    /// Nanoseconds, once.
    pub(crate) start: u64,
    /// How long memory takes, in percent of the time of a copy.
    pub(crate) memory: u64,
    /// Picoseconds of an access of a warp: of 16 bits an element, and of 32.
    pub(crate) access: [u64; 2],
    /// Picoseconds that a warp takes besides for a row.
    pub(crate) warp: u64,
    /// How much longer instructions take with a single warp on each part of a multiprocessor, in percent; less with more of them, and half
    /// where a warp is a block and waits for no other.
    pub(crate) waits: u64,
}

/// Rows whose segments have accesses of their own. Of two numbers or estimates the first is the forward pass's.
pub(crate) struct BySegment {
    /// Threads of a cluster's block, at least.
    pub(crate) cluster_threads: u32,
    /// Nanoseconds that a cluster takes besides for a row.
    pub(crate) step: [u64; 2],
    /// How long an access takes that is its segment's alone, in percent of others: of 16 bits an element, and of 32.
    pub(crate) whole: [[u64; 2]; 2],
    /// The rest of the estimate.
    pub(crate) passes: [OfPass; 2],
}

/// Rows whose segments have accesses of their own.
pub(crate) const BY_SEGMENT: BySegment = BySegment {
    cluster_threads: 64,
    step: [478, 320],
    whole: [[70, 78], [78, 84]],
    passes: [
        OfPass {
            start: 1990,
            memory: 90,
            access: [97_300, 53_500],
            warp: 125_900,
            waits: 347,
        },
        OfPass {
            start: 4910,
            memory: 90,
            access: [147_900, 106_500],
            warp: 11_200,
            waits: 280,
        },
    ],
};

/// Rows of runs that accesses lie across, forward and backward.
pub(crate) const ACROSS_RUNS: [OfPass; 2] = [
    OfPass {
        start: 0,
        memory: 94,
        access: [84_800, 48_400],
        warp: 226_300,
        waits: 9,
    },
    OfPass {
        start: 420,
        memory: 102,
        access: [156_800, 34_900],
        warp: 119_000,
        waits: 369,
    },
];

/// Rows of runs in shared memory. Of three numbers the first is for no activation, the second for piecewise ones, the third for all others.
pub(crate) struct Runs {
    /// Nanoseconds, once.
    pub(crate) start: f64,
    /// How long memory takes, as times of a copy, of 16 bits an element and of 32, and how much longer with all of shared memory.
    pub(crate) memory: [f64; 2],
    pub(crate) full: f64,
    /// Nanoseconds of a part of a multiprocessor for a line: of 16 bits an element, and of 32.
    pub(crate) line: [[f64; 3]; 2],
    /// The same for a piece of a row of several runs, and for a warp.
    pub(crate) piece: f64,
    pub(crate) warp: f64,
    /// Nanoseconds that a row takes even if it is alone, and for each line of a warp besides: of 32 bits an element so much of that.
    pub(crate) row: f64,
    pub(crate) row_line: [f64; 3],
    pub(crate) row_line_wide: f64,
    /// The same with two, four and eight blocks that share a row.
    pub(crate) shared_row: [f64; 3],
    /// How much of a round takes what only some teams have a row in.
    pub(crate) last: f64,
    /// How well memory, instructions and waiting hide behind each other: the power that sums of theirs are of.
    pub(crate) hidden: f64,
    /// Threads of a cluster's block, at least.
    pub(crate) cluster_threads: u32,
    /// Lines of a warp that are tried.
    pub(crate) lines: &'static [u32],
}

/// Rows of runs in shared memory, forward and backward: fitted to 37 problems and to 50, of which these ways were all measured.
pub(crate) const RUNS: [Runs; 2] = [FORWARD_RUNS, BACKWARD_RUNS];

/// Bytes of a row, at least, that takes less time in this way than in any other in the forward pass: of 38 problems of which all were measured, one of
/// 20 KB takes 1.05 times as long, and those of 24 KB and more 0.7 to 1.
pub(crate) const LEAST_BYTES: u64 = 24 << 10;

const FORWARD_RUNS: Runs = Runs {
    start: 3485.0,
    memory: [0.70, 0.85],
    full: 0.0,
    line: [[5.0, 36.0, 15.0], [28.0, 19.0, 12.0]],
    piece: 11.0,
    warp: 169.0,
    row: 56.0,
    row_line: [500.0, 378.0, 605.0],
    row_line_wide: 0.58,
    shared_row: [1179.0, 728.0, 637.0],
    last: 0.135,
    hidden: 1.6,
    ..BACKWARD_RUNS
};

const BACKWARD_RUNS: Runs = Runs {
    start: 5450.0,
    memory: [0.80; 2],
    full: 0.27,
    line: [[30.0, 40.0, 94.0], [22.0, 20.0, 40.0]],
    piece: 154.0,
    warp: 11.0,
    row: 1250.0,
    row_line: [238.0, 247.0, 485.0],
    row_line_wide: 0.6,
    shared_row: [50.0, 1600.0, 1320.0],
    last: 1.0,
    hidden: 2.3,
    cluster_threads: 64,
    lines: &[2, 3, 4, 6, 8, 12, 16, MOST_LINES],
};
