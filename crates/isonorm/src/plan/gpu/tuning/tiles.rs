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
    /// Blocks of a grid in which no two exchange anything, as multiples of what runs at once.
    pub(crate) waves: u32,
}

/// Groups that lie side by side, or in pieces.
pub(crate) const TILES: Tiles = Tiles {
    widths: &[(64, 68), (128, 72), (256, 85)],
    least_segment_bytes: 256,
    blocks_per_sm: 2,
    alone: [90, 85],
    block: 12,
    unit: 20,
    again: 1000,
    step: 3000,
    segments: 2000,
    waves: 4,
};

/// Columns that are groups, in strips over the whole chip.
pub(crate) struct Columns {
    /// Bytes of a row that belong to a strip, with how fast memory is then, in percent.
    pub(crate) widths: &'static [(u32, u64)],
    /// Numbers of teams for each width, at most: the best by the estimate.
    pub(crate) of_width: usize,
    /// What of the last-level cache holds what will be read again, in percent.
    pub(crate) cached: u64,
    /// What reading again takes of the time of reading, in percent: what is cached, and what is not.
    pub(crate) again: [u64; 2],
    /// Nanoseconds until the first data comes, and from the last to the end: forward, and backward.
    pub(crate) start: [u64; 2],
    /// Nanoseconds that a strip takes besides for each block that shares it.
    pub(crate) block: u64,
    /// Nanoseconds that a strip takes besides, adding up and exchanging sums: forward, and backward.
    pub(crate) step: [u64; 2],
    /// The share of accesses of which each that passes is on its way while sums are made and exchanged, in percent.
    pub(crate) passing: u64,
    /// How much longer bytes take for each hundredth of it that does not pass, in hundredths of a percent.
    pub(crate) idle: u64,
}

/// Columns that are groups, in strips over the whole chip.
pub(crate) const COLUMNS: Columns = Columns {
    widths: &[(64, 92), (128, 96), (256, 100), (512, 96)],
    of_width: 4,
    cached: 84,
    again: [86, 108],
    start: [3500, 2150],
    block: 11,
    step: [2650, 2400],
    passing: 43,
    idle: 42,
};
