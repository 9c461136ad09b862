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
use super::epilogue::{Class, Epilogue};
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

/// Normalizes the rows, of less than 2³¹ sets. For a grid of any size.
///
/// # Safety
///
/// The pointers of `args` are null where that is allowed, or point to what is said there, and tensors start on 16 bytes if accesses have as
/// many. Rows have two elements or more and follow each other without gaps, and each set has one weight and bias. Blocks have [`ROW_BYTES`] of shared memory for [`most_rows`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn each<T: Data, S: Spec<Team = Each>, const V: usize>(args: &Args<T>) {
    let elements = args.rows * args.columns;
    // What a block has at a time.
    let at_once = u64::from(simt::block_threads() * V as u32 * width::<T, S::Access>());
    let mut start = u64::from(simt::block_index()) * at_once;
    while start < elements {
        let left = (elements - start).min(at_once) as u32;
        // SAFETY: the caller's.
        unsafe { tile::<T, S, V>(args, start, left) };
        start += u64::from(simt::grid_blocks()) * at_once;
        if start < elements {
            // All have read what the next tile's rows replace.
            simt::block_barrier();
        }
    }
}

/// Columns that are told apart: of longer rows, the last ones. What a block has at a time has one end of such a row at most.
const MOST_COLUMNS: u64 = 1 << 31;

/// Where an element lies.
#[derive(Clone, Copy, Debug, PartialEq)]
struct At {
    /// Its row; of more than 2³² elements, one of the same set.
    row: u32,
    /// Its column; of more than are told apart, that from which it is as far to the row's end, if any is.
    column: u32,
}

/// Finds where elements lie.
struct Places {
    /// Of a row.
    columns: NonZero<u64>,
    /// Of those, how many are told apart.
    told_apart: Divisor,
    sets: NonZero<u32>,
}

impl Places {
    #[inline(always)]
    fn new(columns: u64, sets: u32) -> Self {
        Self {
            columns: NonZero::new(columns).unwrap_or(NonZero::<u64>::MIN),
            told_apart: Divisor::new(at_least_one(columns.min(MOST_COLUMNS) as u32)),
            sets: at_least_one(sets),
        }
    }

    /// Where an element of the tensor lies.
    #[inline(always)]
    fn of(&self, element: u64) -> At {
        match u32::try_from(element) {
            Ok(element) if self.columns.get() <= MOST_COLUMNS => {
                let (row, column) = self.told_apart.divide(element);
                At { row, column }
            }
            _ => {
                let told_apart = self.told_apart.divisor().get();
                let to_end = (self.columns.get() - element % self.columns).min(told_apart.into()) as u32;
                At {
                    row: (element / self.columns % NonZero::<u64>::from(self.sets)) as u32,
                    column: told_apart - to_end,
                }
            }
        }
    }
}

