//! Segments that begin anywhere, by accesses of 16 aligned bytes; [`segments`](super::segments) says what becomes of others' elements.

use super::access::{Access, Data, Vectors, Width};
use super::lanes::Lanes;
use crate::simt::{self, Shared};

/// Which elements of an access a row has: from one on, before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    pub(super) from: u32,
    pub(super) to: u32,
}

impl Own {
    /// All of so many.
    #[inline(always)]
    pub(super) fn all_of(elements: u32) -> Own {
        Own { from: 0, to: elements }
    }

    /// Those of the first access, of so many elements, of a row that is `row` elements behind a tensor's start.
    #[inline(always)]
    pub(super) fn first(row: u64, elements: u32) -> Own {
        Own {
            from: row as u32 % elements,
            to: elements,
        }
    }

    /// Those of an access of so many elements before an end that is so many behind its start; nothing where that is all of them.
    #[inline(always)]
    pub(super) fn before(end: u32, elements: u32) -> Option<Own> {
        (end < elements).then_some(Own { from: 0, to: end })
    }

    /// Elements before.
    #[inline(always)]
    pub(super) fn lead(self) -> u32 {
        self.from
    }

    /// Whether it has all of so many.
    #[inline(always)]
    pub(super) fn is_whole(self, elements: u32) -> bool {
        self.from == 0 && self.to == elements
    }

    /// Whether it has one.
    #[inline(always)]
    pub(super) fn has(self, element: u32) -> bool {
        (self.from..self.to).contains(&element)
    }

    /// A bit for each that it has, the first lowest.
    #[inline(always)]
    fn bits(self) -> u32 {
        ((1 << self.to) - 1) & (u32::MAX << self.from)
    }
}

/// 16 bytes at a time, aligned, of segments that begin anywhere: the first and the last access of one may have elements that are others'.
/// Those are loaded, or, behind the segment, left out, and never stored. For tensors that start on 16 bytes, and rows whose first segment has
/// at least two accesses. If `BY_SEGMENT`, rows are contiguous, and [each segment](super::by_segment) has accesses of its own, whether others are
/// accessed at once or not.
pub struct Ragged<const BY_SEGMENT: bool = false>;

impl<const BY_SEGMENT: bool> Access for Ragged<BY_SEGMENT> {
    const WIDTH: Width = Width::Ragged;
    type Raw<T: Data> = [u32; 4];
    type Numbers<T: Data> = T::Lanes;

    const SPARSE: bool = true;

    const BY_SEGMENT: bool = BY_SEGMENT;

    #[inline(always)]
    fn nothing<T: Data>() -> [u32; 4] {
        <Vectors>::nothing::<T>()
    }

    #[inline(always)]
    unsafe fn load<T: Data>(place: *const T) -> [u32; 4] {
        // SAFETY: the caller's.
        unsafe { <Vectors>::load(place) }
    }

    #[inline(always)]
    unsafe fn load_keep<T: Data>(place: *const T) -> [u32; 4] {
        // SAFETY: the caller's.
        unsafe { <Vectors>::load_keep(place) }
    }

    #[inline(always)]
    unsafe fn store<T: Data>(place: *mut T, raw: [u32; 4]) {
        // SAFETY: the caller's.
        unsafe { <Vectors>::store(place, raw) };
    }

    const KEPT_BYTES: u32 = <Vectors>::KEPT_BYTES;

    #[inline(always)]
    unsafe fn keep<T: Data>(place: Shared<u32>, raw: [u32; 4]) {
        // SAFETY: the caller's.
        unsafe { <Vectors>::keep::<T>(place, raw) };
    }

    #[inline(always)]
    unsafe fn fetch<T: Data>(place: Shared<u32>, from: *const T) {
        // SAFETY: the caller's.
        unsafe { <Vectors>::fetch(place, from) };
    }

    #[inline(always)]
    unsafe fn fetch_if<T: Data>(place: Shared<u32>, from: *const T, condition: bool) {
        // SAFETY: the caller's.
        unsafe { <Vectors>::fetch_if(place, from, condition) };
    }

