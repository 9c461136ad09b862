//! LayerNorm with a block for each row.
//!
//! **What it does.** 256 threads take the row's elements in turn, so that accesses are whole lines, and sum x and x² in one pass; both sums
//! are halved in shared memory. The variance is E\[x²\] − E\[x\]². A second pass normalizes.
//!
//! **What holds it back.** The tree's nine barriers, for a row of four elements a thread. And the variance: it is what is left of two
//! numbers of the size of mean². The row 1047553 … 1048576 has a variance of 87381; in `f32` this one finds 131072.
//!
//! **What comes next.** Shuffles ([`ln_shuffle`](super::ln_shuffle)), which are faster, and as wrong.

use super::{LayerNorm, THREADS, load, rstd, store, tree_sums};
use crate::simt;

/// Bytes of shared memory of a block: two sums a thread.
pub const SHARED_BYTES: u32 = 2 * THREADS * 4;

/// A block for each row.
///
/// # Safety
/// The pointers of `args` are as said there; blocks have [`THREADS`] threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn ln_shared(args: &LayerNorm) {
    // SAFETY: the caller's.
    unsafe { one_pass(args, tree_sums) };
}

/// The kernel, with a way to add two sums up over the block.
///
/// # Safety
/// As [`ln_shared`].
#[inline(always)]
pub(super) unsafe fn one_pass(args: &LayerNorm, sums_of_block: impl Fn([f32; 2]) -> [f32; 2]) {
    let start = args.start(simt::block_index());
    // SAFETY: the caller's.
    let at = |i: u32| unsafe { load(args.x, start + u64::from(i)) };
    let mut own = [0.0f32; 2];
    let mut i = simt::thread_index();
    while i < args.columns {
        let x = at(i);
        own = [own[0] + x, own[1] + x * x];
        i += THREADS;
    }
    let [mean, rstd] = statistics(sums_of_block(own), args);
    i = simt::thread_index();
    while i < args.columns {
        // SAFETY: the caller's; a thread for each element.
        unsafe { store(args.y, start + u64::from(i), (at(i) - mean) * rstd) };
        i += THREADS;
    }
}

/// Mean and rstd from the sums of x and x².
#[inline(always)]
pub(super) fn statistics([sum, squares]: [f32; 2], args: &LayerNorm) -> [f32; 2] {
    let count = args.columns as f32;
    let mean = sum / count;
    [mean, rstd(squares / count - mean * mean, args.eps)]
}
