//! The backward pass over rows of millions of elements, of which each block has a [piece](crate::rows::pieces) of one run: its sums of g and of
//! g · x̂, weighted, add up to those of the row, and as they are to the gradients of weight and bias.

use isonorm_math::Normalizer;

pub use super::Args;
use super::segmented::{OfX, normalized, slope};
use super::sums::Numbers;
use super::{coefficients, normalizer};
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Apart, Class, Epilogue, Told};
use crate::rows::forward::Spec;
use crate::rows::lanes::{FourPairs, Lanes, rotated, unrolled};
use crate::rows::parameters::{ByRun, at_least_one, next_set};
use crate::rows::pieces::{Group, Piece, Pieces};
use crate::rows::segments::OfRow;
use crate::rows::team::{Chip, Team};
use crate::simt;

/// Computes the gradients of the rows. For a grid of a multiple of the blocks that share a row, all of which run at the same time.
///
/// # Safety
///
/// As for [`backward`](super::backward); the blocks that share a row are a multiple of its runs, and shared memory has room for `slots` groups of accesses.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn gradients_of_pieces<T: Data, S: Spec<Team = Pieces, Map = ByRun>, const V: usize>(args: &Args<T>) {
    const { assert!(!S::RESIDUAL) };
    // SAFETY: the caller's.
    let mut team = unsafe { Chip::new(args.peers()) };
    let walk = Walk::<T, S, V> {
        args,
        piece: Piece::new(&team, args.blocks, &args.affine, args.columns, args.slots),
    };
    let (mut row, step) = (team.first_row(), team.row_step());
    let sets = at_least_one(args.affine.sets);
    let set_of = |row| args.affine.set_of::<ByRun>(row);
    let (mut set, set_step) = (set_of(row), set_of(step));
    if row < args.rows {
        // SAFETY: the caller's.
        unsafe { walk.piece.begin(walk.tensors(row)) };
    }
    // SAFETY: the caller's.
    let mut ahead = unsafe { walk.known(row, set) };
    while row < args.rows {
        let own = ahead;
        set = next_set(set, set_step, sets);
        // SAFETY: the caller's.
        unsafe {
            ahead = walk.known(row + step, set);
            let sums = normalized(team.sum_of_block(walk.sums(row, &own)), own.normalizer.rstd);
            let weight = own.parameters.weight;
            let sent = team.send(sums.map(|sum| sum * weight));
            if simt::thread_index() == 0 {
                walk.leave(sums, row);
            }
            let coefficients = coefficients::<T, S, V>(args, team.receive_pair(&sent));
            let of_x = OfX::new(coefficients, own.normalizer.rstd, weight);
            walk.finish(row, row + step, &own, of_x);
        }
        row += step;
    }
}

/// What a row was normalized with, and the parameters of the block's piece.
#[derive(Clone, Copy)]
struct Known {
    normalizer: Normalizer<f32>,
    parameters: OfRow,
}

/// A block's way over its pieces of rows.
struct Walk<'a, T: Data, S: Spec, const V: usize> {
    args: &'a Args<T>,
    piece: Piece<T, S::Access, V, 2>,
}

