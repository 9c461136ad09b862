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
pub(super) mod given;
pub(super) mod statistics;

use isonorm_math::{Normalizer, Real};

use self::statistics::{Measured, mean_of_sample};
use super::Spec;
use super::areas::{self, MOST_UNITS, OF_GROUPS, OF_UNITS, SHIFTS};
use super::columns::{self, Map};
use super::exchange::{Exchange, Sent};
use super::fold;
use super::row::Rows;
use super::slots::{Slots, wait};
use super::tiling::{Cursor, Tile, Tiling, Walk};
use crate::block::Scratch;
use crate::grid::Messages;
use crate::rows::access::{Access, Data, Width, width};
use crate::rows::epilogue::{Class, Epilogue, Told};
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
    /// May be `x` or `residual`; or null, where [`takes_moments`] says that kernels may be told so: then statistics are all that is wanted.
    pub y: *mut T,
    /// A byte for each 16 bytes of `y`, in kernels that access as many at once: bit k is set where element k of them is not 0; or null. Behind a
    /// ReLU.
    pub mask: *mut u8,
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
    /// `[teams]` of [`message_words`](super::message_words); or null, for teams of one block.
    pub messages: Messages,
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
    // SAFETY: the caller's.
    unsafe {
        match S::GIVEN {
            true => given::given::<T, S, N>(args),
            false => Pass::<T, S, N>::new(args).measure_and_apply(),
        }
    }
}

