//! The forward pass where statistics are given: each access by itself, for nothing is to be known of a row before.
//!
//! ```text
//! y = act(x̂ · weight + bias + residual)        x̂ = (x − mean) · rstd, by the statistics of the row's set
//! ```
//!
//! The rows follow each other without gaps, and so are one stretch of accesses of 16 bytes, wherever rows begin: one that has elements of
//! several rows goes through them. A block has a tile of them at a time, and finds once, in shared memory, what makes z of x in each row that the
//! tile has some of; in which row an access begins, by a product with a reciprocal.

use core::num::NonZero;

use isonorm_math::Normalizer;

use super::access::{Access, Data, Own, width};
use super::epilogue::Epilogue;
pub use super::forward::Args;
use super::forward::Spec;
use super::lanes::{Lanes, unrolled};
use super::parameters::{at_least_one, joined, one_of_run};
use super::quotient::Divisor;
use super::statistics::given;
use super::team::{Owner, Owns};
use crate::simt::{self, Shared};

/// Bytes of shared memory that a row takes.
pub const ROW_BYTES: u32 = 16;

/// Rows of so many elements of which a block has some that has so many elements at a time, at most: those that lie in it, and one at each end.
pub fn most_rows(elements: u32, columns: u64) -> u32 {
    (u64::from(elements) / columns.max(1)) as u32 + 2
}

/// Nobody owns a row: each access is on its own.
pub struct Each;

impl Owns for Each {
    const OWNER: Owner = Owner::Each;
}

/// Normalizes the rows, of less than 2³¹ columns and sets. For a grid of any size.
///
/// # Safety
///
/// The pointers of `args` are null where that is allowed, or point to what is said there, and tensors start on 16 bytes if accesses have as
/// many. Rows follow each other without gaps, and each set has one weight and bias. Blocks have [`ROW_BYTES`] of shared memory for [`most_rows`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn each<T: Data, S: Spec<Team = Each>, const V: usize>(args: &Args<T>) {
    let elements = args.rows * args.columns;
    let walk = Walk {
        args,
        columns: Divisor::new(at_least_one(args.columns as u32)),
        sets: at_least_one(args.affine.sets),
    };
    // What a block has at a time.
    let tile = u64::from(simt::block_threads() * V as u32 * width::<T, S::Access>());
    let mut start = u64::from(simt::block_index()) * tile;
    while start < elements {
        let left = (elements - start).min(tile) as u32;
        // SAFETY: the caller's.
        unsafe { walk.tile::<S, V>(start, left) };
        start += u64::from(simt::grid_blocks()) * tile;
        if start < elements {
            // All have read what the next tile's rows replace.
            simt::block_barrier();
        }
    }
}

/// Where an element lies.
#[derive(Clone, Copy)]
struct At {
    /// The set of its row.
    set: u32,
    column: u32,
}

/// A way over the tensor.
struct Walk<'a, T> {
    args: &'a Args<T>,
    columns: Divisor,
    sets: NonZero<u32>,
}

