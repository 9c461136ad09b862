//! What lies where in the shared memory of a block.

use super::THREADS;
use super::tiling::Tiling;
use crate::block;
use crate::rows::parameters::at_least_one;
use crate::simt::{self, Shared, WARP};

/// Places of the sample that tells about where a group's mean is.
pub(super) const SAMPLES: u32 = 8;

/// Groups of a tile, and parameters of each kind, at most.
pub const MOST_UNITS: u32 = 128;
/// Tiles that shared memory has room for, at most.
pub const MOST_SLOTS: u32 = 2;
/// Numbers of a unit that threads with its columns read, at most.
const OF_UNIT: u32 = 5;
/// Numbers of a group that threads with its units read, at most.
const OF_GROUP: u32 = 3;

/// What sums are about, of each group.
pub(super) const SHIFTS: Shared<f32> = Shared::at(block::SCRATCH_BYTES);
/// Numbers of groups: the first of all groups, then the second, …, each from a multiple of [`MOST_UNITS`] on.
pub(super) const OF_GROUPS: Shared<f32> = SHIFTS.offset(MOST_UNITS);
/// Numbers of units, in the same order.
pub(super) const OF_UNITS: Shared<f32> = OF_GROUPS.offset(OF_GROUP * MOST_UNITS);
/// Sums of units, in the same order.
pub(super) const SUMS: Shared<f32> = OF_UNITS.offset(OF_UNIT * MOST_UNITS);
/// What the thread of a group or unit keeps of a tile: for each slot [`OWN`] numbers, in the same order.
const OWNS: Shared<f32> = SUMS.offset(2 * MOST_UNITS);
/// What sums are about, and, in a team of one block, two sums; then what is saved: mean, variance, rstd.
const OWN: u32 = 3;

/// Where the thread keeps number `k` of a tile in a slot.
#[inline(always)]
pub(super) fn own(slot: u32, k: u32) -> Shared<f32> {
    OWNS.offset((slot * OWN + k) * MOST_UNITS + simt::thread_index())
}

/// Whether any group of a warp has to be measured again.
pub(super) const AGAIN: Shared<u32> = Shared::at(OWNS.offset(MOST_SLOTS * OWN * MOST_UNITS).byte_offset());
/// How far the places of the sample are from the start of a group, in two words each.
pub(super) const SAMPLES_AT: Shared<u32> = AGAIN.offset(WARP);
/// Sums of threads, of one kind, of each lane of their accesses; nothing where a tile is one group.
pub(super) const OF_THREADS: Shared<f32> = Shared::at(SAMPLES_AT.offset(2 * SAMPLES).byte_offset());

/// Sums of columns: the first kind of all, then the second; of kernels with accesses of `elements` elements.
#[inline(always)]
pub(super) fn of_columns(elements: u32) -> Shared<f32> {
    OF_THREADS.offset(elements * THREADS)
}

/// Where parameters belong to rows: bytes of the weight and bias of one, and of the sums of a thread's access to it.
const ROW_BYTES: u32 = 2 * size_of::<f32>() as u32;

/// Bytes of weight and bias of a block's rows, where they belong to rows.
#[inline(always)]
pub fn row_bytes(tiling: &Tiling) -> u32 {
    let rows = tiling.accesses.saturating_mul(THREADS / at_least_one(tiling.lanes));
    // Too many for any GPU, perhaps.
    rows.saturating_mul(ROW_BYTES).saturating_add(15) & !15
}

/// Bytes of the sums of all accesses to them.
#[inline(always)]
pub fn sum_bytes(tiling: &Tiling) -> u32 {
    tiling.accesses.saturating_mul(THREADS * ROW_BYTES)
}

/// Where the slots start, or what lies before them where parameters belong to rows: these, and sums of accesses.
#[inline(always)]
pub(super) fn slots(tiling: &Tiling, elements: u32) -> u32 {
    let end = match tiling.lanes {
        0 => OF_THREADS,
        _ => of_columns(elements).offset(2 * tiling.width),
    };
    end.byte_offset().next_multiple_of(16)
}

/// Bytes of shared memory of a block before its slots, and what parameters of rows have before them, with accesses of `elements` elements.
#[inline(always)]
pub fn head_bytes(tiling: &Tiling, elements: u32) -> u32 {
    slots(tiling, elements)
}
