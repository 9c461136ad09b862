//! The forward pass: each element is read once and written once, as far as shared memory holds a tile.
//!
//! ```text
//! y = act(x̂ · weight + bias + residual)        x̂ = (x − mean) · rstd
//! ```
//!
//! Distances are taken from the mean of a sample of each group, whose elements lie apart, and added up in one pass with their
//! squares; so a constant group gives exactly its bias, and a large mean costs no digits. Where the sample's mean was far from the
//! group's, which all blocks of the team see, the tile is passed over once more. Means come from the sums in `f64`, by one thread for
//! each group, which only adds and multiplies there.

mod finish;
mod statistics;

use isonorm_math::{Normalizer, Real};

use self::statistics::{Measured, mean_of_sample};
use super::Spec;
use super::areas::{self, MOST_UNITS, NUMBERS_OF_COLUMNS, OF_GROUPS, OF_UNITS, SAMPLES, SHIFTS};
use super::columns::{self, Columns};
use super::exchange::{Exchange, Round};
use super::fold;
use super::places::Places;
use super::stream::{PART, Part, Stages, Turn, stream};
use super::tiling::{Cursor, Tile, Tiling, Walk};
use crate::block::Scratch;
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::Told;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{Affine, at_least_one};
use crate::simt;

/// What a kernel is told at launch; null pointers leave a part out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// The tensor.
    pub x: *const T,
    /// Added before the activation; or null.
    pub residual: *const T,
    /// May be `x` or `residual`.
    pub y: *mut T,
    /// How these are divided.
    pub tiling: Tiling,
    /// Weight and bias, one of each for each `run` columns of a line.
    pub affine: Affine,
    /// `[parameters]`, in the parameters' type: the mean, where statistics are given.
    pub given_mean: *const u8,
    /// `[parameters]`, in the parameters' type: the variance, where statistics are given.
    pub given_variance: *const u8,
    /// `[groups]`, where the mean is saved; or null.
    pub mean: *mut f32,
    /// `[groups]`, where 1 / √(variance + eps) is saved; or null.
    pub rstd: *mut f32,
    /// `[groups]`, where the variance is saved; or null.
    pub variance: *mut f32,
    /// `[groups]`, in the parameters' type: the running mean, which is updated; or null. For a batch of one.
    pub running_mean: *mut u8,
    /// `[groups]`, in the parameters' type: the running variance.
    pub running_variance: *mut u8,
    /// `running = (1 − factor)·running + factor·batch`
    pub factor: f64,
    /// 1 / n, for groups of n elements.
    pub reciprocal: f64,
    /// What makes a variance unbiased: n / (n − 1).
    pub unbias: f64,
    /// Added to the variance.
    pub eps: f32,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
    /// `[teams]` of [`message_words`](super::message_words), aligned to 16 bytes, and 0 before the launch; or null, for teams of
    /// one block.
    pub messages: *mut u32,
}

/// Normalizes the tiles. For a grid of some teams, all of which run at the same time if a team has several blocks. A thread has `N`
/// accesses under way at once, as far as a tile is not kept.
///
/// # Safety
///
/// The pointers of `args` are null where that is allowed, or point to what is said there, aligned to the accesses. Blocks have
/// [`head_bytes`](super::head_bytes) of shared memory, and the places for parts; a tile has no more groups or parameters than a block has
/// threads.
#[inline(always)]
pub unsafe fn forward<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
    let walk = Walk::new::<T>(&args.tiling);
    let mut pass = Pass::<T, S, N>::new(args, &walk);
    // SAFETY: the caller's.
    unsafe {
        if S::GIVEN {
            pass.apply_given();
        } else {
            pass.place_samples();
            stream(&walk, &mut pass);
        }
    }
}

type Numbers<T, S> = <<S as Spec>::Access as Access>::Numbers<T>;
type Raw<T, S> = <<S as Spec>::Access as Access>::Raw<T>;