/// Whether kernels that measure may be told no place for the result: those without an activation, and of single elements.
pub const fn takes_moments(class: Class, width: Width) -> bool {
    matches!(class, Class::Plain) || matches!(width, Width::Element)
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

    #[inline(always)]
    unsafe fn measure_and_apply(&self) {
        let (args, walk) = (self.args, &self.walk);
        let tiling = &args.tiling;
        let mut scratch = Scratch::at_start();
        let team = (tiling.blocks, walk.rank);
        let mut exchange = Exchange::new(args.messages, walk.team, team, tiling.groups());
        // With one slot a tile is finished before the next one comes.
        let stay = tiling.slots > 1;
        let behind = tiling.slots.max(1) - 1 - u32::from(stay);
        // SAFETY: the caller's.
        unsafe {
            self.place_samples();
            if S::BY_ROW {
                Rows::load::<T, S>(walk, &args.affine);
            }
        }
        let mut ahead = 0;
        while ahead < tiling.slots {
            // SAFETY: as above.
            unsafe { self.fetch(walk.team.saturating_add(ahead * walk.teams), ahead) };
            ahead += 1;
        }
        let (mut number, mut slot) = (walk.team, 0);
        // SAFETY: as above.
        let mut about = mean_of_sample(unsafe { self.sample(number) });
        let mut before: Option<Before> = None;
        loop {
            let is_tile = number < tiling.tiles;
            let mut next = None;
            if is_tile {
                // SAFETY: as above.
                unsafe {
                    let ahead = self.sample(number.saturating_add(walk.teams));
                    columns::tell(SHIFTS, tiling.groups(), [about]);
                    if simt::thread_index() < tiling.groups() {
                        simt::shared_store(areas::own(slot, 0), about);
                    }
                    simt::block_barrier();
                    wait(behind);
                    let own = self.sums(number, slot, &mut scratch);
                    next = Some(Before {
                        number,
                        slot,
                        sent: exchange.send(slot, own),
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
                unsafe { self.finish(&before, &mut exchange, &mut scratch) };
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

    #[inline(always)]
    unsafe fn fetch_tile(&self, tile: Tile, slot: u32) {
        let ([kept, _], mut at, mut access) = (self.walk.own(tile), self.walk.start(), 0);
        while access < kept {
            // SAFETY: the tile has this place, and what was there has been used.
            unsafe { self.slots.fetch(slot, 0, access, self.place(self.args.x, tile, at)) };
            at = self.walk.next(at);
            access += 1;
        }
    }

    #[inline(always)]
    fn place(&self, base: *const T, tile: Tile, at: Cursor) -> *const T {
        base.wrapping_add((tile.start + at.offset) as usize)
    }

    /// Whether there is a result.
    #[inline(always)]
    fn writes(&self) -> bool {
        !takes_moments(S::Epilogue::CLASS, S::Access::WIDTH) || !self.args.y.is_null()
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

    /// The block's sums of distances from what was told, and of their squares: of the thread's group.
    #[inline(always)]
    unsafe fn sums(&self, number: u32, slot: u32, scratch: &mut Scratch) -> [f32; 2] {
        let (tiling, tile) = (&self.args.tiling, self.walk.tile(number));
        // SAFETY: told before a barrier.
        let about: Numbers<T, S> = unsafe { columns::told(&self.walk, SHIFTS, tiling.inner) };
        let mut sums = [Numbers::<T, S>::splat(0.0); 2];
        let mut add = |raw: Raw<T, S>| {
            let distance = S::Access::unpack::<T>(raw).zip(about, |x, about| x - about);
            sums = [
                sums[0].zip(distance, |sum, d| sum + d),
                sums[1].zip(distance, |sum, d| Real::mul_add(d, d, sum)),
            ];
        };
        let ([kept, own], mut access) = (self.walk.own(tile), 0);
        // SAFETY: it has come, or the tile has these places.
        unsafe {
            while N > 1 && access + N as u32 <= kept {
                unrolled::<N>(|k| add(self.slots.part::<T>(slot, 0, access + k as u32)));
                access += N as u32;
            }
            while access < kept {
                add(self.slots.part::<T>(slot, 0, access));
                access += 1;
            }
            if access < own {
                let mut at = self.walk.at(access);
                while N > 1 && access + N as u32 <= own {
                    let loaded: [_; N] = self.load(self.args.x, tile, &mut at);
                    unrolled::<N>(|k| add(loaded[k]));
                    access += N as u32;
                }
                while access < own {
                    let [loaded] = self.load(self.args.x, tile, &mut at);
                    add(loaded);
                    access += 1;
                }
            }
        }
        // SAFETY: shared memory is the kernel's.
        unsafe { fold::pairs(sums, tiling.of_group(), tiling, scratch) }
    }

    /// Loads some accesses to a tensor from a place on, which is moved behind them.
    #[inline(always)]
    unsafe fn load<const M: usize>(&self, base: *const T, tile: Tile, at: &mut Cursor) -> [Raw<T, S>; M] {
        let mut loaded = [S::Access::nothing::<T>(); M];
        unrolled::<M>(|k| {
            // SAFETY: the caller's: the tile has these places.
            loaded[k] = unsafe { S::Access::load(self.place(base, tile, *at)) };
            *at = self.walk.next(*at);
        });
        loaded
    }

    /// Finishes a tile whose sums have been sent, and sets the one on its way that takes its place.
    #[inline(always)]
    unsafe fn finish(&self, before: &Before, exchange: &mut Exchange, scratch: &mut Scratch) {
        let (tiling, tile) = (&self.args.tiling, self.walk.tile(before.number));
        let (groups, units) = (tiling.groups(), tiling.units());
        let thread = simt::thread_index();
        let has_group = thread < groups && thread * tiling.inner < tile.width;
        // SAFETY: the caller's, here and below.
        unsafe {
            let [weight, bias] = self.parameters(tile);
            let about = match thread < groups {
                true => simt::shared_load(areas::own(before.slot, 0)),
                false => 0.0,
            };
            let mut measured = self.measure(exchange.receive(before.sent, scratch), about);
            // All blocks of the team agree.
            if self.any(has_group && !measured.well) {
                let about = measured.mean as f32;
                columns::tell(SHIFTS, groups, [about]);
                simt::block_barrier();
                let own = self.sums(before.number, before.slot, scratch);
                let sent = exchange.send(before.slot, own);
                exchange.gather(sent);
                measured = self.measure(exchange.receive(sent, scratch), about);
            }
            let Measured {
                mean, variance, rstd, ..
            } = measured;
            // Saved when nobody waits any more.
            let saves = has_group && self.walk.rank == 0;
            if saves {
                simt::shared_store(areas::own(before.slot, 0), mean as f32);
                simt::shared_store(areas::own(before.slot, 1), variance);
                simt::shared_store(areas::own(before.slot, 2), rstd);
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
            if self.writes() {
                self.finish_others(tile, &map);
            }
            self.finish_kept(before, tile, &map);
            if saves {
                self.save(tile, before.slot);
            }
        }
    }
}
