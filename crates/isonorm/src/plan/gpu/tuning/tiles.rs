//! Those of tiles and strips.

/// Groups that lie side by side, or in pieces.
pub(crate) struct Tiles {
    /// Bytes of a row that belong to a tile, with how fast memory is then, in percent.
    pub(crate) widths: &'static [(u32, u64)],
    /// Bytes of a group that lie together, from which on it is a tile of its own.
    pub(crate) least_segment_bytes: u64,
    /// Blocks of a multiprocessor, at most.
    pub(crate) blocks_per_sm: u32,
    /// What a single block on a multiprocessor reaches of the memory's speed, in percent: forward, and backward.
    pub(crate) alone: [u64; 2],
    /// Nanoseconds until the first data comes, and from the last to the end.
    pub(crate) start: u64,
    /// Nanoseconds that a tile takes besides for each block that shares it.
    pub(crate) block: u64,
    /// Nanoseconds that a tile takes besides for each of its parameters.
    pub(crate) unit: u64,
    /// Nanoseconds that a tile takes besides where shared memory does not hold all of it.
    pub(crate) again: u64,
    /// Nanoseconds that a tile takes besides: adding up and exchanging sums.
    pub(crate) step: u64,
    /// Nanoseconds that a tile takes besides where it is several segments side by side.
    pub(crate) segments: u64,
}

/// Groups that lie side by side, or in pieces.
pub(crate) const TILES: Tiles = Tiles {
    widths: &[(64, 76), (128, 78), (256, 85)],
    least_segment_bytes: 256,
    blocks_per_sm: 2,
    alone: [96, 92],
    start: 3170,
    block: 1,
    unit: 20,
    again: 300,
    step: 2590,
    segments: 2970,
};

/// Channels that lie side by side, with given statistics.
pub(crate) struct Given {
    /// Bytes of a row that belong to a tile, at least.
    pub(crate) least_bytes: u32,
    /// Widths of tiles that are looked at, at most.
    pub(crate) widths: usize,
    /// Accesses of a thread where a tile has few columns: of `f32` whose activation is no smooth one, and of others.
    pub(crate) accesses: [u32; 2],
    /// Of those that are single elements.
    pub(crate) elements: u32,
    /// Columns of a tile for each access of a thread: the block has to find out about all of them.
    pub(crate) columns_of_access: u32,
    pub(crate) most_accesses: u32,
}

/// Channels that lie side by side, with given statistics.
pub(crate) const GIVEN: Given = Given {
    least_bytes: 512,
    widths: 8,
    accesses: [4, 8],
    elements: 32,
    columns_of_access: 64,
    most_accesses: 16,
};

/// Columns that are groups, in strips over the whole chip.
pub(crate) struct Columns {
    /// Bytes of a row that belong to a strip, with how fast memory is then, in percent: where the last-level cache holds the tensors, and where
    /// it does not, so that what it fetched beside a strip is gone when the next strip is read.
    pub(crate) widths: &'static [(u32, [u64; 2])],
    /// How fast it is where a strip is as wide as a row, so that all of it is contiguous.
    pub(crate) whole: u64,
    /// Numbers of teams for each width, at most: the best by the estimate.
    pub(crate) of_width: usize,
    /// What of the last-level cache holds what will be read again, in percent.
    pub(crate) cached: u64,
    /// What reading again takes of the time of reading, in percent: what is cached, and what is not.
    pub(crate) again: [u64; 2],
    /// Nanoseconds until the first data comes, and from the last to the end: forward, and backward.
    pub(crate) start: [u64; 2],
    /// Nanoseconds that a strip takes besides for each block that shares it: forward, and backward.
    pub(crate) block: [u64; 2],
    /// Picoseconds that a strip takes besides for each byte of its width, whose sums are exchanged: forward, and backward.
    pub(crate) wide: [u64; 2],
    /// Nanoseconds that a strip takes besides, adding up and exchanging sums: forward, and backward.
    pub(crate) step: [u64; 2],
    /// The share of accesses of which each that passes is on its way while sums are made and exchanged, in percent.
    pub(crate) passing: u64,
    /// How much longer bytes take for each hundredth of it that does not pass, in hundredths of a percent.
    pub(crate) idle: u64,
}

/// Columns that are groups, in strips over the whole chip.
pub(crate) const COLUMNS: Columns = Columns {
    widths: &[(64, [91, 78]), (128, [97; 2]), (256, [103; 2]), (512, [101; 2])],
    whole: 103,
    of_width: 4,
    cached: 84,
    again: [86, 108],
    start: [2660, 1300],
    block: [3, 9],
    wide: [3670, 3550],
    step: [2210, 1540],
    passing: 43,
    idle: 42,
};

/// Small images, in tiles that blocks hold.
pub(crate) struct Held {
    /// Bytes of an image of no whole accesses from which on channels are rows of segments instead.
    pub(crate) long_bytes: u64,
    /// Bytes of a row that belong to a tile, at most, unless those are the fewest groups that fill accesses.
    pub(crate) most_bytes: u32,
    /// Threads of a block, at most: the first for which a thread has no more than `accesses` of each tensor, or else the last.
    pub(crate) threads: &'static [u32],
    pub(crate) accesses: u32,
    /// Blocks of a tile.
    pub(crate) blocks: &'static [u32],
    /// The estimate of the forward pass, and of the backward pass.
    pub(crate) passes: [HeldPass; 2],
}

/// The estimate of a pass.
pub(crate) struct HeldPass {
    /// Nanoseconds, once.
    pub(crate) start: u64,
    /// Nanoseconds of each round of blocks, and more of it for each access of a thread, and in a cluster.
    pub(crate) round: u64,
    pub(crate) access: u64,
    pub(crate) cluster: u64,
    /// How long an access takes where the activation is a smooth one, in percent of others.
    pub(crate) smooth: u64,
    /// How long memory takes, in percent of the time of a copy; and in percent of that where a multiprocessor has one block at a time.
    pub(crate) memory: u64,
    pub(crate) alone: u64,
}

/// Small images, in tiles that blocks hold.
pub(crate) const HELD: Held = Held {
    long_bytes: 400,
    most_bytes: 2048,
    threads: &[256, 448, 768],
    accesses: 16,
    blocks: &[1, 2, 4, 8],
    passes: [
        HeldPass {
            start: 2200,
            round: 4520,
            access: 134,
            smooth: 100,
            cluster: 2500,
            memory: 83,
            alone: 118,
        },
        HeldPass {
            start: 1520,
            round: 2830,
            access: 212,
            smooth: 200,
            cluster: 1630,
            memory: 80,
            alone: 98,
        },
    ],
};
