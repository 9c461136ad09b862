//! Running statistics: a kernel after the forward pass, which leaves the statistics of rows for it.

use isonorm_kernels::rows::running::shared_bytes;
use isonorm_kernels::simt::WARP;

use super::backward::gather_warps;
use super::{Kernel, MOST_BLOCKS, REGION_BYTES, Rows, Running, Schedule, Work};
use crate::DType;

/// The family of the kernel.
pub(crate) const FAMILY: &str = "rows_running";

/// The schedule with what updating running statistics takes, where that may be asked for.
pub(super) fn added(rows: &Rows<'_>, mut schedule: Schedule) -> Schedule {
    let (Work::Forward(forward), Some(channels)) = (&mut schedule.work, rows.tracked) else {
        return schedule;
    };
    let instances = rows.rows / channels;
    let of_rows = (rows.rows as usize * size_of::<f32>()).next_multiple_of(REGION_BYTES);
    schedule.workspace_bytes = schedule.workspace_bytes.next_multiple_of(REGION_BYTES);
    schedule.running_bytes = 2 * of_rows;
    let start = schedule.workspace_bytes;
    forward.running = Some(Running {
        instances,
        channels,
        statistics: [start, start + of_rows],
    });
    schedule.kernels.push(kernel(rows.dtype, instances, channels));
    schedule
}

/// Blocks have a warp's width of channels at a time, whose instances their warps share.
pub(crate) fn kernel(dtype: DType, instances: u64, channels: u64) -> Kernel {
    let threads = gather_warps(instances) * WARP;
    Kernel {
        family: FAMILY,
        dtype,
        entry: "running",
        grid: channels.div_ceil(WARP.into()).min(MOST_BLOCKS) as u32,
        block: threads,
        cluster: 1,
        shared_bytes: shared_bytes(threads),
        resident: false,
    }
}
