//! Rows that are in the shared memory of a block, all of each: they come there at once, past the registers, so that the rows of several blocks are on a
//! multiprocessor that has no registers for them.
//!
//! Where runs of columns share a weight and bias, these are in shared memory, too, as numbers: each is asked for by one thread, while the row is
//! on its way.

use core::marker::PhantomData;

use isonorm_math::{Normalizer, normalize};

pub use super::Args;
use crate::block::{self, Scratch};
use crate::rows::access::{Access, Data, Vectors, width};
use crate::rows::by_column::ByColumn;
use crate::rows::epilogue::{Apart, Class, Epilogue, Told};
use crate::rows::forward::{Spec, UsualOf};
use crate::rows::lanes::{FourPairs, Lanes, unrolled};
use crate::rows::parameters::{Known, Map, OfColumn, OfType, RunOf, Sharing, at_least_one, joined};
use crate::rows::spread::{Alone, HEAD_BYTES};
use crate::rows::statistics::{Op, Statistics, Summed};
use crate::simt::{self, Shared};

/// Tiles of a row, each of some accesses of every thread: of the first ones sums are taken while others are on their way.
pub const TILES: u32 = 4;

/// Bytes of shared memory that weight and bias of a run take. A row has no more runs than the block has threads, for each of which there is room
/// in front of the row.
const RUN_BYTES: u32 = 8;

/// Bytes of shared memory in front of the row, with or without runs.
const fn head_bytes(threads: u32, by_run: bool) -> u32 {
    HEAD_BYTES + if by_run { threads * RUN_BYTES } else { 0 }
}

/// Bytes of shared memory of a block of so many threads, where a row has so many accesses.
pub fn shared_bytes(threads: u32, sharing: Sharing, accesses: u32) -> u32 {
    head_bytes(threads, sharing == Sharing::ByRun) + accesses * <Vectors>::KEPT_BYTES
}

/// Normalizes the rows. For a grid of any size.
///
/// # Safety
///
/// As for [`forward`](crate::rows::forward::forward); blocks have [`shared_bytes`], [`TILES`] tiles are a row or more, and a row has no more runs than
/// a block has threads.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn long_shared<T, S, const V: usize>(args: &Args<T>)
where
    T: Data,
    S: Spec<Team = Alone, Statistics: Summed>,
{
    const { assert!(!S::RESIDUAL && (Whole::<T, S, V>::BY_RUN || matches!(S::Epilogue::CLASS, Class::Plain))) }
    let mut row = u64::from(simt::block_index());
    let mut scratch = None;
    while row < args.rows {
        let whole = Whole::<T, S, V>::new(args, row);
        // SAFETY: the caller's. A thread fetches the next row to places that no other has read.
        unsafe {
            whole.fetch();
            whole.tell_runs(row);
            let scratch = scratch.get_or_insert_with(Scratch::at_start);
            let mut about = whole.first();
            let mut sums = block::sum_pair(whole.sums(about), scratch);
            let (mut measured, again) = S::Statistics::conclude::<T, V>(sums, about, args);
            if let Some(mean) = again {
                // All threads have the same sums.
                about = mean;
                sums = block::sum_pair(whole.sums(about), scratch);
                (measured, _) = S::Statistics::conclude::<T, V>(sums, about, args);
            }
            if simt::thread_index() == 0 {
                measured.save(args, row);
            }
            let normalizer = measured.normalizer;
            match args.affine.is_narrow::<T>() {
                _ if Whole::<T, S, V>::BY_RUN => whole.finish(normalizer),
                _ if UsualOf::<S>::holds::<T>(&args.affine) => whole.normalize::<UsualOf<S>>(normalizer),
                true => whole.normalize::<OfType<true>>(normalizer),
                false => whole.normalize::<OfType<false>>(normalizer),
            }
        }
        row += u64::from(simt::grid_blocks());
        if Whole::<T, S, V>::BY_RUN && row < args.rows {
            // All have read what the next row's runs replace.
            simt::block_barrier();
        }
    }
}

