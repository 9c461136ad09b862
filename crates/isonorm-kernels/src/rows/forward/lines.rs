//! The forward pass over rows of runs that are held in shared memory as [`lines`](crate::rows::lines): contiguous ones whose runs share a weight and
//! bias, or those of segments. A block holds a row, or the blocks of a cluster.
//!
//! x stays where it came to: it is read there for the sums, and once more to be finished, whereupon each access makes room for the next row's.

use isonorm_math::Normalizer;

pub use super::Args;
use super::Spec;
use super::held::First;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue, Piecewise, WrittenOut};
use crate::rows::lanes::{FourPairs, Lanes};
use crate::rows::lines::{Lines, OfRuns, Runs};
use crate::rows::parameters::{at_least_one, joined, next_set};
use crate::rows::statistics::{Measured, Summed};
use crate::rows::team::Team;
use crate::simt;

/// Places of shared memory that an access of a row takes.
pub const PLACES: u32 = 1;

/// Normalizes the rows. For a grid of any size, or a multiple of the blocks that share a row.
///
/// # Safety
///
/// As for [`forward`](super::forward); all lines of the blocks that share a row are those of the row at least, and shared memory has
/// `kept` places of 16 bytes for each thread.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn lines<T: Data, S: Spec<Team: Team, Statistics: Summed>, const V: usize>(args: &Args<T>) {
    const { assert!(V == 1 && !S::RESIDUAL) };
    let runs = match S::Access::IS_OF_SEGMENTS {
        true => Runs::of_segments(&args.segments),
        false => Runs::of_parameters(&args.affine),
    };
    // SAFETY: the caller's.
    let mut team = unsafe { S::Team::unprepared(args.peers()) };
    let held = Held::<T, S> {
        args,
        lines: Lines::new(runs, &team, args.kept, PLACES),
    };
    let (mut row, step) = (team.first_row(), team.row_step());
    let sets = at_least_one(args.affine.sets);
    let set_of = |row| args.affine.set_of::<S::Map>(row);
    let (mut set, set_step) = (set_of(row), set_of(step));
    // SAFETY: the caller's.
    unsafe {
        held.fetch(row);
        team.prepare();
        let mut ahead = (held.first(row), held.lines.parameters(&args.affine, set));
        while row < args.rows {
            let (first, parameters) = ahead;
            set = next_set(set, set_step, sets);
            ahead = (held.first(row + step), held.lines.parameters(&args.affine, set));
            let is_first = team.rank() == 0;
            let running = held.running(is_first, row);
            simt::copy_wait::<0>();
            let measured = held.measure(first.mean_of_access(), &mut team);
            if is_first {
                measured.save(args, row);
            }
            held.update(is_first, row, running, &measured);
            held.finish((row, row + step), measured.normalizer, &parameters);
            simt::copy_commit();
            row += step;
        }
    }
}

/// What a warp has of a row, and what becomes of it.
struct Held<'a, T: Data, S: Spec> {
    args: &'a Args<T>,
    lines: Lines<T, S::Access>,
}

