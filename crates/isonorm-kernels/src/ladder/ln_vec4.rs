//! LayerNorm with a block for each row, by accesses of 16 bytes.
//!
//! **What it does.** As [`ln_shuffle`](super::ln_shuffle), with four numbers an access. Where a row's length is no multiple of four, what is in front of the first and
//! behind the last 16 bytes that start on a multiple of 16 is accessed one by one.
//!
//! **What holds it back.** A row of 1024 is one access a thread: it is asked for, waited for, summed, and asked for again, though it could
//! have stayed in four registers. The variance is the same difference of large numbers.
//!
//! **What comes next.** The product: the row stays in registers, is read once, and distances are taken from its mean, which costs no
//! memory and no digits.

use super::ln_shared::statistics;
use super::{LayerNorm, THREADS, load, shuffle_sums, store};
use crate::simt;

pub use super::ln_shuffle::SHARED_BYTES;

/// Numbers of an access.
const WIDTH: u32 = 4;

/// A block for each row.
///
/// # Safety
/// The pointers of `args` are as said there, `x` and `y` start on 16 bytes; blocks have [`THREADS`] threads and [`SHARED_BYTES`].
#[inline(always)]
pub unsafe fn ln_vec4(args: &LayerNorm) {
    let start = args.start(simt::block_index());
    let before = (start.wrapping_neg() % u64::from(WIDTH)) as u32;
    let head = if before < args.columns { before } else { args.columns };
    let fours = (args.columns - head) / WIDTH;
    let tail = head + fours * WIDTH;
    let thread = simt::thread_index();
    let place = |i: u32| start + u64::from(i);
    let four = |i: u32| place(head + i * WIDTH) as usize;
    // Of those in front and behind a thread has one at most: there are three of each.
    let single = if thread < head {
        Some(thread)
    } else {
        let behind = tail + (thread - head);
        if behind < args.columns { Some(behind) } else { None }
    };
    let mut own = [0.0f32; 2];
    let mut add = |x: f32| own = [own[0] + x, own[1] + x * x];
    // SAFETY: the caller's.
    unsafe {
        let mut i = thread;
        while i < fours {
            let [a, b, c, d] = simt::load_128_keep(args.x.cast::<u32>().wrapping_add(four(i))).map(f32::from_bits);
            add(a);
            add(b);
            add(c);
            add(d);
            i += THREADS;
        }
        if let Some(i) = single {
            add(load(args.x, place(i)));
        }
    }
    let [mean, rstd] = statistics(shuffle_sums(own), args);
    let normalized = |x: f32| (x - mean) * rstd;
    // SAFETY: as above.
    unsafe {
        let mut i = thread;
        while i < fours {
            let values = simt::load_128_keep(args.x.cast::<u32>().wrapping_add(four(i)));
            let values = values.map(|x| normalized(f32::from_bits(x)).to_bits());
            simt::store_128(args.y.cast::<u32>().wrapping_add(four(i)), values);
            i += THREADS;
        }
        if let Some(i) = single {
            store(args.y, place(i), normalized(load(args.x, place(i))));
        }
    }
}
