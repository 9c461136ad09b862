//! Columns: a batch entry is a matrix of `outer` rows of `kept·inner` contiguous elements; vector lanes go across groups,
//! sums go down the columns.

use super::rows::share;
use super::{Candidate, CpuProperties, Regions, choose};
use crate::{Geometry, NormDesc};

pub(super) const NAMES: [&str; 3] = ["columns/resident", "columns/split", "columns/streaming"];

/// Columns of the widest tile: its coefficients stay in the first-level cache.
pub(crate) const WIDEST_TILE: usize = 512;
/// Bytes of a row in the narrowest tile: less wastes the memory's bursts.
const NARROWEST_TILE_BYTES: usize = 256;
/// Rows of a block whose rows are not joined: a second pass, if any, finds it in the cache, and merging it costs little beside summing
/// it.
const BLOCK_ROWS: usize = 64;
/// Lines of a block whose rows are joined.
const BLOCK_LINES: usize = if cfg!(miri) { 1 } else { 32 };
/// How many tasks a phase is cut into when tiles are few, whatever the number of threads.
const PARTS: usize = 64;
/// A part has at least this many elements, so that handing it to a thread pays.
const SHORTEST_PART: usize = if cfg!(miri) { 64 } else { 32 << 10 };
/// At most this many accumulators for parameter gradients in all, so that they stay O(channels) beside the tensor.
const GRADIENT_ACCUMULATORS: usize = 1 << 19;
/// At most this many chunks of batch entries (or tiles) with accumulators of their own.
const CHUNKS: usize = 64;

/// Tiles of the `columns` kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnsPlan {
    /// Columns of a tile: whole groups.
    pub(crate) tile: usize,
    /// Rows that a loop runs over at once, where a tile is a whole short row. A power of two: a block is whole lines. Follows
    /// from the geometry alone, as it fixes the order of summation.
    pub(crate) joined_rows: usize,
    /// Rows of a block: whole lines.
    pub(crate) block_rows: usize,
    /// Parts that the rows of a batch entry are cut into. Fixes the order of summation, so it follows from the geometry
    /// alone.
    pub(crate) parts: usize,
    /// Whether the parts go to different tasks.
    pub(crate) split: bool,
    /// Whether weight and bias differ from row to row, not from column to column.
    pub(crate) by_row: bool,
    /// Chunks of the work, each with its own accumulators of parameter gradients: chunks of the batch, or of (batch, tile)
    /// pairs when parameters differ by row. Fixed by the geometry alone.
    pub(crate) chunks: usize,
    /// Whether a tile's second pass finds it in the second-level cache.
    pub(crate) resident: bool,
}

impl ColumnsPlan {
    /// Tiles of a row.
    pub(crate) fn tiles(&self, g: &Geometry) -> usize {
        g.row().div_ceil(self.tile)
    }

    /// Accumulators of a parameter gradient: one a parameter when parameters differ by row, else one a column.
    pub(crate) fn accumulators(&self, g: &Geometry) -> usize {
        if self.by_row { g.parameters } else { g.row() }
    }

    /// The columns of a tile.
    pub(crate) fn tile_columns(&self, g: &Geometry, tile: usize) -> std::ops::Range<usize> {
        tile * self.tile..((tile + 1) * self.tile).min(g.row())
    }

    /// The rows of a part: whole blocks but for the last.
    pub(crate) fn part_rows(&self, g: &Geometry, part: usize) -> std::ops::Range<usize> {
        let blocks = share(g.outer.div_ceil(self.block_rows), self.parts, part);
        blocks.start * self.block_rows..(blocks.end * self.block_rows).min(g.outer)
    }
}

