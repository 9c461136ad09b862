//! The backward pass: x and dy are read once and dx is written once, as far as shared memory holds a tile.
//!
//! ```text
//! g  = dy · act′(z)                         z = x̂ · weight + bias + residual
//! dx = rstd · (g · weight − mean(g · weight) − x̂ · mean(g · weight · x̂))     dresidual = g
//! ```
//!
//! Of a column, x̂ and z are linear in x, and dx is in g and x: what is the same for all rows of it is worked out once, by one thread.
//!
//! Where parameters belong to columns, a tile's sums of g and g · x̂ are those of the parameters' gradients: of the gradients themselves, or, where a batch has several
//! tensors, of their shares. Weighted, they add up to those of groups. With given statistics dx needs none of them.
//! Where they belong to rows, each block adds up its rows' gradients over its tiles, and leaves them last.

mod elements;
mod rows;
mod units;

use self::elements::Loaded;
use self::rows::SumsOfRows;
use self::units::Unit;
use super::Spec;
use super::areas::{self, MOST_UNITS, OF_UNITS};
use super::columns::{self, Map};
use super::exchange::{Exchange, Sent, message_words};
use super::fold;
use super::row::Rows;
use super::slots::{PART, Place, Slots};
use super::tiling::{Tile, Tiling, Walk};
use crate::block::{self, Scratch};
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::{Epilogue, Told};
use crate::rows::lanes::Lanes;
use crate::rows::parameters::Affine;
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
    /// Weight and bias, one of each for each `run` columns of a line, or for each row of a tile.
    pub affine: Affine,
    /// Whether a mean is taken off (1), or not (0), where parameters belong to rows.
    pub centred: u32,
    /// `[parameters]`, in the parameters' type: the mean, where statistics are given.
    pub given_mean: *const u8,
    /// `[parameters]`, in the parameters' type: the variance, where statistics are given.
    pub given_variance: *const u8,
    /// `[groups]`, as the forward pass saved it.
    pub mean: *const f32,
    /// `[groups]`, as the forward pass saved it.
    pub rstd: *const f32,
    /// `[parameters]`, in their type; or in `f32` `[batch, parameters]`, or `[teams, parameters]` where they belong to rows; or null.
    pub dweight: *mut u8,
    /// The same of the bias.
    pub dbias: *mut u8,
    /// Whether gradients have the data's type (1), or are `f32` (0).
    pub as_data: u32,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
    /// Added to the variance, where that is given.
    pub eps: f32,
    /// `[teams]` of [`message_words`], aligned to 16 bytes, and 0 before the launch; or null, for teams of
    /// one block. Where tiles are parts of groups, `[teams, parts]` of those of a part's blocks, and behind them `[teams]` of those of a
    /// single sum.
    pub messages: *mut u32,
}

/// Computes the gradients of the tiles. For a grid of some teams, all of which run at the same time if a team has several blocks. A
/// thread has `N` accesses to each tensor under way at once, as far as a tile is not kept.
///
/// # Safety
///
/// As for [`forward`](super::forward::forward).
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn backward<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
    let pass = Pass::<T, S, N>::new(args);
    // SAFETY: the caller's.
    unsafe { pass.each_tile() };
}

