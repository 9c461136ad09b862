//! BatchNorm with a block for each channel, in one kernel.
//!
//! **What it does.** 256 threads take the channel's elements in turn; each keeps count, mean and squared distances of its own, one number
//! after the other as Welford has it. They are merged two by two by Chan's formula in shared memory. Then the block passes over the channel
//! again and normalizes.
//!
//! **What holds it back.** A division for every number, and one more for where it lies; the next number's moments wait for this one's. Nine barriers in a tree
//! whose last steps keep a warp or less busy. The channel is read a second time, from memory where it is larger than the block's share of the caches.
//!
//! **What comes next.** Shuffles instead of shared memory ([`bn_welford_warp`](super::bn_welford_warp)).

use super::{BatchNorm, Channel, THREADS, load, own_moments, save_statistics, store, tree_moments};
use crate::simt;

/// Bytes of shared memory of a block: three numbers a thread.
pub const SHARED_BYTES: u32 = 3 * THREADS * 4;

/// A block for each channel.
///
/// # Safety
/// The pointers of `args` are as said there; blocks have [`THREADS`] threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn bn_welford_block(args: &BatchNorm) {
    let channel = simt::block_index();
    let Some(elements) = Channel::of(args, channel) else {
        return;
    };
    // SAFETY: the caller's.
    let moments = tree_moments(unsafe { own_moments(args, elements) });
    let rstd = moments.rstd(args.eps);
    // SAFETY: as above.
    unsafe {
        save_statistics(args, channel, moments.mean, rstd);
        normalize(args, channel, elements, [moments.mean, rstd]);
    }
}

/// The second pass: γ·(x − mean)·rstd + β.
///
/// # Safety
/// As [`bn_welford_block`].
#[inline(always)]
pub(super) unsafe fn normalize(args: &BatchNorm, channel: u32, elements: Channel, [mean, rstd]: [f32; 2]) {
    // SAFETY: the caller's; a thread for each element.
    unsafe {
        let (weight, bias) = (load(args.weight, channel.into()), load(args.bias, channel.into()));
        let mut i = simt::thread_index();
        while i < elements.elements {
            let place = elements.place(i);
            let xhat = (load(args.x, place) - mean) * rstd;
            store(args.y, place, weight * xhat + bias);
            i += THREADS;
        }
    }
}
