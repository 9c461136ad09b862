//! The forward pass over rows of millions of elements, of which each block has a [piece](crate::rows::pieces).

use isonorm_math::{Normalizer, normalize};

pub use super::Args;
use super::Spec;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Apart, Epilogue, Told};
use crate::rows::lanes::{FourPairs, Lanes, unrolled};
use crate::rows::parameters::{Map, OfColumn, OfType, Sharing, at_least_one, joined, next_set, one_of_run};
use crate::rows::pieces::{Piece, Pieces};
use crate::rows::statistics::{Measured, Statistics, Summed};
use crate::rows::team::{Chip, Team};

/// Normalizes the rows. For a grid of a multiple of the blocks that share a row, all of which run at the same time.
///
/// # Safety
///
/// As for [`forward`](super::forward); the blocks that share a row are a multiple of its runs, and shared memory has room for `kept` groups of accesses.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn pieces<T: Data, S: Spec<Team = Pieces, Statistics: Summed, Map: OfColumn>, const V: usize>(
    args: &Args<T>,
) {
    const { assert!(!S::RESIDUAL) };
    // SAFETY: the caller's.
    let mut team = unsafe { Chip::new(args.peers()) };
    let walk = Walk::<T, S, V> {
        args,
        piece: Piece::new(&team, args.blocks, &args.affine, args.columns, args.kept),
        lookup: S::Map::lookup(&args.affine),
    };
    let (mut row, step) = (team.first_row(), team.row_step());
    let sets = at_least_one(args.affine.sets);
    let set_of = |row| args.affine.set_of::<S::Map>(row);
    let (mut set, set_step) = (set_of(row), set_of(step));
    if row < args.rows {
        // SAFETY: the caller's.
        unsafe { walk.piece.begin([walk.x(row)]) };
    }
    let (mut first, mut of_run) = (walk.first(row), walk.of_run(row, set));
    while row < args.rows {
        let (own_first, own_of_run) = (first.to_acc(), of_run);
        let next_set = next_set(set, set_step, sets);
        (first, of_run) = (walk.first(row + step), walk.of_run(row + step, next_set));
        // SAFETY: the caller's.
        unsafe {
            let measured = walk.measure(row, own_first, &mut team);
            if team.rank() == 0 {
                measured.save(args, row);
            }
            walk.finish(row, row + step, measured.normalizer, own_of_run, set);
        }
        (row, set) = (row + step, next_set);
    }
}

/// A block's way over its pieces of rows.
struct Walk<'a, T: Data, S: Spec<Map: OfColumn>, const V: usize> {
    args: &'a Args<T>,
    piece: Piece<T, S::Access, V, 1>,
    lookup: <S::Map as OfColumn>::Lookup,
}

