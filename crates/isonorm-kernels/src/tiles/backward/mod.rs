//! The backward pass: x and dy are read once and dx is written once, as far as shared memory holds a tile.
//!
//! ```text
//! g  = dy · act′(z)                         z = x̂ · weight + bias + residual; or dy where the mask has a bit, else 0
//! dx = rstd · (g · weight − mean(g · weight) − x̂ · mean(g · weight · x̂))     dresidual = g
//! ```
//!
//! Of a column, x̂ and z are linear in x, and dx is in g and x: what is the same for all rows of it is worked out once, by one thread.
//!
//! Where parameters belong to columns, a tile's sums of g and g · x̂ are those of the parameters' gradients: of the gradients themselves, or, where a batch has several
//! tensors, of their shares. Weighted, they add up to those of groups. With given statistics dx needs none of them: where statistics depend on x
//! nevertheless, as those of several ranks do, the means are given, too.
//! Where they belong to rows, each block adds up its rows' gradients over its tiles, and leaves them last.

mod elements;
mod rows;
pub(super) mod units;

use self::elements::Loaded;
use self::rows::SumsOfRows;
use self::units::Unit;
use super::Spec;
use super::areas::{self, MOST_UNITS, OF_UNITS};
use super::columns::{self, Map};
use super::exchange::{Exchange, Sent, message_words};
use super::fold;
use super::row::Rows;
use super::slots::{Slots, wait};
use super::tiling::{Tiling, Walk};
use crate::block::{self, Scratch};
use crate::grid::Messages;
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::{Epilogue, Told};
use crate::rows::lanes::{Lanes, unrolled};
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
    /// What was added before the activation, or what a ReLU made of the sum; or null.
    pub residual: *const T,
    /// As the forward pass left it, in kernels of [`Masked`](crate::rows::epilogue::Masked); otherwise nothing is read.
    pub mask: *const u8,
    /// For kernels of [`Added`](crate::rows::epilogue::Added) and [`OfResult`](crate::rows::epilogue::OfResult), which leave there what they need again: for each access of a thread that passes,
    /// as [`passing`](super::strips::passing) counts them, a byte for each thread of the grid.
    pub signs: *mut u8,
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
    /// All bits where the residual was added to z; none where it is what a ReLU made of the sum, whose slopes are the same.
    pub of_z: u32,
    /// `[parameters]`, in the parameters' type: the mean, where statistics are given.
    pub given_mean: *const u8,
    /// `[parameters]`, in the parameters' type: the variance, where statistics are given.
    pub given_variance: *const u8,
    /// `[groups]`, as the forward pass saved it. Where statistics are given: `[parameters]`, the mean of g that is taken off dx; or null for 0.
    pub mean: *const f32,
    /// `[groups]`, as the forward pass saved it. Where statistics are given: `[parameters]`, the mean of g · x̂; null with the mean of g.
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
    /// `[teams]` of [`message_words`]; or null, for teams of one block. Where tiles are parts of groups, `[teams, parts]` of those of a
    /// part's blocks, and behind them `[teams]` of those of a single sum.
    pub messages: Messages,
}

