//! LayerNorm with a block for each row, sums by shuffles.
//!
//! **What it does.** As [`ln_shared`](super::ln_shared), but lanes of a warp add up in registers, each warp leaves two sums in shared memory, and the first warp adds
//! those. Two barriers instead of nine.
//!
//! **What holds it back.** Four bytes an access. Two passes over a row that registers would hold. The variance is the same difference of large numbers.
//!
//! **What comes next.** 16 bytes an access ([`ln_vec4`](super::ln_vec4)).

use super::ln_shared::one_pass;
use super::{LayerNorm, THREADS, shuffle_sums};
use crate::simt::WARP;

/// Bytes of shared memory of a block: two sums a warp.
pub const SHARED_BYTES: u32 = 2 * (THREADS / WARP) * 4;

/// A block for each row.
///
/// # Safety
/// The pointers of `args` are as said there; blocks have [`THREADS`] threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn ln_shuffle(args: &LayerNorm) {
    // SAFETY: the caller's.
    unsafe { one_pass(args, shuffle_sums) };
}
