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
use super::areas::{self, MOST_UNITS, OF_UNITS, SUMS};
use super::columns::{self, Map};
use super::exchange::{Exchange, Sent};
use super::fold;
use super::slots::{Slots, wait};
use super::tiling::{Tile, Tiling, Walk};
use crate::block::Scratch;
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::{Epilogue, Told};
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
    let pass = Pass::<T, S, N>::new(args);
    // SAFETY: the caller's.
    unsafe { pass.each_tile() };
}

/// What is known of the thread's unit.
#[derive(Clone, Copy, Default)]
struct Unit {
    /// From x to z.
    map: Map<f32>,
    weight: f32,
    rstd: f32,
}

/// A tile whose sums are on their way.
#[derive(Clone, Copy)]
struct Before {
    number: u32,
    slot: u32,
    sent: Sent,
}

type Numbers<T, S> = <<S as Spec>::Access as Access>::Numbers<T>;
type Raw<T, S> = <<S as Spec>::Access as Access>::Raw<T>;

struct Pass<'a, T: Data, S: Spec, const N: usize> {
    args: &'a Args<T>,
    walk: Walk<'a, S>,
    slots: Slots<S::Access>,
}

impl<'a, T: Data, S: Spec, const N: usize> Pass<'a, T, S, N> {
    #[inline(always)]
    fn new(args: &'a Args<T>) -> Self {
        let slots = areas::slots(&args.tiling, width::<T, S::Access>());
        Self {
            args,
            walk: Walk::new::<T>(&args.tiling),
            slots: Slots::new(slots, S::Epilogue::CLASS.tensors(), &args.tiling),
        }
    }

    #[inline(always)]
    unsafe fn each_tile(&self) {
        let (args, walk) = (self.args, &self.walk);
        let tiling = &args.tiling;
        let mut scratch = Scratch::at_start();
        let team = (tiling.blocks, walk.rank);
        let mut exchange = Exchange::new(args.messages, walk.team, team, tiling.units());
        // With one slot a tile is finished before the next one comes.
        let stay = tiling.slots > 1;
        let behind = tiling.slots.max(1) - 1 - u32::from(stay);
        let mut ahead = 0;
        while ahead < tiling.slots {
            // SAFETY: the caller's.
            unsafe { self.fetch(walk.team.saturating_add(ahead * walk.teams), ahead) };
            ahead += 1;
        }
        let (mut number, mut slot) = (walk.team, 0);
        // SAFETY: as above.
        let mut coming = unsafe { self.unit(number) };
        let mut before: Option<Before> = None;
        loop {
            let is_tile = number < tiling.tiles;
            let mut next = None;
            if is_tile {
                let unit = coming;
                // SAFETY: as above.
                unsafe {
                    coming = self.unit(number.saturating_add(walk.teams));
                    self.tell(&unit, [0.0; 2]);
                    wait(behind);
                    let own = self.sums(number, slot, &mut scratch);
                    next = Some(Before {
                        number,
                        slot,
                        sent: exchange.send(slot, own),
                    });
                }
            }
            if !stay {
                before = next.take();
                if let Some(before) = before {
                    exchange.gather(before.sent);
                }
            }
            if let Some(before) = before {
                // SAFETY: as above.
                unsafe { self.finish(&before, &exchange, &mut scratch) };
            }
            if !is_tile {
                break;
            }
            if stay {
                before = next;
                if let Some(before) = before {
                    exchange.gather(before.sent);
                }
            }
            slot = if slot + 1 < tiling.slots { slot + 1 } else { 0 };
            number = number.saturating_add(walk.teams);
        }
    }

    /// Sets what is kept of a tile on its way to a slot; nothing where there is none.
    #[inline(always)]
    unsafe fn fetch(&self, number: u32, slot: u32) {
        if number < self.args.tiling.tiles {
            // SAFETY: nothing has come to the slot yet.
            unsafe { self.fetch_tile(self.walk.tile(number), slot) };
        }
        simt::copy_commit();
    }

    /// Whether the thread has a unit of the tile.
    #[inline(always)]
    fn has_unit(&self, tile: Tile) -> bool {
        let (tiling, thread) = (&self.args.tiling, simt::thread_index());
        thread < tiling.units() && thread * tiling.run < tile.width
    }

