//! What the threads of a block compute together. Every function is called by a whole block.

use isonorm_math::Moments;

use crate::simt::{self, Shared, WARP};
use crate::warp;

/// Bytes of shared memory that a [`Scratch`] takes: two slots of three `f32` for each of 32 warps.
pub const SCRATCH_BYTES: u32 = 2 * SLOT_BYTES;

const SLOT_BYTES: u32 = 32 * 12;

/// Shared memory for sums over the block, from byte 0 on.
///
/// Sums take turns with its two slots. Whoever writes a slot again has passed the barrier of the sum between, which everyone
/// reached after reading it: one barrier a sum is enough.
pub struct Scratch {
    slot: u32,
}

impl Scratch {
    /// At the start of the block's shared memory, which nothing else uses.
    #[inline(always)]
    pub fn at_start() -> Self {
        Self { slot: 0 }
    }

    #[inline(always)]
    fn next(&mut self) -> Shared<f32> {
        let slot = Shared::at(self.slot);
        self.slot = SLOT_BYTES - self.slot;
        slot
    }
}

/// The sums of two values over the block; valid in every thread, with the same bits. One barrier.
#[inline(always)]
pub fn sum_pair(pair: [f32; 2], scratch: &mut Scratch) -> [f32; 2] {
    let slot = scratch.next();
    let [first, second] = warp::sum_pair(pair);
    if simt::lane() == 0 {
        let place = slot.offset(2 * simt::warp_index());
        // SAFETY: a place for each warp; the slot was last read before the barrier of the sum before.
        unsafe {
            simt::shared_store(place, first);
            simt::shared_store(place.offset(1), second);
        }
    }
    simt::block_barrier();
    let mut partial = [0.0; 2];
    if simt::lane() < simt::block_threads() / WARP {
        let place = slot.offset(2 * simt::lane());
        // SAFETY: each warp has written its place before the barrier.
        partial = unsafe { [simt::shared_load(place), simt::shared_load(place.offset(1))] };
    }
    warp::sum_pair(partial)
}

/// The sum over the block; valid in every thread, with the same bits. One barrier.
#[inline(always)]
pub fn sum(value: f32, scratch: &mut Scratch) -> f32 {
    let slot = scratch.next();
    let own = warp::sum(value);
    if simt::lane() == 0 {
        // SAFETY: as in `sum_pair`.
        unsafe { simt::shared_store(slot.offset(simt::warp_index()), own) };
    }
    simt::block_barrier();
    let mut partial = 0.0;
    if simt::lane() < simt::block_threads() / WARP {
        // SAFETY: as in `sum_pair`.
        partial = unsafe { simt::shared_load(slot.offset(simt::lane())) };
    }
    warp::sum(partial)
}

/// The moments of the sets of all threads; valid in every thread, with the same bits. A set may be empty. One barrier.
#[inline(always)]
pub fn moments(own: Moments<f32>, scratch: &mut Scratch) -> Moments<f32> {
    let slot = scratch.next();
    let own = warp::moments(own);
    if simt::lane() == 0 {
        let place = slot.offset(3 * simt::warp_index());
        // SAFETY: as in `sum_pair`.
        unsafe {
            simt::shared_store(place, own.count);
            simt::shared_store(place.offset(1), own.mean);
            simt::shared_store(place.offset(2), own.m2);
        }
    }
    simt::block_barrier();
    let mut partial = Moments::EMPTY;
    if simt::lane() < simt::block_threads() / WARP {
        let place = slot.offset(3 * simt::lane());
        // SAFETY: as in `sum_pair`.
        unsafe {
            partial.count = simt::shared_load(place);
            partial.mean = simt::shared_load(place.offset(1));
            partial.m2 = simt::shared_load(place.offset(2));
        }
    }
    warp::moments(partial)
}