struct Pass<'a, T: Data, S: Spec, const N: usize> {
    args: &'a Args<T>,
    walk: &'a Walk<'a, S>,
    places: Places<S::Access>,
    scratch: Scratch,
    /// What distances are taken from, of columns.
    shifts: Columns<1>,
    /// From elements to results: centre, scale and shift.
    maps: Columns<3>,
}

/// Sums of distances, and of their squares.
#[derive(Clone, Copy)]
struct Sums<L>([L; 2]);

impl<L: Lanes> Sums<L> {
    #[inline(always)]
    fn none() -> Self {
        Self([L::splat(0.0); 2])
    }

    #[inline(always)]
    fn add(&mut self, numbers: L, about: L) {
        let distance = numbers.zip(about, |x, about| x - about);
        self.0 = [
            self.0[0].zip(distance, |sum, d| sum + d),
            self.0[1].zip(distance, |sum, d| Real::mul_add(d, d, sum)),
        ];
    }
}

impl<'a, T: Data, S: Spec, const N: usize> Pass<'a, T, S, N> {
    #[inline(always)]
    fn new(args: &'a Args<T>, walk: &'a Walk<'a, S>) -> Self {
        let (tiling, elements) = (&args.tiling, width::<T, S::Access>());
        let places = areas::places(tiling, elements, NUMBERS_OF_COLUMNS[0]);
        Self {
            args,
            walk,
            places: Places::new(places, 1),
            scratch: Scratch::at_start(),
            shifts: Columns::new(SHIFTS, 0, tiling, elements),
            maps: Columns::new(OF_UNITS, 1, tiling, elements),
        }
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        Exchange::new(self.args.messages, self.walk, self.args.tiling.groups)
    }

    /// With statistics that are told: a tile after the other.
    #[inline(always)]
    unsafe fn apply_given(&self) {
        let (args, tiling) = (self.args, &self.args.tiling);
        let mut turn = Turn(0);
        while self.walk.has(turn) {
            let tile = self.walk.tile(turn);
            // SAFETY: the caller's: a number for each parameter.
            unsafe {
                let [weight, bias] = self.parameters(tile);
                let [mean, variance] =
                    [args.given_mean, args.given_variance].map(|base| self.parameter(tile, base, 0.0));
                let scale = weight / Real::sqrt(variance + args.eps);
                self.maps
                    .tell((tiling.run, tiling.units), self.walk, [mean, scale, bias]);
                self.apply(turn);
            }
            simt::block_barrier();
            turn = Turn(turn.0 + 1);
        }
    }

    #[inline(always)]
    fn place(&self, base: *const T, at: Cursor) -> *const T {
        base.wrapping_add(at.offset as usize)
    }

    /// The parameter of the thread's unit; another number where there is none.
    #[inline(always)]
    unsafe fn parameter(&self, tile: Tile, base: *const u8, otherwise: f32) -> f32 {
        let (tiling, thread) = (&self.args.tiling, simt::thread_index());
        if base.is_null() || thread >= tiling.units || thread * tiling.run >= tile.width {
            return otherwise;
        }
        // SAFETY: the caller's: a parameter for each unit.
        unsafe { self.args.affine.parameter::<T>(base, tile.unit + thread) }
    }

    /// Weight and bias of the thread's unit.
    #[inline(always)]
    unsafe fn parameters(&self, tile: Tile) -> [f32; 2] {
        let affine = &self.args.affine;
        // SAFETY: the caller's.
        unsafe {
            [
                self.parameter(tile, affine.weight, 1.0),
                self.parameter(tile, affine.bias, 0.0),
            ]
        }
    }

    /// Sets an access on its way to a place in shared memory, and moves behind it.
    #[inline(always)]
    unsafe fn fetch_one(&self, (place, access): (u32, u32), at: &mut Cursor) {
        // SAFETY: the caller's.
        unsafe { self.places.fetch(place, 0, access, self.place(self.args.x, *at)) };
        *at = self.walk.next(*at);
    }

