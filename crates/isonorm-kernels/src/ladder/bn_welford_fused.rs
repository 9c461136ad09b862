//! BatchNorm in one kernel, with all that a layer does in training.
//!
//! **What it does.** As [`bn_welford_warp`](super::bn_welford_warp), and one thread blends the channel's mean and unbiased variance into the running
//! ones. γ·rstd and β − mean·γ·rstd are made once, so that an element takes one multiplication and one addition. With the flag `training` at 0 the running statistics
//! are used instead, and the first pass is left out.
//!
//! **What holds it back.** It was published as one read and one write of the tensor. It reads twice: the block's second pass goes back to
//! memory for everything that the caches have given up, which is most of a large tensor. A channel is one block, so 64 channels are half
//! of a large GPU. And mean·γ·rstd is rounded at the size of the mean: where that is a million deviations, few digits of x̂ are left.
//!
//! **What comes next.** The activation in the store ([`bn_relu_train`](super::bn_relu_train)). The product has the channel in the registers and shared memory of as
//! many blocks as it takes, and so reads it once.

use super::{BatchNorm, Channel, THREADS, load, own_moments, rstd, save_statistics, shuffle_moments, store};
use crate::simt;

pub use super::bn_welford_warp::SHARED_BYTES;

/// A block for each channel.
///
/// # Safety
/// The pointers of `args` are as said there; blocks have [`THREADS`] threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn bn_welford_fused(args: &BatchNorm) {
    // SAFETY: the caller's.
    unsafe { fused(args, |z| z) };
}

/// The kernel, with something done to each result.
///
/// # Safety
/// As [`bn_welford_fused`].
#[inline(always)]
pub(super) unsafe fn fused(args: &BatchNorm, activation: impl Fn(f32) -> f32) {
    let channel = simt::block_index();
    let Some(elements) = Channel::of(args, channel) else {
        return;
    };
    // SAFETY: the caller's, here and below; one thread updates, and a thread has each element.
    let [mean, variance] = if args.training == 0 {
        // SAFETY: as above.
        unsafe {
            [
                load(args.running_mean, channel.into()),
                load(args.running_variance, channel.into()),
            ]
        }
    } else {
        // SAFETY: as above.
        let moments = shuffle_moments(unsafe { own_moments(args, elements) });
        if simt::thread_index() == 0 && !args.running_mean.is_null() {
            let unbiased = moments.m2 / (moments.count - 1.0);
            // SAFETY: as above.
            unsafe {
                blend(args.running_mean, channel, moments.mean, args.factor);
                blend(args.running_variance, channel, unbiased, args.factor);
            }
        }
        [moments.mean, moments.variance()]
    };
    let rstd = rstd(variance, args.eps);
    // SAFETY: as above.
    unsafe {
        save_statistics(args, channel, mean, rstd);
        let scale = load(args.weight, channel.into()) * rstd;
        let shift = load(args.bias, channel.into()) - mean * scale;
        let mut i = simt::thread_index();
        while i < elements.elements {
            let place = elements.place(i);
            store(args.y, place, activation(load(args.x, place) * scale + shift));
            i += THREADS;
        }
    }
}

/// `running = (1 − factor)·running + factor·batch`
///
/// # Safety
/// There is one for the channel, and nobody else has it.
#[inline(always)]
unsafe fn blend(running: *mut f32, channel: u32, batch: f32, factor: f32) {
    let place = running.cast::<u32>().wrapping_add(channel as usize);
    // SAFETY: the caller's.
    unsafe {
        let before = f32::from_bits(simt::load_32(place));
        simt::store_32(place, ((1.0 - factor) * before + factor * batch).to_bits());
    }
}
