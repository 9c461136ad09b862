//! The forward pass over rows that are longer than registers.
//!
//! Blocks that share a row take a contiguous share each, and walk over it tile by tile, a few vectors a thread. The first way
//! sums up moments, and keeps the first tiles in shared memory; the second way normalizes, newest first, so that what was not
//! kept is read again while the second-level cache has it. A thread comes back to the elements that it had.
//!
//! A thread adds up distances from the mean of its first tile, and their squares, in one pass; where that number was not near
//! enough to the mean of all that it has, once more. Means are kept as distances from the median of three elements, so that a
//! large mean costs no digits. Threads, warps and blocks merge in a fixed order.

pub mod long_down;
pub mod long_shared;

use core::marker::PhantomData;
use core::num::NonZero;

use isonorm_math::{Moments, Normalizer, Real, normalize};

use crate::block::{self, Scratch};
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::Epilogue;
pub use crate::rows::forward::Args;
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{OfColumn, OfType, at_least_one, next_set};
use crate::rows::spread::{HEAD_BYTES, Spread};
use crate::rows::statistics::{Measured, Op, Statistics, centred, uncentred};
use crate::rows::sums::Sums;
use crate::simt::{self, Shared};

/// Shares start on lines of the cache.
const LINE_BYTES: u64 = 128;

/// Normalizes the rows. For a grid of a multiple of the blocks that share a row.
///
/// # Safety
///
/// As for [`forward`](crate::rows::forward::forward); blocks have [`HEAD_BYTES`] of shared memory, and what the kept tiles take.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn long<T: Data, S: Spec<Team: Spread, Map: OfColumn>, const V: usize>(args: &Args<T>) {
    let mut spread = S::Team::new(args);
    let mut scratch = Scratch::at_start();
    let blocks = at_least_one(spread.blocks());
    let walk = Walk::<T, S, V>::new(args, spread.rank(), blocks);
    let step = u64::from(simt::grid_blocks() / blocks);
    let sets = at_least_one(args.affine.sets);
    let set_of = |row| args.affine.set_of::<S::Map>(row);
    let mut row = u64::from(simt::block_index() / blocks);
    let (mut set, set_step) = (set_of(row), set_of(step));
    while row < args.rows {
        // SAFETY: the caller's.
        unsafe {
            let measured = walk.measure(&mut spread, &mut scratch, row);
            if spread.rank() == 0 && simt::thread_index() == 0 {
                measured.save(args, row);
            }
            walk.normalize(measured.normalizer, row, set);
        }
        row += step;
        set = next_set(set, set_step, sets);
    }
}

/// What a thread has of a tile.
struct Tile<T: Data, A: Access, const V: usize> {
    x: [A::Raw<T>; V],
    residual: [A::Raw<T>; V],
}

impl<T: Data, A: Access, const V: usize> Tile<T, A, V> {
    #[inline(always)]
    fn nothing() -> Self {
        Self {
            x: [A::nothing::<T>(); V],
            residual: [A::nothing::<T>(); V],
        }
    }
}

/// Where a tile lies: its number, the column that it starts at, and how many elements the share has from there on.
#[derive(Clone, Copy)]
struct At {
    index: u64,
    start: u64,
    left: u32,
}

/// A block's way over its share of a row.
struct Walk<'a, T: Data, S: Spec<Map: OfColumn>, const V: usize> {
    args: &'a Args<T>,
    /// The share's elements.
    start: u64,
    end: u64,
    /// Elements of a tile.
    tile: u32,
    tiles: u64,
    lookup: <S::Map as OfColumn>::Lookup,
    of: PhantomData<S>,
}

impl<'a, T: Data, S: Spec<Map: OfColumn>, const V: usize> Walk<'a, T, S, V> {
    /// Whether distances are from the mean, not from 0.
    const CENTRED: bool = matches!(S::Statistics::OP, Op::Layer);

