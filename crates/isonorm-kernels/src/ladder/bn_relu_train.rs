//! BatchNorm and ReLU in one kernel, in training.
//!
//! **What it does.** As [`bn_welford_fused`](super::bn_welford_fused), with what is below 0 stored as 0. A kernel for the ReLU alone would read and write the tensor
//! once more; here it costs one instruction.
//!
//! **What holds it back.** What holds back the kernel below it.
//!
//! **What comes next.** The same in evaluation ([`bn_relu_eval`](super::bn_relu_eval)), and its gradient ([`bn_relu_backward`](super::bn_relu_backward)).

use super::BatchNorm;
use super::bn_welford_fused::fused;

pub use super::bn_welford_fused::SHARED_BYTES;

/// A block for each channel.
///
/// # Safety
/// The pointers of `args` are as said there; blocks have [`THREADS`](super::THREADS) threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn bn_relu_train(args: &BatchNorm) {
    // SAFETY: the caller's.
    unsafe { fused(args, relu) };
}

/// A NaN stays one.
#[inline(always)]
pub(super) fn relu(z: f32) -> f32 {
    if z < 0.0 { 0.0 } else { z }
}