/// A row, as a thread sees it.
struct Whole<'a, T, S, const V: usize> {
    args: &'a Args<T>,
    /// Where the row starts in `x` and in `y`.
    x: *const T,
    y: *mut T,
    /// The row's accesses.
    accesses: u32,
    of: PhantomData<S>,
}

/// A tile: how many accesses lie before it, and whether all of its accesses are the row's.
#[derive(Clone, Copy)]
struct Tile {
    before: u32,
    is_full: bool,
}

impl<'a, T, S, const V: usize> Whole<'a, T, S, V>
where
    T: Data,
    S: Spec<Team = Alone, Statistics: Summed>,
{
    /// Whether runs of columns share a weight and bias.
    const BY_RUN: bool = matches!(S::Map::SHARING, Sharing::ByRun);

    /// Whether weight and bias are part of what an access is normalized with; see the same of rows that registers hold.
    const JOINED: bool = matches!(S::Epilogue::CLASS, Class::Any) && size_of::<T>() == 2;

    #[inline(always)]
    fn new(args: &'a Args<T>, row: u64) -> Self {
        Self {
            args,
            x: args.x.wrapping_add((row * args.x_stride) as usize),
            y: args.y.wrapping_add((row * args.y_stride) as usize),
            accesses: args.columns as u32 / at_least_one(width::<T, S::Access>()),
            of: PhantomData,
        }
    }

    /// Goes over the tiles of the row.
    #[inline(always)]
    fn tiles(&self, mut each: impl FnMut(u32, Tile)) {
        let of_tile = V as u32 * simt::block_threads();
        // A loop, not written out.
        let (tiles, mut index) = (simt::opaque(TILES), 0);
        while index < tiles {
            let before = index * of_tile;
            let is_full = before + of_tile <= self.accesses;
            each(index, Tile { before, is_full });
            index += 1;
        }
    }

    /// The number of the thread's access `v` to a tile.
    #[inline(always)]
    fn access(tile: Tile, v: usize) -> u32 {
        tile.before + v as u32 * simt::block_threads() + simt::thread_index()
    }

    /// Whether the row has an access; known of those of a full tile.
    #[inline(always)]
    fn has<const FULL: bool>(&self, access: u32) -> bool {
        FULL || access < self.accesses
    }

    /// Where an access of a row starts.
    #[inline(always)]
    fn start(access: u32) -> usize {
        (access * width::<T, S::Access>()) as usize
    }

    /// Where an access is kept.
    #[inline(always)]
    fn place(access: u32) -> Shared<u32> {
        Shared::at(head_bytes(simt::block_threads(), Self::BY_RUN) + access * S::Access::KEPT_BYTES)
    }

    /// Sets the row on its way, tile by tile.
    #[inline(always)]
    unsafe fn fetch(&self) {
        self.tiles(|_, tile| {
            // SAFETY: the caller's.
            unsafe {
                match tile.is_full {
                    true => self.fetch_tile::<true>(tile),
                    false => self.fetch_tile::<false>(tile),
                }
            }
            simt::copy_commit();
        });
    }

    #[inline(always)]
    unsafe fn fetch_tile<const FULL: bool>(&self, tile: Tile) {
        unrolled::<V>(|v| {
            let access = Self::access(tile, v);
            if self.has::<FULL>(access) {
                // SAFETY: the row has these elements, and the place is this thread's.
                unsafe { S::Access::fetch(Self::place(access), self.x.wrapping_add(Self::start(access))) };
            }
        });
    }

    /// What distances are from, at first.
    #[inline(always)]
    unsafe fn first(&self) -> f32 {
        match S::Statistics::OP {
            // SAFETY: the caller's; a row has an element.
            Op::Layer => unsafe { T::load(self.x) }.to_acc(),
            _ => 0.0,
        }
    }

    /// The sums of the thread's elements about a number, when they have come.
    #[inline(always)]
    unsafe fn sums(&self, about: f32) -> [f32; 2] {
        let mut sums = FourPairs::ZERO;
        self.tiles(|index, tile| {
            wait(index);
            // SAFETY: the caller's; this thread has waited.
            sums = unsafe {
                match tile.is_full {
                    true => self.add_tile::<true>(sums, tile, about),
                    false => self.add_tile::<false>(sums, tile, about),
                }
            };
        });
        sums.total()
    }

    #[inline(always)]
    unsafe fn add_tile<const FULL: bool>(&self, mut sums: FourPairs, tile: Tile, about: f32) -> FourPairs {
        unrolled::<V>(|v| {
            let access = Self::access(tile, v);
            if self.has::<FULL>(access) {
                // SAFETY: this thread has fetched it, and waited.
                let part = unsafe { S::Access::kept::<T>(Self::place(access)) };
                sums = S::Statistics::add_apart::<T, S::Access>(sums, part, about);
            }
        });
        sums
    }

    /// Where the weight and the bias of a run are.
    #[inline(always)]
    fn place_of_run(run: u32) -> Shared<f32> {
        Shared::at(HEAD_BYTES + run * RUN_BYTES)
    }

    /// Leaves the thread's run of the row for all to read behind a barrier.
    #[inline(always)]
    unsafe fn tell_runs(&self, row: u64) {
        let (affine, run) = (&self.args.affine, simt::thread_index());
        if Self::BY_RUN && run < affine.runs {
            let index = affine.set_of::<S::Map>(row) * affine.runs + run;
            // SAFETY: the caller's: a number for each run of each set, and room for those of a row.
            unsafe {
                let words = [
                    affine.ask::<T>(affine.weight, index, 1.0),
                    affine.ask::<T>(affine.bias, index, 0.0),
                ];
                simt::shared_store_64(Self::place_of_run(run), words.map(|word| affine.known::<T>(word)));
            }
        }
    }

    /// x̂, scale and shift of runs, activation, and the store.
    #[inline(always)]
    unsafe fn finish(&self, normalizer: Normalizer<f32>) {
        let told = self.args.activation;
        // SAFETY: the caller's.
        unsafe {
            match told.apart::<S::Epilogue>() {
                Apart::Identity => self.finish_as(normalizer, Told::IDENTITY),
                Apart::Relu => self.finish_as(normalizer, Told::RELU),
                Apart::Other => self.finish_as(normalizer, told.other::<S::Epilogue>()),
            }
        }
    }

    #[inline(always)]
    unsafe fn finish_as(&self, normalizer: Normalizer<f32>, told: Told) {
        let lookup = RunOf::new(&self.args.affine);
        self.tiles(|_, tile| {
            // SAFETY: the caller's.
            unsafe {
                match tile.is_full {
                    true => self.finish_tile::<true>(tile, lookup, normalizer, told),
                    false => self.finish_tile::<false>(tile, lookup, normalizer, told),
                }
            }
        });
    }

    /// A few accesses side by side.
    #[inline(always)]
    unsafe fn finish_tile<const FULL: bool>(&self, tile: Tile, lookup: RunOf, normalizer: Normalizer<f32>, told: Told) {
        const AT_ONCE: usize = 2;
        const { assert!(V.is_multiple_of(AT_ONCE)) }
        let mut first = 0;
        while first < V {
            let mut z = [<S::Access as Access>::Numbers::<T>::splat(0.0); AT_ONCE];
            unrolled::<AT_ONCE>(|k| {
                let access = Self::access(tile, first + k);
                if self.has::<FULL>(access) {
                    let run = lookup.at(&self.args.affine, Self::start(access) as u64);
                    // SAFETY: this thread has fetched the access; the run was told before a barrier.
                    let (x, [weight, bias]) = unsafe {
                        (
                            S::Access::unpack::<T>(S::Access::kept::<T>(Self::place(access))),
                            simt::shared_load_64(Self::place_of_run(run)),
                        )
                    };
                    z[k] = match Self::JOINED {
                        true => {
                            let joined = joined(normalizer, [weight, bias]);
                            x.map(|x| joined.apply(x))
                        }
                        false => x.map(|x| normalize::affine(normalizer.apply(x), weight, bias)),
                    };
                }
            });
            let y = S::Epilogue::apply::<T, _, AT_ONCE>(z, told);
            unrolled::<AT_ONCE>(|k| {
                let access = Self::access(tile, first + k);
                if self.has::<FULL>(access) {
                    // SAFETY: the caller's; each access belongs to one thread.
                    unsafe { S::Access::store(self.y.wrapping_add(Self::start(access)), S::Access::pack::<T>(y[k])) };
                }
            });
            first += AT_ONCE;
        }
    }

    /// x̂, scale and shift of columns, and the store.
    #[inline(always)]
    unsafe fn normalize<K: Known>(&self, normalizer: Normalizer<f32>) {
        self.tiles(|_, tile| {
            // SAFETY: the caller's.
            unsafe {
                match tile.is_full {
                    true => self.normalize_tile::<K, true>(tile, normalizer),
                    false => self.normalize_tile::<K, false>(tile, normalizer),
                }
            }
        });
    }

    #[inline(always)]
    unsafe fn normalize_tile<K: Known, const FULL: bool>(&self, tile: Tile, normalizer: Normalizer<f32>) {
        // SAFETY: the caller's.
        unsafe {
            match K::NARROW || size_of::<T>() == 4 {
                true => self.normalize_some::<K, FULL, V>(tile, normalizer),
                // `f32` parameters of 16-bit data take the registers of twice as many.
                false => self.normalize_some::<K, FULL, 2>(tile, normalizer),
            }
        }
    }

    /// `AT_ONCE`: accesses that ask for their parameters together, all before any is waited for.
    #[inline(always)]
    unsafe fn normalize_some<K: Known, const FULL: bool, const AT_ONCE: usize>(
        &self,
        tile: Tile,
        normalizer: Normalizer<f32>,
    ) {
        let nothing = <S::Access as Access>::Numbers::<T>::splat(0.0);
        let mut first = 0;
        while first < V {
            let mut parameters = [[nothing; 2]; AT_ONCE];
            unrolled::<AT_ONCE>(|k| {
                // Of the row's last access instead of one that it does not have.
                let access = Self::access(tile, first + k);
                let access = if FULL { access } else { access.min(self.accesses - 1) };
                // SAFETY: the caller's, for a part that the row has.
                parameters[k] =
                    unsafe { ByColumn::at::<T, S::Access, K>(&self.args.affine, (), 0, Self::start(access) as u64) };
            });
            unrolled::<AT_ONCE>(|k| {
                let access = Self::access(tile, first + k);
                if self.has::<FULL>(access) {
                    let [weight, bias] = parameters[k];
                    // SAFETY: this thread has fetched it; each access belongs to one thread.
                    unsafe {
                        let x = S::Access::unpack::<T>(S::Access::kept::<T>(Self::place(access)));
                        let y = x.map(|x| normalizer.apply(x)).zip3(weight, bias, normalize::affine);
                        S::Access::store(self.y.wrapping_add(Self::start(access)), S::Access::pack::<T>(y));
                    }
                }
            });
            first += AT_ONCE;
        }
    }
}

/// Waits for a tile, those behind which are on their way.
#[inline(always)]
fn wait(index: u32) {
    match index {
        0 => simt::copy_wait::<3>(),
        1 => simt::copy_wait::<2>(),
        2 => simt::copy_wait::<1>(),
        _ => simt::copy_wait::<0>(),
    }
}

const _: () = assert!(TILES == 4, "as many as are waited for");
