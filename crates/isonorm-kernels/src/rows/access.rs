//! How a thread reaches its part of a row: 16 bytes at a time, 8, or one element.
//!
//! What was loaded is held as it came (`Raw`), and turned into numbers wherever it is used: 16-bit data takes half the
//! registers.

pub use super::data::Data;
pub use super::halves::Halves;
use super::lanes::Lanes;
pub use super::ragged::{Own, Ragged};
pub(super) use super::span::{Place, Span};
use crate::simt::{self, Shared};

/// The width of a thread's accesses, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// [`Vectors`]
    Vector,
    /// [`Ragged`]
    Ragged,
    /// [`Halves`]
    Half,
    /// [`Elements`]
    Element,
}

impl Width {
    /// Elements of an access, of a type of so many bytes.
    #[inline(always)]
    pub const fn elements(self, bytes: u32) -> u32 {
        match self {
            Width::Vector | Width::Ragged => 16 / bytes,
            Width::Half => 8 / bytes,
            Width::Element => 1,
        }
    }

    /// Accesses that a segment of so many elements takes, wherever it begins: a multiple of its length behind where an access does.
    #[inline(always)]
    pub fn of_segment(self, length: u32, bytes: u32) -> u32 {
        let elements = self.elements(bytes);
        match self {
            Width::Ragged => {
                // What both are multiples of: the number of elements of an access is a power of two.
                let unit = 1 << (length | elements).trailing_zeros();
                (length + 2 * elements - 1 - unit) / elements
            }
            _ => length / elements,
        }
    }

    /// How many of them may be others', in part or all: the first, and one or two at the end.
    #[inline(always)]
    pub fn ends_of_segment(self, length: u32, bytes: u32) -> u32 {
        let accesses = self.of_segment(length, bytes);
        match self {
            Width::Ragged if (accesses - 1) * self.elements(bytes) < length => 2,
            Width::Ragged => 3.min(accesses),
            _ => 0,
        }
    }
}

/// The width of a thread's accesses to a row.
pub trait Access {
    /// Which one.
    const WIDTH: Width;

    /// Whether part 0 of what a thread has of a row in segments is one that these may have a part of only, and no other is.
    const HAS_ENDS: bool = matches!(Self::WIDTH, Width::Ragged) && !Self::BY_SEGMENT;

    /// Whether a row in segments has all of part `v` of what a thread has, if it has any of it.
    #[inline(always)]
    fn has_whole_part(v: usize) -> bool {
        match Self::WIDTH {
            Width::Ragged => v > 0 && Self::HAS_ENDS,
            _ => Self::IS_OF_SEGMENTS,
        }
    }

    /// What an access loads.
    type Raw<T: Data>: Copy;

    /// The numbers in it.
    type Numbers<T: Data>: Lanes;

    /// Whether any of a thread's accesses may lie beyond the row; otherwise only its last may.
    const SPARSE: bool;

    /// Whether it is for rows in segments.
    const IS_OF_SEGMENTS: bool = Self::SPARSE && !matches!(Self::WIDTH, Width::Element);

    /// Whether rows are contiguous, and each of their segments has accesses of its own.
    const BY_SEGMENT: bool = false;

    /// What is held where the row has nothing.
    fn nothing<T: Data>() -> Self::Raw<T>;

    /// Loads data.
    ///
    /// # Safety
    ///
    /// `place` may be read, and is aligned to the width.
    unsafe fn load<T: Data>(place: *const T) -> Self::Raw<T>;

    /// Loads parameters of the data's type.
    ///
    /// # Safety
    ///
    /// As for [`load`](Access::load), and nothing writes them during the kernel.
    unsafe fn load_keep<T: Data>(place: *const T) -> Self::Raw<T>;

    /// Stores data.
    ///
    /// # Safety
    ///
    /// `place` may be written, and is aligned to the width.
    unsafe fn store<T: Data>(place: *mut T, raw: Self::Raw<T>);

    /// Bytes that an access takes in shared memory.
    const KEPT_BYTES: u32;

