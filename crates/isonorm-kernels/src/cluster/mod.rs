//! What the threads of a cluster compute together (compute capability 9.0). Every function is called by a whole cluster.

use crate::simt::{self, Shared, Transfer, WARP};
use crate::warp;

/// Blocks of a cluster, at most, and warps of a block: those that a [`Scratch`] has room for.
pub const MOST_BLOCKS: u32 = 8;
const MOST_WARPS: u32 = 16;

/// Bytes of shared memory that a [`Scratch`] takes: slots of two `f32` for each warp of the cluster, and what counts them.
pub const SCRATCH_BYTES: u32 = SLOTS * SLOT_BYTES + 128;

const SLOTS: u32 = 4;
const SLOT_BYTES: u32 = MOST_BLOCKS * MOST_WARPS * 8;

/// Shared memory for sums over the cluster, from byte 0 on.
///
/// Sums take turns with its slots. Each warp sends its own to all blocks, and all wait for those of the whole cluster. Of whom a
/// sum has come, who has two sums under way at most, the one two before is over. So whoever sends to a slot again, four sums later,
/// knows from the sum between that it has been read. There is no barrier, which would also wait for what has been stored elsewhere.
pub struct Scratch {
    round: u32,
}

impl Scratch {
    /// At the start of the shared memory of each block, which nothing else uses there. Waits for the cluster.
    #[inline(always)]
    pub fn at_start() -> Self {
        if simt::thread_index() < SLOTS {
            // SAFETY: inside of the scratch; the barrier follows.
            unsafe { simt::transfer_init(transfer(simt::thread_index()), 1) };
        }
        simt::cluster_barrier();
        Self { round: 0 }
    }
}

/// Where a slot is, and what counts the bytes that come to it.
#[inline(always)]
fn place(slot: u32) -> Shared<f32> {
    Shared::at(slot * SLOT_BYTES)
}

#[inline(always)]
fn transfer(slot: u32) -> Transfer {
    Transfer::at(SLOTS * SLOT_BYTES).offset(slot)
}

/// The sums of two values over the cluster; valid in every thread, with the same bits.
#[inline(always)]
pub fn sum_pair(pair: [f32; 2], scratch: &mut Scratch) -> [f32; 2] {
    end_sum_pair(begin_sum_pair(pair, scratch))
}

/// The sums of two values over the cluster that somebody waits for later.
#[derive(Clone, Copy)]
pub struct SumPair {
    round: u32,
}

/// Begins a sum of two values; until it ends, one more may begin.
#[inline(always)]
pub fn begin_sum_pair(pair: [f32; 2], scratch: &mut Scratch) -> SumPair {
    let round = scratch.round;
    scratch.round += 1;
    let slot = round % SLOTS;
    let sums = warp::sum_pair(pair);
    let (warps, blocks) = (simt::block_threads() / WARP, simt::cluster_blocks());
    // SAFETY: a place for each warp of the cluster, whose blocks run until they have received this. What was in the slot has been
    // read, see above.
    unsafe {
        if simt::thread_index() == 0 {
            simt::transfer_expect(transfer(slot), blocks * warps * 8);
        }
        if simt::lane() < blocks {
            let own = place(slot).offset(2 * (simt::cluster_rank() * warps + simt::warp_index()));
            simt::peer_send(own, simt::lane(), sums, transfer(slot));
        }
    }
    SumPair { round }
}

/// The sums, valid in every thread, with the same bits.
#[inline(always)]
pub fn end_sum_pair(SumPair { round }: SumPair) -> [f32; 2] {
    let slot = round % SLOTS;
    let warps = simt::cluster_blocks() * (simt::block_threads() / WARP);
    // SAFETY: prepared at the start.
    unsafe { simt::transfer_wait(transfer(slot), round / SLOTS % 2) };
    let (mut partial, mut warp) = ([0.0; 2], simt::lane());
    while warp < warps {
        let theirs = place(slot).offset(2 * warp);
        // SAFETY: received.
        unsafe {
            partial[0] += simt::shared_load(theirs);
            partial[1] += simt::shared_load(theirs.offset(1));
        }
        warp += WARP;
    }
    warp::sum_pair(partial)
}
