//! The backward pass: a kernel whose teams sum over their rows, and one that adds up what its blocks have summed.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::backward::by_segment;
use isonorm_kernels::rows::gather;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::simt::WARP;

use super::super::tuning::{self, GATHER_PARTS, LEAST_GATHER_WARPS, MOST_GATHER_WARPS, Registers, WIDE_GATHER};
use super::registers::{Choice, Held, by_block, by_blocks, by_chip, by_lanes, kernel, slots, teams};
use super::{Backward, Kernel, MOST_BLOCKS, REGION_BYTES, Rows, Schedule, Work};
use crate::DType;

pub(super) fn lanes(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let tuning = of_teams(rows);
    by_lanes(rows, width, tuning).map(|choice| schedule(rows, choice, tuning))
}

pub(super) fn block(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let tuning = of_teams(rows);
    by_block(rows, width, tuning).map(|choice| schedule(rows, choice, tuning))
}

/// Teams have one row each, where there are enough teams and nothing is summed over rows.
fn of_teams(rows: &Rows<'_>) -> &'static Registers {
    match rows.parameters.sharing == Sharing::ByColumn && rows.has_parameters {
        true => &tuning::BACKWARD,
        false => &tuning::BACKWARD_ROWS,
    }
}

pub(super) fn blocks(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let tuning = of_teams(rows);
    by_blocks(rows, width, tuning).map(|choice| schedule(rows, choice, tuning))
}

pub(super) fn chip(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_chip(rows, width, &tuning::BACKWARD).map(|choice| schedule(rows, choice, &tuning::BACKWARD))
}

fn schedule(rows: &Rows<'_>, choice: Choice, tuning: &Registers) -> Schedule {
    with_slots(rows, choice, tuning, slots(rows, choice, tuning))
}

/// The kernels, where so many rows come ahead.
pub(super) fn with_slots(rows: &Rows<'_>, choice: Choice, tuning: &Registers, slots: u32) -> Schedule {
    let teams = teams(rows, choice, tuning, slots);
    // Teams add up the gradients of columns; those of runs and segments are left row by row.
    let (parts, gradients) = match rows.parameters.sharing {
        Sharing::ByColumn => (teams, rows.columns),
        Sharing::BySegment => {
            let width = choice.listed.key.width;
            of_rows(
                rows,
                by_segment::parts(&rows.segments, width, rows.bytes(), choice.blocks).into(),
            )
        }
        Sharing::ByRun if choice.listed.key.is_of_lines() && rows.parameters.runs > 1 => {
            of_rows(rows, choice.blocks.into())
        }
        _ => of_rows(rows, 1),
    };
    let held = Held {
        kernel: kernel(rows, choice, teams, slots),
        blocks: choice.blocks,
        kept: slots,
        messages: choice.messages(rows, teams),
    };
    let are_gradients = choice.listed.key.leaves_gradients(parts) || rows.parameters.are_gradients(parts);
    scheduled(rows, held, (parts, gradients), are_gradients)
}

/// How many sums there are of each gradient that is left row by row, in so many parts, and how many gradients.
pub(super) fn of_rows(rows: &Rows<'_>, parts: u64) -> (u64, u64) {
    let sets = u64::from(rows.parameters.sets);
    (rows.rows / sets * parts, sets * u64::from(rows.parameters.runs))
}

/// The kernel that computes dx, and what adds up so many sums of so many gradients, if they are not the gradients themselves.
pub(super) fn scheduled(rows: &Rows<'_>, held: Held, (parts, gradients): (u64, u64), are_gradients: bool) -> Schedule {
    let adds_up = rows.has_parameters && !are_gradients;
    let sums_bytes = match adds_up {
        true => ((parts * gradients) as usize * size_of::<f32>()).next_multiple_of(REGION_BYTES),
        false => 0,
    };
    let mut schedule = Schedule {
        work: Work::Backward(Backward {
            parts,
            are_gradients,
            slots: held.kept,
            sums_bytes,
            blocks: held.blocks,
            ..rows.backward(gradients)
        }),
        workspace_bytes: 2 * sums_bytes,
        running_bytes: 0,
        messages: held.messages,
        again_bytes: 0,
        kernels: vec![held.kernel],
    };
    if adds_up {
        schedule.kernels.push(gather(rows.dtype, parts, gradients));
        // Written and read.
        schedule.again_bytes = 2 * 2 * sums_bytes as u64;
    }
    schedule
}

/// Warps that share the parts of a column.
pub(crate) fn gather_warps(parts: u64) -> u32 {
    parts.div_ceil(GATHER_PARTS).clamp(1, MOST_GATHER_WARPS) as u32
}

/// Columns of a thread: several where there are many, and blocks enough for them.
pub(crate) fn gather_width(columns: u64) -> u32 {
    match columns >= WIDE_GATHER && columns.is_multiple_of(gather::WIDE.into()) {
        true => gather::WIDE,
        false => 1,
    }
}

/// Blocks take the weight and the bias in turn; each has a warp's width of columns for as many warps as share their parts.
pub(crate) fn gather(dtype: DType, parts: u64, columns: u64) -> Kernel {
    let warps = gather_warps(parts);
    let groups = (LEAST_GATHER_WARPS / warps).max(1);
    let threads = groups * warps * WARP;
    let width = gather_width(columns);
    let blocks = 2 * columns.div_ceil((groups * WARP * width).into());
    Kernel {
        family: "rows_gather",
        dtype,
        entry: "gather",
        grid: blocks.min(MOST_BLOCKS) as u32,
        block: threads,
        cluster: 1,
        shared_bytes: gather::shared_bytes(threads, width),
        resident: false,
    }
}
