//! The backward pass over rows of runs that are held in shared memory as [`lines`](crate::rows::lines): contiguous ones whose runs share a weight and
//! bias, or those of segments. A block holds a row, or the blocks of a cluster.
//!
//! What a warp sums over the lines of a run is a piece of that: weighted, pieces add up to the sums of the row; run by run, to its share of the
//! gradients of weight and bias.
//!
//! x and dy stay where they came to, and each access makes room for the next row's as soon as dx is there. Behind an activation g takes the place of dy
//! meanwhile, and, of 16-bit data, one more.

use isonorm_math::{Normalizer, Real};

pub use super::Args;
use super::segmented::{OfX, Preactivation, Rows, normalized, slope, written_out};
use super::sums::Numbers;
use super::{coefficients, normalizer};
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue, WrittenOut};
use crate::rows::forward::Spec;
use crate::rows::lanes::{FourPairs, Lanes};
use crate::rows::lines::{Lines, OfRuns, Runs};
use crate::rows::parameters::at_least_one;
use crate::rows::team::{Owner, Owns, Team};
use crate::simt::{self, Shared, WARP};
use crate::warp;

/// Places of shared memory that an access of a row takes, of elements of so many bytes: for x, and for dy, where g comes to, which is `f32`.
#[inline(always)]
pub const fn places(class: Class, bytes: u32) -> u32 {
    match class {
        Class::Plain => 2,
        _ => 1 + size_of::<f32>() as u32 / bytes,
    }
}

/// Bytes of shared memory for the sums of pieces, of which rows take turns with two halves, where threads have so many places at least.
#[inline(always)]
pub const fn sums_bytes(threads: u32, places: u32) -> u32 {
    2 * pieces(threads, places) * PAIR_BYTES
}

/// Pieces of a block, at most: another one begins with another warp, or another run.
#[inline(always)]
const fn pieces(threads: u32, lines: u32) -> u32 {
    threads / WARP * (1 + lines)
}

const PAIR_BYTES: u32 = 8;

/// Computes the gradients of the rows. For a grid of any size, or a multiple of the blocks that share a row.
///
/// # Safety
///
/// As for [`backward`](super::backward); all lines of the blocks that share a row are those of the row at least, and shared memory has
/// `slots` places of 16 bytes for each thread, and [`sums_bytes`] behind them.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn by_run<T: Data, S: Spec<Team: Team>, const V: usize>(args: &Args<T>) {
    const { assert!(V == 1 && !S::RESIDUAL) };
    // SAFETY: the caller's.
    let mut team = unsafe { S::Team::new(args.peers()) };
    let held = Held::<T, S>::new(args, &team);
    let mut rows = Rows::new(args, &team);
    let (mut row, step) = (team.first_row(), team.row_step());
    let mut half = 0;
    // SAFETY: the caller's.
    unsafe {
        if row < args.rows {
            held.fetch(row);
        }
        let zero = simt::zero();
        let normalizer_of = |row| normalizer::<T, S>(args, row, zero);
        let mut ahead = (
            normalizer_of(row),
            held.lines.parameters(&args.affine, rows.next_set(&args.affine)),
        );
        while row < args.rows {
            let (normalizer, parameters) = ahead;
            ahead = (
                normalizer_of(row + step),
                held.lines.parameters(&args.affine, rows.next_set(&args.affine)),
            );
            simt::copy_wait::<0>();
            let own = held.sums(normalizer, &parameters, half);
            // A single run has the sums of the row, before they are weighted.
            let sums = normalized(team.sum_pair(own), normalizer.rstd);
            let weight = if held.is_one() { parameters.of::<T>(0)[0] } else { 1.0 };
            let coefficients = coefficients::<T, S, V>(args, sums.map(|sum| sum * weight));
            held.finish((row, row + step), normalizer, &parameters, |weight| {
                OfX::new(coefficients, normalizer.rstd, weight)
            });
            simt::copy_commit();
            if S::Access::IS_OF_SEGMENTS {
                if team.rank() == 0 {
                    args.leave_row(row, sums);
                }
            } else if held.is_one() {
                if team.rank() == 0 {
                    args.leave_sums(row, sums);
                }
            } else if held.leaves() {
                held.leave_runs(&team, (row, normalizer.rstd), half);
                // Whoever keeps something in this half again has passed the barrier of the row between.
                half = pieces(simt::block_threads(), held.lines.of_warp) - half;
            }
            row += step;
        }
    }
}

type LinesOf<T, S> = Lines<T, <S as Spec>::Access>;

/// What a warp has of a row, and what becomes of it.
struct Held<'a, T: Data, S: Spec> {
    args: &'a Args<T>,
    lines: LinesOf<T, S>,
}

