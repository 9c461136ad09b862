//! Rows whose elements lie in segments apart from each other: the channels of N, C, spatial, each with a weight and a bias of its own.
//!
//! The threads of a team are spread over whole segments, as many as they are enough for; so from one access of a thread to its next it
//! is always as far, and the last threads may have nothing.
//!
//! Where segments begin anywhere (images of 35 · 35 numbers of 16 bits, say), threads access them by 16 aligned bytes all the same
//! ([`Ragged`](super::access::Ragged)). The first and the last access of a segment then have elements that are others': those are loaded,
//! count as the number that distances are from, or as 0 where sums are of products, and are never stored. They are the first part of what
//! threads have, one for each thread at most; no other part is looked at for elements of others.

use isonorm_math::Normalizer;

use super::access::{Access, Data, Span, Width};
use super::lanes::Lanes;
use super::parameters::{Affine, Known, Map, Parameters, Sharing, at_least_one, joined};
use crate::simt::{self, WARP};

/// Segments of a row, as a kernel is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Segments {
    /// Elements of a segment; at least 1.
    pub length: u32,
    /// Elements from the start of a segment to that of the next.
    pub stride: u32,
    /// How many; all together, with what lies between them, are no more than 2³⁰ elements.
    pub count: u32,
}

impl Segments {
    /// For rows that are contiguous.
    pub const NONE: Segments = Segments {
        length: 1,
        stride: 1,
        count: 1,
    };

    /// Accesses that a segment has all of, wherever it begins.
    #[inline(always)]
    pub fn whole_accesses(&self, width: Width, bytes: u32) -> u32 {
        width.of_segment(self.length, bytes) - width.ends_of_segment(self.length, bytes)
    }

    /// Accesses of all segments that these may have a part of only.
    #[inline(always)]
    pub fn ends(&self, width: Width, bytes: u32) -> u32 {
        self.count * width.ends_of_segment(self.length, bytes)
    }

    /// Segments that so many threads are enough for, with a whole access each, of elements of so many bytes.
    #[inline(always)]
    pub fn at_once(&self, threads: u32, width: Width, bytes: u32) -> u32 {
        threads / at_least_one(self.whole_accesses(width, bytes))
    }

    /// Threads that each segment takes, where each has accesses of its own: all accesses of a warp to several segments are a power of two each, or those
    /// of several warps to one are all of their lanes, so that what the lanes have can be added up.
    #[inline(always)]
    pub fn threads_of_each(&self, width: Width, bytes: u32) -> u32 {
        let accesses = width.of_segment(self.length, bytes);
        match accesses < WARP {
            true => accesses.next_power_of_two().max(2),
            false => accesses.next_multiple_of(WARP),
        }
    }

    /// The whole accesses of thread `rank`: which segment it starts with, and which access of it.
    #[inline(always)]
    pub(super) fn whole_of<T: Data, A: Access>(&self, rank: u32) -> (u32, u32) {
        let bytes = size_of::<T>() as u32;
        let whole = at_least_one(self.whole_accesses(A::WIDTH, bytes));
        // The first access is none of them where segments begin anywhere.
        let first = u32::from(A::WIDTH.ends_of_segment(self.length, bytes) > 0);
        (rank / whole, rank % whole + first)
    }

    /// How many of so many threads there are for each such access.
    #[inline(always)]
    pub(super) fn ends_apart<T: Data, A: Access>(&self, threads: u32) -> u32 {
        let all = self.ends(A::WIDTH, size_of::<T>() as u32);
        debug_assert!(all <= threads);
        threads / at_least_one(all)
    }

    /// The one other access of thread `rank` of so many, if it has one: which segment's, and which of it. There are at least as many threads as such accesses, and
    /// these lie as far from each other as they can: what they take besides is taken by few lanes, and by no warp, nor block, much more than by another, as
    /// all wait for the slowest.
    #[inline(always)]
    pub(super) fn end_of<T: Data, A: Access>(&self, rank: u32, threads: u32) -> Option<(u32, u32)> {
        let bytes = size_of::<T>() as u32;
        let ends = at_least_one(A::WIDTH.ends_of_segment(self.length, bytes));
        let apart = at_least_one(self.ends_apart::<T, A>(threads));
        let (end, behind) = (rank / apart, rank % apart);
        let (segment, end) = (end / ends, end % ends);
        let access = if end == 0 {
            0
        } else {
            self.whole_accesses(A::WIDTH, bytes) + end
        };
        (behind == 0 && segment < self.count).then_some((segment, access))
    }
}

