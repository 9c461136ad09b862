//! BatchNorm and ReLU with running statistics: nothing to add up.
//!
//! **What it does.** A thread has one position of an image and one channel, makes the channel's scale and shift, and walks the batch:
//! max(x·scale + shift, 0) for the same position of each image. Neighbouring threads have neighbouring positions, so accesses are whole lines.
//!
//! **What holds it back.** Four bytes an access: there are four times as many instructions as there have to be, and four times as many
//! requests for the same bytes on their way. A root and a division for every thread. Few threads where images are small.
//!
//! **What comes next.** Scale and shift from a kernel of their own, and 16 bytes an access ([`bn_eval_vec4`](super::bn_eval_vec4)).

use core::num::NonZero;

use super::bn_relu_train::relu;
use super::{BatchNorm, load, rstd, store, thread};

/// A thread for each position and channel.
///
/// # Safety
/// The pointers of `args` are as said there; there are at least `channels · spatial` threads.
#[inline(always)]
pub unsafe fn bn_relu_eval(args: &BatchNorm) {
    let (position, image) = (thread(), u64::from(args.channels) * u64::from(args.spatial));
    let Some(spatial) = NonZero::new(u64::from(args.spatial)) else {
        return;
    };
    if position >= image {
        return;
    }
    let channel = position / spatial;
    // SAFETY: the caller's.
    unsafe {
        let scale = load(args.weight, channel) * rstd(load(args.running_variance, channel), args.eps);
        let shift = load(args.bias, channel) - load(args.running_mean, channel) * scale;
        let mut n = 0;
        while n < args.batch {
            let place = u64::from(n) * image + position;
            store(args.y, place, relu(load(args.x, place) * scale + shift));
            n += 1;
        }
    }
}