impl<'a, T: Data, S: Spec<Team: Team>> Held<'a, T, S> {
    const PLACES: u32 = places(S::Epilogue::CLASS, size_of::<T>() as u32);

    const HAS_SLOPES: bool = S::Epilogue::CLASS.has_slopes();

    #[inline(always)]
    fn new(args: &'a Args<T>, team: &S::Team) -> Self {
        let runs = match S::Access::IS_OF_SEGMENTS {
            true => Runs::of_segments(&args.segments),
            false => Runs::of_parameters(&args.affine),
        };
        Self {
            args,
            lines: Lines::new(runs, team, args.slots, Self::PLACES),
        }
    }

    /// Whether a row has a single weight.
    #[inline(always)]
    fn is_one(&self) -> bool {
        S::Access::IS_OF_SEGMENTS || self.args.affine.runs == 1
    }

    /// Whether gradients of weight or bias are wanted.
    #[inline(always)]
    fn leaves(&self) -> bool {
        !self.args.dweight.is_null() || !self.args.dbias.is_null()
    }

    /// Where a row of x and of dy starts.
    #[inline(always)]
    fn tensors(&self, row: u64) -> [*const T; 2] {
        let args = self.args;
        [
            args.x.wrapping_add((row * args.x_stride) as usize),
            args.dy.wrapping_add((row * args.dy_stride) as usize),
        ]
    }

    /// Sets a row on its way.
    #[inline(always)]
    unsafe fn fetch(&self, row: u64) {
        let tensors = self.tensors(row);
        self.lines.each_piece(|piece| {
            self.lines.each_line(piece, Self::PLACES, |has, line, element| {
                // SAFETY: the caller's; the row has this access, if it is fetched.
                unsafe { Self::fetch_line(has, line, tensors, element) };
            });
        });
        simt::copy_commit();
    }

    #[inline(always)]
    unsafe fn fetch_line(has: bool, line: Shared<u32>, [x, dy]: [*const T; 2], element: u32) {
        // SAFETY: the caller's; the places are this thread's.
        unsafe {
            S::Access::fetch_if(LinesOf::<T, S>::tensor(line, 0), x.wrapping_add(element as usize), has);
            S::Access::fetch_if(LinesOf::<T, S>::tensor(line, 1), dy.wrapping_add(element as usize), has);
        }
    }

    /// The thread's weighted sums of g and of g times the distance from the mean, but for the weight of a single run. Those of pieces are kept.
    #[inline(always)]
    unsafe fn sums(&self, normalizer: Normalizer<f32>, parameters: &OfRuns, half: u32) -> [f32; 2] {
        let told = self.args.activation;
        // SAFETY: the caller's. What is usual is looked up once a row.
        unsafe {
            match (S::Epilogue::CLASS, told.written_out()) {
                (Class::Any, Some(WrittenOut::Silu)) => self.sums_as(normalizer, parameters, half, |z, dy| {
                    written_out(WrittenOut::Silu, z, dy)
                }),
                (Class::Any, Some(WrittenOut::Gelu)) => self.sums_as(normalizer, parameters, half, |z, dy| {
                    written_out(WrittenOut::Gelu, z, dy)
                }),
                _ => self.sums_as(normalizer, parameters, half, |z, dy| slope::<T, S>(z, dy, told)),
            }
        }
    }

    /// The same, where g is that of z and dy.
    #[inline(always)]
    unsafe fn sums_as(
        &self,
        normalizer: Normalizer<f32>,
        parameters: &OfRuns,
        half: u32,
        g: impl Fn(Numbers<T, S>, Numbers<T, S>) -> Numbers<T, S>,
    ) -> [f32; 2] {
        let centre = normalizer.centre;
        let keeps = !self.is_one() && self.leaves();
        let mut own = [0.0; 2];
        self.lines.each_piece(|piece| {
            let [weight, bias] = parameters.of::<T>(piece.number);
            let z = Preactivation {
                scale: normalizer.rstd * weight,
                bias,
            };
            let mut apart = FourPairs::ZERO;
            self.lines.each_line(piece, Self::PLACES, |has, line, _| {
                // SAFETY: the row has come.
                let x = unsafe { LinesOf::<T, S>::numbers(has, LinesOf::<T, S>::tensor(line, 0)) };
                let distance = x.map(|x| x - centre);
                // SAFETY: the same.
                let dy = unsafe { LinesOf::<T, S>::numbers(has, LinesOf::<T, S>::tensor(line, 1)) };
                let g = g(z.of(distance), dy);
                if Self::HAS_SLOPES {
                    // SAFETY: dy has been read; the places are this thread's.
                    unsafe { g.keep(Shared::at(LinesOf::<T, S>::tensor(line, 1).byte_offset()), 0, WARP) };
                }
                apart = FourPairs {
                    first: g.add_to(apart.first),
                    second: g.dot_to(distance, apart.second),
                };
            });
            let sums = apart.total();
            let weight = if self.is_one() { 1.0 } else { weight };
            own = [
                Real::mul_add(sums[0], weight, own[0]),
                Real::mul_add(sums[1], weight, own[1]),
            ];
            if keeps {
                let sums = warp::sum_pair(sums);
                if simt::lane() == 0 {
                    let place = self.piece(half, self.lines.warp, piece.run);
                    // SAFETY: inside of the sums; they were last read before a barrier.
                    unsafe { simt::shared_store_64(place, sums) };
                }
            }
        });
        own
    }