impl<T: Data, S: Spec<Team: Team, Statistics: Summed>> Held<'_, T, S> {
    /// Whether the kernel updates running statistics.
    const RUNNING: bool = S::Access::IS_OF_SEGMENTS;

    /// Those of the row before it, where one thread updates them.
    #[inline(always)]
    unsafe fn running(&self, is_first: bool, row: u64) -> [f32; 2] {
        match Self::RUNNING && is_first {
            // SAFETY: the caller's.
            true => unsafe { self.args.running.before::<T>(row, self.args.affine.as_data) },
            false => [0.0; 2],
        }
    }

    /// Takes the row's statistics into the running ones: before the row is finished, which takes all registers.
    #[inline(always)]
    unsafe fn update(&self, is_first: bool, row: u64, before: [f32; 2], measured: &Measured) {
        if Self::RUNNING && is_first {
            let (args, batch) = (self.args, [measured.mean, measured.variance]);
            // SAFETY: the caller's.
            unsafe { args.running.update::<T>(row, before, batch, args.affine.as_data) };
        }
    }

    #[inline(always)]
    fn x(&self, row: u64) -> *const T {
        self.args.x.wrapping_add((row * self.args.x_stride) as usize)
    }

    /// The row's first access; nothing where there is no row.
    #[inline(always)]
    unsafe fn first(&self, row: u64) -> First<T, S::Access> {
        match row < self.args.rows {
            // SAFETY: a row has an access.
            true => First::of_access(unsafe { S::Access::load(self.x(row)) }),
            false => First::nothing(),
        }
    }

    /// Sets a row on its way, if there is one.
    #[inline(always)]
    unsafe fn fetch(&self, row: u64) {
        if row < self.args.rows {
            let x = self.x(row);
            self.lines.each_piece(|piece| {
                self.lines.each_line(piece, PLACES, |has, line, element| {
                    // SAFETY: the caller's; the row has this access, if it is fetched.
                    unsafe { S::Access::fetch_if(line, x.wrapping_add(element as usize), has) };
                });
            });
        }
        simt::copy_commit();
    }

    /// The statistics of the row that has come.
    #[inline(always)]
    unsafe fn measure(&self, first: f32, team: &mut S::Team) -> Measured {
        let (mut number, mut repeated) = (first, false);
        loop {
            // SAFETY: the caller's.
            let sums = team.sum_pair(unsafe { self.sums(number) });
            match S::Statistics::conclude::<T, 1>(sums, number, self.args) {
                // All threads of the team agree.
                (_, Some(about)) if !repeated => (number, repeated) = (S::Access::near::<T>(about), true),
                (measured, _) => return measured,
            }
        }
    }

    /// The sums of the thread's elements, about a number.
    #[inline(always)]
    unsafe fn sums(&self, number: f32) -> [f32; 2] {
        let mut apart = FourPairs::ZERO;
        self.lines.each_piece(|piece| {
            self.lines.each_line(piece, PLACES, |has, line, _| {
                if has {
                    // SAFETY: the row has come.
                    let part = unsafe { S::Access::kept::<T>(line) };
                    apart = S::Statistics::add_apart::<T, S::Access>(apart, part, number);
                }
            });
        });
        apart.total()
    }

    /// y; each access of the row `after` is set on its way when this one's is done with.
    #[inline(always)]
    unsafe fn finish(&self, rows: (u64, u64), normalizer: Normalizer<f32>, parameters: &OfRuns) {
        let told = self.args.activation;
        // SAFETY: the caller's. What is usual is looked up once a row.
        unsafe {
            match (S::Epilogue::CLASS, told.written_out()) {
                (Class::Any, Some(WrittenOut::Silu)) => {
                    self.finish_as(rows, normalizer, parameters, |z| WrittenOut::Silu.apply(z));
                }
                (Class::Any, Some(WrittenOut::Gelu)) => {
                    self.finish_as(rows, normalizer, parameters, |z| WrittenOut::Gelu.apply(z));
                }
                (Class::Any, None) => self.finish_as(rows, normalizer, parameters, |z| {
                    let [y] = S::Epilogue::apply::<T, _, 1>([z], told);
                    y
                }),
                _ => self.finish_as(rows, normalizer, parameters, |z| Piecewise::apply_in_turn(z, told)),
            }
        }
    }

    /// The same with such an activation.
    #[inline(always)]
    unsafe fn finish_as(
        &self,
        (row, after): (u64, u64),
        normalizer: Normalizer<f32>,
        parameters: &OfRuns,
        activation: impl Fn(<S::Access as Access>::Numbers<T>) -> <S::Access as Access>::Numbers<T>,
    ) {
        let args = self.args;
        let y = args.y.wrapping_add((row * args.y_stride) as usize);
        let (next, has_next) = (self.x(after), after < args.rows);
        self.lines.each_piece(|piece| {
            let normalizer = joined(normalizer, parameters.of::<T>(piece.number));
            self.lines.each_line(piece, PLACES, |has, line, element| {
                if !has {
                    return;
                }
                // SAFETY: the caller's, and what has come; each access belongs to one thread.
                unsafe {
                    let z = Lines::<T, S::Access>::numbers(true, line).map(|x| normalizer.apply(x));
                    S::Access::fetch_if(line, next.wrapping_add(element as usize), has_next);
                    S::Access::store(y.wrapping_add(element as usize), S::Access::pack::<T>(activation(z)));
                }
            });
        });
    }
}