pub(super) fn plan(
    desc: &NormDesc,
    g: &Geometry,
    p: &CpuProperties,
    regions: &mut Regions,
    candidates: &mut Vec<Candidate>,
) -> ColumnsPlan {
    let backward = desc.get_pass().is_backward();
    let by_row = g.affine.outer_stride != 0;
    let element = desc.get_dtype().bytes();
    let tensors = 1 + usize::from(backward) + usize::from(desc.has_residual() && desc.backward_needs_preactivation());
    let whole_groups = |columns: usize| (columns / g.inner).max(1) * g.inner;
    let widest = whole_groups(WIDEST_TILE).min(g.row());
    let narrowest = whole_groups((NARROWEST_TILE_BYTES / element).max(g.inner)).min(g.row());

    let column_bytes = g.outer * element * tensors;
    let fitting = whole_groups(p.l2_bytes * 3 / 4 / column_bytes.max(1));
    // A row that is joined to others is a tile for every cache.
    let joined_rows = if by_row || g.row() > WIDEST_TILE / 2 {
        1
    } else {
        1 << (WIDEST_TILE / g.row()).ilog2()
    };
    let block_rows = if joined_rows == 1 {
        BLOCK_ROWS
    } else {
        BLOCK_LINES * joined_rows
    };
    let narrowest = if joined_rows > 1 { g.row() } else { narrowest };
    let fits = narrowest * column_bytes <= p.l2_bytes * 3 / 4;
    let resident_tile = fitting.clamp(narrowest, widest);

    // The order of summation may not depend on the caches of this machine: parts are cut as if tiles were the widest.
    let tiles = g.batch * g.row().div_ceil(widest);
    let parts = if by_row {
        1
    } else {
        PARTS.div_ceil(tiles).min(g.outer * widest / SHORTEST_PART)
    };
    let parts = parts.clamp(1, g.outer.div_ceil(block_rows));
    let resident_tasks = g.batch * g.row().div_ceil(resident_tile);
    let enough = resident_tasks >= 2 * p.threads || p.threads == 1;
    let split = parts > 1 && !(fits && enough) && (tiles < 8 * p.threads) && p.threads > 1;
    let resident = fits && !split;
    // Sums over the columns of a tile are part of the result when parameters differ by row, so the tile is fixed then.
    let tile = if resident && !by_row { resident_tile } else { widest };
    let mut plan = ColumnsPlan {
        tile,
        joined_rows,
        block_rows,
        parts,
        split,
        by_row,
        chunks: 1,
        resident,
    };
    choose(
        candidates,
        vec![
            (
                NAMES[0],
                if !fits {
                    Some(format!(
                        "{} columns of {} rows ({} bytes) do not fit the second-level cache of {}",
                        narrowest,
                        g.outer,
                        narrowest * column_bytes,
                        p.l2_bytes
                    ))
                } else {
                    (!resident).then(|| format!("{resident_tasks} tiles are too few for {} threads", p.threads))
                },
            ),
            (
                NAMES[1],
                (!split).then(|| {
                    if parts == 1 {
                        "the rows are too few to be shared by threads".into()
                    } else {
                        format!("{tiles} tiles are enough for {} threads", p.threads)
                    }
                }),
            ),
            (NAMES[2], None),
        ],
    );
    if backward {
        plan_gradients(g, &mut plan, regions);
    } else if split {
        // Shift, mean and squared distances of each column.
        regions.parts = regions.append(g.batch * parts * 3 * g.row(), size_of::<f64>());
    }
    plan
}

fn plan_gradients(g: &Geometry, plan: &mut ColumnsPlan, regions: &mut Regions) {
    let accumulators = plan.accumulators(g);
    let work = if plan.by_row { g.batch * plan.tiles(g) } else { g.batch };
    plan.chunks = work.min(GRADIENT_ACCUMULATORS / accumulators).clamp(1, CHUNKS);
    if plan.split {
        regions.parts = regions.append(g.batch * plan.parts * 2 * g.row(), size_of::<f64>());
    }
    regions.gradients = regions.append(plan.chunks * 2 * accumulators, size_of::<f64>());
}
