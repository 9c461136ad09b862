//! BatchNorm as its definition reads: three kernels.
//!
//! **What it does.** A thread a channel adds up the channel and divides; then a thread a channel adds up the squared distances from that mean;
//! then a thread an element normalizes. The variance in two passes is as exact as sums one after the other are.
//!
//! **What holds it back.** 256 channels are 256 threads: one block, on one multiprocessor, whose lanes are an image apart in memory, so that
//! each access of a warp is 32 lines for 32 numbers. The tensor is read three times.
//!
//! **What comes next.** A block for each channel ([`bn_welford_block`](super::bn_welford_block)), and one pass for mean and variance.

use super::{BatchNorm, Channel, load, rstd, save, store, thread};

/// The mean of each channel, into `between[0]`.
///
/// # Safety
/// The pointers of `args` are as said there; there is a thread for each channel.
#[inline(always)]
pub unsafe fn bn_naive_mean(args: &BatchNorm) {
    let Some((channel, elements)) = own_channel(args) else {
        return;
    };
    let mut sum = 0.0;
    let mut i = 0;
    while i < elements.elements {
        // SAFETY: the caller's.
        sum += unsafe { load(args.x, elements.place(i)) };
        i += 1;
    }
    // SAFETY: the caller's.
    unsafe { store(args.between, channel, sum / elements.elements as f32) };
}

/// The variance of each channel, into `between[1]`.
///
/// # Safety
/// As [`bn_naive_mean`], after it.
#[inline(always)]
pub unsafe fn bn_naive_variance(args: &BatchNorm) {
    let Some((channel, elements)) = own_channel(args) else {
        return;
    };
    // SAFETY: the caller's.
    let mean = unsafe { load(args.between, channel) };
    let mut squares = 0.0;
    let mut i = 0;
    while i < elements.elements {
        // SAFETY: as above.
        let distance = unsafe { load(args.x, elements.place(i)) } - mean;
        squares += distance * distance;
        i += 1;
    }
    let variance = squares / elements.elements as f32;
    // SAFETY: as above.
    unsafe {
        store(args.between, u64::from(args.channels) + channel, variance);
        save(args.mean, channel, mean);
        save(args.rstd, channel, rstd(variance, args.eps));
    }
}

/// Every element, from `between`.
///
/// # Safety
/// As [`bn_naive_variance`], after it; there is a thread for each element.
#[inline(always)]
pub unsafe fn bn_naive_normalize(args: &BatchNorm) {
    let (i, channels) = (thread(), u64::from(args.channels));
    let (Some(spatial), Some(all)) = (
        core::num::NonZero::new(u64::from(args.spatial)),
        core::num::NonZero::new(channels),
    ) else {
        return;
    };
    if i >= u64::from(args.batch) * channels * spatial.get() {
        return;
    }
    let channel = i / spatial % all;
    // SAFETY: the caller's.
    unsafe {
        let (mean, variance) = (load(args.between, channel), load(args.between, channels + channel));
        let xhat = (load(args.x, i) - mean) * rstd(variance, args.eps);
        store(args.y, i, load(args.weight, channel) * xhat + load(args.bias, channel));
    }
}

/// The thread's channel, if there is one.
#[inline(always)]
fn own_channel(args: &BatchNorm) -> Option<(u64, Channel)> {
    let channel = thread();
    if channel >= u64::from(args.channels) {
        return None;
    }
    Some((channel, Channel::of(args, channel as u32)?))
}
