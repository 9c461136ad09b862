//! The forward pass: each element is read once and written once, as far as shared memory holds a tile.
//!
//! ```text
//! y = act(x̂ · weight + bias + residual)        x̂ = (x − mean) · rstd
//! ```
//!
//! Where parameters belong to rows, there may be no mean: x̂ = x · rstd, with 1 / √(mean of squares + eps) as rstd.
//!
//! Distances are taken from the mean of a sample of each group, whose elements lie apart, and added up in one pass with their
//! squares; so a constant group gives exactly its bias, and a large mean costs no digits. Where the sample's mean was far from the
//! group's, which all blocks of the team see, the tile is passed over once more. Means come from the sums in `f64`, by one thread for
//! each group, which only adds and multiplies there.

mod finish;
mod statistics;
mod sums;

use isonorm_math::{Normalizer, Real};

use self::statistics::{Measured, mean_of_sample};
use super::Spec;
use super::areas::{self, MOST_UNITS, OF_GROUPS, OF_UNITS, SHIFTS};
use super::columns::{self, Map};
use super::exchange::{Exchange, Sent};
use super::fold;
use super::row::Rows;
use super::slots::{PART, Place, Slots};
use super::tiling::{Cursor, Share, Tile, Tiling, Walk};
use crate::block::Scratch;
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::Told;
use crate::rows::lanes::unrolled;
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
    /// Weight and bias, one of each for each `run` columns of a line, or for each row of a tile.
    pub affine: Affine,
    /// Whether a mean is taken off (1), or not (0), where parameters belong to rows.
    pub centred: u32,
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
/// [`head_bytes`](super::head_bytes) of shared memory, and the slots; a tile has no more groups or parameters than a block has
/// threads.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn forward<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
    let pass = Pass::<T, S, N>::new(args);
    // SAFETY: the caller's.
    unsafe {
        if S::GIVEN {
            pass.apply_given();
        } else {
            pass.measure_and_apply();
        }
    }
}

/// A tile whose sums are on their way.
#[derive(Clone, Copy)]
struct Before {
    number: u32,
    /// Of its first part.
    place: Place,
    sent: Sent,
}

type Numbers<T, S> = <<S as Spec>::Access as Access>::Numbers<T>;
type Raw<T, S> = <<S as Spec>::Access as Access>::Raw<T>;

struct Pass<'a, T: Data, S: Spec, const N: usize> {
    args: &'a Args<T>,
    walk: Walk<'a, S>,
    rows: Rows,
    slots: Slots<S::Access>,
}

impl<'a, T: Data, S: Spec, const N: usize> Pass<'a, T, S, N> {
    #[inline(always)]
    fn new(args: &'a Args<T>) -> Self {
        let (tiling, walk) = (&args.tiling, Walk::new::<T>(&args.tiling));
        let before = if S::BY_ROW { areas::row_bytes(tiling) } else { 0 };
        Self {
            args,
            rows: Rows::new::<T, S>(&walk),
            slots: Slots::new(areas::slots(tiling, width::<T, S::Access>()) + before, 1, tiling),
            walk,
        }
    }

    /// With statistics that are told: a tile after the other.
    #[inline(always)]
    unsafe fn apply_given(&self) {
        let (args, tiling) = (self.args, &self.args.tiling);
        let mut number = self.walk.team;
        while number < tiling.tiles {
            simt::rolled();
            let tile = self.walk.tile(number);
            // SAFETY: the caller's: a number for each parameter.
            unsafe {
                let [weight, bias] = self.parameters(tile);
                let [mean, variance] =
                    [args.given_mean, args.given_variance].map(|base| self.parameter(tile, base, 0.0));
                let scale = weight / Real::sqrt(variance + args.eps);
                columns::tell(OF_UNITS, tiling.units(), [mean, scale, bias]);
                simt::block_barrier();
                let map = Map::told(&self.walk);
                self.finish_others(tile, &map);
            }
            simt::block_barrier();
            number = number.saturating_add(self.walk.teams);
        }
    }