    /// Loads some accesses to a tensor from a place on, which is moved behind them.
    #[inline(always)]
    unsafe fn load<const M: usize>(&self, base: *const T, at: &mut Cursor) -> [Raw<T, S>; M] {
        let mut loaded = [S::Access::nothing::<T>(); M];
        unrolled::<M>(|k| {
            // SAFETY: the caller's: the tile has these places.
            loaded[k] = unsafe { S::Access::load(self.place(base, *at)) };
            *at = self.walk.next(*at);
        });
        loaded
    }

    /// The block's sums: of the thread's group.
    #[inline(always)]
    unsafe fn fold(&mut self, sums: [Numbers<T, S>; 2]) -> [f32; 2] {
        let tiling = &self.args.tiling;
        // SAFETY: shared memory is the kernel's.
        unsafe { fold::pairs(sums, (tiling.inner, tiling.groups), self.walk, &mut self.scratch) }
    }

    /// Says what distances are taken from in a tile, by a sample of the thread's group. Called by the whole block.
    #[inline(always)]
    unsafe fn take_from(&self, turn: Turn, sample: [T; SAMPLES as usize]) {
        let (tiling, about) = (&self.args.tiling, mean_of_sample(sample));
        // SAFETY: the caller's; all have read what was told before, since there was a barrier.
        unsafe {
            if simt::thread_index() < tiling.groups {
                simt::shared_store(areas::own(turn.slot(), 0), about);
            }
            self.shifts.tell((tiling.inner, tiling.groups), self.walk, [about]);
        }
    }

    /// Measures a tile once more, from memory.
    #[inline(always)]
    unsafe fn measure_again(&mut self, turn: Turn, about: f32) -> Measured {
        let (tiling, round) = (&self.args.tiling, Round::again(turn));
        // SAFETY: the caller's.
        unsafe {
            self.shifts.tell((tiling.inner, tiling.groups), self.walk, [about]);
            let shift = self.shifts.told(0, self.walk);
            let mut sums = Sums::none();
            let (mut at, mut left) = (self.walk.start(turn), self.walk.own(turn));
            while N > 1 && left >= N as u32 {
                let loaded: [_; N] = self.load(self.args.x, &mut at);
                unrolled::<N>(|k| sums.add(S::Access::unpack::<T>(loaded[k]), shift));
                left -= N as u32;
            }
            while left > 0 {
                simt::rolled();
                let [loaded] = self.load(self.args.x, &mut at);
                sums.add(S::Access::unpack::<T>(loaded), shift);
                left -= 1;
            }
            let own = self.fold(sums.0);
            let exchange = self.exchange();
            exchange.send(round, own);
            exchange.gather(round);
            let received = exchange.receive(round, &mut self.scratch);
            self.measure(received, about)
        }
    }
}

