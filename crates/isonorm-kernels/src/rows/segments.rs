//! Rows whose elements lie in segments apart from each other: the channels of N, C, spatial, each with a weight and a bias of its own.
//!
//! A thread has the same places in every row, so that it looks for them once.

use super::access::{Access, Data, Span};
use super::lanes::{Lanes, unrolled};
use super::parameters::{Affine, Map, Parameters, Sharing, at_least_one, one_of_run};
use crate::simt;

/// How far a segment of a row is from the next, as a kernel is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Segments {
    /// Elements of a segment; at least 1.
    pub length: u32,
    /// Elements from the start of a segment to that of the next; those of all are fewer than 2³².
    pub stride: u32,
}

impl Segments {
    /// For rows that are contiguous.
    pub const NONE: Segments = Segments { length: 1, stride: 1 };
}

/// Where the parts of a thread lie in a row.
pub trait Places: Copy {
    /// Those of a span.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn new(span: Span, segments: Segments) -> Self;

    /// How many elements after the row's first one part `v` starts.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn offset(&self, span: Span, v: usize) -> u32;
}

/// One behind the other.
#[derive(Clone, Copy)]
pub struct Contiguous;

impl Places for Contiguous {
    #[inline(always)]
    #[allow(private_interfaces)]
    fn new(_span: Span, _segments: Segments) -> Self {
        Contiguous
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn offset(&self, span: Span, v: usize) -> u32 {
        span.start(v)
    }
}

/// In segments.
#[derive(Clone, Copy)]
pub struct Apart<const V: usize>([u32; V]);

impl<const V: usize> Places for Apart<V> {
    #[inline(always)]
    #[allow(private_interfaces)]
    fn new(span: Span, segments: Segments) -> Self {
        let length = at_least_one(segments.length);
        let mut offsets = [0; V];
        unrolled::<V>(|v| {
            let start = span.start(v);
            // Not of parts beyond the row.
            let before = (start / length).wrapping_mul(segments.stride);
            offsets[v] = before.wrapping_add(start % length);
        });
        Apart(offsets)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn offset(&self, _span: Span, v: usize) -> u32 {
        // Opaque, for otherwise the addresses in each tensor become variables of a loop over rows, two registers each.
        simt::opaque(self.0[v])
    }
}

/// A weight and a bias for each row, which lies in [`Segments`]: BatchNorm of N, C, spatial. There are as many sets as rows.
pub struct Segmented;

impl Map for Segmented {
    const SHARING: Sharing = Sharing::Segmented;
    type Of<T: Data, A: Access, const V: usize, const KEPT: u32> = OfRow;
    type Places<const V: usize> = Apart<V>;
    type Lookup = ();

    #[inline(always)]
    fn lookup(_affine: &Affine) {}

    #[inline(always)]
    unsafe fn at<T: Data, A: Access, const NARROW: bool>(
        affine: &Affine,
        (): (),
        set: u32,
        _column: u64,
    ) -> [A::Numbers<T>; 2] {
        // SAFETY: the caller's.
        let [weight, bias] = unsafe { one_of_run::<T>(affine, set) };
        [A::Numbers::<T>::splat(weight), A::Numbers::<T>::splat(bias)]
    }
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
        // SAFETY: the caller's.
        let [weight, bias] = unsafe { one_of_run::<T>(affine, set) };
        OfRow { weight, bias }
    }
}

impl<T: Data, A: Access, const V: usize> Parameters<T, A, V> for OfRow {
    const READS: bool = false;

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
    unsafe fn at<const NARROW: bool>(&self, _affine: &Affine, _span: Span, _v: usize) -> [A::Numbers<T>; 2] {
        [A::Numbers::<T>::splat(self.weight), A::Numbers::<T>::splat(self.bias)]
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn weight_at<const NARROW: bool>(&self, _affine: &Affine, _span: Span, _v: usize) -> A::Numbers<T> {
        A::Numbers::<T>::splat(self.weight)
    }
}