    #[inline(always)]
    unsafe fn kept<T: Data>(place: Shared<u32>) -> [u32; 4] {
        // SAFETY: the caller's.
        unsafe { <Vectors>::kept::<T>(place) }
    }

    #[inline(always)]
    fn unpack<T: Data>(raw: [u32; 4]) -> T::Lanes {
        T::unpack(raw)
    }

    #[inline(always)]
    fn pack<T: Data>(numbers: T::Lanes) -> [u32; 4] {
        T::pack(numbers)
    }

    #[inline(always)]
    fn positive<T: Data>(raw: [u32; 4]) -> u32 {
        T::positive(raw)
    }

    #[inline(always)]
    fn masked<T: Data>(raw: [u32; 4], bits: u32) -> [u32; 4] {
        T::masked(raw, bits)
    }

    #[inline(always)]
    unsafe fn fetch_some<T: Data>(place: Shared<u32>, from: *const T, left: Option<u32>) {
        // SAFETY: the caller's; what lies before the row's elements is the tensor's, as that starts on 16 bytes.
        unsafe {
            match left {
                Some(left) => simt::copy_async_some(place, from.cast(), left * size_of::<T>() as u32),
                None => Self::fetch(place, from),
            }
        }
    }

    #[inline(always)]
    unsafe fn load_some<T: Data>(place: *const T, left: Option<u32>) -> [u32; 4] {
        let Some(left) = left else {
            // SAFETY: the caller's.
            return unsafe { Self::load(place) };
        };
        // A loop, as it is there for each access of a thread, and taken for one of the tensor.
        let (mut raw, mut element, elements) = ([0; 4], 0, simt::opaque(T::Lanes::LANES));
        while element < elements {
            let next = match element < left {
                // SAFETY: the caller's.
                true => unsafe { T::load(place.wrapping_add(element as usize)) },
                false => T::default(),
            };
            raw = followed(raw, next);
            element += 1;
        }
        raw
    }

    #[inline(always)]
    fn filled<T: Data>(raw: [u32; 4], own: Option<Own>, number: f32) -> [u32; 4] {
        let Some(own) = own else {
            return raw;
        };
        let (masks, others) = (T::masks(own.bits()), T::pack(T::Lanes::splat(number)));
        let word = |k: usize| raw[k] & masks[k] | others[k] & !masks[k];
        [word(0), word(1), word(2), word(3)]
    }

    #[inline(always)]
    unsafe fn store_own<T: Data>(place: *mut T, raw: [u32; 4], own: Option<Own>) {
        // SAFETY: the caller's.
        unsafe {
            match own {
                Some(own) => T::store_some(place, raw, own.bits()),
                None => Self::store(place, raw),
            }
        }
    }

    #[inline(always)]
    fn near<T: Data>(number: f32) -> f32 {
        T::from_acc(number).to_acc()
    }
}

/// The elements of 16 bytes but for the first, and one behind them.
#[inline(always)]
fn followed<T: Data>([a, b, c, d]: [u32; 4], next: T) -> [u32; 4] {
    let next = next.to_word();
    match size_of::<T>() {
        4 => [b, c, d, next],
        _ => {
            let joined = |low: u32, high: u32| low >> 16 | high << 16;
            [joined(a, b), joined(b, c), joined(c, d), joined(d, next)]
        }
    }
}

#[cfg(test)]
mod tests {
    use isonorm_math::{Bf16, F16};

    use super::*;

    fn check<T: Data>(numbers: T::Lanes) {
        let elements = numbers.fold(Vec::new(), |mut all, number| {
            all.push(T::from_acc(number));
            all
        });
        let all = elements.into_iter().fold([0; 4], followed);
        assert_eq!(all, T::pack(numbers));
    }

    #[test]
    fn elements_that_follow_each_other_are_an_access() {
        check::<f32>([1.0, -2.5, f32::INFINITY, 1e-40]);
        let numbers = [1.0, -2.5, 3.0, f32::INFINITY, 0.0, -0.0, 7.0, -65504.0];
        check::<F16>(numbers);
        check::<Bf16>(numbers);
    }
}
