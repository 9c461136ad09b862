//! The backward pass: a kernel whose teams sum over their rows, and one that adds up what its blocks have summed.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::gather;
use isonorm_kernels::simt::WARP;

use super::super::tuning::{self, GATHER_PARTS, MOST_GATHER_WARPS};
use super::registers::{Choice, by_block, by_blocks, by_lanes, kernel, slots, teams};
use super::{Backward, Kernel, MOST_BLOCKS, Rows, Schedule, Work};
use crate::DType;

/// Sums start on lines of the cache.
pub(super) const REGION_BYTES: usize = 256;

pub(super) fn lanes(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_lanes(rows, width, &tuning::BACKWARD).map(|choice| schedule(rows, choice))
}

pub(super) fn block(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_block(rows, width, &tuning::BACKWARD).map(|choice| schedule(rows, choice))
}

pub(super) fn blocks(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_blocks(rows, width, &tuning::BACKWARD).map(|choice| schedule(rows, choice))
}

fn schedule(rows: &Rows<'_>, choice: Choice) -> Schedule {
    let slots = slots(rows, choice, &tuning::BACKWARD);
    let parts = teams(rows, choice, &tuning::BACKWARD, slots);
    let sums_bytes = (parts * rows.columns) as usize * size_of::<f32>();
    let sums_bytes = sums_bytes.next_multiple_of(REGION_BYTES);
    let mut kernels = vec![kernel(rows, choice, parts, slots)];
    let mut schedule = Schedule {
        work: Work::Backward(Backward {
            rows: rows.rows,
            columns: rows.columns,
            parameters: rows.parameters,
            parts,
            slots,
            sums_bytes,
        }),
        workspace_bytes: 0,
        again_bytes: 0,
        kernels: Vec::new(),
    };
    if rows.has_parameters {
        kernels.push(gather(rows.dtype, parts, rows.columns));
        schedule.workspace_bytes = 2 * sums_bytes;
        // Written and read.
        schedule.again_bytes = 2 * 2 * sums_bytes as u64;
    }
    schedule.kernels = kernels;
    schedule
}

/// A warp's width of columns a block, for the weight and for the bias in turn; warps that share the parts of a column.
pub(super) fn gather(dtype: DType, parts: u64, columns: u64) -> Kernel {
    let blocks = 2 * columns.div_ceil(WARP.into());
    let warps = parts.div_ceil(GATHER_PARTS).clamp(1, MOST_GATHER_WARPS);
    let threads = warps as u32 * WARP;
    Kernel {
        family: "rows_gather",
        dtype,
        entry: "gather",
        grid: blocks.min(MOST_BLOCKS) as u32,
        block: threads,
        cluster: 1,
        shared_bytes: gather::shared_bytes(threads),
        resident: false,
    }
}
