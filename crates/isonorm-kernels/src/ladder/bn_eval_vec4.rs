//! BatchNorm with running statistics by accesses of 16 bytes.
//!
//! **What it does.** A small kernel makes the scale and the shift of each channel; then a thread has four neighbouring elements. Where images
//! are a multiple of four, all four have one channel; otherwise each finds its own. What is left over behind the last four is done one by one.
//!
//! **What holds it back.** Two launches, of which the first does next to nothing. A thread asks for 16 bytes, waits, writes and ends; and a
//! division for each finds its channel. It is close to a copy all the same: there is nothing to wait for.
//!
//! **What comes next.** In evaluation, fewer threads with more on their way, and one launch, as the product has it. In training, the gradient ([`bn_relu_backward`](super::bn_relu_backward)).

use core::num::NonZero;

use super::{BatchNorm, load, rstd, store, thread};
use crate::simt;

/// Numbers of an access.
pub const WIDTH: u32 = 4;

/// Scale and shift of each channel, into `between`.
///
/// # Safety
/// The pointers of `args` are as said there; there is a thread for each channel.
#[inline(always)]
pub unsafe fn bn_eval_scale(args: &BatchNorm) {
    let channel = thread();
    if channel >= u64::from(args.channels) {
        return;
    }
    // SAFETY: the caller's.
    unsafe {
        let scale = load(args.weight, channel) * rstd(load(args.running_variance, channel), args.eps);
        let shift = load(args.bias, channel) - load(args.running_mean, channel) * scale;
        store(args.between, channel, scale);
        store(args.between, u64::from(args.channels) + channel, shift);
    }
}

/// Every element, from `between`.
///
/// # Safety
/// As [`bn_eval_scale`], after it; there is a thread for every four elements, and `x` and `y` start on 16 bytes.
#[inline(always)]
pub unsafe fn bn_eval_vec4(args: &BatchNorm) {
    let channels = u64::from(args.channels);
    let (Some(spatial), Some(all)) = (NonZero::new(u64::from(args.spatial)), NonZero::new(channels)) else {
        return;
    };
    let (first, end) = (
        thread() * u64::from(WIDTH),
        u64::from(args.batch) * channels * spatial.get(),
    );
    if first >= end {
        return;
    }
    // SAFETY: the caller's.
    let maps = |i: u64| unsafe {
        let channel = i / spatial % all;
        [load(args.between, channel), load(args.between, channels + channel)]
    };
    if first + u64::from(WIDTH) > end {
        let mut i = first;
        while i < end {
            let [scale, shift] = maps(i);
            // SAFETY: as above.
            unsafe { store(args.y, i, load(args.x, i) * scale + shift) };
            i += 1;
        }
        return;
    }
    let from = args.x.cast::<u32>().wrapping_add(first as usize);
    // SAFETY: as above.
    let [a, b, c, d] = unsafe { simt::load_128_keep(from) }.map(f32::from_bits);
    let same = args.spatial.is_multiple_of(WIDTH);
    let [scale, shift] = maps(first);
    let map = |i: u64, x: f32| {
        let [scale, shift] = if same { [scale, shift] } else { maps(first + i) };
        (x * scale + shift).to_bits()
    };
    let results = [map(0, a), map(1, b), map(2, c), map(3, d)];
    // SAFETY: as above.
    unsafe { simt::store_128(args.y.cast::<u32>().wrapping_add(first as usize), results) };
}
