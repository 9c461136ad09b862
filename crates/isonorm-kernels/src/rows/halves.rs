//! Rows that are a multiple of 8 bytes long, not of 16: images of 14 · 14 numbers of 16 bits.

use super::access::{Access, Data, Width};
use crate::simt::{self, Shared};

/// 8 bytes at a time: rows start on 8 bytes, and are a multiple of 8 bytes long. Any of a thread's accesses may lie beyond the row.
///
/// By 16 bytes, every second segment of such rows would begin and end in the middle of an access ([`Ragged`](super::access::Ragged)).
pub struct Halves;

impl Access for Halves {
    const WIDTH: Width = Width::Half;
    type Raw<T: Data> = [u32; 2];
    type Numbers<T: Data> = T::Half;

    const SPARSE: bool = true;

    #[inline(always)]
    fn nothing<T: Data>() -> [u32; 2] {
        [0; 2]
    }

    #[inline(always)]
    unsafe fn load<T: Data>(place: *const T) -> [u32; 2] {
        // SAFETY: the caller's.
        unsafe { simt::load_64(place.cast()) }
    }

    #[inline(always)]
    unsafe fn load_keep<T: Data>(place: *const T) -> [u32; 2] {
        // SAFETY: the caller's.
        unsafe { simt::load_64_keep(place.cast()) }
    }

    #[inline(always)]
    unsafe fn store<T: Data>(place: *mut T, raw: [u32; 2]) {
        // SAFETY: the caller's.
        unsafe { simt::store_64(place.cast(), raw) };
    }

    const KEPT_BYTES: u32 = 8;

    #[inline(always)]
    unsafe fn keep<T: Data>(place: Shared<u32>, raw: [u32; 2]) {
        // SAFETY: the caller's.
        unsafe { simt::shared_store_64(place, raw) };
    }

    #[inline(always)]
    unsafe fn fetch<T: Data>(place: Shared<u32>, from: *const T) {
        // SAFETY: the caller's.
        unsafe { simt::copy_async_64(place, from.cast()) };
    }

    #[inline(always)]
    unsafe fn kept<T: Data>(place: Shared<u32>) -> [u32; 2] {
        // SAFETY: the caller's.
        unsafe { simt::shared_load_64(place) }
    }

    #[inline(always)]
    fn unpack<T: Data>(raw: [u32; 2]) -> T::Half {
        T::unpack_half(raw)
    }

    #[inline(always)]
    fn pack<T: Data>(numbers: T::Half) -> [u32; 2] {
        T::pack_half(numbers)
    }

    #[inline(always)]
    fn positive<T: Data>([a, b]: [u32; 2]) -> u32 {
        T::positive([a, b, 0, 0])
    }

    #[inline(always)]
    fn masked<T: Data>([a, b]: [u32; 2], bits: u32) -> [u32; 2] {
        let [a, b, _, _] = T::masked([a, b, 0, 0], bits);
        [a, b]
    }
}