impl<T: Data, S: Spec<Team = Pieces, Map = ByRun>, const V: usize> Walk<'_, T, S, V> {
    /// The block's pieces of a row of x and of dy.
    #[inline(always)]
    fn tensors(&self, row: u64) -> [*const T; 2] {
        let args = self.args;
        [
            self.piece.of_row(args.x, row, args.x_stride),
            self.piece.of_row(args.dy, row, args.dy_stride),
        ]
    }

    /// What is known of a row; nothing where there is none.
    #[inline(always)]
    unsafe fn known(&self, row: u64, set: u32) -> Known {
        // SAFETY: the caller's: a number for each run of each set.
        unsafe {
            Known {
                normalizer: normalizer::<T, S>(self.args, row, simt::zero()),
                parameters: match row < self.args.rows {
                    true => OfRow::of::<T>(&self.args.affine, set * self.piece.runs + self.piece.run),
                    false => OfRow::NONE,
                },
            }
        }
    }

    /// The thread's sums of g and of g times the distance from the mean: a sum for each group of accesses, and the sum of those.
    #[inline(always)]
    unsafe fn sums(&self, row: u64, own: &Known) -> [f32; 2] {
        let told = self.args.activation;
        // SAFETY: the caller's.
        unsafe {
            match told.apart::<S::Epilogue>() {
                Apart::Identity => self.sums_as(row, own, Told::IDENTITY),
                Apart::Relu => self.sums_as(row, own, Told::RELU),
                Apart::Other => self.sums_as(row, own, told.other::<S::Epilogue>()),
            }
        }
    }

    #[inline(always)]
    unsafe fn sums_as(&self, row: u64, own: &Known, told: Told) -> [f32; 2] {
        let mut sums = [0.0; 2];
        // SAFETY: the caller's.
        unsafe {
            self.piece.first_time(self.tensors(row), |group, parts| {
                let mut apart = FourPairs::ZERO;
                self.each(*parts, own, told, |v, distance, g| {
                    if self.piece.has(group, v) {
                        apart = FourPairs {
                            first: g.add_to(apart.first),
                            second: g.dot_to(distance, apart.second),
                        };
                    }
                });
                let [of_g, of_distance] = apart.total();
                sums = [sums[0] + of_g, sums[1] + of_distance];
            });
        }
        sums
    }

    /// dx; the row `after` is set on its way.
    #[inline(always)]
    unsafe fn finish(&self, row: u64, after: u64, own: &Known, of_x: OfX) {
        let told = self.args.activation;
        // SAFETY: the caller's.
        unsafe {
            match told.apart::<S::Epilogue>() {
                Apart::Identity => self.finish_as(row, after, own, of_x, Told::IDENTITY),
                Apart::Relu => self.finish_as(row, after, own, of_x, Told::RELU),
                Apart::Other => self.finish_as(row, after, own, of_x, told.other::<S::Epilogue>()),
            }
        }
    }

    #[inline(always)]
    unsafe fn finish_as(&self, row: u64, after: u64, own: &Known, of_x: OfX, told: Told) {
        let args = self.args;
        let dx = self.piece.of_row(args.dx.cast_const(), row, args.dx_stride);
        let next = (after < args.rows).then(|| self.tensors(after));
        // SAFETY: the caller's; each access belongs to one thread.
        unsafe {
            self.piece.last_time(self.tensors(row), next, |group, parts| {
                if args.dx.is_null() {
                    return;
                }
                self.each(parts, own, told, |v, distance, g| {
                    let numbers = g.zip(distance, |g, distance| of_x.apply(g, distance));
                    let place = dx.wrapping_add(self.piece.within(group, v) as usize);
                    if self.piece.has(group, v) {
                        S::Access::store(place.cast_mut(), S::Access::pack::<T>(numbers));
                    }
                });
            });
        }
    }

    /// Hands out the accesses of a group, which the piece may not have: which one, the distances from the mean, and g.
    #[inline(always)]
    fn each(
        &self,
        mut parts: Group<T, S::Access, V, 2>,
        own: &Known,
        told: Told,
        mut take: impl FnMut(usize, Numbers<T, S>, Numbers<T, S>),
    ) {
        let (z, centre) = (own.parameters.preactivation(own.normalizer), own.normalizer.centre);
        let mut one = |v: usize, x, dy| {
            let distance = S::Access::unpack::<T>(x).map(|x| x - centre);
            let dy = S::Access::unpack::<T>(dy);
            take(v, distance, slope::<T, S>(z.of(distance), dy, told));
        };
        if matches!(S::Epilogue::CLASS, Class::Any) {
            // By code that is there once.
            let (mut v, all) = (0, simt::opaque(V as u32) as usize);
            while v < all {
                one(v, parts[0][0], parts[1][0]);
                parts = parts.map(rotated);
                v += 1;
            }
        } else {
            unrolled::<V>(|v| one(v, parts[0][v], parts[1][v]));
        }
    }

    /// Leaves the sums over the block's piece of a row.
    #[inline(always)]
    unsafe fn leave(&self, sums: [f32; 2], row: u64) {
        let of_part = (u64::from(self.piece.part) * self.args.rows + row) * u64::from(self.piece.runs);
        // SAFETY: the caller's: a number for each run of each row, of each part.
        unsafe { self.args.leave_sums(of_part + u64::from(self.piece.run), sums) };
    }
}