    /// Starts to load what is known of the thread's unit of a tile; nothing where there is none.
    #[inline(always)]
    unsafe fn unit(&self, number: u32) -> Unit {
        let (args, tiling, thread) = (self.args, &self.args.tiling, simt::thread_index());
        if number >= tiling.tiles {
            return Unit::default();
        }
        let tile = self.walk.tile(number);
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
            let of_group = at_least_one(tiling.inner / at_least_one(tiling.run));
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

    /// Tells all threads about the thread's unit, with two numbers more, when all have read what was told before. Ends with a barrier.
    #[inline(always)]
    unsafe fn tell(&self, unit: &Unit, [first, second]: [f32; 2]) {
        let Map { centre, scale, shift } = unit.map;
        let numbers = [centre, scale, shift, first, second];
        simt::block_barrier();
        // SAFETY: shared memory is the kernel's.
        unsafe { columns::tell(OF_UNITS, self.args.tiling.units(), numbers) };
        simt::block_barrier();
    }

    /// The block's sums of g · (x − mean) and of g: of the thread's unit.
    #[inline(always)]
    unsafe fn sums(&self, number: u32, slot: u32, scratch: &mut Scratch) -> [f32; 2] {
        let (tiling, tile) = (&self.args.tiling, self.walk.tile(number));
        // SAFETY: told before a barrier.
        let map = unsafe { Map::<Numbers<T, S>>::told(&self.walk) };
        let mut sums = [Numbers::<T, S>::splat(0.0); 2];
        let ([kept, own], mut access) = (self.walk.own(tile), 0);
        // SAFETY: it has come, or the tile has these places.
        unsafe {
            while N > 1 && access + N as u32 <= kept {
                self.add::<N>(&mut sums, &self.kept((slot, access)), &map);
                access += N as u32;
            }
            while access < kept {
                self.add::<1>(&mut sums, &self.kept((slot, access)), &map);
                access += 1;
            }
            if access < own {
                let mut at = self.walk.at(access);
                while N > 1 && access + N as u32 <= own {
                    self.add::<N>(&mut sums, &self.load(tile, &mut at), &map);
                    access += N as u32;
                }
                while access < own {
                    self.add::<1>(&mut sums, &self.load(tile, &mut at), &map);
                    access += 1;
                }
            }
        }
        // SAFETY: shared memory is the kernel's.
        unsafe { fold::pairs(sums, tiling.run, tiling, scratch) }
    }

    /// Leaves the gradients of the thread's parameter.
    #[inline(always)]
    unsafe fn leave(&self, number: u32, tile: Tile, [of_gx, of_g]: [f32; 2]) {
        let (args, tiling) = (self.args, &self.args.tiling);
        let units = tiling.groups_of_line * (tiling.inner / at_least_one(tiling.run));
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
        let (groups, units) = (tiling.groups(), tiling.units());
        let elements = tiling.rows as f32 * tiling.inner as f32;
        let mut sums = of_unit;
        if units != groups {
            let of_group = at_least_one(tiling.inner / at_least_one(tiling.run));
            // SAFETY: shared memory is the kernel's; read after the barrier.
            unsafe { columns::tell(SUMS, units, of_unit) };
            simt::block_barrier();
            let first = simt::thread_index().min(units - 1) / of_group * of_group.get();
            let mut index = 0;
            sums = [0.0; 2];
            while index < of_group.get() {
                let place = SUMS.offset(first + index);
                // SAFETY: written before the barrier.
                let [of_gx, of_g] = unsafe { [simt::shared_load(place), simt::shared_load(place.offset(MOST_UNITS))] };
                sums = [sums[0] + of_gx, sums[1] + of_g];
                index += 1;
            }
        }
        sums.map(|sum| sum / elements)
    }

    /// Finishes a tile whose sums have been sent, and sets the one on its way that takes its place.
    #[inline(always)]
    unsafe fn finish(&self, before: &Before, exchange: &Exchange, scratch: &mut Scratch) {
        let (tiling, walk) = (&self.args.tiling, &self.walk);
        let tile = walk.tile(before.number);
        // SAFETY: the caller's, here and below.
        unsafe {
            // Once more: it comes while the sums do, and would take registers till then.
            let unit = self.unit(before.number);
            let [of_gx, of_g] = exchange.receive(before.sent, scratch);
            let of_gx = of_gx * unit.rstd;
            if walk.rank == 0 && self.has_unit(tile) {
                self.leave(before.number, tile, [of_gx, of_g]);
            }
            // dx = scale · g + (x − mean) · slope + constant
            let of_dx = match S::GIVEN {
                true => [0.0; 2],
                false => {
                    let [of_gx, of_g] = self.means([of_gx * unit.weight, of_g * unit.weight]);
                    [-(unit.rstd * of_gx) * unit.rstd, -unit.rstd * of_g]
                }
            };
            self.tell(&unit, of_dx);
            let map = Map::<Numbers<T, S>>::told(walk);
            let of_dx = [3, 4].map(|k| {
                let place = OF_UNITS.offset(k * MOST_UNITS);
                columns::told::<Numbers<T, S>, S>(walk, place, tiling.run)
            });
            let [kept, own] = walk.own(tile);
            let mut left = own - kept;
            if left > 0 {
                let mut at = walk.at(own);
                while left > 0 {
                    left -= 1;
                    at = walk.back::<1>(at);
                    let loaded: Loaded<_, 1> = self.load(tile, &mut at.clone());
                    self.store(tile, &mut at.clone(), &loaded, &map, of_dx);
                }
            }
            let coming = walk.coming(before.number);
            match coming {
                // Of a narrow tile.
                Some(coming) if kept == 0 => self.fetch_tile(coming, before.slot),
                _ => {
                    let coming = coming.filter(|coming| walk.own_column() < coming.width);
                    let (mut at, mut access) = (walk.start(), 0);
                    while access < kept {
                        let loaded: Loaded<_, 1> = self.kept((before.slot, access));
                        if let Some(coming) = coming {
                            self.fetch_one(coming, at, (before.slot, access));
                        }
                        self.store(tile, &mut at, &loaded, &map, of_dx);
                        access += 1;
                    }
                }
            }
        }
        simt::copy_commit();
    }
}