    #[inline(always)]
    fn new(args: &'a Args<T>, rank: u32, blocks: NonZero<u32>) -> Self {
        let line = LINE_BYTES / size_of::<T>() as u64;
        let share = args
            .columns
            .div_ceil(NonZero::<u64>::from(blocks).get().max(1))
            .div_ceil(line)
            * line;
        let start = args.columns.min(u64::from(rank) * share);
        let end = args.columns.min(start + share);
        let tile = simt::block_threads() * V as u32 * width::<T, S::Access>();
        Self {
            args,
            start,
            end,
            tile,
            tiles: (end - start).div_ceil(u64::from(tile).max(1)),
            lookup: S::Map::lookup(&args.affine),
            of: PhantomData,
        }
    }

    /// Where a tile of the share lies, which may end before it.
    #[inline(always)]
    fn at(&self, index: u64) -> At {
        let start = self.start + index * u64::from(self.tile);
        let left = self.end.saturating_sub(start).min(u64::from(self.tile)) as u32;
        At { index, start, left }
    }

    /// The first element of the thread's part `v`, counted from the start of the tile.
    #[inline(always)]
    fn within(&self, v: usize) -> u32 {
        (v as u32 * simt::block_threads() + simt::thread_index()) * width::<T, S::Access>()
    }

    #[inline(always)]
    fn has(&self, at: At, v: usize) -> bool {
        self.within(v) < at.left
    }

    /// Part `v` of a tile of some tensor.
    #[inline(always)]
    fn part(&self, base: *const T, row: u64, stride: u64, at: At, v: usize) -> *const T {
        self.place(base, row, stride, at.start)
            .wrapping_add(self.within(v) as usize)
    }

    #[inline(always)]
    fn has_stream(&self) -> bool {
        S::RESIDUAL && !self.args.stream.is_null()
    }

    #[inline(always)]
    fn has_residual(&self) -> bool {
        S::RESIDUAL && !self.args.residual.is_null()
    }

    #[inline(always)]
    fn is_kept(&self, at: At) -> bool {
        at.index < u64::from(self.args.kept)
    }

    /// Where part `v` of a tile is kept.
    #[inline(always)]
    fn kept_at(&self, at: At, v: usize) -> Shared<u32> {
        let part = (at.index as u32 * V as u32 + v as u32) * simt::block_threads() + simt::thread_index();
        Shared::at(HEAD_BYTES + part * S::Access::KEPT_BYTES)
    }

    #[inline(always)]
    fn place(&self, base: *const T, row: u64, stride: u64, column: u64) -> *const T {
        base.wrapping_add((row * stride) as usize).wrapping_add(column as usize)
    }

    /// Loads a tile from global memory; nothing where the share has none.
    #[inline(always)]
    unsafe fn load(&self, row: u64, at: At, with_residual: bool) -> Tile<T, S::Access, V> {
        let (args, mut loaded) = (self.args, Tile::nothing());
        unrolled::<V>(|v| {
            if self.has(at, v) {
                // SAFETY: the row has these elements.
                loaded.x[v] = unsafe { S::Access::load(self.part(args.x, row, args.x_stride, at, v)) };
                if with_residual {
                    let place = self.part(args.residual, row, args.residual_stride, at, v);
                    // SAFETY: as above.
                    loaded.residual[v] = unsafe { S::Access::load(place) };
                }
            }
        });
        loaded
    }

    /// x + residual, rounded to the data's type, in place of x.
    #[inline(always)]
    fn add_residual(loaded: &mut Tile<T, S::Access, V>) {
        unrolled::<V>(|v| {
            let x = S::Access::unpack::<T>(loaded.x[v]);
            let residual = S::Access::unpack::<T>(loaded.residual[v]);
            loaded.x[v] = S::Access::pack::<T>(x.zip(residual, |x, residual| x + residual));
        });
    }

