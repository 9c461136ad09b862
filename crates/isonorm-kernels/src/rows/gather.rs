//! Adds up what the blocks of a backward pass have summed: the gradients of weight and bias.

use super::access::Data;
use super::lanes::unrolled;
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
    /// The data's type.
    pub of: core::marker::PhantomData<T>,
}

/// Parts that a thread reads before it adds them up.
const AT_ONCE: usize = 8;

/// Bytes of shared memory of a block of `threads` threads.
pub const fn shared_bytes(threads: u32) -> u32 {
    threads * 4
}

/// Adds up the parts of each column: so many warps have 32 columns at a time, each of them every so many parts. For a grid of any
/// size; even blocks of the grid take the weight, odd ones the bias, so it has two at least.
///
/// # Safety
///
/// The pointers of `args` are as said there; blocks have [`shared_bytes`].
#[inline(always)]
pub unsafe fn gather<T: Data>(args: &Args<T>) {
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
    let width = simt::block_threads() / warps;
    // Of an odd number of blocks, one more is even.
    let blocks = (simt::grid_blocks() + 1 - simt::block_index() % 2) / 2;
    let mut first = u64::from(simt::block_index() / 2) * u64::from(width);
    while first < args.columns {
        let column = first + u64::from(group * WARP + simt::lane());
        let (mut sum, mut part) = (0.0, u64::from(own));
        while part < args.parts && column < args.columns {
            // All on their way at once. Opaque, for otherwise each address becomes a variable of the loop.
            part = simt::opaque_64(part);
            let mut some = [0.0; AT_ONCE];
            unrolled::<AT_ONCE>(|i| {
                let part = part + i as u64 * u64::from(warps);
                if part < args.parts {
                    let place = parts.wrapping_add((part * args.columns + column) as usize);
                    // SAFETY: the caller's.
                    some[i] = unsafe { f32::load(place) };
                }
            });
            unrolled::<AT_ONCE>(|i| sum += some[i]);
            part += AT_ONCE as u64 * u64::from(warps);
        }
        let place = Shared::<f32>::at(0);
        // SAFETY: a place for each thread.
        unsafe { simt::shared_store(place.offset(simt::thread_index()), sum) };
        simt::block_barrier();
        if own == 0 && column < args.columns {
            let mut warp = 1;
            while warp < warps {
                // SAFETY: written before the barrier.
                sum += unsafe { simt::shared_load(place.offset(warp * WARP + simt::thread_index())) };
                warp += 1;
            }
            // SAFETY: the caller's; a thread for each column.
            unsafe { store(args, to, column, sum) };
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
