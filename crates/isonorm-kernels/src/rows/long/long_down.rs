//! Long rows, some at once: each thread has its columns of all of them when they are normalized, and so reads their weight and bias once.
//!
//! All blocks measure their shares of the rows first, then wait for each other once, and go over their columns in the opposite order. Of rows that are
//! many times what the last-level cache holds that saves next to nothing.

use isonorm_math::{Moments, Normalizer, normalize};

pub use super::Args;
use super::{At, Tile, Walk};
use crate::rows::access::{Access, Data, width};
use crate::rows::by_column::ByColumn;
use crate::rows::epilogue::Plain;
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{OfColumn, OfType, at_least_one};
use crate::rows::spread::{Grid, HEAD_BYTES};
use crate::rows::sums::Sums;
use crate::simt::{self, Shared, WARP};
use crate::warp;

/// Rows at once, at most: shared memory has what normalizes them.
pub const ROWS: u32 = 64;

/// Numbers that are kept of a row, and numbers that blocks tell each other of one.
const KEPT: u32 = 3;
const MOMENTS: u64 = 3;

/// Moments of other blocks that a thread asks for at once.
const AT_ONCE: usize = 2;
/// Rows to normalize that it asks for at once.
const ROWS_AT_ONCE: usize = 4;

/// Bytes of shared memory of a block of `threads` threads: what is kept of each row, and the moments of each warp's share of it.
pub const fn shared_bytes(threads: u32) -> u32 {
    HEAD_BYTES + ROWS * (KEPT + threads / WARP * MOMENTS as u32) * size_of::<f32>() as u32
}

/// Bytes at [`moments`](Args::moments) for so many blocks; there is a counter for each [`ROWS`] rows at [`arrived`](Args::arrived), 0 before the
/// launch.
pub const fn moments_bytes(blocks: u64) -> u64 {
    2 * ROWS as u64 * blocks * MOMENTS * size_of::<f32>() as u64
}

/// Normalizes the rows. For a grid whose blocks all run at the same time, and share each row.
///
/// # Safety
///
/// As for [`forward`](crate::rows::forward::forward); blocks have [`shared_bytes`] of shared memory, and [`kept`](Args::kept) is 0.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn long_down<T: Data, S: Spec<Team = Grid, Map = ByColumn, Epilogue = Plain>, const V: usize>(
    args: &Args<T>,
) {
    let blocks = at_least_one(simt::grid_blocks());
    let walk = Walk::<T, S, V>::new(args, simt::block_index(), blocks);
    let (mut first_row, mut round) = (0, 0_u32);
    while first_row < args.rows {
        let rows = Rows {
            walk: &walk,
            first_row,
            rows: (args.rows - first_row).min(ROWS.into()) as u32,
            slot: u64::from(round % 2),
            blocks: blocks.get(),
        };
        // SAFETY: the caller's: a counter for each round.
        unsafe {
            rows.measure();
            if simt::thread_index() == 0 {
                let arrived = args.arrived.wrapping_add(round as usize);
                simt::counter_add(arrived, 1);
                simt::counter_wait(arrived, blocks.get());
            }
            simt::block_barrier();
            rows.conclude();
            simt::block_barrier();
            rows.normalize();
            // What normalizes these is in the place of what does the next.
            simt::block_barrier();
        }
        first_row += u64::from(rows.rows);
        round += 1;
    }
}

/// Some rows.
struct Rows<'a, T: Data, S: Spec<Map = ByColumn>, const V: usize> {
    walk: &'a Walk<'a, T, S, V>,
    first_row: u64,
    rows: u32,
    /// Two slots in turn: whoever writes one again has seen all arrive in between, and so behind their reading of it.
    slot: u64,
    blocks: u32,
}

