//! Contiguous rows of segments with a weight and a bias each, which begin anywhere: the channels of a group, or of an instance, channels first.
//!
//! Rows of a team start equally far behind the start of an access: as many are between them as an access has elements, or a divisor of that if it
//! divides the length of a row. So what a thread has of a row is found once.
//!
//! Each segment has accesses of its own ([`Segments::threads_of_each`](super::segments::Segments::threads_of_each)), of 16 aligned bytes; what they
//! have besides, at its ends, is [others'](super::segments). So all that a thread has of an access has one weight and one bias, and lanes that are
//! neighbours add up the gradients of these.

use isonorm_math::Normalizer;

use super::access::{Access, Data, Span};
use super::lanes::{Lanes, unrolled};
use super::parameters::{Affine, Known, Map, Parameters, Sharing, joined, number};

/// A weight and a bias for each segment of a row: GroupNorm and InstanceNorm of N, C, spatial.
pub struct BySegment;

impl Map for BySegment {
    const SHARING: Sharing = Sharing::BySegment;
    type Of<T: Data, A: Access, const V: usize, const KEPT: u32> = OfSegments<V>;
}

/// Weight and bias of each part of a row, as they came: whoever turns them into numbers waits for them.
#[derive(Clone, Copy)]
pub struct OfSegments<const V: usize> {
    weight: [u32; V],
    bias: [u32; V],
    is_narrow: bool,
}

impl<const V: usize> OfSegments<V> {
    /// None.
    pub(super) const NONE: Self = Self {
        weight: [1.0f32.to_bits(); V],
        bias: [0.0f32.to_bits(); V],
        is_narrow: false,
    };

    /// Those of a set.
    ///
    /// # Safety
    ///
    /// See [`Affine`].
    #[inline(always)]
    pub(super) unsafe fn of<T: Data, A: Access>(affine: &Affine, span: Span, set: u32) -> Self {
        let (start, is_narrow) = (set * affine.runs, affine.is_narrow::<T>());
        let words = |base: *const u8, otherwise: f32| {
            let none = match is_narrow {
                true => T::from_acc(otherwise).to_word(),
                false => otherwise.to_bits(),
            };
            let mut words = [none; V];
            if !base.is_null() {
                unrolled::<V>(|v| {
                    if span.has::<A, V>(v) {
                        let (segment, _) = span.turn(v);
                        // SAFETY: the caller's: a number for each segment of each set.
                        words[v] = unsafe { affine.word::<T>(base, start + segment) };
                    }
                });
            }
            words
        };
        Self {
            weight: words(affine.weight, 1.0),
            bias: words(affine.bias, 0.0),
            is_narrow,
        }
    }

    /// The weight of part `v`.
    #[inline(always)]
    pub(super) fn weight<T: Data>(&self, v: usize) -> f32 {
        number::<T>(self.is_narrow, self.weight[v])
    }

    /// The bias of part `v`.
    #[inline(always)]
    pub(super) fn bias<T: Data>(&self, v: usize) -> f32 {
        number::<T>(self.is_narrow, self.bias[v])
    }
}

impl<T: Data, A: Access, const V: usize> Parameters<T, A, V> for OfSegments<V> {
    const READS: bool = false;

    const JOINED_BY_PART: bool = true;

    #[inline(always)]
    fn joined_at(&self, normalizer: Normalizer<f32>, v: usize) -> Normalizer<f32> {
        joined(normalizer, [self.weight::<T>(v), self.bias::<T>(v)])
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn new(_affine: &Affine, _span: Span, _packed: bool) -> Self {
        Self::NONE
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, affine: &Affine, span: Span, set: u32) {
        // SAFETY: the caller's.
        *self = unsafe { Self::of::<T, A>(affine, span, set) };
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn at<K: Known>(&self, _affine: &Affine, _span: Span, v: usize) -> [A::Numbers<T>; 2] {
        [
            A::Numbers::<T>::splat(self.weight::<T>(v)),
            A::Numbers::<T>::splat(self.bias::<T>(v)),
        ]
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn weight_at<K: Known>(&self, _affine: &Affine, _span: Span, v: usize) -> A::Numbers<T> {
        A::Numbers::<T>::splat(self.weight::<T>(v))
    }
}
