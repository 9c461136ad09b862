//! From the sums of threads to those of a block: of each group, or of each parameter.

use super::THREADS;
use super::areas::{MOST_UNITS, OF_THREADS, SUMS, of_columns};
use super::tiling::Tiling;
use crate::block::{self, Scratch};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::at_least_one;
use crate::simt::{self, Shared, WARP};
use crate::warp;

/// Folds two kinds of sums, of `unit` neighbouring columns each; valid in thread `u` for unit `u`. Called by the whole block.
///
/// # Safety
///
/// Shared memory is the kernel's; `unit` divides the tile's width.
#[inline(always)]
pub(super) unsafe fn pairs<L: Lanes>(sums: [L; 2], unit: u32, tiling: &Tiling, scratch: &mut Scratch) -> [f32; 2] {
    if tiling.lanes == 0 {
        let own = sums.map(|sums| sums.fold(0.0, |sum, own| sum + own));
        return block::sum_pair(own, scratch);
    }
    let (to, width, thread) = (of_columns(L::LANES), tiling.width, simt::thread_index());
    // One kind after the other: there is room for one.
    // SAFETY: the caller's.
    unsafe { columns(sums[0], tiling, to) };
    simt::block_barrier();
    // SAFETY: as above.
    unsafe { columns(sums[1], tiling, to.offset(width)) };
    simt::block_barrier();
    // SAFETY: as above.
    unsafe {
        if unit == 1 {
            return [0, width].map(|kind| match thread < width {
                true => simt::shared_load(to.offset(kind + thread)),
                false => 0.0,
            });
        }
        units(unit, tiling, to)
    }
}

/// Adds up the sums of each column.
#[inline(always)]
unsafe fn columns<L: Lanes>(own: L, tiling: &Tiling, to: Shared<f32>) {
    let lanes = at_least_one(tiling.lanes);
    // Lane by lane: neighbouring threads have neighbouring words.
    own.fold(OF_THREADS.offset(simt::thread_index()), |place, sum| {
        // SAFETY: a place for each lane of each thread, and what was there was read before a barrier.
        unsafe { simt::shared_store(place, sum) };
        place.offset(THREADS)
    });
    simt::block_barrier();
    let mut index = simt::warp_index();
    while index < L::LANES {
        let (from, to) = (OF_THREADS.offset(index * THREADS), to.offset(index));
        // SAFETY: written before the barrier, here and below; a column belongs to one lane.
        unsafe {
            if lanes.get() <= WARP && lanes.is_power_of_two() {
                let mut sum = 0.0;
                unrolled::<{ (THREADS / WARP) as usize }>(|warp| {
                    sum += simt::shared_load(from.offset(warp as u32 * WARP + simt::lane()));
                });
                let mut apart = WARP / 2;
                while apart >= lanes.get() {
                    sum += simt::shuffle_xor(sum, apart);
                    apart /= 2;
                }
                if simt::lane() < lanes.get() {
                    simt::shared_store(to.offset(simt::lane() * L::LANES), sum);
                }
            } else {
                let (mut lane, rows) = (simt::lane(), THREADS / lanes);
                while lane < lanes.get() {
                    let (mut sum, mut row) = (0.0, 0);
                    while row < rows {
                        sum += simt::shared_load(from.offset(row * lanes.get() + lane));
                        row += 1;
                    }
                    simt::shared_store(to.offset(lane * L::LANES), sum);
                    lane += WARP;
                }
            }
        }
        index += THREADS / WARP;
    }
}

/// Adds up the columns of each unit, a warp each at a time.
#[inline(always)]
unsafe fn units(unit: u32, tiling: &Tiling, from: Shared<f32>) -> [f32; 2] {
    let (width, warps) = (tiling.width, THREADS / WARP);
    let units = width / at_least_one(unit);
    let mut index = simt::warp_index();
    while index < units {
        let (mut sums, mut column) = ([0.0; 2], simt::lane());
        while column < unit {
            let place = from.offset(index * unit + column);
            // SAFETY: written before the caller's barrier.
            let [first, second] = unsafe { [simt::shared_load(place), simt::shared_load(place.offset(width))] };
            sums = [sums[0] + first, sums[1] + second];
            column += WARP;
        }
        let sums = warp::sum_pair(sums);
        if simt::lane() == 0 {
            let place = SUMS.offset(index);
            // SAFETY: a place for each unit; read before a barrier.
            unsafe {
                simt::shared_store(place, sums[0]);
                simt::shared_store(place.offset(MOST_UNITS), sums[1]);
            }
        }
        index += warps;
    }
    simt::block_barrier();
    let thread = simt::thread_index();
    if thread >= units {
        return [0.0; 2];
    }
    let place = SUMS.offset(thread);
    // SAFETY: written before the barrier.
    unsafe { [simt::shared_load(place), simt::shared_load(place.offset(MOST_UNITS))] }
}
