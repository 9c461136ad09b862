//! A row in the registers of its team, 16 bytes at a time.
//!
//! Chunk `v` of thread `t` starts at element `(v · threads + t) · lanes`, so that neighbouring threads load neighbouring
//! 16 bytes. Loops over a chunk are written out: an array that is indexed by a variable would go to memory.

use isonorm_math::{Bf16, Element, F16};

use crate::simt;

/// `body(0)`, `body(1)`, … `body(V − 1)`, written out; `V` is 8 at most.
#[inline(always)]
pub(super) fn unrolled<const V: usize>(mut body: impl FnMut(usize)) {
    const { assert!(V <= 8) };
    if V > 0 {
        body(0);
    }
    if V > 1 {
        body(1);
    }
    if V > 2 {
        body(2);
    }
    if V > 3 {
        body(3);
    }
    if V > 4 {
        body(4);
    }
    if V > 5 {
        body(5);
    }
    if V > 6 {
        body(6);
    }
    if V > 7 {
        body(7);
    }
}

/// 16 bytes of data as numbers: `[f32; 4]` or `[f32; 8]`.
pub trait Chunk: Copy {
    /// How many numbers.
    const LANES: u32;

    /// The numbers `make(0)`, `make(1)`, …
    fn from_lanes(make: impl FnMut(u32) -> f32) -> Self;

    /// Folds over the lanes, in order; `step` gets the lane's index too.
    fn fold<A>(self, start: A, step: impl FnMut(A, u32, f32) -> A) -> A;

    /// The numbers `change(number)`.
    fn map(self, change: impl FnMut(f32) -> f32) -> Self;

    /// The numbers `join(own, second, third)`, lane by lane.
    fn zip(self, second: Self, third: Self, join: impl FnMut(f32, f32, f32) -> f32) -> Self;

    /// Parameters: as many `f32` from global memory that is aligned to 16 bytes.
    ///
    /// # Safety
    ///
    /// They may be read, and nothing writes them during the kernel.
    unsafe fn load_parameters(place: *const f32) -> Self;
}

macro_rules! chunk {
    ($lanes:literal: $($lane:literal)*, $($quarter:literal: $a:literal $b:literal $c:literal $d:literal)*) => {
        impl Chunk for [f32; $lanes] {
            const LANES: u32 = $lanes;

            #[inline(always)]
            fn from_lanes(mut make: impl FnMut(u32) -> f32) -> Self {
                [$(make($lane)),*]
            }

            #[inline(always)]
            fn fold<A>(self, start: A, mut step: impl FnMut(A, u32, f32) -> A) -> A {
                let result = start;
                $(let result = step(result, $lane, self[$lane]);)*
                result
            }

            #[inline(always)]
            fn map(self, mut change: impl FnMut(f32) -> f32) -> Self {
                [$(change(self[$lane])),*]
            }

            #[inline(always)]
            fn zip(self, second: Self, third: Self, mut join: impl FnMut(f32, f32, f32) -> f32) -> Self {
                [$(join(self[$lane], second[$lane], third[$lane])),*]
            }

            #[inline(always)]
            unsafe fn load_parameters(place: *const f32) -> Self {
                let mut numbers = [0.0; $lanes];
                $(
                    // SAFETY: the caller's.
                    let quarter = unsafe { simt::load_128_keep(place.wrapping_add(4 * $quarter).cast()) };
                    numbers[$a] = f32::from_bits(quarter[0]);
                    numbers[$b] = f32::from_bits(quarter[1]);
                    numbers[$c] = f32::from_bits(quarter[2]);
                    numbers[$d] = f32::from_bits(quarter[3]);
                )*
                numbers
            }
        }
    };
}

chunk!(4: 0 1 2 3, 0: 0 1 2 3);
chunk!(8: 0 1 2 3 4 5 6 7, 0: 0 1 2 3 1: 4 5 6 7);

/// An element type that kernels read and write: `f32`, [`F16`], [`Bf16`].
pub trait Data: Element<Acc = f32> {
    /// 16 bytes of it, as numbers.
    type Chunk: Chunk;

    /// The numbers in 16 bytes.
    fn unpack(words: [u32; 4]) -> Self::Chunk;

    /// Numbers rounded to 16 bytes.
    fn pack(chunk: Self::Chunk) -> [u32; 4];

    /// One element.
    ///
    /// # Safety
    ///
    /// `place` may be read.
    unsafe fn load(place: *const Self) -> f32;

    /// Writes one element, rounded.
    ///
    /// # Safety
    ///
    /// `place` may be written.
    unsafe fn store(place: *mut Self, value: f32);
}

impl Data for f32 {
    type Chunk = [f32; 4];

    #[inline(always)]
    fn unpack([a, b, c, d]: [u32; 4]) -> [f32; 4] {
        [
            f32::from_bits(a),
            f32::from_bits(b),
            f32::from_bits(c),
            f32::from_bits(d),
        ]
    }

    #[inline(always)]
    fn pack([a, b, c, d]: [f32; 4]) -> [u32; 4] {
        [a.to_bits(), b.to_bits(), c.to_bits(), d.to_bits()]
    }

