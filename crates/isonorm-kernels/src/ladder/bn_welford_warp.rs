//! BatchNorm with a block for each channel, moments merged by shuffles.
//!
//! **What it does.** As [`bn_welford_block`](super::bn_welford_block), but lanes of a warp hand their moments to each other in registers; each
//! warp leaves its own in one place of shared memory, and the first warp merges those.
//!
//! **What holds it back.** The merge is a few hundred cycles of a kernel that runs for a hundred thousand: what counts is the stream, and
//! that has not changed. A shuffle passes three numbers, and each merge has a division.
//!
//! **What comes next.** Fewer operations an element, and what training needs besides ([`bn_welford_fused`](super::bn_welford_fused)).

use super::bn_welford_block::normalize;
use super::{BatchNorm, Channel, THREADS, own_moments, save_statistics, shuffle_moments};
use crate::simt::{self, WARP};

/// Bytes of shared memory of a block: three numbers a warp.
pub const SHARED_BYTES: u32 = 3 * (THREADS / WARP) * 4;

/// A block for each channel.
///
/// # Safety
/// The pointers of `args` are as said there; blocks have [`THREADS`] threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn bn_welford_warp(args: &BatchNorm) {
    let channel = simt::block_index();
    let Some(elements) = Channel::of(args, channel) else {
        return;
    };
    // SAFETY: the caller's.
    let moments = shuffle_moments(unsafe { own_moments(args, elements) });
    let rstd = moments.rstd(args.eps);
    // SAFETY: as above.
    unsafe {
        save_statistics(args, channel, moments.mean, rstd);
        normalize(args, channel, elements, [moments.mean, rstd]);
    }
}
