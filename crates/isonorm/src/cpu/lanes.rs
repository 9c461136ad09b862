//! Sums over contiguous elements in a fixed number of lanes, so that they vectorize and have the same bits whatever the
//! width of the vectors.
//!
//! A lane is a place in a chunk: sums live in an array of a chunk's length, which stays in the first-level cache. That costs
//! a load and a store an addition, which hide behind memory, and leaves the compiler no choice but to vectorize along the
//! elements (given a handful of accumulators in registers, it prefers gathers).

use isonorm_math::{Element, Real};

use super::chunk::{Buffer, CHUNK};

/// Running sums of lanes. Rounding errors grow with the number of chunks, not of elements.
pub(super) struct Lanes<A> {
    sums: Buffer<A>,
    /// Lanes in use; those beyond have not been zeroed yet.
    used: usize,
}

impl<A: Real> Lanes<A> {
    /// No sums.
    #[inline(always)]
    pub(super) fn new() -> Lanes<A> {
        Lanes {
            sums: [A::ZERO; CHUNK],
            used: 0,
        }
    }

    /// The first `len` sums, to be added to.
    #[inline(always)]
    pub(super) fn first(&mut self, len: usize) -> &mut [A] {
        if len > self.used {
            self.sums[self.used..len].fill(A::ZERO);
            self.used = len;
        }
        &mut self.sums[..len]
    }

    /// Adds up `x`: `step(sum, element)` is the new sum.
    #[inline(always)]
    pub(super) fn add<T: Element<Acc = A>>(&mut self, x: &[T], step: impl Fn(A, A) -> A) {
        let (chunks, rest) = x.as_chunks::<CHUNK>();
        if !chunks.is_empty() {
            self.first(CHUNK);
        }
        for chunk in chunks {
            for (sum, v) in self.sums.iter_mut().zip(chunk) {
                *sum = step(*sum, v.to_acc());
            }
        }
        for (sum, v) in self.first(rest.len()).iter_mut().zip(rest) {
            *sum = step(*sum, v.to_acc());
        }
    }

    /// Adds up the pairs of a chunk: `step(sum, a, b)` is the new sum.
    #[inline(always)]
    pub(super) fn add_pairs(&mut self, a: &[A], b: &[A], step: impl Fn(A, A, A) -> A) {
        for ((sum, a), b) in self.first(a.len()).iter_mut().zip(a).zip(b) {
            *sum = step(*sum, *a, *b);
        }
    }

    /// The total, added up as a tree; leaves no sums.
    #[inline(always)]
    pub(super) fn take(&mut self) -> A {
        let mut count = self.used;
        self.used = 0;
        if count == 0 {
            return A::ZERO;
        }
        while count > 1 {
            let half = count.div_ceil(2);
            let (low, high) = self.sums[..count].split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                *low += *high;
            }
            count = half;
        }
        self.sums[0]
    }
}
