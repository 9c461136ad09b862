//! How a thread reaches its part of a row: 16 bytes at a time, or one element.
//!
//! What was loaded is held as it came (`Raw`), and turned into numbers wherever it is used: 16-bit data takes half the
//! registers.

pub use super::data::Data;
use super::lanes::Lanes;
use super::parameters::at_least_one;
use super::segments::Segments;
use crate::simt::{self, Shared, WARP};

/// The width of a thread's accesses, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// [`Vectors`]
    Vector,
    /// [`Ragged`]
    Ragged,
    /// [`Elements`]
    Element,
}

impl Width {
    /// Elements of an access, of a type of so many bytes.
    #[inline(always)]
    pub const fn elements(self, bytes: u32) -> u32 {
        match self {
            Width::Vector | Width::Ragged => 16 / bytes,
            Width::Element => 1,
        }
    }

    /// Accesses that a segment of so many elements takes, wherever it begins.
    #[inline(always)]
    pub fn of_segment(self, length: u32, bytes: u32) -> u32 {
        let elements = self.elements(bytes);
        match self {
            Width::Ragged => (length + 2 * (elements - 1)) / elements,
            _ => length / elements,
        }
    }
}

/// The width of a thread's accesses to a row.
pub trait Access {
    /// Which one.
    const WIDTH: Width;

    /// What an access loads.
    type Raw<T: Data>: Copy;

    /// The numbers in it.
    type Numbers<T: Data>: Lanes;

    /// Whether any of a thread's accesses may lie beyond the row; otherwise only its last may.
    const SPARSE: bool;

    /// Whether it is for rows in segments.
    const IS_OF_SEGMENTS: bool = Self::SPARSE && !matches!(Self::WIDTH, Width::Element);

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

    /// As [`fetch`](Access::fetch), of the elements that the row has, and maybe of others before them; what is kept instead of those behind is
    /// of no concern.
    ///
    /// # Safety
    ///
    /// As for [`fetch`](Access::fetch), up to the last element that the row has.
    #[inline(always)]
    unsafe fn fetch_own<T: Data>(place: Shared<u32>, from: *const T, _own: Own) {
        // SAFETY: the caller's; the row has all of the access.
        unsafe { Self::fetch(place, from) };
    }

    /// What was loaded, with a number instead of the elements that the row does not have.
    #[inline(always)]
    fn filled<T: Data>(raw: Self::Raw<T>, _own: Own, _number: f32) -> Self::Raw<T> {
        raw
    }

    /// As [`store`](Access::store), the elements that the row has.
    ///
    /// # Safety
    ///
    /// As for [`store`](Access::store), where the row has elements.
    #[inline(always)]
    unsafe fn store_own<T: Data>(place: *mut T, raw: Self::Raw<T>, _own: Own) {
        // SAFETY: the caller's; the row has all of the access.
        unsafe { Self::store(place, raw) };
    }

    /// A number near this one that [`filled`](Access::filled) can put in the place of elements.
    #[inline(always)]
    fn near<T: Data>(number: f32) -> f32 {
        number
    }
}