impl<T: Data, S: Spec<Team = Grid, Map = ByColumn, Epilogue = Plain>, const V: usize> Rows<'_, T, S, V> {
    /// Where a block leaves its moments of a row.
    #[inline(always)]
    fn place(&self, row: u32, block: u32) -> *mut u32 {
        let row = (self.slot * u64::from(ROWS) + u64::from(row)) * u64::from(self.blocks);
        let place = (row + u64::from(block)) * MOMENTS;
        self.walk.args.moments.wrapping_add(place as usize).cast()
    }

    /// What distances of a row are from.
    #[inline(always)]
    unsafe fn shift(&self, row: u32) -> f32 {
        match Walk::<T, S, V>::CENTRED {
            // SAFETY: the caller's.
            true => unsafe { self.walk.typical(self.first_row + u64::from(row)) },
            false => 0.0,
        }
    }

    /// Leaves the moments of the block's shares: of all rows those of each warp first, so that warps wait for each other once.
    #[inline(always)]
    unsafe fn measure(&self) {
        // SAFETY: the caller's, here and below.
        let mut shift = unsafe { self.shift(0) };
        let mut row = 0;
        while row < self.rows {
            // It takes as long as the rest of a row, or longer.
            // SAFETY: as above; there are so many rows.
            let next = unsafe { self.shift((row + 1).min(self.rows - 1)) };
            // SAFETY: as above; each warp has a place of its own.
            unsafe {
                let own = warp::moments(self.share(self.first_row + u64::from(row), shift));
                if simt::lane() == 0 {
                    let place = Self::of_warp(simt::warp_index(), row);
                    simt::shared_store(place, own.count);
                    simt::shared_store(place.offset(1), own.mean);
                    simt::shared_store(place.offset(2), own.m2);
                }
            }
            (shift, row) = (next, row + 1);
        }
        simt::block_barrier();
        let row = simt::thread_index();
        if row < self.rows {
            let (mut all, mut warp) = (Moments::EMPTY, 0);
            while warp < simt::block_threads() / WARP {
                let place = Self::of_warp(warp, row);
                // SAFETY: as above: left before the barrier.
                let [count, mean, m2] = unsafe { [0, 1, 2].map(|i| simt::shared_load(place.offset(i))) };
                all = all.merge(Moments { count, mean, m2 });
                warp += 1;
            }
            let place = self.place(row, simt::block_index());
            // SAFETY: as above; each block has a place of its own.
            unsafe {
                simt::store_32(place, all.count.to_bits());
                simt::store_32(place.wrapping_add(1), all.mean.to_bits());
                simt::store_32(place.wrapping_add(2), all.m2.to_bits());
            }
        }
        simt::block_barrier();
    }

    /// The moments of the thread's share of a row: about another number, where the first one was not near enough to the mean.
    #[inline(always)]
    unsafe fn share(&self, row: u64, shift: f32) -> Moments<f32> {
        let walk = self.walk;
        let mut sums = Sums {
            to_be_centred: Walk::<T, S, V>::CENTRED,
            ..Sums::about(shift)
        };
        let (len, tile) = ((walk.end - walk.start) as u32, simt::opaque(walk.tile));
        let first = walk.place(walk.args.x, row, walk.args.x_stride, walk.start);
        // Of a tile that starts so many elements behind the first, or ends the share.
        let load = |start: u32| {
            let mut loaded = Tile::nothing();
            unrolled::<V>(|v| {
                let own = start + walk.within(v);
                if own < len {
                    // SAFETY: the caller's; the row has these elements.
                    loaded.x[v] = unsafe { S::Access::load(first.wrapping_add(own as usize)) };
                }
            });
            loaded
        };
        let mut repeated = false;
        loop {
            let (mut start, mut next) = (0, load(0));
            while start < len {
                let at = At {
                    index: u64::from(start),
                    start: 0,
                    left: len - start,
                };
                let loaded = next;
                // Opaque, for otherwise each address becomes a variable of the loop.
                start = simt::opaque(start + tile);
                next = load(start);
                walk.add(&mut sums, at, &loaded);
            }
            if !Walk::<T, S, V>::CENTRED {
                return sums.squares();
            }
            if repeated || sums.digits_are_kept() {
                return sums.moments(shift);
            }
            (sums, repeated) = (Sums::about(sums.mean()), true);
        }
    }

    /// Where a warp leaves the moments of its share of a row.
    #[inline(always)]
    fn of_warp(warp: u32, row: u32) -> Shared<f32> {
        Shared::at(HEAD_BYTES).offset(ROWS * KEPT + (warp * ROWS + row) * MOMENTS as u32)
    }

    /// The rows' statistics, from those of all shares: a warp has some rows, and leaves what normalizes them.
    #[inline(always)]
    unsafe fn conclude(&self) {
        let mut row = simt::warp_index();
        while row < self.rows {
            // SAFETY: the caller's, here and below: all blocks have arrived.
            let (shift, all) = unsafe { (self.shift(row), self.merged(row)) };
            let measured = self.walk.measured(shift, all);
            if simt::lane() == 0 {
                let Normalizer { centre, rstd, offset } = measured.normalizer;
                let place = Self::kept(row);
                // SAFETY: as above; a place for each row.
                unsafe {
                    simt::shared_store(place, centre);
                    simt::shared_store(place.offset(1), rstd);
                    simt::shared_store(place.offset(2), offset);
                    if simt::block_index() == 0 {
                        measured.save(self.walk.args, self.first_row + u64::from(row));
                    }
                }
            }
            row += simt::block_threads() / WARP;
        }
    }

    /// The moments of a row, from those of all blocks in their order; valid in every lane.
    #[inline(always)]
    unsafe fn merged(&self, row: u32) -> Moments<f32> {
        let mut all = Moments::EMPTY;
        let mut block = simt::lane();
        while block < self.blocks {
            // All on their way at once.
            let mut some = [Moments::EMPTY; AT_ONCE];
            unrolled::<AT_ONCE>(|i| {
                let block = block + i as u32 * WARP;
                if block < self.blocks {
                    let place = self.place(row, block);
                    // SAFETY: the caller's.
                    let [count, mean, m2] =
                        unsafe { [0, 1, 2].map(|i| f32::from_bits(simt::load_32(place.wrapping_add(i)))) };
                    some[i] = Moments { count, mean, m2 };
                }
            });
            unrolled::<AT_ONCE>(|i| all = all.merge(some[i]));
            block += AT_ONCE as u32 * WARP;
        }
        warp::moments(all)
    }

    /// Where what normalizes a row is kept.
    #[inline(always)]
    fn kept(row: u32) -> Shared<f32> {
        Shared::at(HEAD_BYTES).offset(row * KEPT)
    }

    /// Normalizes the block's columns of all of these rows, from the last to the first.
    #[inline(always)]
    unsafe fn normalize(&self) {
        let walk = self.walk;
        let strip = simt::block_threads() * width::<T, S::Access>();
        let own = simt::thread_index() * width::<T, S::Access>();
        let len = (walk.end - walk.start) as u32;
        let mut left = len.div_ceil(at_least_one(strip).get());
        while left > 0 {
            left -= 1;
            let at = left * strip + own;
            if at < len {
                // SAFETY: the caller's; the rows have these columns.
                unsafe { self.normalize_columns(walk.start + u64::from(at)) };
            }
        }
    }

    /// The same of one thread's columns.
    #[inline(always)]
    unsafe fn normalize_columns(&self, column: u64) {
        let (walk, args) = (self.walk, self.walk.args);
        // SAFETY: the caller's, here and below.
        let [weight, bias] = unsafe {
            match args.affine.is_narrow::<T>() {
                true => ByColumn::at::<T, S::Access, OfType<true>>(&args.affine, (), 0, column),
                false => ByColumn::at::<T, S::Access, OfType<false>>(&args.affine, (), 0, column),
            }
        };
        let first_of = |tensor: *const T, stride: u64| walk.place(tensor, self.first_row, stride, column);
        let (mut from, mut to) = (
            first_of(args.x, args.x_stride),
            first_of(args.y.cast_const(), args.y_stride),
        );
        let mut first = 0;
        while first < self.rows {
            // Opaque, for otherwise each address becomes a variable of the loop.
            (from, to) = (opaque(from), opaque(to));
            let row = |i: usize| first + i as u32;
            let behind = |place: *const T, stride: u64, i: usize| place.wrapping_add(i * stride as usize);
            let mut x = [S::Access::nothing::<T>(); ROWS_AT_ONCE];
            unrolled::<ROWS_AT_ONCE>(|i| {
                if row(i) < self.rows {
                    // SAFETY: as above.
                    x[i] = unsafe { S::Access::load(behind(from, args.x_stride, i)) };
                }
            });
            unrolled::<ROWS_AT_ONCE>(|i| {
                if row(i) < self.rows {
                    let kept = Self::kept(row(i));
                    // SAFETY: as above: kept before a barrier; each access belongs to one thread.
                    unsafe {
                        let normalizer = Normalizer {
                            centre: simt::shared_load(kept),
                            rstd: simt::shared_load(kept.offset(1)),
                            offset: simt::shared_load(kept.offset(2)),
                        };
                        let xhat = S::Access::unpack::<T>(x[i]).map(|x| normalizer.apply(x));
                        let y = xhat.zip3(weight, bias, normalize::affine);
                        let place = behind(to, args.y_stride, i);
                        S::Access::store(place.cast_mut(), S::Access::pack::<T>(y));
                    }
                }
            });
            from = behind(from, args.x_stride, ROWS_AT_ONCE);
            to = behind(to, args.y_stride, ROWS_AT_ONCE);
            first += ROWS_AT_ONCE as u32;
        }
    }
}

/// The same place, about which the compiler knows nothing.
#[inline(always)]
fn opaque<T>(place: *const T) -> *const T {
    place.with_addr(simt::opaque_64(place.addr() as u64) as usize)
}