/// A tile whose sums are on their way.
#[derive(Clone, Copy)]
struct Before {
    number: u32,
    /// Of its first part.
    place: Place,
    sent: Sent,
    /// Of a part of a group: what it adds to those of the group.
    of_group: Sent,
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
        let slots = match S::BY_ROW {
            true => SumsOfRows::new::<T, S>(tiling).end(),
            false => areas::slots(tiling, width::<T, S::Access>()),
        };
        Self {
            args,
            rows: Rows::new::<T, S>(&walk),
            slots: Slots::new(slots, S::Epilogue::CLASS.tensors(), tiling),
            walk,
        }
    }

    /// For the sums of units, and, where tiles are parts of groups, for those of groups.
    #[inline(always)]
    fn exchanges(&self) -> [Exchange; 2] {
        let (messages, tiling, walk) = (self.args.messages, &self.args.tiling, &self.walk);
        let (rank, blocks) = walk.of_part;
        let teams = if S::WIDE { walk.teams * tiling.parts } else { walk.teams };
        let team = if S::WIDE {
            walk.team * tiling.parts + walk.part
        } else {
            walk.team
        };
        let behind = teams as usize * message_words(blocks, tiling.units()) as usize;
        [
            Exchange::new(messages, team, (blocks, rank), tiling.units()),
            Exchange::new(messages.wrapping_add(behind), walk.team, (tiling.blocks, walk.rank), 1),
        ]
    }

    #[inline(always)]
    unsafe fn each_tile(&self) {
        let (args, walk) = (self.args, &self.walk);
        let tiling = &args.tiling;
        let mut scratch = Scratch::at_start();
        let [mut exchange, mut of_groups] = self.exchanges();
        // With one slot a tile is finished before the next one comes.
        let stay = tiling.slots > 1;
        let mut ahead = 0;
        while ahead < tiling.slots {
            simt::rolled();
            // SAFETY: the caller's.
            unsafe { self.fetch(walk.team.saturating_add(ahead * walk.teams), Place::first_of(ahead)) };
            ahead += 1;
        }
        if S::BY_ROW {
            // SAFETY: the caller's; nothing has been added yet.
            unsafe {
                Rows::load::<T, S>(walk, &args.affine);
                self.sums_of_rows().clear();
            }
        }
        // Of two slots, each has room for all parts, and starts with its first place again.
        let (mut number, mut place) = (walk.team, Place::first_of(0));
        // SAFETY: as above.
        let mut coming = unsafe { self.unit(number) };
        let mut before: Option<Before> = None;
        loop {
            simt::rolled();
            let is_tile = number < tiling.tiles;
            let mut next = None;
            if is_tile {
                let unit = coming;
                // SAFETY: as above.
                unsafe {
                    coming = self.unit(number.saturating_add(walk.teams));
                    self.tell(&unit, [0.0; 2]);
                    let sums = self.sums(walk.tile(number), place);
                    let own = fold::pairs(sums, tiling.run, tiling, &mut scratch);
                    let sent = exchange.send(place.slot, own);
                    let of_group = match S::WIDE {
                        true => {
                            let weight = [unit.rstd * unit.weight, unit.weight];
                            let own = [own[0] * weight[0], own[1] * weight[1]];
                            of_groups.send(place.slot, block::sum_pair(own, &mut scratch))
                        }
                        false => sent,
                    };
                    next = Some(Before {
                        number,
                        place,
                        sent,
                        of_group,
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
                let behind = unsafe { self.finish(&before, [&exchange, &of_groups], &mut scratch) };
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
        if S::BY_ROW {
            simt::block_barrier();
            // SAFETY: the caller's; all have added.
            unsafe { self.leave_rows() };
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
                unsafe { self.fetch_part((tile, share, part), &mut at, place) };
                place = self.slots.next(place);
                part += 1;
            }
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

    /// The thread's sums of g · (x − mean) and of g, of parts as they come; a part that passes makes room for another.
    #[inline(always)]
    unsafe fn sums(&self, tile: Tile, place: Place) -> [Numbers<T, S>; 2] {
        let (share, in_slot) = (self.walk.share(tile), self.slots.parts());
        // SAFETY: told before a barrier.
        let map = unsafe { Map::<Numbers<T, S>>::told(&self.walk) };
        let mut sums = [Numbers::<T, S>::splat(0.0); 2];
        // SAFETY: the tile has these places, or they have come.
        unsafe {
            if in_slot == 0 {
                let (mut at, mut access) = (self.walk.start(), 0);
                while access < share.own {
                    simt::rolled();
                    let loaded = self.load(tile, &mut at, false);
                    self.add::<1>(&mut sums, access, &loaded, &map);
                    access += 1;
                }
                return sums;
            }
            let (mut place, mut access) = (place, 0);
            let mut coming = match share.passing {
                0 => self.walk.start(),
                _ => self.walk.at(in_slot * PART),
            };
            while access < share.own {
                simt::rolled();
                if access.is_multiple_of(PART) {
                    self.slots.wait();
                }
                if N > 1 && access + N as u32 <= share.own {
                    self.add::<N>(&mut sums, access, &self.kept(place, access % PART), &map);
                    access += N as u32;
                } else {
                    self.add::<1>(&mut sums, access, &self.kept(place, access % PART), &map);
                    access += 1;
                }
                if access.is_multiple_of(PART) {
                    let part = access / PART - 1 + in_slot;
                    self.fetch_part((tile, share, part), &mut coming, place);
                    place = self.slots.next(place);
                }
            }
            if !share.own.is_multiple_of(PART) {
                simt::copy_commit();
            }
        }
        sums
    }

    /// Finishes a tile whose sums have been sent, and sets the one on its way that takes its place, from the place on that is returned.
    #[inline(always)]
    unsafe fn finish(&self, before: &Before, [exchange, of_groups]: [&Exchange; 2], scratch: &mut Scratch) -> Place {
        let (tiling, walk) = (&self.args.tiling, &self.walk);
        let tile = walk.tile(before.number);
        // SAFETY: the caller's, here and below.
        unsafe {
            // Once more: it comes while the sums do, and would take registers till then.
            let unit = self.unit(before.number);
            let [of_gx, of_g] = exchange.receive(before.sent, scratch);
            let of_gx = of_gx * unit.rstd;
            if !S::BY_ROW && walk.of_part.0 == 0 && self.has_unit(tile) {
                self.leave(before.number, tile, [of_gx, of_g]);
            }
            // dx = scale · g + (x − mean) · slope + constant
            let of_dx = match S::GIVEN {
                true => [0.0; 2],
                false => {
                    let [of_gx, of_g] = match S::WIDE {
                        true => self.over_group(of_groups.receive(before.of_group, scratch)),
                        false => self.means([of_gx * unit.weight, of_g * unit.weight]),
                    };
                    let of_g = if self.is_about_zero() { 0.0 } else { of_g };
                    [-(unit.rstd * of_gx) * unit.rstd, -unit.rstd * of_g]
                }
            };
            self.tell(&unit, of_dx);
            let map = Map::<Numbers<T, S>>::told(walk);
            let of_dx = [3, 4].map(|k| {
                let place = OF_UNITS.offset(k * MOST_UNITS);
                columns::told::<Numbers<T, S>, S>(walk, place, tiling.run)
            });
            self.finish_others(tile, &map, of_dx);
            self.finish_kept(before, tile, &map, of_dx)
        }
    }

    /// What shared memory does not hold, newest first.
    #[inline(always)]
    unsafe fn finish_others(&self, tile: Tile, map: &Map<Numbers<T, S>>, of_dx: [Numbers<T, S>; 2]) {
        let mut left = self.walk.share(tile).passing;
        if left == 0 {
            return;
        }
        let mut at = self.walk.at(left);
        while left > 0 {
            simt::rolled();
            left -= 1;
            at = self.walk.back::<1>(at);
            // SAFETY: the tile has this place.
            unsafe {
                let loaded: Loaded<_, 1> = self.load(tile, &mut at.clone(), true);
                self.store((tile, left), at, &loaded, map, of_dx);
            }
        }
    }

    /// What shared memory holds of a tile; the tile that comes to its slot takes its places, from the one on that is returned.
    #[inline(always)]
    unsafe fn finish_kept(
        &self,
        before: &Before,
        tile: Tile,
        map: &Map<Numbers<T, S>>,
        of_dx: [Numbers<T, S>; 2],
    ) -> Place {
        let (walk, places) = (&self.walk, self.slots.parts() * PART);
        let share = walk.share(tile);
        let coming = walk.coming(before.number).map(|coming| (coming, walk.share(coming)));
        let of_coming = coming.map_or(0, |(_, share)| share.own);
        let behind = self.slots.further(before.place, share.passing / PART);
        let (mut place, mut at, mut here, mut index) = (behind, walk.at(share.passing), walk.start(), 0);
        while index < places {
            simt::rolled();
            let (access, has) = (share.passing + index, share.passing + index < share.own);
            // SAFETY: what has come, and places that the tiles have.
            unsafe {
                let mut loaded = Loaded::nothing(S::Access::nothing::<T>());
                if has {
                    loaded = self.kept::<1>(place, index % PART);
                }
                if let Some((coming, share)) = coming.filter(|_| index < of_coming) {
                    let turn = (place, index % PART);
                    self.fetch_one(coming, &mut here, turn, share.passes(index / PART));
                }
                if has {
                    self.store((tile, access), at, &loaded, map, of_dx);
                    at = walk.next(at);
                }
            }
            index += 1;
            if index.is_multiple_of(PART) {
                simt::copy_commit();
                place = self.slots.next(place);
            }
        }
        behind
    }
}