impl<T: Data> Walk<'_, T> {
    /// Where an element of the tensor lies.
    #[inline(always)]
    fn at(&self, element: u64) -> At {
        if let Ok(element) = u32::try_from(element) {
            let (row, column) = self.columns.divide(element);
            return At {
                set: row % self.sets,
                column,
            };
        }
        let columns = NonZero::<u64>::from(self.columns.divisor());
        At {
            set: (element / columns % NonZero::<u64>::from(self.sets)) as u32,
            column: (element % columns) as u32,
        }
    }

    /// A few accesses of each thread, from an element on that has so many left, with itself.
    #[inline(always)]
    unsafe fn tile<S: Spec, const V: usize>(&self, start: u64, left: u32) {
        let (args, width) = (self.args, width::<T, S::Access>());
        let first = simt::thread_index() * width;
        // How far behind the start access `v` is.
        let offset = |v: usize| first + v as u32 * (simt::block_threads() * width);
        let nothing = S::Access::nothing::<T>();
        let (mut x, mut residual) = ([nothing; V], [nothing; V]);
        // SAFETY: the caller's, here and below, for the elements that are left.
        unrolled::<V>(|v| x[v] = unsafe { load::<T, S::Access>(args.x, start, offset(v), left) });
        let has_residual = S::RESIDUAL && !args.residual.is_null();
        if has_residual {
            // SAFETY: as above.
            unrolled::<V>(|v| residual[v] = unsafe { load::<T, S::Access>(args.residual, start, offset(v), left) });
        }
        let at = self.at(start);
        // SAFETY: as above.
        unsafe { self.find_rows(at, left) };
        simt::block_barrier();
        let mut z = [<S::Access as Access>::Numbers::<T>::splat(0.0); V];
        unrolled::<V>(|v| {
            if offset(v) < left {
                // SAFETY: as above; the row has been found before the barrier.
                z[v] = unsafe { self.affine(S::Access::unpack::<T>(x[v]), at.column + offset(v), at.column + left) };
                if has_residual {
                    z[v] = z[v].zip(S::Access::unpack::<T>(residual[v]), |z, residual| z + residual);
                }
            }
        });
        let y = S::Epilogue::apply::<T, _, _>(z, args.activation);
        unrolled::<V>(|v| {
            if offset(v) < left {
                let place = args.y.wrapping_add(start as usize).wrapping_add(offset(v) as usize);
                let own = Own::before(left - offset(v), width);
                // SAFETY: as above; each access belongs to one thread.
                unsafe { S::Access::store_own(place, S::Access::pack::<T>(y[v]), own) };
            }
        });
    }

    /// Leaves in shared memory what makes z of x in the rows of so many elements, of which the first lies there.
    #[inline(always)]
    unsafe fn find_rows(&self, at: At, elements: u32) {
        let args = self.args;
        let (last, _) = self.columns.divide(at.column + elements - 1);
        let mut row = simt::thread_index();
        while row <= last {
            let set = (at.set + row) % self.sets;
            // SAFETY: the caller's: there is a number for each set, and shared memory for each row.
            unsafe {
                let measured = given::<T>(&args.affine, [args.given_mean, args.given_variance], set, args.eps);
                let normalizer = joined(measured.normalizer, one_of_run::<T>(&args.affine, set));
                let numbers = [normalizer.centre, normalizer.rstd, normalizer.offset, 0.0];
                simt::shared_store_128(Shared::<f32>::at(row * ROW_BYTES), numbers);
            }
            row += simt::block_threads();
        }
    }

    /// z of numbers so far behind the start of the tile's first row, row after row, up to an end.
    #[inline(always)]
    unsafe fn affine<N: Lanes>(&self, x: N, element: u32, end: u32) -> N {
        let normalizer = |row: u32| {
            // SAFETY: the caller's.
            let [centre, rstd, offset, _] = unsafe { simt::shared_load_128(Shared::<f32>::at(row * ROW_BYTES)) };
            Normalizer { centre, rstd, offset }
        };
        let columns = self.columns.divisor().get();
        let (mut row, column) = self.columns.divide(element);
        let first = normalizer(row);
        let mut z = x.map(|x| first.apply(x));
        // Where the next row starts in the access.
        let (mut from, ends) = (columns - column, N::LANES.min(end - element));
        while from < ends {
            row += 1;
            let normalizer = normalizer(row);
            let mut lane = 0;
            z = x.zip(z, |x, z| {
                let is_own = lane >= from;
                lane += 1;
                if is_own { normalizer.apply(x) } else { z }
            });
            from += columns;
        }
        z
    }
}

/// An access so far behind a start that has so many elements left: what the tensor has of it.
#[inline(always)]
unsafe fn load<T: Data, A: Access>(tensor: *const T, start: u64, offset: u32, left: u32) -> A::Raw<T> {
    let place = tensor.wrapping_add(start as usize).wrapping_add(offset as usize);
    if offset + width::<T, A>() <= left {
        // SAFETY: the caller's; the tensor has all of it.
        return unsafe { A::load(place) };
    }
    let numbers = A::Numbers::<T>::each(|lane| match offset + lane < left {
        // SAFETY: as above.
        true => unsafe { T::load(place.wrapping_add(lane as usize)) }.to_acc(),
        false => 0.0,
    });
    A::pack::<T>(numbers)
}