/// A few accesses of each thread, from an element on that has so many left, with itself.
///
/// # Safety
///
/// See [`each`].
#[inline(always)]
unsafe fn tile<T: Data, S: Spec<Team = Each>, const V: usize>(args: &Args<T>, start: u64, left: u32) {
    let width = width::<T, S::Access>();
    let first = simt::thread_index() * width;
    // How far behind the start access `v` is.
    let offset = |v: usize| first + v as u32 * (simt::block_threads() * width);
    let is_whole = left == V as u32 * (simt::block_threads() * width);
    let loaded = |tensor: *const T| {
        let mut parts = [S::Access::nothing::<T>(); V];
        let tensor = tensor.wrapping_add(start as usize);
        // SAFETY: the caller's, here and below, for the elements that are left.
        unsafe {
            match is_whole {
                true => unrolled::<V>(|v| parts[v] = S::Access::load(tensor.wrapping_add(offset(v) as usize))),
                false => unrolled::<V>(|v| parts[v] = load::<T, S::Access>(tensor, offset(v), left)),
            }
        }
        parts
    };
    let has_residual = S::RESIDUAL && !args.residual.is_null();
    let x = loaded(args.x);
    let residual = match has_residual {
        true => loaded(args.residual),
        false => [S::Access::nothing::<T>(); V],
    };
    // What is divided by is opaque, for otherwise that would come before the loads, which wait for nothing.
    let walk = Walk {
        args,
        places: Places::new(simt::opaque_64(args.columns), args.affine.sets),
    };
    let at = walk.places.of(start);
    // SAFETY: as above.
    unsafe { walk.find_rows(at, left) };
    simt::block_barrier();
    let nothing = <S::Access as Access>::Numbers::<T>::splat(0.0);
    let z = |v: usize| {
        if offset(v) >= left {
            return nothing;
        }
        // SAFETY: as above; the row has been found before the barrier.
        let z = unsafe { walk.affine(S::Access::unpack::<T>(x[v]), at.column + offset(v), at.column + left) };
        match has_residual {
            true => z.zip(S::Access::unpack::<T>(residual[v]), |z, residual| z + residual),
            false => z,
        }
    };
    let mut results = [S::Access::nothing::<T>(); V];
    if S::Epilogue::CLASS == Class::Any {
        // Code for activations is there once for all accesses.
        let mut all = [nothing; V];
        unrolled::<V>(|v| all[v] = z(v));
        let y = S::Epilogue::apply::<T, _, V>(all, args.activation);
        unrolled::<V>(|v| results[v] = S::Access::pack::<T>(y[v]));
    } else {
        unrolled::<V>(|v| {
            let [y] = S::Epilogue::apply::<T, _, 1>([z(v)], args.activation);
            results[v] = S::Access::pack::<T>(y);
        });
    }
    unrolled::<V>(|v| {
        if offset(v) < left {
            let place = args.y.wrapping_add(start as usize).wrapping_add(offset(v) as usize);
            // SAFETY: as above; each access belongs to one thread.
            unsafe { S::Access::store_own(place, results[v], Own::before(left - offset(v), width)) };
        }
    });
    if S::Epilogue::CLASS == Class::Masked && !args.mask.is_null() {
        unrolled::<V>(|v| {
            if offset(v) < left {
                let byte = (start + u64::from(offset(v))) / u64::from(width);
                // SAFETY: as above.
                unsafe {
                    simt::store_8(
                        args.mask.wrapping_add(byte as usize),
                        S::Access::positive::<T>(results[v]),
                    )
                };
            }
        });
    }
}

/// What a tile is normalized with.
struct Walk<'a, T> {
    args: &'a Args<T>,
    places: Places,
}

impl<T: Data> Walk<'_, T> {
    /// Leaves in shared memory what makes z of x in the rows of so many elements, of which the first lies there.
    #[inline(always)]
    unsafe fn find_rows(&self, at: At, elements: u32) {
        let args = self.args;
        let (last, _) = self.places.told_apart.divide(at.column + elements - 1);
        let mut row = simt::thread_index();
        while row <= last {
            let set = (at.row + row) % self.places.sets;
            // SAFETY: the caller's: there is a number for each set, and shared memory for each row.
            unsafe {
                // All on their way before one is waited for.
                let parameters = one_of_run::<T>(&args.affine, set);
                let measured = given::<T>(&args.affine, [args.given_mean, args.given_variance], set, args.eps);
                let normalizer = joined(measured.normalizer, parameters);
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
        let columns = self.places.told_apart.divisor().get();
        let (mut row, column) = self.places.told_apart.divide(element);
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

/// An access so far behind a place from which so many elements are left: what the tensor has of it.
#[inline(always)]
unsafe fn load<T: Data, A: Access>(from: *const T, offset: u32, left: u32) -> A::Raw<T> {
    let place = from.wrapping_add(offset as usize);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The set and the column of elements from `start` on, as a block finds them for a tile.
    fn of_tile(places: &Places, start: u64, elements: u32) -> impl Iterator<Item = (u32, u32)> {
        let at = places.of(start);
        (0..elements).map(move |element| {
            let (row, column) = places.told_apart.divide(at.column + element);
            ((at.row + row) % places.sets, column)
        })
    }

    #[test]
    fn elements_of_a_tile_lie_in_the_rows_that_division_says() {
        const TILE: u32 = 64;
        let lengths = [
            1,
            3,
            49,
            1 << 20,
            MOST_COLUMNS - 1,
            MOST_COLUMNS,
            MOST_COLUMNS + 1,
            (1 << 33) + 7,
        ];
        for columns in lengths {
            for sets in [1, 5] {
                let places = Places::new(columns, sets);
                for row in [0, 1, 2, 9, (1 << 34) / columns] {
                    let starts = [
                        row * columns,
                        (row + 1) * columns - columns.min(17),
                        row * columns + columns / 2,
                    ];
                    for start in starts {
                        for (element, (set, column)) in (start..).zip(of_tile(&places, start, TILE)) {
                            assert_eq!(
                                set,
                                (element / columns % u64::from(sets)) as u32,
                                "{columns}: {element}"
                            );
                            if columns <= MOST_COLUMNS {
                                assert_eq!(u64::from(column), element % columns, "{columns}: {element}");
                            }
                        }
                    }
                }
            }
        }
    }
}
