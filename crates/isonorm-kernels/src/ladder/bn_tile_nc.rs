//! BatchNorm of `[N, C]` by tiles: a block of 32 by 32 threads has 32 neighbouring channels, and a thread every 32nd sample of one of them.
//!
//! **What it does.** Lanes of a warp have neighbouring channels, so their accesses are one line of memory. Each thread sums x and x² of its
//! samples; both sums are then halved in shared memory over the 32 threads that share a channel. The variance is E\[x²\] − E\[x\]², not below
//! 0. A second pass over the input writes γ·(x − mean)·rstd + β.
//!
//! **What holds it back.** There are C / 32 blocks: 512 channels keep 16 of more than a hundred multiprocessors busy. Everything is read
//! twice. And E\[x²\] − E\[x\]² loses the digits that mean² and E\[x²\] have in common: all of them where the mean is some thousand deviations.
//!
//! **What comes next.** Images ([`bn_naive`](super::bn_naive)), and then more threads for a channel. The product gives a tile of channels to
//! as many blocks as the chip has, keeps it on chip in between, and takes distances from the mean.

use super::{BatchNorm, load, rstd, save, store};
use crate::simt::{self, Shared, WARP};

/// Channels of a block, and threads of each.
const SIDE: u32 = WARP;

/// Threads of a block.
pub const TILE_THREADS: u32 = SIDE * SIDE;

/// Bytes of shared memory of a block: two sums a thread.
pub const SHARED_BYTES: u32 = 2 * TILE_THREADS * 4;

/// A block for every 32 channels.
///
/// # Safety
/// The pointers of `args` are as said there, `spatial` is 1; blocks have [`TILE_THREADS`] threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn bn_tile_nc(args: &BatchNorm) {
    let (x, y) = (simt::thread_index() % SIDE, simt::thread_index() / SIDE);
    let channel = simt::block_index() * SIDE + x;
    let has_channel = channel < args.channels;
    let place = |sample: u32| u64::from(sample) * u64::from(args.channels) + u64::from(channel);
    let mut sums = [0.0f32; 2];
    let mut sample = y;
    while has_channel && sample < args.batch {
        // SAFETY: the caller's.
        let value = unsafe { load(args.x, place(sample)) };
        sums = [sums[0] + value, sums[1] + value * value];
        sample += SIDE;
    }

    let slot = |x: u32, y: u32, which: u32| Shared::<f32>::at(0).offset(which * TILE_THREADS + y * SIDE + x);
    // SAFETY: a place for each thread and sum; what another one wrote is read behind a barrier.
    let [sum, squares] = unsafe {
        for which in [0, 1] {
            simt::shared_store(slot(x, y, which), sums[which as usize]);
        }
        simt::block_barrier();
        let mut half = SIDE / 2;
        while half > 0 {
            if y < half {
                for which in [0, 1] {
                    let (own, other) = (slot(x, y, which), slot(x, y + half, which));
                    simt::shared_store(own, simt::shared_load(own) + simt::shared_load(other));
                }
            }
            simt::block_barrier();
            half /= 2;
        }
        [simt::shared_load(slot(x, 0, 0)), simt::shared_load(slot(x, 0, 1))]
    };
    if !has_channel {
        return;
    }
    let mean = sum / args.batch as f32;
    let difference = squares / args.batch as f32 - mean * mean;
    let variance = if difference < 0.0 { 0.0 } else { difference };
    let rstd = rstd(variance, args.eps);
    // SAFETY: the caller's; a thread for each element, and one for each channel.
    unsafe {
        if y == 0 {
            save(args.mean, channel.into(), mean);
            save(args.rstd, channel.into(), rstd);
        }
        let (weight, bias) = (load(args.weight, channel.into()), load(args.bias, channel.into()));
        let mut sample = y;
        while sample < args.batch {
            let value = load(args.x, place(sample));
            store(args.y, place(sample), weight * (value - mean) * rstd + bias);
            sample += SIDE;
        }
    }
}