/// Which elements of an access a row has: from one on, before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    from: u32,
    to: u32,
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

    /// Elements before.
    #[inline(always)]
    pub(super) fn lead(self) -> u32 {
        self.from
    }

    /// Whether it has all of so many.
    #[inline(always)]
    fn is_whole(self, elements: u32) -> bool {
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

/// 16 bytes at a time: rows start on 16 bytes, and are a multiple of 16 bytes long. If `SPARSE`, any of a thread's accesses may lie beyond
/// the row.
pub struct Vectors<const SPARSE: bool = false>;

/// 16 bytes at a time, aligned, of segments that begin anywhere: the first and the last access of one may have elements that are others'.
/// Those are loaded, or, behind the segment, left out, and never stored. For tensors that start on 16 bytes, and segments of at least two accesses.
pub struct Ragged;

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

impl Access for Ragged {
    const WIDTH: Width = Width::Ragged;
    type Raw<T: Data> = [u32; 4];
    type Numbers<T: Data> = T::Lanes;

    const SPARSE: bool = true;

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
    unsafe fn fetch_own<T: Data>(place: Shared<u32>, from: *const T, own: Own) {
        // SAFETY: the caller's; what lies before the row's elements is the tensor's, as that starts on 16 bytes.
        unsafe { simt::copy_async_some(place, from.cast(), own.to * size_of::<T>() as u32) };
    }

    #[inline(always)]
    fn filled<T: Data>(raw: [u32; 4], own: Own, number: f32) -> [u32; 4] {
        if own.is_whole(T::Lanes::LANES) {
            return raw;
        }
        let all = Own::all_of(T::Lanes::LANES).bits();
        let (bits, others) = (own.bits(), T::pack(T::Lanes::splat(number)));
        let (own, others) = (T::masked(raw, bits), T::masked(others, all ^ bits));
        [
            own[0] | others[0],
            own[1] | others[1],
            own[2] | others[2],
            own[3] | others[3],
        ]
    }

    #[inline(always)]
    unsafe fn store_own<T: Data>(place: *mut T, raw: [u32; 4], own: Own) {
        // SAFETY: the caller's.
        unsafe {
            match own.is_whole(T::Lanes::LANES) {
                true => simt::store_128(place.cast(), raw),
                false => T::store_some(place, raw, own.bits()),
            }
        }
    }

    #[inline(always)]
    fn near<T: Data>(number: f32) -> f32 {
        T::from_acc(number).to_acc()
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

/// Where a row of a tensor lies.
#[derive(Clone, Copy)]
pub(super) struct Place<T> {
    /// Its first element, or, where that is computed for each part, the tensor's.
    start: *const T,
    row: u64,
    stride: u64,
    is_segmented: bool,
}

impl<T> Place<T> {
    /// A row that is one of many. Where it lies in segments its address is computed once, here: there may be no registers for all parts',
    /// but for this one. Otherwise the compiler sees to that, where parts are used.
    #[inline(always)]
    pub(super) fn new(base: *const T, (row, stride): (u64, u64), is_segmented: bool) -> Self {
        let start = base.wrapping_add((row * stride) as usize);
        Self {
            start: match is_segmented {
                true => start.with_addr(simt::opaque_64(start.addr() as u64) as usize),
                false => base,
            },
            row,
            stride,
            is_segmented,
        }
    }

    /// Elements of the tensor before it.
    #[inline(always)]
    pub(super) fn before(self) -> u64 {
        self.row * self.stride
    }

    /// The element so many behind the first.
    #[inline(always)]
    pub(super) fn element(self, index: i64) -> *const T {
        let start = match self.is_segmented {
            true => self.start,
            false => self.start.wrapping_add(self.before() as usize),
        };
        start.wrapping_offset(index as isize)
    }
}

/// Which parts of a row a thread holds: neighbouring threads access neighbouring memory.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Where the first part starts; of [`Ragged`] accesses, where its segment does.
    own: u32,
    step: u32,
    columns: u32,
    /// Of segments, parts that the thread has.
    parts: u32,
    /// Of [`Ragged`] accesses, how far behind the start of its segment, rounded down to an access, each part is.
    within: u32,
    /// Of [`Ragged`] accesses, elements of a segment.
    length: u32,
}

impl Span {
    /// Of thread `rank` of `threads`, in accesses of `width` elements: part `v` of thread `t` starts at element
    /// `(v · threads + t) · width`.
    #[inline(always)]
    pub fn new(rank: u32, threads: u32, width: u32, columns: u32) -> Self {
        Self {
            own: rank * width,
            step: threads * width,
            columns,
            parts: 0,
            within: 0,
            length: columns,
        }
    }

    /// The same threads, where each warp has a stretch of the row: part `v` of lane `l` of warp `w` of those starts at element
    /// `((w · parts + v) · 32 + l) · width`.
    #[inline(always)]
    pub fn of_stretches(rank: u32, parts: u32, width: u32, columns: u32) -> Self {
        Self {
            own: (rank / WARP * parts * WARP + rank % WARP) * width,
            step: WARP * width,
            columns,
            parts: 0,
            within: 0,
            length: columns,
        }
    }

    /// Of thread `rank` of `threads`, to whole segments, as many at once as there are threads for. Elements are counted with those that lie
    /// between.
    #[inline(always)]
    pub fn of_segments<T: Data, A: Access>(rank: u32, threads: u32, segments: Segments) -> Self {
        let (end, bytes) = (segments.count * segments.stride, size_of::<T>() as u32);
        let accesses = at_least_one(A::WIDTH.of_segment(segments.length, bytes));
        let (at_once, segment) = (segments.at_once(threads, A::WIDTH, bytes), rank / accesses);
        // What a thread beyond the segments has here is not used.
        let (start, within) = (segment.wrapping_mul(segments.stride), rank % accesses * width::<T, A>());
        Self {
            own: match A::WIDTH {
                Width::Ragged => start,
                _ => start.wrapping_add(within),
            },
            step: at_once.wrapping_mul(segments.stride),
            columns: end,
            parts: match segment < at_once {
                true => segments
                    .count
                    .saturating_sub(segment)
                    .div_ceil(at_least_one(at_once).get()),
                false => 0,
            },
            within,
            length: segments.length,
        }
    }

    /// Where part `v` is of the segments of a row, behind the row's start, which is `row` elements behind a tensor's.
    #[inline(always)]
    pub fn of_row<T: Data, A: Access>(self, row: u64, v: usize) -> i64 {
        let start = i64::from(self.start_here(v));
        match A::WIDTH {
            Width::Ragged => start + i64::from(self.within) - i64::from(self.lead::<T, A>(row, v)),
            _ => start,
        }
    }

    /// Elements of part `v`'s segment that lie behind the start of an access.
    #[inline(always)]
    fn lead<T: Data, A: Access>(self, row: u64, v: usize) -> u32 {
        (row as u32).wrapping_add(self.start_here(v)) % width::<T, A>()
    }

    /// Which elements of part `v` the row has.
    #[inline(always)]
    pub fn own<T: Data, A: Access>(self, row: u64, v: usize) -> Own {
        let elements = width::<T, A>();
        match A::WIDTH {
            Width::Ragged => {
                let lead = self.lead::<T, A>(row, v);
                Own {
                    from: if self.within == 0 { lead } else { 0 },
                    to: (lead + self.length).saturating_sub(self.within).min(elements),
                }
            }
            _ => Own::all_of(elements),
        }
    }

    /// The first element of part `v`, computed here: addresses that are variables of a loop over rows take two registers each. Of a part that
    /// the row does not have it is any number.
    #[inline(always)]
    pub fn start_here(self, v: usize) -> u32 {
        simt::opaque(self.own).wrapping_add((v as u32).wrapping_mul(simt::opaque(self.step)))
    }

    /// The first element of part `v`.
    #[inline(always)]
    pub fn start(self, v: usize) -> u32 {
        self.own + v as u32 * self.step
    }

    /// Whether the row has part `v` of `V`.
    #[inline(always)]
    pub fn has<A: Access, const V: usize>(self, v: usize) -> bool {
        match A::IS_OF_SEGMENTS {
            true => (v as u32) < self.parts,
            false => (!A::SPARSE && v + 1 < V) || self.start(v) < self.columns,
        }
    }
}
