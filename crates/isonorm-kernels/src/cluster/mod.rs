//! What the threads of a cluster compute together (compute capability 9.0). Every function is called by a whole cluster.

use crate::simt::{self, Shared, Transfer, WARP};
use crate::warp;

/// Blocks of a cluster, at most: those that a [`Scratch`] has room for.
pub const MOST_BLOCKS: u32 = 8;
/// Warps of a block, at most.
pub const MOST_WARPS: u32 = 16;

/// Bytes of shared memory that a [`Scratch`] takes: two slots of two `f32` for each warp of the cluster, and what counts them.
pub const SCRATCH_BYTES: u32 = SLOTS * SLOT_BYTES + 128;

const SLOTS: u32 = 2;
/// Sums of a slot: one for each of as many warps as there may be, and zeros for those that there are not.
const PLACES: u32 = MOST_BLOCKS * MOST_WARPS;
const SLOT_BYTES: u32 = PLACES * 8;
const _: () = assert!(PLACES == 4 * WARP, "as many as a lane adds up in `sum_pair`");

/// Shared memory for sums over the cluster, from byte 0 on.
///
/// Sums take turns with its two slots. Each warp sends its own to all blocks, and all wait for those of the whole cluster: whoever
/// sends to a slot again has received the sum between, which all sent after reading. There is no barrier, which would also wait
/// for what has been stored elsewhere.
pub struct Scratch {
    round: u32,
}

impl Scratch {
    /// At the start of the shared memory of each block, which nothing else uses there. The first sum waits for the cluster, whose blocks may
    /// start later, so that what is done before does not.
    #[inline(always)]
    pub fn at_start() -> Self {
        let (thread, threads) = (simt::opaque(simt::thread_index()), simt::opaque(simt::block_threads()));
        if thread < SLOTS {
            // SAFETY: inside of the scratch; nothing uses them before the cluster has arrived.
            unsafe { simt::transfer_init(transfer(thread), 1) };
        }
        let mut missing = simt::cluster_blocks() * (threads / WARP) + thread;
        while missing < PLACES {
            // SAFETY: places of warps that there are not: nobody sends anything there.
            unsafe {
                simt::shared_store_64(Shared::<f32>::at(8 * missing), [0.0; 2]);
                simt::shared_store_64(Shared::<f32>::at(SLOT_BYTES + 8 * missing), [0.0; 2]);
            }
            missing += threads;
        }
        // For the zeros: an arrival alone orders nothing.
        simt::block_barrier();
        simt::cluster_arrive();
        Self { round: 0 }
    }
}

/// What counts the bytes that come to a slot.
#[inline(always)]
fn transfer(slot: u32) -> Transfer {
    Transfer::at(SLOTS * SLOT_BYTES).offset(slot)
}

/// Adds up two values over each warp, and brings the sums of all warps to every block: from where they are, every thread can read them until it shares
/// others.
#[inline(always)]
fn share_pairs(pair: [f32; 2], scratch: &mut Scratch) -> Shared<f32> {
    let (slot, parity) = (scratch.round % SLOTS, scratch.round / SLOTS % 2);
    if scratch.round == 0 {
        // What counts the bytes is there in all blocks.
        simt::cluster_wait();
    }
    scratch.round += 1;
    let place = Shared::<f32>::at(slot * SLOT_BYTES);
    let sums = warp::sum_pair(pair);
    let (warps, blocks) = (simt::block_threads() / WARP, simt::cluster_blocks());
    // SAFETY: a place for each warp of the cluster, whose blocks run until they have received this. What was in the slot has been
    // read, see above.
    unsafe {
        if simt::thread_index() == 0 {
            simt::transfer_expect(transfer(slot), blocks * warps * 8);
        }
        if simt::lane() < blocks {
            let own = place.offset(2 * (simt::cluster_rank() * warps + simt::warp_index()));
            simt::peer_send(own, simt::lane(), sums, transfer(slot));
        }
        simt::transfer_wait(transfer(slot), parity);
    }
    place
}

/// The sums of two values over the cluster; valid in every thread, with the same bits.
#[inline(always)]
pub fn sum_pair(pair: [f32; 2], scratch: &mut Scratch) -> [f32; 2] {
    let first = share_pairs(pair, scratch).offset(2 * simt::lane());
    // All places, so that there is no loop.
    // SAFETY: received, and whoever sends to the slot again has received what this thread sent after reading; or zeros that the block has waited for.
    let of = [0, 1, 2, 3].map(|some| unsafe { simt::shared_load_64(first.offset(2 * WARP * some)) });
    warp::sum_pair([0, 1].map(|i| (of[0][i] + of[1][i]) + (of[2][i] + of[3][i])))
}