/// A weight and a bias for each row, which lies in [`Segments`]: BatchNorm of N, C, spatial. There are as many sets as rows.
pub struct Segmented;

impl Map for Segmented {
    const SHARING: Sharing = Sharing::Segmented;
    type Of<T: Data, A: Access, const V: usize, const KEPT: u32> = OfRow;
}

/// Weight and bias of a row.
#[derive(Clone, Copy)]
pub struct OfRow {
    pub(super) weight: f32,
    pub(super) bias: f32,
}

impl OfRow {
    /// None.
    pub(super) const NONE: OfRow = OfRow { weight: 1.0, bias: 0.0 };

    /// Those of a set.
    ///
    /// # Safety
    ///
    /// See [`Affine`].
    #[inline(always)]
    pub(super) unsafe fn of<T: Data>(affine: &Affine, set: u32) -> OfRow {
        let one = |base: *const u8, otherwise: f32| {
            if base.is_null() {
                return otherwise;
            }
            // SAFETY: the caller's: a number for each set.
            unsafe { affine.parameter::<T>(base, set) }
        };
        // A number that the compiler knows it would join with what is loaded as soon as that is asked for, and so wait for it.
        let none = [1.0, 0.0].map(|number: f32| f32::from_bits(simt::opaque(number.to_bits())));
        let [weight, bias] = [one(affine.weight, none[0]), one(affine.bias, none[1])];
        OfRow { weight, bias }
    }
}

impl<T: Data, A: Access, const V: usize> Parameters<T, A, V> for OfRow {
    const READS: bool = false;

    const JOINED: bool = true;

    #[inline(always)]
    fn joined(&self, normalizer: Normalizer<f32>) -> Normalizer<f32> {
        joined(normalizer, [self.weight, self.bias])
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn new(_affine: &Affine, _span: Span, _packed: bool) -> Self {
        OfRow::NONE
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, affine: &Affine, _span: Span, set: u32) {
        // SAFETY: the caller's.
        *self = unsafe { OfRow::of::<T>(affine, set) };
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn at<K: Known>(&self, _affine: &Affine, _span: Span, _v: usize) -> [A::Numbers<T>; 2] {
        [A::Numbers::<T>::splat(self.weight), A::Numbers::<T>::splat(self.bias)]
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn weight_at<K: Known>(&self, _affine: &Affine, _span: Span, _v: usize) -> A::Numbers<T> {
        A::Numbers::<T>::splat(self.weight)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use isonorm_math::Bf16;

    use super::super::access::Ragged;
    use super::*;

    /// All accesses that the threads of a team have, of a row of so many segments of so many elements.
    fn check<T: Data>(length: u32, count: u32, spare: u32) {
        let segments = Segments {
            length,
            stride: 3 * length,
            count,
        };
        let (width, bytes) = (Width::Ragged, size_of::<T>() as u32);
        let (whole, ends) = (segments.whole_accesses(width, bytes), segments.ends(width, bytes));
        // Two whole accesses each.
        let threads = (count.div_ceil(2) * whole).max(ends) + spare;
        let at_once = segments.at_once(threads, width, bytes);
        let (mut taken, mut of_ends) = (BTreeSet::new(), Vec::new());
        for rank in 0..threads {
            let (first, access) = segments.whole_of::<T, Ragged>(rank);
            for segment in (first..count).step_by(at_once as usize) {
                if first < at_once && whole > 0 {
                    assert!(
                        taken.insert((segment, access)),
                        "{segments:?}, {threads} threads, {rank}"
                    );
                }
            }
            let end = segments.end_of::<T, Ragged>(rank, threads);
            of_ends.extend(end.map(|_| rank));
            assert!(
                end.is_none_or(|end| taken.insert(end)),
                "{segments:?}, {threads} threads, {rank}"
            );
        }
        let of_segment = width.of_segment(length, bytes);
        let all = (0..count).flat_map(|segment| (0..of_segment).map(move |access| (segment, access)));
        assert!(taken.into_iter().eq(all), "{segments:?}, {threads} threads");
        let apart = segments.ends_apart::<T, Ragged>(threads);
        assert!(of_ends.windows(2).all(|pair| pair[1] - pair[0] == apart));
    }

    #[test]
    fn each_access_is_one_threads_and_ends_lie_evenly_apart() {
        for length in [9, 15, 17, 25, 49, 81, 210, 1225, 5625] {
            for count in [1, 2, 3, 16, 70] {
                for spare in [0, 1, 31, 500] {
                    check::<Bf16>(length, count, spare);
                    check::<f32>(length, count, spare);
                }
            }
        }
    }
}
