//! Rows that are in the shared memory of a block, all of each: they come there at once, past the registers, so that the rows of several blocks are on a
//! multiprocessor that has no registers for them.

use core::marker::PhantomData;

use isonorm_math::{Normalizer, normalize};

pub use super::Args;
use crate::block::{self, Scratch};
use crate::rows::access::{Access, Data, width};
use crate::rows::by_column::ByColumn;
use crate::rows::epilogue::Plain;
use crate::rows::forward::{Spec, UsualOf};
use crate::rows::lanes::{FourPairs, Lanes, unrolled};
use crate::rows::parameters::{Known, OfColumn, OfType, at_least_one};
use crate::rows::spread::{Alone, HEAD_BYTES};
use crate::rows::statistics::{Op, Statistics, Summed};
use crate::simt::{self, Shared};

/// Tiles of a row, each of some accesses of every thread: of the first ones sums are taken while others are on their way.
pub const TILES: u32 = 4;

/// Normalizes the rows. For a grid of any size.
///
/// # Safety
///
/// As for [`forward`](crate::rows::forward::forward); blocks have shared memory for [`TILES`] tiles, which are a row or more.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn long_shared<T, S, const V: usize>(args: &Args<T>)
where
    T: Data,
    S: Spec<Team = Alone, Map = ByColumn, Epilogue = Plain, Statistics: Summed>,
{
    let mut row = u64::from(simt::block_index());
    let mut scratch = None;
    while row < args.rows {
        let whole = Whole::<T, S, V>::new(args, row);
        // SAFETY: the caller's. A thread fetches the next row to places that no other has read.
        unsafe {
            whole.fetch();
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
                _ if UsualOf::<S>::holds::<T>(&args.affine) => whole.normalize::<UsualOf<S>>(normalizer),
                true => whole.normalize::<OfType<true>>(normalizer),
                false => whole.normalize::<OfType<false>>(normalizer),
            }
        }
        row += u64::from(simt::grid_blocks());
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
    S: Spec<Team = Alone, Map = ByColumn, Epilogue = Plain, Statistics: Summed>,
{
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
        Shared::at(HEAD_BYTES + access * S::Access::KEPT_BYTES)
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

    /// x̂, scale and shift, and the store.
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
