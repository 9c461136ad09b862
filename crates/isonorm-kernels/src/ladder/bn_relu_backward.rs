//! The gradients of BatchNorm and ReLU, in one kernel.
//!
//! **What it does.** The forward pass is [`bn_relu_train`](super::bn_relu_train), which saves mean and rstd. Here a block of 256 threads has a channel.
//! Whether the ReLU let an element pass follows from x: g = dy where γ·x̂ + β > 0. It sums g and g·x̂, which are dβ and dγ; then it passes
//! over the channel again and writes
//!
//! ```text
//! dx = γ·rstd·(g − Σg / n − x̂·Σg·x̂ / n)
//! ```
//!
//! (S. Ioffe, C. Szegedy, *Batch Normalization*, 2015, section 3.) The kernel that was published stops at γ·rstd·g. That is the gradient for
//! statistics that do not depend on x, and training with it goes astray; here the two terms are there.
//!
//! **What holds it back.** Two tensors are read twice: five transfers where three would do. One block a channel, four bytes an access, a division to find each
//! element, x̂ and the ReLU computed anew in the second pass.
//!
//! **What comes next.** The product: both tensors stay on chip between the two passes.

use super::bn_relu_train::relu;
use super::bn_welford_warp;
use super::{BatchNorm, Channel, THREADS, load, save, shuffle_sums, store};
use crate::simt;

/// Bytes of shared memory of a block.
pub const SHARED_BYTES: u32 = bn_welford_warp::SHARED_BYTES;

/// A block for each channel.
///
/// # Safety
/// The pointers of `args` are as said there; blocks have [`THREADS`] threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn bn_relu_backward(args: &BatchNorm) {
    let channel = simt::block_index();
    let Some(elements) = Channel::of(args, channel) else {
        return;
    };
    // SAFETY: the caller's, here and below; a thread for each element.
    let of_channel = |tensor: *const f32| unsafe { load(tensor, channel.into()) };
    let (weight, bias) = (of_channel(args.weight), of_channel(args.bias));
    let (mean, rstd) = (of_channel(args.mean), of_channel(args.rstd));
    // x̂, and the gradient that the ReLU lets pass.
    // SAFETY: as above.
    let element = |place: u64| unsafe {
        let xhat = (load(args.x, place) - mean) * rstd;
        let passes = relu(weight * xhat + bias) != 0.0;
        let dy = load(args.dy, place);
        (xhat, if passes { dy } else { 0.0 })
    };
    let mut sums = [0.0f32; 2];
    let mut i = simt::thread_index();
    while i < elements.elements {
        let (xhat, g) = element(elements.place(i));
        sums = [sums[0] + g, sums[1] + g * xhat];
        i += THREADS;
    }
    let [dbias, dweight] = shuffle_sums(sums);
    let count = elements.elements as f32;
    // SAFETY: as above.
    unsafe {
        if simt::thread_index() == 0 {
            save(args.dbias, channel.into(), dbias);
            save(args.dweight, channel.into(), dweight);
        }
        let mut i = simt::thread_index();
        while i < elements.elements {
            let place = elements.place(i);
            let (xhat, g) = element(place);
            let dx = weight * rstd * (g - dbias / count - xhat * (dweight / count));
            store(args.dx, place, dx);
            i += THREADS;
        }
    }
}
