//! Rows whose elements lie in segments apart from each other: the channels of N, C, spatial, each with a weight and a bias of its own.
//!
//! The threads of a team are spread over whole segments, as many as they are enough for; so from one access of a thread to its next it
//! is always as far, and the last threads may have nothing.
//!
//! Where segments begin anywhere (images of 35 · 35 numbers of 16 bits, say), threads access them by 16 aligned bytes all the same
//! ([`Ragged`](super::access::Ragged)). The first and the last access of a segment then have elements that are others': those are loaded,
//! count as the number that distances are from, or as 0 where sums are of products, and are never stored.

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

    /// Whole segments that so many threads are enough for, with an access each, of elements of so many bytes.
    #[inline(always)]
    pub fn at_once(&self, threads: u32, width: Width, bytes: u32) -> u32 {
        threads / at_least_one(width.of_segment(self.length, bytes))
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

    /// What a thread has of so many segments that are accessed at once. Accesses of which a segment may have a part only belong to the last
    /// threads: what they take besides is taken by few warps.
    #[inline(always)]
    pub(super) fn taken<T: Data, A: Access>(&self, rank: u32, at_once: u32) -> Taken {
        let (width, bytes) = (A::WIDTH, size_of::<T>() as u32);
        let ends = width.ends_of_segment(self.length, bytes);
        let whole = width.of_segment(self.length, bytes) - ends;
        let of_whole = at_once * whole;
        let is_whole = ends == 0 || rank < of_whole;
        let (segment, access) = match is_whole {
            true => {
                let whole = at_least_one(whole);
                (rank / whole, rank % whole + u32::from(ends > 0))
            }
            false => {
                let (ends, rank) = (at_least_one(ends), rank - of_whole);
                let end = rank % ends;
                (rank / ends, if end == 0 { 0 } else { whole + end })
            }
        };
        Taken {
            segment,
            access,
            is_whole,
        }
    }
}

/// What a thread has of segments.
pub(super) struct Taken {
    /// Which one it starts with; beyond those that are accessed at once, none.
    pub(super) segment: u32,
    /// Which access of it.
    pub(super) access: u32,
    /// Whether segments have all of it, wherever they begin.
    pub(super) is_whole: bool,
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
