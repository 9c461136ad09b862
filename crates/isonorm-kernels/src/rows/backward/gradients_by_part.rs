//! The backward pass over rows of which shared memory of the whole chip has room for one and a half: the first half of the next row is on its way
//! while a row's sums are waited for, and the second half comes to where parts have been finished. As in
//! [`gradients_later`](mod@super::gradients_later), sums over rows are in registers, and those of a single team are the gradients.

use core::marker::PhantomData;

use isonorm_math::Normalizer;

pub use super::Args;
use super::held::Walk;
use super::sums::{Numbers, Sums};
use crate::rows::access::{Access, Data};
use crate::rows::by_column::ByColumn;
use crate::rows::epilogue::Plain;
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{Map, Parameters};
use crate::rows::team::{Chip, Team};
use crate::simt::{self, Shared};

/// Halves of rows that there is room for.
pub const HALVES: u32 = 3;

/// Accesses of a thread to half a row.
const HALF: usize = 4;

/// A weight each column, read whenever it is needed: sums take the registers.
type Read<T, S, const V: usize> = <ByColumn as Map>::Of<T, <S as Spec>::Access, V, 0>;

/// Computes the gradients of the rows. For a grid of a multiple of the blocks that share a row, all of which run at the same time.
///
/// # Safety
///
/// As for [`backward`](super::backward); shared memory has room for [`HALVES`] halves of a row.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn gradients_by_part<T: Data, S: Spec<Team = Chip, Map = ByColumn, Epilogue = Plain>, const V: usize>(
    args: &Args<T>,
) {
    const { assert!(V == 2 * HALF) };
    // SAFETY: the caller's.
    let mut team = unsafe { Chip::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    // The same parts, by halves.
    let halves = Walk::<T, S, HALF>::new(args, &team);
    let (mut row, step) = (team.first_row(), team.row_step());
    // SAFETY: the caller's.
    let (parameters, weights) = unsafe {
        (
            Read::<T, S, V>::new(&args.affine, walk.span, false),
            Read::<T, S, HALF>::new(&args.affine, walk.span, false),
        )
    };
    // Whether g · weight takes the place of g, where that loses no bit and g is not asked for: the weight comes late while results are stored.
    let is_weighted = size_of::<T>() == size_of::<f32>() && args.dresidual.is_null();
    let mut sums = Sums::<Numbers<T, S>, V>::zero();
    let mut place = 0;
    // SAFETY: the caller's; all is free.
    unsafe {
        let parts = Parts::<S::Access, V>::of(place);
        unrolled::<V>(|v| walk.fetch_part(row, v, parts.places(v)));
    }
    simt::copy_commit();
    while row < args.rows {
        // Opaque, for otherwise each address becomes a variable of the loop.
        row = simt::opaque_64(row);
        // SAFETY: the caller's; the row has come.
        unsafe {
            let normalizer = walk.normalizer(row);
            simt::copy_wait::<0>();
            // Not before: what one block asks for early, another one waits longer for, and with it all.
            let (next, parts) = (halves.anew(), Parts::<S::Access, HALF>::of(place + 2));
            unrolled::<HALF>(|v| next.fetch_part(row + step, v, parts.places(v)));
            simt::copy_commit();
            let own = {
                let (walk, parts) = (walk.anew(), Parts::<S::Access, V>::of(place));
                let numbers = (|v| parts.xhat(v, normalizer), |v| parts.g(v));
                walk.add_and(&parameters, &mut sums, numbers, |v, wg| {
                    if is_weighted {
                        parts.put_g::<T>(v, wg);
                    }
                })
            };
            let of_row = (normalizer.rstd, walk.coefficients(team.sum_pair(own)));
            // A loop that stays one: written out, it takes more registers.
            let mut half = 0;
            while half < 2 {
                let (walk, parts) = (halves.behind(half), Parts::<S::Access, HALF>::of(place + half));
                let (xhat, g) = (|v| parts.xhat(v, normalizer), |v| parts.g(v));
                let weight = |v| match is_weighted {
                    true => Lanes::splat(1.0),
                    false => walk.weight(&weights, v),
                };
                let (results, dstream) = (walk.results(row), |v| walk.part_of_dstream(row, v));
                unrolled::<HALF>(|v| {
                    if walk.has(v) && !args.dx.is_null() {
                        walk.finish_part(v, (&xhat, &g, &weight), of_row, (results, &dstream));
                    }
                    if half == 0 {
                        halves.behind(1).fetch_part(row + step, v, parts.places(v));
                    }
                });
                half = simt::opaque(half) + 1;
            }
            simt::copy_commit();
        }
        // The second half of the next row came to where the first one of this row was.
        place = (place + HALVES - 1) % HALVES;
        row += step;
    }
    // SAFETY: the caller's.
    unsafe {
        match step {
            // Nobody else has sums to add.
            1 => walk.leave_gradients(&sums),
            _ => walk.leave(&team, &sums),
        }
    }
}

/// A thread's parts of rows in shared memory, where there is room for [`HALVES`] halves.
struct Parts<A, const V: usize> {
    /// Where those of the first half start, and of the one behind it, if these are parts of both.
    halves: [u32; 2],
    /// Bytes from a part of a tensor to the next.
    step: u32,
    of: PhantomData<A>,
}

impl<A: Access, const V: usize> Parts<A, V> {
    /// The first half is in such a place, around again from the last one. Computed here, see [`Span::anew`](crate::rows::span::Span::anew).
    #[inline(always)]
    fn of(first: u32) -> Self {
        let step = simt::opaque(simt::block_threads()) * A::KEPT_BYTES;
        let own = Chip::SHARED_BYTES + simt::thread_index() * A::KEPT_BYTES;
        // x and dy.
        let of_half = 2 * HALF as u32 * step;
        Self {
            halves: [0, 1].map(|half| own + (first + half) % HALVES * of_half),
            step,
            of: PhantomData,
        }
    }

    /// Where a part of x and of dy is.
    #[inline(always)]
    fn places(&self, v: usize) -> [Shared<u32>; 2] {
        let (half, part) = (v / HALF, v % HALF);
        [0, 1].map(|tensor| Shared::at(self.halves[half] + (2 * part as u32 + tensor) * self.step))
    }

    /// x̂ of a part of a row that has come.
    #[inline(always)]
    fn xhat<T: Data>(&self, v: usize, normalizer: Normalizer<f32>) -> A::Numbers<T> {
        let [x, _] = self.places(v);
        // SAFETY: this thread has fetched the parts that the row has.
        A::unpack::<T>(unsafe { A::kept(x) }).map(|x| normalizer.apply(x))
    }

    /// g of it.
    #[inline(always)]
    fn g<T: Data>(&self, v: usize) -> A::Numbers<T> {
        let [_, dy] = self.places(v);
        // SAFETY: as above.
        A::unpack::<T>(unsafe { A::kept(dy) })
    }

    /// Keeps something in its place.
    #[inline(always)]
    fn put_g<T: Data>(&self, v: usize, numbers: A::Numbers<T>) {
        let [_, dy] = self.places(v);
        // SAFETY: this thread has fetched the part there, and has read it.
        unsafe { A::keep::<T>(dy, A::pack::<T>(numbers)) }
    }
}
