//! The backward pass: a kernel whose teams sum over their rows, and one that adds up what its blocks have summed.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::gather;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::simt::WARP;

use super::super::tuning::{self, GATHER_PARTS, MOST_GATHER_WARPS, Registers};
use super::registers::{Choice, by_block, by_blocks, by_lanes, kernel, slots, teams};
use super::{Backward, Kernel, MOST_BLOCKS, Rows, Schedule, Work};
use crate::DType;

/// Sums start on lines of the cache.
pub(super) const REGION_BYTES: usize = 256;

pub(super) fn lanes(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_lanes(rows, width, &tuning::BACKWARD).map(|choice| schedule(rows, choice, &tuning::BACKWARD))
}

pub(super) fn block(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_block(rows, width, &tuning::BACKWARD).map(|choice| schedule(rows, choice, &tuning::BACKWARD))
}

pub(super) fn blocks(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let of = |tuning| by_blocks(rows, width, tuning).map(|choice| schedule(rows, choice, tuning));
    match (rows.parameters.sharing, rows.has_parameters) {
        (Sharing::ByColumn, true) => of(&tuning::BACKWARD),
        (Sharing::ByColumn, false) => of(&tuning::BACKWARD).or_else(|_| of(&tuning::BACKWARD_RUNS)),
        (Sharing::ByRun, _) => of(&tuning::BACKWARD_RUNS),
    }
}

fn schedule(rows: &Rows<'_>, choice: Choice, tuning: &Registers) -> Schedule {
    let slots = slots(rows, choice, tuning);
    let teams = teams(rows, choice, tuning, slots);
    // Teams add up the gradients of columns; those of runs are left row by row.
    let (parts, gradients) = match rows.parameters.sharing {
        Sharing::ByColumn => (teams, rows.columns),
        Sharing::ByRun => {
            let sets = u64::from(rows.parameters.sets);
            (rows.rows / sets, sets * u64::from(rows.parameters.runs))
        }
    };
    let sums_bytes = (parts * gradients) as usize * size_of::<f32>();
    let sums_bytes = sums_bytes.next_multiple_of(REGION_BYTES);
    let mut kernels = vec![kernel(rows, choice, teams, slots)];
    let mut schedule = Schedule {
        work: Work::Backward(Backward {
            rows: rows.rows,
            columns: rows.columns,
            parameters: rows.parameters,
            parts,
            gradients,
            slots,
            sums_bytes,
        }),
        workspace_bytes: 0,
        again_bytes: 0,
        kernels: Vec::new(),
    };
    if rows.has_parameters {
        kernels.push(gather(rows.dtype, parts, gradients));
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