    /// An element of the row, after the residual.
    #[inline(always)]
    unsafe fn element(&self, row: u64, column: u64) -> f32 {
        let args = self.args;
        // SAFETY: the row has this element, and with a stream there is a residual.
        unsafe {
            let x = T::load(self.place(args.x, row, args.x_stride, column)).to_acc();
            if self.has_stream() {
                let residual = T::load(self.place(args.residual, row, args.residual_stride, column));
                T::from_acc(x + residual.to_acc()).to_acc()
            } else {
                x
            }
        }
    }

    /// The median of the row's first, middle and last element: one that lies far off is none.
    #[inline(always)]
    unsafe fn typical(&self, row: u64) -> f32 {
        let last = self.args.columns - 1;
        // SAFETY: the caller's; a row has an element.
        let [a, b, c] = unsafe { [0, last / 2, last].map(|column| self.element(row, column)) };
        a.min(b).max(a.max(b).min(c))
    }

    /// Adds up the thread's part of a tile. The first tile's mean is what distances are from, if they are to be from a mean.
    #[inline(always)]
    fn add(&self, sums: &mut Sums, at: At, loaded: &Tile<T, S::Access, V>) {
        if at.index == 0 && sums.to_be_centred {
            let (mut count, mut sum) = (0, 0.0);
            unrolled::<V>(|v| {
                if self.has(at, v) {
                    count += width::<T, S::Access>();
                    sum = S::Access::unpack::<T>(loaded.x[v]).fold(sum, |sum, x| sum + (x - sums.centre));
                }
            });
            if count > 0 {
                sums.centre += sum / count as f32;
            }
        }
        unrolled::<V>(|v| {
            if self.has(at, v) {
                sums.count += width::<T, S::Access>();
                let x = S::Access::unpack::<T>(loaded.x[v]);
                (sums.first, sums.second) = x.fold((sums.first, sums.second), |(first, second), x| {
                    if Self::CENTRED {
                        let d = x - sums.centre;
                        (first + d, d.mul_add(d, second))
                    } else {
                        (first, x.mul_add(x, second))
                    }
                });
            }
        });
    }

    /// The sums once more, about another number; kept tiles from where they are.
    #[inline(always)]
    unsafe fn add_again(&self, row: u64, centre: f32) -> Sums {
        let mut sums = Sums::about(centre);
        let mut index = 0;
        while index < self.tiles {
            let at = self.at(index);
            index += 1;
            // SAFETY: the caller's.
            let loaded = unsafe { self.again(row, at) };
            self.add(&mut sums, at, &loaded);
        }
        sums
    }

    /// The first way: the moments of the share, and the first tiles kept.
    #[inline(always)]
    unsafe fn share(&self, row: u64, shift: f32) -> Moments<f32> {
        let mut sums = Sums {
            to_be_centred: Self::CENTRED,
            ..Sums::about(shift)
        };
        // SAFETY: the caller's.
        let mut next = unsafe { self.load(row, self.at(0), self.has_stream()) };
        let mut index = 0;
        while index < self.tiles {
            let at = self.at(index);
            index += 1;
            let mut loaded = next;
            // SAFETY: the caller's.
            next = unsafe { self.load(row, self.at(index), self.has_stream()) };
            if self.has_stream() {
                Self::add_residual(&mut loaded);
            }
            if self.is_kept(at) {
                unrolled::<V>(|v| {
                    // SAFETY: a place for each part of each thread, in the shared memory of the launch.
                    unsafe { S::Access::keep(self.kept_at(at, v), loaded.x[v]) };
                });
            }
            self.add(&mut sums, at, &loaded);
        }
        if !Self::CENTRED {
            return sums.squares();
        }
        if !sums.digits_are_kept() {
            // SAFETY: the caller's.
            sums = unsafe { self.add_again(row, sums.mean()) };
        }
        sums.moments(shift)
    }