    #[inline(always)]
    unsafe fn measure_and_apply(&self) {
        let (args, walk) = (self.args, &self.walk);
        let tiling = &args.tiling;
        let mut scratch = Scratch::at_start();
        let team = (tiling.blocks, walk.rank);
        let mut exchange = Exchange::new(args.messages, walk.team, team, tiling.groups());
        // With one slot a tile is finished before the next one comes.
        let stay = tiling.slots > 1;
        // SAFETY: the caller's.
        unsafe {
            self.place_samples();
            if S::BY_ROW {
                Rows::load::<T, S>(walk, &args.affine);
            }
        }
        let mut ahead = 0;
        while ahead < tiling.slots {
            simt::rolled();
            // SAFETY: as above.
            unsafe { self.fetch(walk.team.saturating_add(ahead * walk.teams), Place::first_of(ahead)) };
            ahead += 1;
        }
        // Of two slots, each has room for all parts, and starts with its first place again.
        let (mut number, mut place) = (walk.team, Place::first_of(0));
        // SAFETY: as above.
        let mut about = mean_of_sample(unsafe { self.sample(number) });
        let mut before: Option<Before> = None;
        loop {
            simt::rolled();
            let is_tile = number < tiling.tiles;
            let mut next = None;
            if is_tile {
                // SAFETY: as above.
                unsafe {
                    let ahead = self.sample(number.saturating_add(walk.teams));
                    columns::tell(SHIFTS, tiling.groups(), [about]);
                    if simt::thread_index() < tiling.groups() {
                        simt::shared_store(areas::own(place.slot, 0), about);
                    }
                    simt::block_barrier();
                    let sums = self.sums_as_they_come(walk.tile(number), place);
                    let own = fold::pairs(sums, tiling.of_group(), tiling, &mut scratch);
                    next = Some(Before {
                        number,
                        place,
                        sent: exchange.send(place.slot, own),
                    });
                    about = mean_of_sample(ahead);
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
                let behind = unsafe { self.finish(&before, &mut exchange, &mut scratch) };
                if !stay {
                    place = behind;
                }
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
            if stay {
                place = Place::first_of(1 - place.slot);
            }
            number = number.saturating_add(walk.teams);
        }
    }

    /// Sets a tile's first parts on their way, as many as a slot has; nothing where there is none.
    #[inline(always)]
    unsafe fn fetch(&self, number: u32, place: Place) {
        if number < self.args.tiling.tiles {
            let tile = self.walk.tile(number);
            let (share, mut at, mut place, mut part) = (self.walk.share(tile), self.walk.start(), place, 0);
            while part < self.slots.parts() {
                simt::rolled();
                // SAFETY: the tile has these places, and nothing has come to the slot's yet.
                unsafe { self.fetch_part(tile, share, part, &mut at, place) };
                place = self.slots.next(place);
                part += 1;
            }
        }
    }

    /// Sets a part of a tile on its way, from a place in the tile on, which is moved behind it.
    #[inline(always)]
    unsafe fn fetch_part(&self, tile: Tile, share: Share, part: u32, at: &mut Cursor, place: Place) {
        let count = share.of_part(part);
        // SAFETY: the caller's.
        unsafe {
            if count == PART {
                self.fetch_some::<{ PART as usize }>(tile, at, (place, 0), share.passes(part));
            } else {
                let mut access = 0;
                while access < count {
                    simt::rolled();
                    self.fetch_one(tile, at, (place, access), share.passes(part));
                    access += 1;
                }
            }
        }
        simt::copy_commit();
    }

    /// Sets some accesses of a part on their way.
    #[inline(always)]
    unsafe fn fetch_some<const M: usize>(
        &self,
        tile: Tile,
        at: &mut Cursor,
        (place, access): (Place, u32),
        passes: bool,
    ) {
        // SAFETY: the caller's.
        unsafe {
            match passes {
                true => unrolled::<M>(|k| self.fetch_one(tile, at, (place, access + k as u32), true)),
                false => unrolled::<M>(|k| self.fetch_one(tile, at, (place, access + k as u32), false)),
            }
        }
    }

    #[inline(always)]
    unsafe fn fetch_one(&self, tile: Tile, at: &mut Cursor, (place, access): (Place, u32), passes: bool) {
        let from = self.place(self.args.x, tile, *at);
        // SAFETY: the caller's.
        unsafe { self.slots.fetch(place, 0, access, from, passes) };
        *at = self.walk.next(*at);
    }

    #[inline(always)]
    fn place(&self, base: *const T, tile: Tile, at: Cursor) -> *const T {
        base.wrapping_add((tile.start + at.offset) as usize)
    }

    /// Whether no mean is taken off.
    #[inline(always)]
    fn is_about_zero(&self) -> bool {
        S::BY_ROW && self.args.centred == 0
    }

    /// The parameter of the thread's unit; another number where there is none.
    #[inline(always)]
    unsafe fn parameter(&self, tile: Tile, base: *const u8, otherwise: f32) -> f32 {
        let (tiling, thread) = (&self.args.tiling, simt::thread_index());
        if S::BY_ROW || base.is_null() || thread >= tiling.units() || thread * tiling.run >= tile.width {
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

    /// Loads some accesses to a tensor from a place on, which is moved behind them; for the last time, or not.
    #[inline(always)]
    unsafe fn load<const M: usize>(&self, base: *const T, tile: Tile, at: &mut Cursor, last: bool) -> [Raw<T, S>; M] {
        let mut loaded = [S::Access::nothing::<T>(); M];
        unrolled::<M>(|k| {
            // SAFETY: the caller's: the tile has these places.
            loaded[k] = unsafe {
                match last {
                    true => S::Access::load_done(self.place(base, tile, *at)),
                    false => S::Access::load(self.place(base, tile, *at)),
                }
            };
            *at = self.walk.next(*at);
        });
        loaded
    }

    /// Finishes a tile whose sums have been sent, and sets the one on its way that takes its place, from the place on that is returned.
    #[inline(always)]
    unsafe fn finish(&self, before: &Before, exchange: &mut Exchange, scratch: &mut Scratch) -> Place {
        let (tiling, tile) = (&self.args.tiling, self.walk.tile(before.number));
        let (groups, units) = (tiling.groups(), tiling.units());
        let thread = simt::thread_index();
        let has_group = thread < groups && thread * tiling.inner < tile.width;
        // SAFETY: the caller's, here and below.
        unsafe {
            let [weight, bias] = self.parameters(tile);
            let about = match thread < groups {
                true => simt::shared_load(areas::own(before.place.slot, 0)),
                false => 0.0,
            };
            let mut measured = self.measure(exchange.receive(before.sent, scratch), about);
            // All blocks of the team agree.
            if self.any(has_group && !measured.well) {
                let about = measured.mean as f32;
                columns::tell(SHIFTS, groups, [about]);
                simt::block_barrier();
                let sums = self.sums_again(tile, before.place);
                let own = fold::pairs(sums, tiling.of_group(), tiling, scratch);
                let sent = exchange.send(before.place.slot, own);
                exchange.gather(sent);
                measured = self.measure(exchange.receive(sent, scratch), about);
            }
            let Measured {
                mean, variance, rstd, ..
            } = measured;
            // Saved when nobody waits any more.
            let saves = has_group && self.walk.rank == 0;
            if saves {
                simt::shared_store(areas::own(before.place.slot, 0), mean as f32);
                simt::shared_store(areas::own(before.place.slot, 1), variance);
                simt::shared_store(areas::own(before.place.slot, 2), rstd);
            }
            let Normalizer { centre, rstd, offset } = Normalizer::<f32>::new(mean, rstd.into());
            let [centre, rstd, offset] = if units == groups {
                [centre, rstd, offset]
            } else {
                columns::tell(OF_GROUPS, groups, [centre, rstd, offset]);
                simt::block_barrier();
                let group = thread.min(units - 1) / at_least_one(tiling.inner / at_least_one(tiling.run));
                [0, 1, 2].map(|k| simt::shared_load(OF_GROUPS.offset(k * MOST_UNITS + group)))
            };
            let shift = Real::mul_add(offset, weight, bias);
            columns::tell(OF_UNITS, units, [centre, rstd * weight, shift]);
            simt::block_barrier();
            let map = Map::told(&self.walk);
            self.finish_others(tile, &map);
            let behind = self.finish_kept(before, tile, &map);
            if saves {
                self.save(tile, before.place.slot);
            }
            behind
        }
    }
}