impl<T: Data, S: Spec, const N: usize> Stages for Pass<'_, T, S, N> {
    type Sums = Sums<Numbers<T, S>>;

    #[inline(always)]
    fn nothing(&self) -> Self::Sums {
        Sums::none()
    }

    #[inline(always)]
    unsafe fn fetch(&self, part: Part, at: &mut Cursor) {
        let mut access = 0;
        // SAFETY: the caller's, here and below.
        unsafe {
            if part.is_whole() {
                while access < PART {
                    self.fetch_one((part.place, access), at);
                    access += 1;
                }
            } else {
                while access < part.count {
                    simt::rolled();
                    self.fetch_one((part.place, access), at);
                    access += 1;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn begin(&self, turn: Turn) {
        // SAFETY: the caller's.
        unsafe { self.take_from(turn, self.sample(turn)) };
    }

    #[inline(always)]
    unsafe fn add(&self, sums: &mut Self::Sums, part: Part) {
        // SAFETY: the caller's, here and below.
        let about = unsafe { self.shifts.told(0, self.walk) };
        let mut access = 0;
        if part.is_whole() {
            while access < simt::opaque(PART) {
                simt::rolled();
                let loaded: [_; N] = unsafe { self.kept(part.place, access) };
                unrolled::<N>(|k| sums.add(S::Access::unpack::<T>(loaded[k]), about));
                access += N as u32;
            }
        } else {
            while access < part.count {
                simt::rolled();
                let [loaded] = unsafe { self.kept(part.place, access) };
                sums.add(S::Access::unpack::<T>(loaded), about);
                access += 1;
            }
        }
    }

    #[inline(always)]
    unsafe fn send(&mut self, turn: Turn, sums: Self::Sums, next: Turn) {
        // SAFETY: the caller's.
        unsafe {
            // It comes while the sums are added up.
            let sample = self.sample(next);
            let own = self.fold(sums.0);
            self.exchange().send(Round::of(turn), own);
            self.take_from(next, sample);
        }
    }

    #[inline(always)]
    unsafe fn gather(&self, turn: Turn) {
        self.exchange().gather(Round::of(turn));
    }

    #[inline(always)]
    unsafe fn receive(&mut self, turn: Turn) {
        let (tiling, tile) = (&self.args.tiling, self.walk.tile(turn));
        let (groups, units) = (tiling.groups, tiling.units);
        let thread = simt::thread_index();
        let has_group = thread < groups && thread * tiling.inner < tile.width;
        // SAFETY: the caller's, here and below.
        unsafe {
            let [weight, bias] = self.parameters(tile);
            let about = match thread < groups {
                true => simt::shared_load(areas::own(turn.slot(), 0)),
                false => 0.0,
            };
            let received = self.exchange().receive(Round::of(turn), &mut self.scratch);
            let mut measured = self.measure(received, about);
            // All blocks of the team agree.
            if self.any(has_group && !measured.well) {
                measured = self.measure_again(turn, measured.mean as f32);
            }
            let Measured {
                mean, variance, rstd, ..
            } = measured;
            // Saved when nobody waits any more.
            if has_group && self.walk.rank() == 0 {
                let numbers = [mean as f32, variance, rstd];
                unrolled::<3>(|k| simt::shared_store(areas::own(turn.slot(), k as u32), numbers[k]));
            }
            let Normalizer { centre, rstd, offset } = Normalizer::<f32>::new(mean, rstd.into());
            let [centre, rstd, offset] = if units == groups {
                [centre, rstd, offset]
            } else {
                columns::tell(OF_GROUPS, groups, [centre, rstd, offset]);
                simt::block_barrier();
                let group = thread.min(units - 1) / at_least_one(tiling.units_of_group);
                [0, 1, 2].map(|k| simt::shared_load(OF_GROUPS.offset(k * MOST_UNITS + group)))
            };
            let shift = Real::mul_add(offset, weight, bias);
            self.maps
                .tell((tiling.run, tiling.units), self.walk, [centre, rstd * weight, shift]);
        }
    }

    #[inline(always)]
    unsafe fn finish(&self, part: Part, at: &mut Cursor) {
        // SAFETY: the caller's.
        let map = unsafe { self.maps.map(self.walk) };
        let mut access = 0;
        // SAFETY: the caller's, here and below.
        unsafe {
            if part.is_whole() {
                while access < simt::opaque(PART) {
                    simt::rolled();
                    let loaded: [_; 1] = self.kept(part.place, access);
                    self.store(at, loaded, &map);
                    access += 1;
                }
            } else {
                while access < part.count {
                    simt::rolled();
                    let loaded: [_; 1] = self.kept(part.place, access);
                    self.store(at, loaded, &map);
                    access += 1;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn end(&self, turn: Turn) {
        let tile = self.walk.tile(turn);
        let (tiling, thread) = (&self.args.tiling, simt::thread_index());
        if thread < tiling.groups && thread * tiling.inner < tile.width && self.walk.rank() == 0 {
            // SAFETY: the caller's.
            unsafe { self.save(tile, turn.slot()) };
        }
    }
}
