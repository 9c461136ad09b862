//! What the threads of a block compute together. Every function is called by a whole block.

use isonorm_math::Moments;

use crate::simt::{self, Shared, WARP};
use crate::warp;

/// Bytes of shared memory that a [`Scratch`] takes: two slots with places for 32 warps.
pub const SCRATCH_BYTES: u32 = 2 * SLOT_BYTES;

const SLOT_BYTES: u32 = 4 * (PLACE_OF_MOMENTS + 32 * 3);

/// Where a slot has sums of pairs, sums, and moments, in numbers: each kind has its own place, so that what nobody has written is 0.
const PLACE_OF_PAIRS: u32 = 0;
const PLACE_OF_SUMS: u32 = 32 * 2;
const PLACE_OF_MOMENTS: u32 = 32 * 3;

/// Warps of a block, at most, whose sums every thread adds up: faster than by shuffles.
const FEW_WARPS: u32 = 8;

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
        let scratch = Self::unprepared();
        scratch.prepare();
        scratch
    }

    /// The same, to be prepared before the first sum.
    #[inline(always)]
    pub fn unprepared() -> Self {
        Self { slot: 0 }
    }

    /// Makes the places 0 that no warp writes.
    #[inline(always)]
    pub fn prepare(&self) {
        // Opaque, for otherwise it stays in a register.
        let warps = simt::opaque(simt::block_threads()) / WARP;
        if simt::warp_index() == 0 {
            let (slot, place) = (simt::lane() / 16, simt::lane() % 16);
            let slot = Shared::<f32>::at(slot * SLOT_BYTES);
            // SAFETY: inside of the scratch, where no warp writes; a sum's barrier is between this and who reads it.
            unsafe {
                if place >= 2 * warps {
                    simt::shared_store(slot.offset(PLACE_OF_PAIRS + place), 0.0);
                }
                if (warps..FEW_WARPS).contains(&place) {
                    simt::shared_store(slot.offset(PLACE_OF_SUMS + place), 0.0);
                }
            }
        }
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
    let place = scratch.next().offset(PLACE_OF_PAIRS);
    let own = warp::half_sum::<WARP>(pair);
    if simt::lane().is_multiple_of(WARP / 2) {
        // SAFETY: a place for each half of a warp; the slot was last read before the barrier of the sum before.
        unsafe { simt::shared_store(place.offset(simt::thread_index() / (WARP / 2)), own) };
    }
    simt::block_barrier();
    let warps = simt::block_threads() / WARP;
    if warps <= FEW_WARPS {
        // SAFETY: each warp has written its place before the barrier; the others are 0.
        unsafe {
            let sum = |place| {
                let ([a, b, c, d], [e, f, g, h]) =
                    (simt::shared_load_128(place), simt::shared_load_128(place.offset(4)));
                [(a + c) + (e + g), (b + d) + (f + h)]
            };
            let low = sum(place);
            if warps <= FEW_WARPS / 2 {
                return low;
            }
            let high = sum(place.offset(8));
            return [low[0] + high[0], low[1] + high[1]];
        }
    }
    let mut partial = [0.0; 2];
    if simt::lane() < warps {
        let place = place.offset(2 * simt::lane());
        // SAFETY: each warp has written its place before the barrier.
        partial = unsafe { [simt::shared_load(place), simt::shared_load(place.offset(1))] };
    }
    warp::sum_pair(partial)
}

/// The sum over the block; valid in every thread, with the same bits. One barrier.
#[inline(always)]
pub fn sum(value: f32, scratch: &mut Scratch) -> f32 {
    let place = scratch.next().offset(PLACE_OF_SUMS);
    let own = warp::sum(value);
    if simt::lane() == 0 {
        // SAFETY: as in `sum_pair`.
        unsafe { simt::shared_store(place.offset(simt::warp_index()), own) };
    }
    simt::block_barrier();
    let warps = simt::block_threads() / WARP;
    if warps <= FEW_WARPS {
        // SAFETY: as in `sum_pair`.
        let ([a, b, c, d], [e, f, g, h]) =
            unsafe { (simt::shared_load_128(place), simt::shared_load_128(place.offset(4))) };
        return ((a + b) + (c + d)) + ((e + f) + (g + h));
    }
    let mut partial = 0.0;
    if simt::lane() < warps {
        // SAFETY: as in `sum_pair`.
        partial = unsafe { simt::shared_load(place.offset(simt::lane())) };
    }
    warp::sum(partial)
}

/// The moments of the sets of all threads; valid in every thread, with the same bits. A set may be empty. One barrier.
#[inline(always)]
pub fn moments(own: Moments<f32>, scratch: &mut Scratch) -> Moments<f32> {
    let slot = scratch.next().offset(PLACE_OF_MOMENTS);
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
