//! The backward pass: x and dy are read once and dx is written once, as far as shared memory holds a tile.
//!
//! ```text
//! g  = dy · act′(z)                         z = x̂ · weight + bias + residual
//! dx = rstd · (g · weight − mean(g · weight) − x̂ · mean(g · weight · x̂))     dresidual = g
//! ```
//!
//! Of a column, x̂ and z are linear in x, and dx is in g and x: what is the same for all rows of it is worked out once, by one thread.
//!
//! A tile's sums of g and g · x̂ are those of the parameters' gradients: of the gradients themselves, or, where a batch has several
//! tensors, of their shares. Weighted, they add up to those of groups. With given statistics dx needs none of them.

mod elements;

use isonorm_math::Real;

use self::elements::Loaded;
use super::Spec;
use super::areas::{self, MOST_UNITS, NUMBERS_OF_COLUMNS, OF_GROUPS, OF_UNITS, SUMS};
use super::columns::{self, Columns, Map};
use super::exchange::{Exchange, Round};
use super::fold;
use super::places::Places;
use super::stream::{PART, Part, Stages, Turn, stream};
use super::tiling::{Cursor, Tile, Tiling, Walk};
use crate::block::Scratch;
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::{Class, Epilogue, Told};
use crate::rows::lanes::Lanes;
use crate::rows::parameters::{Affine, at_least_one};
use crate::simt;

/// What a kernel is told at launch; null pointers leave a part out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// What was normalized.
    pub x: *const T,
    /// The gradient of the result.
    pub dy: *const T,
    /// What was added before the activation; or null.
    pub residual: *const T,
    /// Or null, with no `dresidual` either. May be any of the inputs.
    pub dx: *mut T,
    /// Or null. May be any of the inputs but the one that dx is; or where dx is, which is lost then.
    pub dresidual: *mut T,
    /// How these are divided.
    pub tiling: Tiling,
    /// Weight and bias, one of each for each `run` columns of a line.
    pub affine: Affine,
    /// `[parameters]`, in the parameters' type: the mean, where statistics are given.
    pub given_mean: *const u8,
    /// `[parameters]`, in the parameters' type: the variance, where statistics are given.
    pub given_variance: *const u8,
    /// `[groups]`, as the forward pass saved it.
    pub mean: *const f32,
    /// `[groups]`, as the forward pass saved it.
    pub rstd: *const f32,
    /// `[parameters]`, in their type; or `[batch, parameters]` in `f32`; or null.
    pub dweight: *mut u8,
    /// The same of the bias.
    pub dbias: *mut u8,
    /// Whether gradients have the data's type (1), or are `f32` (0).
    pub as_data: u32,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
    /// Added to the variance, where that is given.
    pub eps: f32,
    /// `[teams]` of [`message_words`](super::message_words), aligned to 16 bytes, and 0 before the launch; or null, for teams of
    /// one block.
    pub messages: *mut u32,
}

/// Computes the gradients of the tiles. For a grid of some teams, all of which run at the same time if a team has several blocks. A
/// thread has `N` accesses to each tensor under way at once, as far as a tile is not kept.
///
/// # Safety
///
/// As for [`forward`](super::forward::forward).
#[inline(always)]
pub unsafe fn backward<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
    let walk = Walk::new::<T>(&args.tiling);
    let mut pass = Pass::<T, S, N>::new(args, &walk);
    // SAFETY: the caller's.
    unsafe {
        stream(&walk, &mut pass);
    }
}

/// What is known of the thread's unit.
#[derive(Clone, Copy, Default)]
struct Unit {
    /// From x to z.
    map: Map<f32>,
    weight: f32,
    rstd: f32,
}

/// Whether z is needed, and a residual is part of it.
#[inline(always)]
fn has_residual<T, S: Spec>(args: &Args<T>) -> bool {
    S::Epilogue::CLASS != Class::Plain && !args.residual.is_null()
}

type Numbers<T, S> = <<S as Spec>::Access as Access>::Numbers<T>;
type Raw<T, S> = <<S as Spec>::Access as Access>::Raw<T>;

struct Pass<'a, T: Data, S: Spec, const N: usize> {
    args: &'a Args<T>,
    walk: &'a Walk<'a, S>,
    places: Places<S::Access>,
    scratch: Scratch,
    /// Of the tile that is added up: from x to z.
    added: Columns<3>,
    /// Of the tile that is finished: from x to z, then slope and constant of [`OfDx`].
    finished: Columns<5>,
}