    /// Keeps what was loaded in shared memory.
    ///
    /// # Safety
    ///
    /// [`KEPT_BYTES`](Access::KEPT_BYTES) from `place` on belong to this thread, aligned to as many.
    unsafe fn keep<T: Data>(place: Shared<u32>, raw: Self::Raw<T>);

    /// Loads data and keeps it, past the registers where that is possible: it is there after [`copy_wait`](simt::copy_wait).
    ///
    /// # Safety
    ///
    /// As for [`load`](Access::load) and [`keep`](Access::keep).
    unsafe fn fetch<T: Data>(place: Shared<u32>, from: *const T);

    /// As [`fetch`](Access::fetch), if a condition holds.
    ///
    /// # Safety
    ///
    /// As for [`fetch`](Access::fetch), if it holds.
    #[inline(always)]
    unsafe fn fetch_if<T: Data>(place: Shared<u32>, from: *const T, condition: bool) {
        if condition {
            // SAFETY: the caller's.
            unsafe { Self::fetch(place, from) };
        }
    }

    /// What [`keep`](Access::keep) or [`fetch`](Access::fetch) has kept.
    ///
    /// # Safety
    ///
    /// This thread has kept it there.
    unsafe fn kept<T: Data>(place: Shared<u32>) -> Self::Raw<T>;

    /// The numbers.
    fn unpack<T: Data>(raw: Self::Raw<T>) -> Self::Numbers<T>;

    /// The numbers, rounded to the type.
    fn pack<T: Data>(numbers: Self::Numbers<T>) -> Self::Raw<T>;

    /// As [`Data::positive`].
    fn positive<T: Data>(raw: Self::Raw<T>) -> u32;

    /// As [`Data::masked`].
    fn masked<T: Data>(raw: Self::Raw<T>, bits: u32) -> Self::Raw<T>;

    /// As [`fetch`](Access::fetch), where the tensor may have but some elements left. What is kept instead of others is of no concern.
    ///
    /// # Safety
    ///
    /// As for [`fetch`](Access::fetch), up to the tensor's last element.
    #[inline(always)]
    unsafe fn fetch_some<T: Data>(place: Shared<u32>, from: *const T, _left: Option<u32>) {
        // SAFETY: the caller's; the row has all of the access.
        unsafe { Self::fetch(place, from) };
    }

    /// As [`load`](Access::load), where the tensor may have but some elements left. What is there instead of others is of no concern.
    ///
    /// # Safety
    ///
    /// As for [`load`](Access::load), up to the tensor's last element.
    #[inline(always)]
    unsafe fn load_some<T: Data>(place: *const T, _left: Option<u32>) -> Self::Raw<T> {
        // SAFETY: the caller's; the row has all of the access.
        unsafe { Self::load(place) }
    }

    /// What was loaded, with a number instead of the elements that the row does not have, if it has not all.
    #[inline(always)]
    fn filled<T: Data>(raw: Self::Raw<T>, _own: Option<Own>, _number: f32) -> Self::Raw<T> {
        raw
    }

    /// As [`store`](Access::store), the elements that the row has, if not all.
    ///
    /// # Safety
    ///
    /// As for [`store`](Access::store), where the row has elements.
    #[inline(always)]
    unsafe fn store_own<T: Data>(place: *mut T, raw: Self::Raw<T>, _own: Option<Own>) {
        // SAFETY: the caller's; the row has all of the access.
        unsafe { Self::store(place, raw) };
    }

    /// A number near this one that [`filled`](Access::filled) can put in the place of elements.
    #[inline(always)]
    fn near<T: Data>(number: f32) -> f32 {
        number
    }
}

/// 16 bytes at a time: rows start on 16 bytes, and are a multiple of 16 bytes long. If `SPARSE`, any of a thread's accesses may lie beyond
/// the row.
pub struct Vectors<const SPARSE: bool = false>;

/// One element at a time: for rows of any length, anywhere.
pub struct Elements;

impl<const SPARSE: bool> Access for Vectors<SPARSE> {
    const WIDTH: Width = Width::Vector;
    type Raw<T: Data> = [u32; 4];
    type Numbers<T: Data> = T::Lanes;