    /// The row's statistics; valid in all threads.
    #[inline(always)]
    unsafe fn measure(&self, spread: &mut S::Team, scratch: &mut Scratch, row: u64) -> Measured
    where
        S::Team: Spread,
    {
        let args = self.args;
        // SAFETY: the caller's, here and below.
        unsafe {
            let shift = if Self::CENTRED { self.typical(row) } else { f32::ZERO };
            let own = block::moments(self.share(row, shift), scratch);
            self.measured(shift, spread.merge(own, args))
        }
    }

    /// The row's statistics, from its moments about a number.
    #[inline(always)]
    fn measured(&self, shift: f32, mut all: Moments<f32>) -> Measured {
        let args = self.args;
        // Counts above 2²⁴ are rounded on the way.
        all.count = args.columns as f32;
        if !Self::CENTRED {
            return uncentred(all.variance(), args.eps);
        }
        centred([shift, all.mean], all.variance(), all.rstd(args.eps))
    }

    /// A tile the second time, from where it is.
    #[inline(always)]
    unsafe fn again(&self, row: u64, at: At) -> Tile<T, S::Access, V> {
        // SAFETY: the caller's, here and below.
        unsafe {
            if !self.is_kept(at) {
                let mut loaded = self.load(row, at, self.has_residual());
                if self.has_stream() {
                    Self::add_residual(&mut loaded);
                }
                return loaded;
            }
            let mut loaded = Tile::nothing();
            unrolled::<V>(|v| loaded.x[v] = S::Access::kept(self.kept_at(at, v)));
            if self.has_residual() && !self.has_stream() {
                unrolled::<V>(|v| {
                    if self.has(at, v) {
                        let place = self.part(self.args.residual, row, self.args.residual_stride, at, v);
                        loaded.residual[v] = S::Access::load(place);
                    }
                });
            }
            loaded
        }
    }

    /// The second way: x̂, scale and shift, residual, activation, and the store.
    #[inline(always)]
    unsafe fn normalize(&self, normalizer: Normalizer<f32>, row: u64, set: u32) {
        let mut left = self.tiles;
        while left > 0 {
            left -= 1;
            let at = self.at(left);
            // SAFETY: the caller's.
            unsafe {
                let loaded = self.again(row, at);
                self.finish(&loaded, at, normalizer, row, set);
            }
        }
    }

    #[inline(always)]
    unsafe fn finish(&self, loaded: &Tile<T, S::Access, V>, at: At, normalizer: Normalizer<f32>, row: u64, set: u32) {
        let args = self.args;
        let mut z = [<S::Access as Access>::Numbers::<T>::splat(0.0); V];
        let narrow = args.affine.is_narrow::<T>();
        unrolled::<V>(|v| {
            if self.has(at, v) {
                let column = at.start + u64::from(self.within(v));
                // SAFETY: the caller's, for a part that the row has.
                let [weight, bias] = unsafe {
                    if narrow {
                        S::Map::at::<T, S::Access, OfType<true>>(&args.affine, self.lookup, set, column)
                    } else {
                        S::Map::at::<T, S::Access, OfType<false>>(&args.affine, self.lookup, set, column)
                    }
                };
                let xhat = S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
                z[v] = xhat.zip3(weight, bias, normalize::affine);
                if self.has_residual() && !self.has_stream() {
                    z[v] = z[v].zip(S::Access::unpack::<T>(loaded.residual[v]), |z, residual| z + residual);
                }
            }
        });
        let y = S::Epilogue::apply::<T, _, _>(z, args.activation);
        unrolled::<V>(|v| {
            if self.has(at, v) {
                // SAFETY: the caller's; each part belongs to one thread.
                unsafe {
                    if self.has_stream() {
                        let place = self.part(args.stream, row, args.stream_stride, at, v);
                        S::Access::store(place.cast_mut(), loaded.x[v]);
                    }
                    let place = self.part(args.y, row, args.y_stride, at, v);
                    S::Access::store(place.cast_mut(), S::Access::pack::<T>(y[v]));
                }
            }
        });
    }
}