/// dx = scale · g + (x − mean) · slope + constant
#[derive(Clone, Copy)]
struct OfDx<L> {
    /// From x to z.
    map: Map<L>,
    slope: L,
    constant: L,
}

impl<'a, T: Data, S: Spec, const N: usize> Pass<'a, T, S, N> {
    #[inline(always)]
    fn new(args: &'a Args<T>, walk: &'a Walk<'a, S>) -> Self {
        let (tiling, elements) = (&args.tiling, width::<T, S::Access>());
        let places = areas::places(tiling, elements, NUMBERS_OF_COLUMNS[1]);
        Self {
            args,
            walk,
            // A residual only where there is one.
            places: Places::new(places, 2 + u32::from(has_residual::<T, S>(args))),
            scratch: Scratch::at_start(),
            added: Columns::new(OF_GROUPS, 0, tiling, elements),
            finished: Columns::new(OF_UNITS, 3, tiling, elements),
        }
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        Exchange::new(self.args.messages, self.walk, self.args.tiling.units)
    }

    /// Says how x becomes z in a tile, by what is known of the thread's unit. Called by the whole block.
    #[inline(always)]
    unsafe fn take_from(&self, unit: Unit) {
        let Map { centre, scale, shift } = unit.map;
        let tiling = &self.args.tiling;
        // SAFETY: the caller's; all have read what was told before, since there was a barrier.
        unsafe {
            self.added
                .tell((tiling.run, tiling.units), self.walk, [centre, scale, shift])
        };
    }

    /// Whether the thread has a unit of the tile.
    #[inline(always)]
    fn has_unit(&self, tile: Tile) -> bool {
        let (tiling, thread) = (&self.args.tiling, simt::thread_index());
        thread < tiling.units && thread * tiling.run < tile.width
    }

    /// Starts to load what is known of the thread's unit of a tile; nothing where there is none.
    #[inline(always)]
    unsafe fn unit(&self, turn: Turn) -> Unit {
        let (args, tiling, thread) = (self.args, &self.args.tiling, simt::thread_index());
        if !self.walk.has(turn) {
            return Unit::default();
        }
        let tile = self.walk.tile(turn);
        if !self.has_unit(tile) {
            return Unit::default();
        }
        let parameter = |base: *const u8, otherwise: f32| {
            if base.is_null() {
                return otherwise;
            }
            // SAFETY: the caller's: a parameter for each unit.
            unsafe { args.affine.parameter::<T>(base, tile.unit + thread) }
        };
        let [weight, bias] = [parameter(args.affine.weight, 1.0), parameter(args.affine.bias, 0.0)];
        let [centre, rstd] = if S::GIVEN {
            let variance = parameter(args.given_variance, 0.0);
            [parameter(args.given_mean, 0.0), 1.0 / Real::sqrt(variance + args.eps)]
        } else {
            let of_group = at_least_one(tiling.units_of_group);
            let group = tile.group + u64::from(thread / of_group);
            // SAFETY: the caller's: a number for each group.
            [args.mean, args.rstd].map(|base| unsafe { f32::load(base.wrapping_add(group as usize)) })
        };
        Unit {
            map: Map {
                centre,
                scale: rstd * weight,
                shift: bias,
            },
            weight,
            rstd,
        }
    }

    /// Leaves the gradients of the thread's parameter.
    #[inline(always)]
    unsafe fn leave(&self, number: u32, tile: Tile, [of_gx, of_g]: [f32; 2]) {
        let (args, tiling) = (self.args, &self.args.tiling);
        let units = tiling.groups_of_line * tiling.units_of_group;
        let batch = u64::from(number / at_least_one(tiling.across));
        let place = (batch * u64::from(units) + u64::from(tile.unit + simt::thread_index())) as usize;
        for (base, sum) in [(args.dweight, of_gx), (args.dbias, of_g)] {
            if base.is_null() {
                continue;
            }
            // SAFETY: the caller's: a number for each parameter.
            unsafe {
                if args.as_data != 0 {
                    T::store(base.cast::<T>().wrapping_add(place), T::from_acc(sum));
                } else {
                    f32::store(base.cast::<f32>().wrapping_add(place), sum);
                }
            }
        }
    }

