//! LayerNorm as its definition reads: a thread a row.
//!
//! **What it does.** Three loops of one thread over its row: the mean, the squared distances from it, the results. As exact as sums one after
//! the other are.
//!
//! **What holds it back.** Lanes of a warp are a row apart, so each access of a warp is 32 lines for 32 numbers; the caches save what they
//! can. 1024 rows are 1024 threads: four blocks, on four multiprocessors.
//!
//! **What comes next.** A block a row ([`ln_shared`](super::ln_shared)).

use super::{LayerNorm, load, rstd, store, thread};

/// A thread for each row.
///
/// # Safety
/// The pointers of `args` are as said there; there is a thread for each row.
#[inline(always)]
pub unsafe fn ln_naive(args: &LayerNorm) {
    let row = thread();
    if row >= u64::from(args.rows) {
        return;
    }
    let start = args.start(row as u32);
    // SAFETY: the caller's.
    let at = |i: u32| unsafe { load(args.x, start + u64::from(i)) };
    let count = args.columns as f32;
    let mut sum = 0.0;
    let mut i = 0;
    while i < args.columns {
        sum += at(i);
        i += 1;
    }
    let mean = sum / count;
    let mut squares = 0.0;
    i = 0;
    while i < args.columns {
        let distance = at(i) - mean;
        squares += distance * distance;
        i += 1;
    }
    let rstd = rstd(squares / count, args.eps);
    i = 0;
    while i < args.columns {
        // SAFETY: the caller's.
        unsafe { store(args.y, start + u64::from(i), (at(i) - mean) * rstd) };
        i += 1;
    }
}