impl<T> Args<T> {
    /// z with what was added; or its ReLU, where that is what stands beside it. Without a branch, which takes registers.
    #[inline(always)]
    pub(in crate::tiles) fn sum(&self, z: f32, beside: f32) -> f32 {
        f32::from_bits(z.to_bits() & self.of_z) + beside
    }
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
    slot: u32,
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
            Exchange::new(messages.behind(behind), walk.team, (tiling.blocks, walk.rank), 1),
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
        let behind = tiling.slots.max(1) - 1 - u32::from(stay);
        let mut ahead = 0;
        while ahead < tiling.slots {
            // SAFETY: the caller's.
            unsafe { self.fetch(walk.team.saturating_add(ahead * walk.teams), ahead) };
            ahead += 1;
        }
        if S::BY_ROW {
            // SAFETY: the caller's; nothing has been added yet.
            unsafe {
                Rows::load::<T, S>(walk, &args.affine);
                self.sums_of_rows().clear();
            }
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
                    let own = match self.has_sums() {
                        true => self.sums(number, slot, &mut scratch),
                        false => [0.0; 2],
                    };
                    let sent = exchange.send(slot, own);
                    let of_group = match S::WIDE {
                        true => {
                            let weight = [unit.rstd * unit.weight, unit.weight];
                            let own = [own[0] * weight[0], own[1] * weight[1]];
                            of_groups.send(slot, block::sum_pair(own, &mut scratch))
                        }
                        false => sent,
                    };
                    next = Some(Before {
                        number,
                        slot,
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
                unsafe { self.finish(&before, [&exchange, &of_groups], &mut scratch) };
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
        if S::BY_ROW {
            simt::block_barrier();
            // SAFETY: the caller's; all have added.
            unsafe { self.leave_rows() };
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
        let (tiling, walk) = (&self.args.tiling, &self.walk);
        let tile = walk.tile(number);
        // SAFETY: told before a barrier.
        let map = unsafe { Map::<Numbers<T, S>>::told(&self.walk) };
        let mut sums = [Numbers::<T, S>::splat(0.0); 2];
        let ([kept, own], mut access) = (walk.own(tile), 0);
        let mut at = walk.start();
        // SAFETY: it has come, or the tile has these places.
        unsafe {
            while N > 1 && access + N as u32 <= kept {
                let mut loaded: Loaded<_, N> = self.kept((slot, access));
                self.mask(&mut loaded, tile, at);
                self.add(&mut sums, access, &loaded, &map);
                unrolled::<N>(|_| at = walk.next(at));
                access += N as u32;
            }
            while access < kept {
                let mut loaded: Loaded<_, 1> = self.kept((slot, access));
                self.mask(&mut loaded, tile, at);
                self.add(&mut sums, access, &loaded, &map);
                at = walk.next(at);
                access += 1;
            }
            if access < own {
                let mut at = walk.at(access);
                while N > 1 && access + N as u32 <= own {
                    self.add::<N>(&mut sums, access, &self.load(tile, &mut at), &map);
                    access += N as u32;
                }
                while access < own {
                    self.add::<1>(&mut sums, access, &self.load(tile, &mut at), &map);
                    access += 1;
                }
            }
        }
        // SAFETY: shared memory is the kernel's.
        unsafe { fold::pairs(sums, tiling.run, tiling, scratch) }
    }

    /// Finishes a tile whose sums have been sent, and sets the one on its way that takes its place.
    #[inline(always)]
    unsafe fn finish(&self, before: &Before, [exchange, of_groups]: [&Exchange; 2], scratch: &mut Scratch) {
        let (args, walk) = (self.args, &self.walk);
        let (tiling, tile) = (&args.tiling, walk.tile(before.number));
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
                true => self.told_means(tile, &unit),
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
            let [kept, own] = walk.own(tile);
            // Only sums were wanted.
            let mut left = if S::GIVEN && args.dx.is_null() { 0 } else { own - kept };
            if left > 0 {
                let mut at = walk.at(own);
                while left > 0 {
                    left -= 1;
                    at = walk.back::<1>(at);
                    let loaded: Loaded<_, 1> = self.load(tile, &mut at.clone());
                    self.store((tile, kept + left), at, &loaded, &map, of_dx);
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
                        let mut loaded: Loaded<_, 1> = self.kept((before.slot, access));
                        self.mask(&mut loaded, tile, at);
                        if let Some(coming) = coming {
                            self.fetch_one(coming, at, (before.slot, access));
                        }
                        self.store((tile, access), at, &loaded, &map, of_dx);
                        at = walk.next(at);
                        access += 1;
                    }
                }
            }
        }
        simt::copy_commit();
    }
}