    const SPARSE: bool = SPARSE;

    #[inline(always)]
    fn nothing<T: Data>() -> [u32; 4] {
        [0; 4]
    }

    #[inline(always)]
    unsafe fn load<T: Data>(place: *const T) -> [u32; 4] {
        // SAFETY: the caller's.
        unsafe { simt::load_128(place.cast()) }
    }

    #[inline(always)]
    unsafe fn load_keep<T: Data>(place: *const T) -> [u32; 4] {
        // SAFETY: the caller's.
        unsafe { simt::load_128_keep(place.cast()) }
    }

    #[inline(always)]
    unsafe fn store<T: Data>(place: *mut T, raw: [u32; 4]) {
        // SAFETY: the caller's.
        unsafe { simt::store_128(place.cast(), raw) };
    }

    const KEPT_BYTES: u32 = 16;

    #[inline(always)]
    unsafe fn keep<T: Data>(place: Shared<u32>, raw: [u32; 4]) {
        // SAFETY: the caller's.
        unsafe { simt::shared_store_128(place, raw) };
    }

    #[inline(always)]
    unsafe fn fetch<T: Data>(place: Shared<u32>, from: *const T) {
        // SAFETY: the caller's.
        unsafe { simt::copy_async(place, from.cast()) };
    }

    #[inline(always)]
    unsafe fn fetch_if<T: Data>(place: Shared<u32>, from: *const T, condition: bool) {
        // SAFETY: the caller's.
        unsafe { simt::copy_async_if(place, from.cast(), condition) };
    }

    #[inline(always)]
    unsafe fn kept<T: Data>(place: Shared<u32>) -> [u32; 4] {
        // SAFETY: the caller's.
        unsafe { simt::shared_load_128(place) }
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
}

impl Access for Elements {
    const WIDTH: Width = Width::Element;
    type Raw<T: Data> = T;
    type Numbers<T: Data> = [f32; 1];

    const SPARSE: bool = true;

    #[inline(always)]
    fn nothing<T: Data>() -> T {
        T::default()
    }

    #[inline(always)]
    unsafe fn load<T: Data>(place: *const T) -> T {
        // SAFETY: the caller's.
        unsafe { T::load(place) }
    }

    #[inline(always)]
    unsafe fn load_keep<T: Data>(place: *const T) -> T {
        // SAFETY: the caller's.
        unsafe { T::load_keep(place) }
    }

    #[inline(always)]
    unsafe fn store<T: Data>(place: *mut T, raw: T) {
        // SAFETY: the caller's.
        unsafe { T::store(place, raw) };
    }

    const KEPT_BYTES: u32 = 4;

    #[inline(always)]
    unsafe fn keep<T: Data>(place: Shared<u32>, raw: T) {
        // SAFETY: the caller's.
        unsafe { simt::shared_store(place, raw.to_word()) };
    }

    #[inline(always)]
    unsafe fn fetch<T: Data>(place: Shared<u32>, from: *const T) {
        // SAFETY: the caller's.
        unsafe { Self::keep(place, Self::load(from)) };
    }

    #[inline(always)]
    unsafe fn kept<T: Data>(place: Shared<u32>) -> T {
        // SAFETY: the caller's.
        T::from_word(unsafe { simt::shared_load(place) })
    }

    #[inline(always)]
    fn unpack<T: Data>(raw: T) -> [f32; 1] {
        [raw.to_acc()]
    }

    #[inline(always)]
    fn pack<T: Data>(numbers: [f32; 1]) -> T {
        T::from_acc(numbers[0])
    }

    #[inline(always)]
    fn positive<T: Data>(raw: T) -> u32 {
        u32::from(raw.to_word() != 0)
    }

    #[inline(always)]
    fn masked<T: Data>(raw: T, bits: u32) -> T {
        if bits == 0 { T::default() } else { raw }
    }
}

/// How many elements an access covers.
#[inline(always)]
pub(crate) const fn width<T: Data, A: Access>() -> u32 {
    A::Numbers::<T>::LANES
}