    /// The means of g · weight · x̂ and of g · weight over the group of the thread's unit, from those of units.
    #[inline(always)]
    unsafe fn means(&self, of_unit: [f32; 2]) -> [f32; 2] {
        let tiling = &self.args.tiling;
        let (groups, units) = (tiling.groups, tiling.units);
        let elements = tiling.rows as f32 * tiling.inner as f32;
        let mut sums = of_unit;
        if units != groups {
            let of_group = at_least_one(tiling.units_of_group);
            // SAFETY: shared memory is the kernel's; read after the barrier.
            unsafe { columns::tell(SUMS, units, of_unit) };
            simt::block_barrier();
            let first = simt::thread_index().min(units - 1) / of_group * of_group.get();
            let mut index = 0;
            sums = [0.0; 2];
            while index < of_group.get() {
                simt::rolled();
                let place = SUMS.offset(first + index);
                // SAFETY: written before the barrier.
                let [of_gx, of_g] = unsafe { [simt::shared_load(place), simt::shared_load(place.offset(MOST_UNITS))] };
                sums = [sums[0] + of_gx, sums[1] + of_g];
                index += 1;
            }
        }
        sums.map(|sum| sum / elements)
    }
}

impl<T: Data, S: Spec, const N: usize> Stages for Pass<'_, T, S, N> {
    /// Of g · (x − mean), and of g.
    type Sums = [Numbers<T, S>; 2];

    #[inline(always)]
    fn nothing(&self) -> Self::Sums {
        [Numbers::<T, S>::splat(0.0); 2]
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
        unsafe { self.take_from(self.unit(turn)) };
    }

    #[inline(always)]
    unsafe fn add(&self, sums: &mut Self::Sums, part: Part) {
        let mut access = 0;
        // SAFETY: the caller's.
        unsafe {
            let map = &self.added.map(self.walk);
            if part.is_whole() {
                while access < simt::opaque(PART) {
                    simt::rolled();
                    self.add_some::<N>(sums, &self.kept(part.place, access), map);
                    access += N as u32;
                }
            } else {
                while access < part.count {
                    simt::rolled();
                    self.add_some::<1>(sums, &self.kept(part.place, access), map);
                    access += 1;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn send(&mut self, turn: Turn, sums: Self::Sums, next: Turn) {
        let tiling = &self.args.tiling;
        // SAFETY: the caller's; shared memory is the kernel's.
        unsafe {
            // It comes while the sums are added up.
            let coming = self.unit(next);
            let own = fold::pairs(sums, (tiling.run, tiling.units), self.walk, &mut self.scratch);
            self.exchange().send(Round::of(turn), own);
            self.take_from(coming);
        }
    }

    #[inline(always)]
    unsafe fn gather(&self, turn: Turn) {
        self.exchange().gather(Round::of(turn));
    }

    #[inline(always)]
    unsafe fn receive(&mut self, turn: Turn) {
        let (tiling, walk) = (&self.args.tiling, self.walk);
        let tile = walk.tile(turn);
        // SAFETY: the caller's, here and below.
        unsafe {
            // Once more: it comes while the sums do, and would take registers till then.
            let unit = self.unit(turn);
            let [of_gx, of_g] = self.exchange().receive(Round::of(turn), &mut self.scratch);
            let of_gx = of_gx * unit.rstd;
            if walk.rank() == 0 && self.has_unit(tile) {
                self.leave(self.walk.number(turn), tile, [of_gx, of_g]);
            }
            let of_dx = match S::GIVEN {
                true => [0.0; 2],
                false => {
                    let [of_gx, of_g] = self.means([of_gx * unit.weight, of_g * unit.weight]);
                    [-(unit.rstd * of_gx) * unit.rstd, -unit.rstd * of_g]
                }
            };
            let Map { centre, scale, shift } = unit.map;
            let [slope, constant] = of_dx;
            // When all have read what was told before.
            simt::block_barrier();
            self.finished.tell(
                (tiling.run, tiling.units),
                self.walk,
                [centre, scale, shift, slope, constant],
            );
        }
    }

    #[inline(always)]
    unsafe fn finish(&self, part: Part, at: &mut Cursor) {
        // SAFETY: the caller's.
        let of_dx = unsafe {
            OfDx {
                map: self.finished.map(self.walk),
                slope: self.finished.told(3, self.walk),
                constant: self.finished.told(4, self.walk),
            }
        };
        let mut access = 0;
        // SAFETY: as above.
        unsafe {
            if part.is_whole() {
                while access < simt::opaque(PART) {
                    simt::rolled();
                    let loaded: Loaded<_, 1> = self.kept(part.place, access);
                    self.store(at, &loaded, &of_dx);
                    access += 1;
                }
            } else {
                while access < part.count {
                    simt::rolled();
                    let loaded: Loaded<_, 1> = self.kept(part.place, access);
                    self.store(at, &loaded, &of_dx);
                    access += 1;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn end(&self, _: Turn) {}
}
