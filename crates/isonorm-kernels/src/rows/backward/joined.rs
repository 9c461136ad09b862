//! Sums over the threads of a block that have the same columns.

use crate::rows::lanes::{Lanes, sum_of_parts};
use crate::rows::parameters::at_least_one;
use crate::simt::{self, Shared, WARP};

/// Where the threads of a block have kept numbers, and which of them have the same columns: with `WIDE`, perhaps more threads side by side than a
/// warp's.
#[derive(Clone, Copy)]
pub(super) struct Joined<const WIDE: bool> {
    /// Where the numbers start.
    pub(super) from: Shared<f32>,
    /// Threads side by side, with an access each: a power of two, or a multiple of the warp's.
    pub(super) lanes: u32,
    /// Times that so many threads side by side are there.
    pub(super) slots: u32,
}

impl<const WIDE: bool> Joined<WIDE> {
    /// Keeps numbers of each thread of the block: set `set` of several.
    ///
    /// # Safety
    ///
    /// There is room for so many of all threads, which nothing else uses before the next barrier.
    #[inline(always)]
    pub(super) unsafe fn keep<L: Lanes>(&self, set: u32, numbers: L) {
        let threads = simt::block_threads();
        let place = self.from.offset(set * threads * L::LANES);
        // SAFETY: the caller's.
        unsafe { numbers.keep(place, simt::thread_index(), threads) };
    }

    /// Adds up the numbers of all slots, in a fixed order, a turn of a set by a warp. Gives `leave` the set, the lane, which of its numbers
    /// is the first, and the sums. Short code: it runs once, and its instructions have to come from memory.
    ///
    /// # Safety
    ///
    /// They were kept before a barrier.
    #[inline(always)]
    pub(super) unsafe fn add_up<L: Lanes>(&self, sets: u32, mut leave: impl FnMut((u32, u32), u32, L::Turn)) {
        // Opaque, for otherwise what follows from it is in registers while rows are gone over.
        let (threads, turn) = (simt::opaque(simt::block_threads()), <L::Turn as Lanes>::LANES);
        let width = if WIDE && self.lanes > WARP { self.lanes } else { WARP };
        let (slots, chunks) = (
            self.slots * self.lanes / at_least_one(width),
            at_least_one(width / WARP),
        );
        let mut job = simt::warp_index();
        while job < sets * L::TURNS * chunks.get() {
            let (part, lane) = (job / chunks, job % chunks * WARP + simt::lane());
            let from = self.from.offset(part * threads * turn);
            let mut sum = sum_of_parts(slots, |slot| {
                // SAFETY: the caller's.
                unsafe { <L::Turn as Lanes>::kept(from, slot * width + lane, threads) }
            });
            let mut distance = WARP / 2;
            while distance >= self.lanes {
                sum = sum.map(|sum| sum + simt::shuffle_xor(sum, distance));
                distance /= 2;
            }
            if lane < self.lanes {
                leave((part / L::TURNS, lane), part % L::TURNS * turn, sum);
            }
            job += threads / WARP;
        }
    }
}
