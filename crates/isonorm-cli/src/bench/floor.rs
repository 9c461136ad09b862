//! The floor: the same bytes, moved without arithmetic worth the name, by the same threads.
//!
//! A forward pass is a copy of `x` to `y`. A pass that reads more tensors than it writes has no copy that moves exactly
//! its bytes, so there are three ways, and the fastest counts:
//! - [`Floor::Copy`]: one tensor is copied (by `memcpy`, which streams past the caches where that pays), and the time
//!   scaled to the bytes of all;
//! - [`Floor::Combine`]: a loop reads every input and writes every output;
//! - [`Floor::Stream`]: the same with stores that go past the caches.

use isonorm::Pass;
use rayon::prelude::*;

use crate::call::Call;
use crate::io::{bytes, bytes_mut};

/// A way to move the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Floor {
    Copy,
    Combine,
    Stream,
}

impl Floor {
    /// The ways that this machine has.
    pub(super) const ALL: &[Floor] = if cfg!(target_arch = "x86_64") {
        &[Floor::Copy, Floor::Combine, Floor::Stream]
    } else {
        &[Floor::Copy, Floor::Combine]
    };

    /// Its name in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Floor::Copy => "copy",
            Floor::Combine => "combine",
            Floor::Stream => "stream",
        }
    }

    /// Moves the bytes once and returns the factor from the bytes that it moved to those of the problem. Overwrites the
    /// problem's outputs.
    pub(super) fn run(self, call: &mut Call) -> f64 {
        let keeps_residual = !call.desc().get_pass().is_backward() || call.desc().backward_needs_preactivation();
        // What is written where only statistics are taken counts for nothing.
        let unwritten = usize::from(call.desc().get_pass() == Pass::Moments);
        let (inputs, outputs) = call.memory();
        let residual = inputs.residual.as_ref().filter(|_| keeps_residual);
        let others = [
            inputs.dy.as_ref(),
            residual,
            inputs.result.as_ref(),
            inputs.dstream.as_ref(),
        ];
        let reads = [Some(&inputs.x)].into_iter().chain(others).flatten();
        let reads: Vec<&[u8]> = reads.map(bytes).collect();
        let second = outputs.dresidual.as_mut().or(outputs.stream.as_mut()).map(bytes_mut);
        let mut writes: Vec<&mut [u8]> = [Some(bytes_mut(&mut outputs.main)), second]
            .into_iter()
            .flatten()
            .collect();
        let moved = reads.len() + writes.len();
        let tensors = (moved - unwritten) as f64;
        match self {
            Floor::Copy => {
                copy(reads[0], writes[0]);
                tensors / 2.0
            }
            Floor::Combine | Floor::Stream => {
                combine(
                    &reads,
                    &mut writes,
                    if self == Floor::Stream {
                        stream
                    } else {
                        <[u8]>::copy_from_slice
                    },
                );
                tensors / moved as f64
            }
        }
    }
}

/// A cache line; shares of the work begin at multiples of it.
const LINE: usize = 64;

/// Bytes of a thread's equal, contiguous share.
fn share(total: usize) -> usize {
    total
        .div_ceil(rayon::current_num_threads())
        .next_multiple_of(LINE)
        .max(LINE)
}

fn copy(from: &[u8], to: &mut [u8]) {
    let share = share(from.len());
    to.par_chunks_mut(share)
        .zip(from.par_chunks(share))
        .for_each(|(to, from)| to.copy_from_slice(from));
}

/// What one thread reads and writes.
type Share<'r, 'w> = (Vec<&'r [u8]>, Vec<&'w mut [u8]>);

/// How a block is stored.
type Store = fn(&mut [u8], &[u8]);

/// Reads all of `reads` and writes a mixture of them to each of `writes`. All have the same length.
fn combine(reads: &[&[u8]], writes: &mut [&mut [u8]], store: Store) {
    let share = share(reads[0].len());
    let mut tasks: Vec<Share<'_, '_>> = Vec::new();
    let mut outputs: Vec<_> = writes.iter_mut().map(|w| w.chunks_mut(share)).collect();
    for at in (0..reads[0].len()).step_by(share) {
        let end = (at + share).min(reads[0].len());
        let inputs = reads.iter().map(|r| &r[at..end]).collect();
        tasks.push((inputs, outputs.iter_mut().filter_map(Iterator::next).collect()));
    }
    tasks
        .into_par_iter()
        .for_each(|(reads, mut writes)| mix(&reads, &mut writes, store));
}

/// Small enough to stay in the first-level cache beside what is read and written.
const BLOCK: usize = 4096;

fn mix(reads: &[&[u8]], writes: &mut [&mut [u8]], store: Store) {
    let mut mixed = [0; BLOCK];
    for at in (0..reads[0].len()).step_by(BLOCK) {
        let end = (at + BLOCK).min(reads[0].len());
        let mixed = &mut mixed[..end - at];
        match *reads {
            [a] => mixed.copy_from_slice(&a[at..end]),
            [a, b] => xor(mixed, &a[at..end], &b[at..end]),
            [a, b, c] => xor3(mixed, &a[at..end], &b[at..end], &c[at..end]),
            _ => unreachable!("a pass reads one to three tensors"),
        }
        writes.iter_mut().for_each(|w| store(&mut w[at..end], mixed));
    }
}

fn xor(to: &mut [u8], a: &[u8], b: &[u8]) {
    to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = a ^ b);
}

fn xor3(to: &mut [u8], a: &[u8], b: &[u8], c: &[u8]) {
    to.iter_mut()
        .zip(a)
        .zip(b)
        .zip(c)
        .for_each(|(((to, a), b), c)| *to = a ^ b ^ c);
}

/// Copies with stores that go past the caches.
#[cfg(target_arch = "x86_64")]
fn stream(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const WIDTH: usize = size_of::<__m128i>();

    // Streaming stores need alignment; the few bytes before and after are stored plainly.
    let head = to.as_ptr().align_offset(WIDTH).min(to.len());
    let (to_head, to) = to.split_at_mut(head);
    let (from_head, from) = from.split_at(head);
    to_head.copy_from_slice(from_head);
    let mut vectors = to.chunks_exact_mut(WIDTH);
    for (to, from) in vectors.by_ref().zip(from.chunks_exact(WIDTH)) {
        // SAFETY: both chunks are 16 bytes long, and `to` is aligned to 16 since the head was split off. SSE2 is part of
        // x86-64.
        unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.as_ptr().cast())) };
    }
    let rest = vectors.into_remainder();
    rest.copy_from_slice(&from[from.len() - rest.len()..]);
    // SAFETY: SSE is part of x86-64. The fence makes the stores visible to the threads that read them next.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_moved_once() {
        for len in [1, 63, 64, 4096, 10_001] {
            let a: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let b: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let expected: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a ^ b).collect();
            for store in [stream as Store, <[u8]>::copy_from_slice] {
                // An odd offset, so that streaming has a head and a tail.
                let (mut y, mut z) = (vec![0; len + 1], vec![0; len]);
                combine(&[&a, &b], &mut [&mut y[1..], &mut z], store);
                assert!(y[1..] == expected && z == expected, "{len}");
            }
            let mut y = vec![0; len];
            copy(&a, &mut y);
            assert_eq!(y, a);
        }
    }
}
