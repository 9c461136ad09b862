//! A few numbers side by side, and loops over them that are written out: an array that is indexed by a variable would go
//! to memory.

use isonorm_math::Real;

use crate::simt::{self, Shared};

/// `body(0)`, `body(1)`, … `body(V − 1)`, written out; `V` is 16 at most.
#[inline(always)]
pub(crate) fn unrolled<const V: usize>(mut body: impl FnMut(usize)) {
    const { assert!(V <= 16) };
    macro_rules! each {
        ($($v:literal)*) => {$(
            if V > $v {
                body($v);
            }
        )*};
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}

/// The array with its first element moved to the end.
#[inline(always)]
pub(crate) fn rotated<N: Copy, const V: usize>(array: [N; V]) -> [N; V] {
    let mut next = array;
    unrolled::<V>(|v| next[v] = array[if v + 1 < V { v + 1 } else { 0 }]);
    next
}

/// The same numbers, computed here: left to itself, the compiler computes a sum where it is needed next, and until then keeps
/// in registers what is added.
#[inline(always)]
pub(super) fn computed<N: Lanes>(numbers: N) -> N {
    numbers.map(|number| f32::from_bits(simt::opaque(number.to_bits())))
}

/// `of(0)` to `of(parts − 1)` added up in order; some at once are asked for.
#[inline(always)]
pub(super) fn sum_of_parts<N: Lanes>(parts: u32, mut of: impl FnMut(u32) -> N) -> N {
    const AT_ONCE: usize = 4;
    let (mut sum, mut first) = (N::splat(0.0), 0);
    while first < parts {
        let mut some = [N::splat(0.0); AT_ONCE];
        unrolled::<AT_ONCE>(|i| {
            if first + (i as u32) < parts {
                some[i] = of(first + i as u32);
            }
        });
        unrolled::<AT_ONCE>(|i| sum = sum.zip(some[i], |sum, more| sum + more));
        first += AT_ONCE as u32;
    }
    sum
}

/// Sums of which each has some of what is added up.
pub type FourSums = [f32; 4];

/// The sum of four.
#[inline(always)]
pub(super) fn total([a, b, c, d]: FourSums) -> f32 {
    (a + b) + (c + d)
}

/// A pair of sums, each in four parts that do not wait for each other.
#[derive(Clone, Copy)]
pub(super) struct FourPairs {
    pub(super) first: FourSums,
    pub(super) second: FourSums,
}

impl FourPairs {
    /// Of nothing.
    pub(super) const ZERO: FourPairs = FourPairs {
        first: [0.0; 4],
        second: [0.0; 4],
    };

    /// The pair.
    #[inline(always)]
    pub(super) fn total(self) -> [f32; 2] {
        [total(self.first), total(self.second)]
    }
}

/// The numbers of one access: one, two, four or eight.
pub trait Lanes: Copy {
    /// How many numbers.
    const LANES: u32;

    /// What [`keep`](Lanes::keep) has side by side in shared memory: so many of the numbers, of which there are [`TURNS`](Lanes::TURNS) times as
    /// many. Where all threads keep numbers, those of a turn are as if kept alone, behind those of the turn before.
    type Turn: Lanes;

    /// See [`Turn`](Lanes::Turn).
    const TURNS: u32 = Self::LANES / Self::Turn::LANES;

    /// The same number in each lane.
    fn splat(number: f32) -> Self;

    /// The number `of(lane)` in each lane.
    fn each(of: impl FnMut(u32) -> f32) -> Self;

    /// Folds over the lanes, in order.
    fn fold<A>(self, start: A, step: impl FnMut(A, f32) -> A) -> A;

    /// `start` and the products with the lanes of `second`, added up in order.
    fn dot(self, second: Self, start: f32) -> f32;

    /// Four sums with the lanes added to them in turn, so that few additions wait for the one before; [`total`] is all of them.
    fn add_to(self, sums: FourSums) -> FourSums;

    /// The same with the products with the lanes of `second`.
    fn dot_to(self, second: Self, sums: FourSums) -> FourSums;

    /// The numbers `change(number)`.
    fn map(self, change: impl FnMut(f32) -> f32) -> Self;

    /// The numbers `change(number)`, by a loop over halves that is left a loop: for a large `change`.
    fn map_rolled(self, change: impl FnMut(f32) -> f32) -> Self;

    /// The numbers `join(own, second)`, lane by lane.
    fn zip(self, second: Self, join: impl FnMut(f32, f32) -> f32) -> Self;

    /// The numbers `join(own, second, third)`, lane by lane.
    fn zip3(self, second: Self, third: Self, join: impl FnMut(f32, f32, f32) -> f32) -> Self;

    /// Parameters: as many `f32` from global memory.
    ///
    /// # Safety
    ///
    /// They may be read, nothing writes them during the kernel, and where there are several they are aligned to all of them, or to 16 bytes.
    unsafe fn load_keep(place: *const f32) -> Self;

    /// As many `f32` from global memory, which this thread has written.
    ///
    /// # Safety
    ///
    /// They may be read, and where there are several they are aligned to all of them, or to 16 bytes.
    unsafe fn load(place: *const f32) -> Self;

    /// Keeps them in shared memory: those of thread `index` of `count`, whose numbers take turns there from `place` on.
    ///
    /// # Safety
    ///
    /// There is room for the numbers of `count` threads, aligned to 16 bytes, and each has an index of its own.
    unsafe fn keep(self, place: Shared<f32>, index: u32, count: u32);

    /// What [`keep`](Lanes::keep) has kept.
    ///
    /// # Safety
    ///
    /// This thread has kept it there.
    unsafe fn kept(place: Shared<f32>, index: u32, count: u32) -> Self;

    /// Writes them as `f32` to global memory.
    ///
    /// # Safety
    ///
    /// They may be written, and where there are several they are aligned to all of them, or to 16 bytes.
    unsafe fn store(self, place: *mut f32);
}

impl Lanes for [f32; 1] {
    const LANES: u32 = 1;
    type Turn = Self;

    #[inline(always)]
    fn splat(number: f32) -> Self {
        [number]
    }

    #[inline(always)]
    fn each(mut of: impl FnMut(u32) -> f32) -> Self {
        [of(0)]
    }

    #[inline(always)]
    fn fold<A>(self, start: A, mut step: impl FnMut(A, f32) -> A) -> A {
        step(start, self[0])
    }

    #[inline(always)]
    fn dot(self, second: Self, start: f32) -> f32 {
        Real::mul_add(self[0], second[0], start)
    }

    #[inline(always)]
    fn add_to(self, [a, b, c, d]: FourSums) -> FourSums {
        [a + self[0], b, c, d]
    }

    #[inline(always)]
    fn dot_to(self, second: Self, [a, b, c, d]: FourSums) -> FourSums {
        [self.dot(second, a), b, c, d]
    }

    #[inline(always)]
    fn map(self, mut change: impl FnMut(f32) -> f32) -> Self {
        [change(self[0])]
    }

    #[inline(always)]
    fn map_rolled(self, change: impl FnMut(f32) -> f32) -> Self {
        self.map(change)
    }

    #[inline(always)]
    fn zip(self, second: Self, mut join: impl FnMut(f32, f32) -> f32) -> Self {
        [join(self[0], second[0])]
    }

    #[inline(always)]
    fn zip3(self, second: Self, third: Self, mut join: impl FnMut(f32, f32, f32) -> f32) -> Self {
        [join(self[0], second[0], third[0])]
    }

    #[inline(always)]
    unsafe fn load_keep(place: *const f32) -> Self {
        // SAFETY: the caller's.
        [f32::from_bits(unsafe { simt::load_32_keep(place.cast()) })]
    }

    #[inline(always)]
    unsafe fn load(place: *const f32) -> Self {
        // SAFETY: the caller's.
        [f32::from_bits(unsafe { simt::load_32(place.cast()) })]
    }

    #[inline(always)]
    unsafe fn keep(self, place: Shared<f32>, index: u32, _count: u32) {
        // SAFETY: the caller's.
        unsafe { simt::shared_store(place.offset(index), self[0]) };
    }

    #[inline(always)]
    unsafe fn kept(place: Shared<f32>, index: u32, _count: u32) -> Self {
        // SAFETY: the caller's.
        [unsafe { simt::shared_load(place.offset(index)) }]
    }

    #[inline(always)]
    unsafe fn store(self, place: *mut f32) {
        // SAFETY: the caller's.
        unsafe { simt::store_32(place.cast(), self[0].to_bits()) };
    }
}

macro_rules! lanes {
    ($lanes:literal: $($lane:literal)*; halves: $($first:literal)*, $($second:literal)*; by $words:literal: $load_keep:ident $load:ident $shared_store:ident
        $shared_load:ident $store:ident; $($part:literal: $($number:literal)*),*) => {
        impl Lanes for [f32; $lanes] {
            const LANES: u32 = $lanes;
            type Turn = [f32; $words];

            #[inline(always)]
            fn splat(number: f32) -> Self {
                [number; $lanes]
            }

            #[inline(always)]
            fn each(mut of: impl FnMut(u32) -> f32) -> Self {
                [$(of($lane)),*]
            }

            #[inline(always)]
            fn fold<A>(self, start: A, mut step: impl FnMut(A, f32) -> A) -> A {
                let result = start;
                $(let result = step(result, self[$lane]);)*
                result
            }

            #[inline(always)]
            fn dot(self, second: Self, start: f32) -> f32 {
                let result = start;
                $(let result = Real::mul_add(self[$lane], second[$lane], result);)*
                result
            }

            #[inline(always)]
            fn add_to(self, sums: FourSums) -> FourSums {
                let mut sums = sums;
                $(sums[$lane % 4] += self[$lane];)*
                sums
            }

            #[inline(always)]
            fn dot_to(self, second: Self, sums: FourSums) -> FourSums {
                let mut sums = sums;
                $(sums[$lane % 4] = Real::mul_add(self[$lane], second[$lane], sums[$lane % 4]);)*
                sums
            }

            #[inline(always)]
            fn map(self, mut change: impl FnMut(f32) -> f32) -> Self {
                [$(change(self[$lane])),*]
            }

            #[inline(always)]
            fn map_rolled(self, mut change: impl FnMut(f32) -> f32) -> Self {
                let mut numbers = self;
                // What is side by side hides each other's latency; all of it at once is no faster, and twice the code.
                let mut left = simt::opaque(2_u32);
                while left > 0 {
                    numbers = [$(numbers[$second],)* $(change(numbers[$first]),)*];
                    left -= 1;
                }
                numbers
            }

            #[inline(always)]
            fn zip(self, second: Self, mut join: impl FnMut(f32, f32) -> f32) -> Self {
                [$(join(self[$lane], second[$lane])),*]
            }

            #[inline(always)]
            fn zip3(self, second: Self, third: Self, mut join: impl FnMut(f32, f32, f32) -> f32) -> Self {
                [$(join(self[$lane], second[$lane], third[$lane])),*]
            }

            #[inline(always)]
            unsafe fn load_keep(place: *const f32) -> Self {
                let mut numbers = [0.0; $lanes];
                $(
                    // SAFETY: the caller's.
                    let part = unsafe { simt::$load_keep(place.wrapping_add($words * $part).cast()) };
                    $(numbers[$number] = f32::from_bits(part[$number % $words]);)*
                )*
                numbers
            }

            #[inline(always)]
            unsafe fn load(place: *const f32) -> Self {
                let mut numbers = [0.0; $lanes];
                $(
                    // SAFETY: the caller's.
                    let part = unsafe { simt::$load(place.wrapping_add($words * $part).cast()) };
                    $(numbers[$number] = f32::from_bits(part[$number % $words]);)*
                )*
                numbers
            }

            #[inline(always)]
            unsafe fn keep(self, place: Shared<f32>, index: u32, count: u32) {
                $(
                    let part = [$(self[$number]),*].map(f32::to_bits);
                    // SAFETY: the caller's; the first parts of all threads, then the next ones.
                    unsafe { simt::$shared_store(Shared::at(place.offset(($part * count + index) * $words).byte_offset()), part) };
                )*
            }

            #[inline(always)]
            unsafe fn kept(place: Shared<f32>, index: u32, count: u32) -> Self {
                let mut numbers = [0.0; $lanes];
                $(
                    // SAFETY: the caller's.
                    let part: [u32; $words] = unsafe { simt::$shared_load(Shared::at(place.offset(($part * count + index) * $words).byte_offset())) };
                    $(numbers[$number] = f32::from_bits(part[$number % $words]);)*
                )*
                numbers
            }

            #[inline(always)]
            unsafe fn store(self, place: *mut f32) {
                $(
                    let part = [$(self[$number]),*].map(f32::to_bits);
                    // SAFETY: the caller's.
                    unsafe { simt::$store(place.wrapping_add($words * $part).cast(), part) };
                )*
            }
        }
    };
}

lanes!(2: 0 1; halves: 0, 1; by 2: load_64_keep load_64 shared_store_64 shared_load_64 store_64; 0: 0 1);
lanes!(4: 0 1 2 3; halves: 0 1, 2 3; by 4: load_128_keep load_128 shared_store_128 shared_load_128 store_128; 0: 0 1 2 3);
lanes!(8: 0 1 2 3 4 5 6 7; halves: 0 1 2 3, 4 5 6 7; by 4: load_128_keep load_128 shared_store_128 shared_load_128 store_128; 0: 0 1 2 3, 1: 4 5 6 7);