    #[inline(always)]
    unsafe fn load(place: *const f32) -> f32 {
        // SAFETY: the caller's.
        f32::from_bits(unsafe { simt::load_32(place.cast()) })
    }

    #[inline(always)]
    unsafe fn store(place: *mut f32, value: f32) {
        // SAFETY: the caller's.
        unsafe { simt::store_32(place.cast(), value.to_bits()) };
    }
}

macro_rules! data_16 {
    ($type:ident) => {
        impl Data for $type {
            type Chunk = [f32; 8];

            #[inline(always)]
            fn unpack([a, b, c, d]: [u32; 4]) -> [f32; 8] {
                let low = |word: u32| $type(word as u16).to_acc();
                let high = |word: u32| $type((word >> 16) as u16).to_acc();
                [low(a), high(a), low(b), high(b), low(c), high(c), low(d), high(d)]
            }

            #[inline(always)]
            fn pack([a, b, c, d, e, f, g, h]: [f32; 8]) -> [u32; 4] {
                let word = |low, high| u32::from($type::from_acc(low).0) | u32::from($type::from_acc(high).0) << 16;
                [word(a, b), word(c, d), word(e, f), word(g, h)]
            }

            #[inline(always)]
            unsafe fn load(place: *const $type) -> f32 {
                // SAFETY: the caller's.
                $type(unsafe { simt::load_16(place.cast()) }).to_acc()
            }

            #[inline(always)]
            unsafe fn store(place: *mut $type, value: f32) {
                // SAFETY: the caller's.
                unsafe { simt::store_16(place.cast(), $type::from_acc(value).0) };
            }
        }
    };
}

data_16!(F16);
data_16!(Bf16);

/// Whether 128-bit accesses may start here.
#[inline(always)]
fn is_aligned<T>(place: *const T) -> bool {
    place.addr().is_multiple_of(16)
}

/// A chunk of a row: where it starts, and how many elements the row has from there on.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub start: u32,
    pub left: u32,
}

impl Part {
    /// Whether the row has all of `C`'s lanes.
    #[inline(always)]
    pub fn is_whole<C: Chunk>(self) -> bool {
        self.left >= C::LANES
    }

    /// Whether the row has this lane.
    #[inline(always)]
    pub fn has(self, lane: u32) -> bool {
        lane < self.left
    }

    /// Loads data; lanes that the row has not are `fill`.
    ///
    /// # Safety
    ///
    /// `row` points to `columns` elements that may be read.
    #[inline(always)]
    pub unsafe fn load<T: Data>(self, row: *const T, fill: f32) -> T::Chunk {
        let place = row.wrapping_add(self.start as usize);
        if self.is_whole::<T::Chunk>() && is_aligned(place) {
            // SAFETY: all lanes lie in the row, and the place is aligned.
            return T::unpack(unsafe { simt::load_128(place.cast()) });
        }
        T::Chunk::from_lanes(|lane| {
            if self.has(lane) {
                // SAFETY: this lane lies in the row.
                unsafe { T::load(place.wrapping_add(lane as usize)) }
            } else {
                fill
            }
        })
    }

    /// Loads parameters, one a column; lanes that the row has not are 0.
    ///
    /// # Safety
    ///
    /// `parameters` points to `columns` numbers that nothing writes.
    #[inline(always)]
    pub unsafe fn load_parameters<C: Chunk>(self, parameters: *const f32) -> C {
        let place = parameters.wrapping_add(self.start as usize);
        if self.is_whole::<C>() && is_aligned(place) {
            // SAFETY: as in `load`.
            return unsafe { C::load_parameters(place) };
        }
        C::from_lanes(|lane| {
            if self.has(lane) {
                // SAFETY: as in `load`.
                f32::from_bits(unsafe { simt::load_32_keep(place.wrapping_add(lane as usize).cast()) })
            } else {
                0.0
            }
        })
    }

    /// Stores what the row has of a chunk.
    ///
    /// # Safety
    ///
    /// `row` points to `columns` elements that may be written, and that no other thread writes.
    #[inline(always)]
    pub unsafe fn store<T: Data>(self, row: *mut T, chunk: T::Chunk) {
        let place = row.wrapping_add(self.start as usize);
        if self.is_whole::<T::Chunk>() && is_aligned(place) {
            // SAFETY: as in `load`.
            return unsafe { simt::store_128(place.cast(), T::pack(chunk)) };
        }
        chunk.fold((), |(), lane, value| {
            if self.has(lane) {
                // SAFETY: as in `load`.
                unsafe { T::store(place.wrapping_add(lane as usize), value) };
            }
        });
    }

    /// Folds over the lanes that the row has.
    #[inline(always)]
    pub fn fold<C: Chunk, A: Copy>(self, chunk: C, start: A, mut step: impl FnMut(A, f32) -> A) -> A {
        if self.is_whole::<C>() {
            return chunk.fold(start, |sum, _, value| step(sum, value));
        }
        chunk.fold(
            start,
            |sum, lane, value| if self.has(lane) { step(sum, value) } else { sum },
        )
    }
}