    /// dx; each access of the row `after` is set on its way when this one's is done with.
    #[inline(always)]
    unsafe fn finish(
        &self,
        (row, after): (u64, u64),
        normalizer: Normalizer<f32>,
        parameters: &OfRuns,
        of_x: impl Fn(f32) -> OfX,
    ) {
        let args = self.args;
        let dx = args.dx.wrapping_add((row * args.dx_stride) as usize);
        let (next, has_next) = (self.tensors(after), after < args.rows);
        self.lines.each_piece(|piece| {
            let of_x = of_x(parameters.of::<T>(piece.number)[0]);
            self.lines.each_line(piece, Self::PLACES, |has, line, element| {
                if !has {
                    return;
                }
                // SAFETY: the caller's, and what was kept; each access belongs to one thread.
                unsafe {
                    let distance =
                        LinesOf::<T, S>::numbers(true, LinesOf::<T, S>::tensor(line, 0)).map(|x| x - normalizer.centre);
                    let of_dy = LinesOf::<T, S>::tensor(line, 1);
                    let g = match Self::HAS_SLOPES {
                        true => Numbers::<T, S>::kept(Shared::at(of_dy.byte_offset()), 0, WARP),
                        false => LinesOf::<T, S>::numbers(true, of_dy),
                    };
                    let numbers = g.zip(distance, |g, distance| of_x.apply(g, distance));
                    Self::fetch_line(has_next, line, next, element);
                    if !args.dx.is_null() {
                        S::Access::store(dx.wrapping_add(element as usize), S::Access::pack::<T>(numbers));
                    }
                    // Last, as it may be where dx is.
                    if !Self::HAS_SLOPES && !args.dresidual.is_null() {
                        // Found here, as it takes registers where there is none.
                        let before = simt::opaque_64(row) * args.dresidual_stride + u64::from(element);
                        S::Access::store(args.dresidual.wrapping_add(before as usize), S::Access::pack::<T>(g));
                    }
                }
            });
        });
    }

    /// Where the sums of a warp's piece of a run are: one behind that of the warp before, or of the run before.
    #[inline(always)]
    fn piece(&self, half: u32, warp: u32, run: u32) -> Shared<f32> {
        self.lines
            .behind
            .offset((half + warp + run - self.lines.run_of_block) * (PAIR_BYTES / size_of::<f32>() as u32))
    }

    /// Adds up the pieces that the block has of each run, and leaves that: of blocks that share a row, each leaves its own.
    #[inline(always)]
    unsafe fn leave_runs(&self, team: &S::Team, (row, rstd): (u64, f32), half: u32) {
        if matches!(S::Team::OWNER, Owner::Blocks) {
            // The blocks' sums are no barrier.
            simt::block_barrier();
        }
        let (args, threads) = (self.args, simt::block_threads());
        let (runs, of_run, of_warp) = (
            args.affine.runs,
            self.lines.lines_of_run.get(),
            at_least_one(self.lines.of_warp),
        );
        let end_of_block = self.lines.of_block + threads / WARP * self.lines.of_warp;
        let place = (u64::from(team.block()) * args.rows + row) * u64::from(runs);
        let mut run = simt::thread_index();
        while run < runs {
            let first = (run * of_run).max(self.lines.of_block);
            let end = ((run + 1) * of_run).min(end_of_block);
            let mut sums = [0.0; 2];
            if first < end {
                let mut warp = (first - self.lines.of_block) / of_warp;
                let last = (end - 1 - self.lines.of_block) / of_warp;
                while warp <= last {
                    // SAFETY: kept before the barrier.
                    let [g, gx] = unsafe { simt::shared_load_64(self.piece(half, warp, run)) };
                    sums = [sums[0] + g, sums[1] + gx];
                    warp += 1;
                }
            }
            // SAFETY: the caller's: a number for each run of each row, of each block that shares it.
            unsafe { args.leave_sums(place + u64::from(run), normalized(sums, rstd)) };
            run += threads;
        }
    }
}