impl<T: Data, S: Spec<Team = Pieces, Statistics: Summed, Map: OfColumn>, const V: usize> Walk<'_, T, S, V> {
    /// Whether all of a piece has the same weight and bias.
    const JOINED: bool = matches!(S::Map::SHARING, Sharing::ByRun);

    /// The block's piece of a row of x.
    #[inline(always)]
    fn x(&self, row: u64) -> *const T {
        self.piece.of_row(self.args.x, row, self.args.x_stride)
    }

    /// The row's first element, where it is needed and there is a row.
    #[inline(always)]
    fn first(&self, row: u64) -> T {
        match S::Statistics::ABOUT_FIRST && row < self.args.rows {
            // SAFETY: a row has an element.
            true => unsafe { T::load(self.args.x.wrapping_add((row * self.args.x_stride) as usize)) },
            false => T::default(),
        }
    }

    /// Weight and bias of the piece, where all of it has the same and there is a row.
    #[inline(always)]
    fn of_run(&self, row: u64, set: u32) -> [f32; 2] {
        match Self::JOINED && row < self.args.rows {
            // SAFETY: a number for each run of each set.
            true => unsafe { one_of_run::<T>(&self.args.affine, set * self.piece.runs + self.piece.run) },
            false => [1.0, 0.0],
        }
    }

    /// The thread's sums of a row, about a number: a sum for each group of accesses, and the sum of those.
    #[inline(always)]
    unsafe fn sums(&self, row: u64, number: f32) -> [f32; 2] {
        let mut sums = [0.0; 2];
        // SAFETY: the caller's.
        unsafe {
            self.piece.first_time([self.x(row)], |group, [x]| {
                let mut apart = FourPairs::ZERO;
                self.piece.each(group, |v| {
                    apart = S::Statistics::add_apart::<T, S::Access>(apart, x[v], number)
                });
                let [first, second] = apart.total();
                sums = [sums[0] + first, sums[1] + second];
            });
        }
        sums
    }

    /// The row's statistics.
    #[inline(always)]
    unsafe fn measure(&self, row: u64, first: f32, team: &mut Chip) -> Measured {
        let (mut number, mut repeated) = (first, false);
        loop {
            // SAFETY: the caller's.
            let sums = team.sum_pair(unsafe { self.sums(row, number) });
            let (measured, again) = S::Statistics::conclude::<T, V>(sums, number, self.args);
            match again {
                // All threads of the team agree.
                Some(about) if !repeated => (number, repeated) = (about, true),
                _ => return measured,
            }
        }
    }

    /// Scale and shift, activation, and the store; the row `after` is set on its way.
    #[inline(always)]
    unsafe fn finish(&self, row: u64, after: u64, normalizer: Normalizer<f32>, of_run: [f32; 2], set: u32) {
        let normalizer = match Self::JOINED {
            true => joined(normalizer, of_run),
            false => normalizer,
        };
        let finished = |told| Finished {
            y: self.piece.of_row(self.args.y.cast_const(), row, self.args.y_stride),
            normalizer,
            told,
            set,
        };
        // SAFETY: the caller's.
        unsafe {
            match self.args.activation.apart::<S::Epilogue>() {
                Apart::Identity => self.finish_as(row, after, finished(Told::IDENTITY)),
                Apart::Relu => self.finish_as(row, after, finished(Told::RELU)),
                Apart::Other => self.finish_as(row, after, finished(self.args.activation.other::<S::Epilogue>())),
            }
        }
    }

    #[inline(always)]
    unsafe fn finish_as(&self, row: u64, after: u64, finished: Finished<T>) {
        let next = (after < self.args.rows).then(|| [self.x(after)]);
        // SAFETY: the caller's.
        unsafe {
            self.piece.last_time([self.x(row)], next, |group, [x]| {
                if Self::JOINED {
                    self.finish_joined(&finished, group, x);
                } else {
                    unrolled::<V>(|v| self.finish_part(&finished, group, v, x[v]));
                }
            });
        }
    }

    /// All accesses of a group that the piece has, where it has one weight and bias: an activation is chosen once for all of them.
    #[inline(always)]
    unsafe fn finish_joined(&self, finished: &Finished<T>, group: u32, x: [<S::Access as Access>::Raw<T>; V]) {
        let mut z = [<S::Access as Access>::Numbers::<T>::splat(0.0); V];
        unrolled::<V>(|v| z[v] = S::Access::unpack::<T>(x[v]).map(|x| finished.normalizer.apply(x)));
        let y = S::Epilogue::apply::<T, _, _>(z, finished.told);
        unrolled::<V>(|v| {
            if self.piece.has(group, v) {
                let place = finished.y.wrapping_add(self.piece.within(group, v) as usize);
                // SAFETY: the caller's: the row has these columns, and each access belongs to one thread.
                unsafe { S::Access::store(place.cast_mut(), S::Access::pack::<T>(y[v])) };
            }
        });
    }

    /// Access `v` of a group, if the piece has it, where each column has a weight and bias.
    #[inline(always)]
    unsafe fn finish_part(&self, finished: &Finished<T>, group: u32, v: usize, x: <S::Access as Access>::Raw<T>) {
        if !self.piece.has(group, v) {
            return;
        }
        let mut z = S::Access::unpack::<T>(x).map(|x| finished.normalizer.apply(x));
        // SAFETY: the caller's: the row has these columns, and each access belongs to one thread.
        unsafe {
            let (affine, column) = (&self.args.affine, self.piece.column(group, v));
            let [weight, bias] = match affine.is_narrow::<T>() {
                true => S::Map::at::<T, S::Access, OfType<true>>(affine, self.lookup, finished.set, column),
                false => S::Map::at::<T, S::Access, OfType<false>>(affine, self.lookup, finished.set, column),
            };
            z = z.zip3(weight, bias, normalize::affine);
            let [y] = S::Epilogue::apply::<T, _, _>([z], finished.told);
            let place = finished.y.wrapping_add(self.piece.within(group, v) as usize);
            S::Access::store(place.cast_mut(), S::Access::pack::<T>(y));
        }
    }
}

/// What a row is finished with.
struct Finished<T> {
    /// Where its piece goes.
    y: *const T,
    normalizer: Normalizer<f32>,
    told: Told,
    set: u32,
}
