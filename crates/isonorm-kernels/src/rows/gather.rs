//! Adds up what the blocks of a backward pass have summed: the gradients of weight and bias.

use super::access::Data;
use super::lanes::{Lanes, sum_of_parts, unrolled};
use super::parameters::at_least_one;
use crate::simt::{self, Shared, WARP};

/// What the kernel is told at launch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// `[parts, columns]`
    pub parts_of_weight: *const f32,
    /// `[parts, columns]`
    pub parts_of_bias: *const f32,
    /// `[columns]`, in the parameters' type; or null.
    pub dweight: *mut u8,
    /// `[columns]`, in the parameters' type; or null.
    pub dbias: *mut u8,
    /// How many sums there are for each column.
    pub parts: u64,
    /// Columns of a row.
    pub columns: u64,
    /// Warps of a block that share the parts of a column: a divisor of its warps.
    pub warps: u32,
    /// Whether the gradients have the data's type (1), or are `f32` (0).
    pub as_data: u32,
    /// Columns of a thread: 1 or [`WIDE`], which divides `columns` then, and all sums are aligned to 16 bytes.
    pub width: u32,
    /// The data's type.
    pub of: core::marker::PhantomData<T>,
}

/// Columns of a thread, where there are so many that each access is worth more.
pub const WIDE: u32 = 4;

/// Bytes of shared memory of a block of `threads` threads that have so many columns each.
pub const fn shared_bytes(threads: u32, width: u32) -> u32 {
    threads * width * 4
}

/// Adds up the parts of each column: so many warps have 32 times the columns of a thread at a time, each of them every so many parts. For a
/// grid of any size; even blocks of the grid take the weight, odd ones the bias, so it has two at least.
///
/// # Safety
///
/// The pointers of `args` are as said there; blocks have [`shared_bytes`].
#[inline(always)]
pub unsafe fn gather<T: Data>(args: &Args<T>) {
    // SAFETY: the caller's.
    unsafe {
        match args.width {
            WIDE => by::<T, [f32; WIDE as usize], 8>(args),
            _ => by::<T, [f32; 1], 16>(args),
        }
    }
}

/// The same, by threads that have so many columns, and ask for so many parts of them before they add them up.
#[inline(always)]
unsafe fn by<T: Data, N: Lanes, const AT_ONCE: usize>(args: &Args<T>) {
    let of_bias = simt::block_index() % 2 == 1;
    let (parts, to) = if of_bias {
        (args.parts_of_bias, args.dbias)
    } else {
        (args.parts_of_weight, args.dweight)
    };
    if to.is_null() {
        return;
    }
    let warps = at_least_one(args.warps);
    let (group, own) = (simt::warp_index() / warps, simt::warp_index() % warps);
    let warps = warps.get();
    // Columns that the block has at a time, and where it starts.
    let width = simt::block_threads() / warps * N::LANES;
    // Of an odd number of blocks, one more is even.
    let blocks = (simt::grid_blocks() + 1 - simt::block_index() % 2) / 2;
    let mut first = u64::from(simt::block_index() / 2) * u64::from(width);
    while first < args.columns {
        let column = first + u64::from((group * WARP + simt::lane()) * N::LANES);
        let (mut sum, mut part) = (N::splat(0.0), u64::from(own));
        while part < args.parts && column < args.columns {
            // All on their way at once. Opaque, for otherwise each address becomes a variable of the loop.
            part = simt::opaque_64(part);
            let mut some = [N::splat(0.0); AT_ONCE];
            unrolled::<AT_ONCE>(|i| {
                let part = part + i as u64 * u64::from(warps);
                if part < args.parts {
                    let place = parts.wrapping_add((part * args.columns + column) as usize);
                    // SAFETY: the caller's.
                    some[i] = unsafe { N::load(place) };
                }
            });
            unrolled::<AT_ONCE>(|i| sum = sum.zip(some[i], |sum, more| sum + more));
            part += AT_ONCE as u64 * u64::from(warps);
        }
        let place = Shared::<f32>::at(0);
        let (threads, thread) = (simt::block_threads(), simt::thread_index());
        // SAFETY: a place for the numbers of each thread.
        unsafe { sum.keep(place, thread, threads) };
        simt::block_barrier();
        if own == 0 && column < args.columns {
            sum = sum_of_parts(warps, |warp| {
                // SAFETY: written before the barrier.
                unsafe { N::kept(place, warp * WARP + thread, threads) }
            });
            sum.fold(column, |column, sum| {
                // SAFETY: the caller's; a thread for each column.
                unsafe { store(args, to, column, sum) };
                column + 1
            });
        }
        simt::block_barrier();
        first += u64::from(blocks) * u64::from(width);
    }
}

#[inline(always)]
unsafe fn store<T: Data>(args: &Args<T>, to: *mut u8, column: u64, sum: f32) {
    // SAFETY: the caller's.
    unsafe {
        if args.as_data != 0 {
            T::store(to.cast::<T>().wrapping_add(column as usize), T::from_acc(sum));
        } else {
            f32::store(to.cast::<f32>().wrapping_add(column as usize), sum);
        }
    }
}
