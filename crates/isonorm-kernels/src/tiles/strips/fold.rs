//! From the sums of threads to those of a block, of each column.

use super::{MOST_COLUMNS, OF_THREADS, SUMS, THREADS, tell};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::at_least_one;
use crate::simt::{self, WARP};
use crate::tiles::Spec;
use crate::tiles::tiling::Tiling;

const WARPS: u32 = THREADS / WARP;

/// Folds two kinds of sums; valid in thread `u` for column `u`, or of copies for all of them. Called by the whole block.
///
/// # Safety
///
/// Shared memory is the kernel's, and what was folded before was read before a barrier.
#[inline(always)]
pub(super) unsafe fn pairs<L: Lanes, S: Spec>(sums: [L; 2], tiling: &Tiling) -> [f32; 2] {
    // SAFETY: the caller's.
    unsafe {
        if in_halves::<S>(tiling) {
            // Of each thread and the one half a warp further, one keeps the first kind, the other the second.
            let is_second = simt::lane() >= WARP / 2;
            let other = |sum: f32| simt::shuffle_xor(sum, WARP / 2);
            let own = sums[0].zip(sums[1], |first, second| {
                let [own, sent] = if is_second { [second, first] } else { [first, second] };
                own + other(sent)
            });
            leave(own);
            columns::<L>([0, 1], WARP / 2, tiling);
            simt::block_barrier();
        } else {
            let mut kind = 0;
            // One kind after the other: there is room for one.
            while kind < 2 {
                leave(if kind == 0 { sums[0] } else { sums[1] });
                columns::<L>([kind; 2], WARP, tiling);
                simt::block_barrier();
                kind += 1;
            }
        }
    }
    // Opaque, here and where totals are received: which threads have a column would be known, and kept in a register, from the first strip on.
    let thread = simt::opaque(simt::thread_index());
    // SAFETY: written before the barrier, here and below.
    let of = |column: u32| [0, MOST_COLUMNS].map(|kind| unsafe { simt::shared_load(SUMS.offset(kind + column)) });
    let mut sums = [0.0; 2];
    if !S::JOINED {
        if thread < tiling.width {
            sums = of(thread);
        }
        return sums;
    }
    let groups = at_least_one(tiling.groups_of_line);
    if thread < tiling.width {
        // In the same order for each copy.
        let mut column = thread % groups;
        while column < tiling.width {
            let own = of(column);
            sums = [sums[0] + own[0], sums[1] + own[1]];
            column += groups.get();
        }
    }
    // What is kept next where the sums are is of the thread's own column.
    simt::block_barrier();
    sums
}

/// Whether threads half a warp apart have the same columns. Not asked behind a residual that is added again, where registers are full.
#[inline(always)]
fn in_halves<S: Spec>(tiling: &Tiling) -> bool {
    !matches!(S::Epilogue::CLASS, Class::Added) && tiling.lanes <= WARP / 2 && tiling.lanes.is_power_of_two()
}

/// Leaves what each thread has for all of them. Ends with a barrier.
///
/// # Safety
///
/// What was there was read before a barrier.
#[inline(always)]
unsafe fn leave<L: Lanes>(own: L) {
    // Lane by lane: neighbouring threads have neighbouring words.
    own.fold(OF_THREADS.offset(simt::thread_index()), |place, sum| {
        // SAFETY: a place for each lane of each thread, and the caller's.
        unsafe { simt::shared_store(place, sum) };
        place.offset(THREADS)
    });
    simt::block_barrier();
}

/// The sums over the columns of a group, from those of columns; valid in thread `u` for the group of column `u`, with the same bits in all of
/// them. Called by the whole block, which has read what the last sums were kept for.
///
/// # Safety
///
/// As for [`pairs`], which was called before.
#[inline(always)]
pub(super) unsafe fn over_group<S: Spec>(own: [f32; 2], tiling: &Tiling) -> [f32; 2] {
    if !S::BATCHED {
        return own;
    }
    let thread = simt::thread_index();
    // SAFETY: a place for each column and more; others are read behind the barrier.
    unsafe { tell(SUMS, own) };
    simt::block_barrier();
    // All threads, those without a column too: the compiler knows two branches on the same condition for one, and a barrier between them
    // would be in both of its arms, which the threads of a warp do not reach together.
    let column = thread.min(tiling.width - 1);
    let (mut column, mut left) = (column - column % at_least_one(tiling.inner), tiling.inner);
    let mut sums = [0.0; 2];
    while left > 0 {
        unrolled::<2>(|kind| {
            // SAFETY: written before the barrier.
            sums[kind] += unsafe { simt::shared_load(SUMS.offset(kind as u32 * MOST_COLUMNS + column)) };
        });
        column += 1;
        left -= 1;
    }
    // What is kept next where the sums are is of the thread's own column.
    simt::block_barrier();
    sums
}

/// Adds up the sums of each column: a warp those of one lane of the accesses, and of some columns. Of kinds as the halves of a warp have them,
/// of which `of_kind` threads side by side have one.
#[inline(always)]
unsafe fn columns<L: Lanes>(kinds: [u32; 2], of_kind: u32, tiling: &Tiling) {
    let lanes = at_least_one(tiling.lanes);
    let lane = simt::lane();
    let kind = if lane < WARP / 2 { kinds[0] } else { kinds[1] };
    let to = SUMS.offset(kind * MOST_COLUMNS);
    let mut index = simt::warp_index();
    if lanes.get() <= of_kind && lanes.is_power_of_two() {
        while index < L::LANES {
            let (from, mut sum) = (OF_THREADS.offset(index * THREADS + lane), 0.0);
            // SAFETY: the caller's, here and below; a column belongs to one lane.
            unrolled::<{ WARPS as usize }>(|warp| unsafe { sum += simt::shared_load(from.offset(warp as u32 * WARP)) });
            let mut apart = of_kind / 2;
            while apart >= lanes.get() {
                sum += simt::shuffle_xor(sum, apart);
                apart /= 2;
            }
            if lane % of_kind < lanes.get() {
                // SAFETY: as above.
                unsafe { simt::shared_store(to.offset(lane % of_kind * L::LANES + index), sum) };
            }
            index += WARPS;
        }
        return;
    }
    // Some warps a lane.
    let (of_lane, rows) = (WARPS / L::LANES, THREADS / lanes);
    let (first, index) = (index / L::LANES * WARP + lane, index % L::LANES);
    let mut lane = first;
    while lane < lanes.get() {
        let (mut sum, mut row) = (0.0, 0);
        while row < rows {
            // SAFETY: as above.
            sum += unsafe { simt::shared_load(OF_THREADS.offset(index * THREADS + row * lanes.get() + lane)) };
            row += 1;
        }
        // SAFETY: as above.
        unsafe { simt::shared_store(to.offset(lane * L::LANES + index), sum) };
        lane += of_lane * WARP;
    }
}
