//! The backward pass over contiguous rows of runs that share a weight and bias, held in shared memory: the channels of a group, or of an instance,
//! whose images are a multiple of 16 bytes. A block holds a row, or the blocks of a cluster.
//!
//! A warp has some lines of a row, of an access of each lane, one after the other; all of a line is of one run. So what a warp sums over the lines
//! of a run is a piece of that: weighted, pieces add up to the sums of the row; run by run, to its share of the gradients of weight and bias.
//!
//! x and dy stay where they came to, and each access makes room for the next row's as soon as dx is there. Behind an activation g takes the place of dy
//! meanwhile, and, of 16-bit data, one more. So a thread has no more of a row in registers than what it works on, however long that is.

use core::marker::PhantomData;
use core::num::NonZero;

use isonorm_math::{Normalizer, Real};

pub use super::Args;
use super::segmented::{OfX, Preactivation, Rows, normalized, slope};
use super::sums::Numbers;
use super::{coefficients, normalizer};
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::forward::Spec;
use crate::rows::lanes::{FourPairs, Lanes};
use crate::rows::parameters::{Affine, ByRun, at_least_one, number};
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

/// Lines of a warp, at most: each of its lanes asks for the parameters of one run.
pub const MOST_LINES: u32 = WARP;

/// Lines of a run of so many accesses.
#[inline(always)]
pub const fn lines_of_run(accesses: u32) -> u32 {
    accesses.div_ceil(WARP)
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
pub unsafe fn by_run<T: Data, S: Spec<Team: Team, Map = ByRun>, const V: usize>(args: &Args<T>) {
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
        let mut ahead = (normalizer_of(row), held.parameters(rows.next_set(&args.affine)));
        while row < args.rows {
            let (normalizer, parameters) = ahead;
            ahead = (normalizer_of(row + step), held.parameters(rows.next_set(&args.affine)));
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
            if held.is_one() {
                if team.rank() == 0 {
                    args.leave_sums(row, sums);
                }
            } else if held.leaves() {
                held.leave_runs(&team, (row, normalizer.rstd), half);
                // Whoever keeps something in this half again has passed the barrier of the row between.
                half = pieces(simt::block_threads(), held.lines) - half;
            }
            row += step;
        }
    }
}

/// What a warp has of a row, and where.
struct Held<'a, T: Data, S: Spec> {
    args: &'a Args<T>,
    /// Accesses of a run, and lines.
    of_run: u32,
    lines_of_run: NonZero<u32>,
    /// Lines of a warp, which the row may not have.
    lines: u32,
    /// The warp's number in the block.
    warp: u32,
    /// The block's first line of the row, and the warp's, and the end of these.
    of_block: u32,
    first: u32,
    end: u32,
    /// The run of the block's first line, of the warp's first line, and how many of the run are before that.
    run_of_block: u32,
    run: u32,
    before: u32,
    /// Where the lane's first access is in shared memory, and the block's sums.
    place: Shared<u32>,
    sums: Shared<f32>,
    of: PhantomData<S>,
}

/// Lines that follow each other in a run.
#[derive(Clone, Copy)]
struct Piece {
    /// Which one of the warp's.
    number: u32,
    run: u32,
    /// Lines of the run, and of the warp, before it.
    before: u32,
    own_before: u32,
    lines: u32,
}

/// Weight and bias of a run as they came: the lane's number of that among the warp's.
#[derive(Clone, Copy)]
struct OfRuns {
    words: [u32; 2],
    is_narrow: bool,
}

impl OfRuns {
    /// Those of a piece of the warp, by its number; every lane takes part.
    #[inline(always)]
    fn of<T: Data>(&self, piece: u32) -> [f32; 2] {
        self.words
            .map(|word| number::<T>(self.is_narrow, simt::shuffle_index(word, piece)))
    }
}

impl<'a, T: Data, S: Spec<Team: Team, Map = ByRun>> Held<'a, T, S> {
    const PLACES: u32 = places(S::Epilogue::CLASS, size_of::<T>() as u32);

    /// Shared memory of a line, of one place of each lane.
    const LINE_BYTES: u32 = WARP * S::Access::KEPT_BYTES;

    const HAS_SLOPES: bool = S::Epilogue::CLASS.has_slopes();

    #[inline(always)]
    fn new(args: &'a Args<T>, team: &S::Team) -> Self {
        let of_run = args.affine.run as u32 / width::<T, S::Access>();
        let lines_of_run = at_least_one(lines_of_run(of_run));
        let lines = args.slots / Self::PLACES;
        // The assembler does not know that it is the same in all lanes, nor that what follows from it is.
        let warp = simt::shuffle_index(simt::warp_index(), 0);
        let warps = simt::block_threads() / WARP;
        let of_block = team.block() * warps * lines;
        let first = of_block + warp * lines;
        let slots = simt::settled(Shared::<u32>::at(S::Team::SHARED_BYTES));
        let own = warp * args.slots * Self::LINE_BYTES + simt::lane() * S::Access::KEPT_BYTES;
        Self {
            args,
            of_run,
            lines_of_run,
            lines,
            warp,
            of_block,
            first,
            end: (first + lines).min(args.affine.runs * lines_of_run.get()),
            run_of_block: of_block / lines_of_run,
            run: first / lines_of_run,
            before: first % lines_of_run,
            place: Shared::at(slots.byte_offset() + own),
            sums: Shared::at(slots.byte_offset() + warps * args.slots * Self::LINE_BYTES),
            of: PhantomData,
        }
    }

    /// Whether a row is a single run.
    #[inline(always)]
    fn is_one(&self) -> bool {
        self.args.affine.runs == 1
    }

    /// Whether gradients of weight or bias are wanted.
    #[inline(always)]
    fn leaves(&self) -> bool {
        !self.args.dweight.is_null() || !self.args.dbias.is_null()
    }

    /// The warp's pieces of a row, in order; the same in all lanes.
    #[inline(always)]
    fn each_piece(&self, mut take: impl FnMut(Piece)) {
        let mut piece = Piece {
            number: 0,
            run: self.run,
            before: self.before,
            own_before: 0,
            lines: 0,
        };
        while self.first + piece.own_before < self.end {
            let left = self.end - self.first - piece.own_before;
            piece.lines = (self.lines_of_run.get() - piece.before).min(left);
            take(piece);
            piece = Piece {
                number: piece.number + 1,
                run: piece.run + 1,
                before: 0,
                own_before: piece.own_before + piece.lines,
                lines: 0,
            };
        }
    }

    /// What the lane has of a piece, if it has any of a line: where that is in shared memory, and how many elements of the row are before it.
    #[inline(always)]
    fn each_line(&self, piece: Piece, mut take: impl FnMut(bool, Shared<u32>, u32)) {
        let (of_line, width) = (Self::PLACES * Self::LINE_BYTES, width::<T, S::Access>());
        let mut access = piece.before * WARP + simt::lane();
        let mut element = (piece.run * self.of_run + access) * width;
        let mut place = self.place.byte_offset() + piece.own_before * of_line;
        let end = place + piece.lines * of_line;
        while place < end {
            take(access < self.of_run, Shared::at(place), element);
            access += WARP;
            element += WARP * width;
            place += of_line;
        }
    }

    /// Where the lane has an access of tensor 0, x, or 1, dy, of a line.
    #[inline(always)]
    fn tensor(line: Shared<u32>, tensor: u32) -> Shared<u32> {
        Shared::at(line.byte_offset() + tensor * Self::LINE_BYTES)
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
        self.each_piece(|piece| {
            self.each_line(piece, |has, line, element| {
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
            S::Access::fetch_if(Self::tensor(line, 0), x.wrapping_add(element as usize), has);
            S::Access::fetch_if(Self::tensor(line, 1), dy.wrapping_add(element as usize), has);
        }
    }

    /// Asks for the parameters of the warp's runs, of a set.
    #[inline(always)]
    unsafe fn parameters(&self, set: u32) -> OfRuns {
        let affine: &Affine = &self.args.affine;
        let run = (self.run + simt::lane()).min(affine.runs - 1);
        let index = set * affine.runs + run;
        // SAFETY: the caller's: a number for each run of each set.
        let word = |base, otherwise| unsafe { affine.ask::<T>(base, index, otherwise) };
        OfRuns {
            words: [word(affine.weight, 1.0), word(affine.bias, 0.0)],
            is_narrow: affine.is_narrow::<T>(),
        }
    }

    /// An access as numbers; 0 where the row has none.
    #[inline(always)]
    unsafe fn numbers(has: bool, place: Shared<u32>) -> Numbers<T, S> {
        let mut raw = S::Access::nothing::<T>();
        if has {
            // SAFETY: it has come.
            raw = unsafe { S::Access::kept::<T>(place) };
        }
        S::Access::unpack::<T>(raw)
    }

    /// The thread's weighted sums of g and of g times the distance from the mean, but for the weight of a single run. Those of pieces are kept.
    #[inline(always)]
    unsafe fn sums(&self, normalizer: Normalizer<f32>, parameters: &OfRuns, half: u32) -> [f32; 2] {
        let (told, centre) = (self.args.activation, normalizer.centre);
        let keeps = !self.is_one() && self.leaves();
        let mut own = [0.0; 2];
        self.each_piece(|piece| {
            let [weight, bias] = parameters.of::<T>(piece.number);
            let z = Preactivation {
                scale: normalizer.rstd * weight,
                bias,
            };
            let mut apart = FourPairs::ZERO;
            self.each_line(piece, |has, line, _| {
                // SAFETY: the row has come.
                let x = unsafe { Self::numbers(has, Self::tensor(line, 0)) };
                let distance = x.map(|x| x - centre);
                // SAFETY: the same.
                let dy = unsafe { Self::numbers(has, Self::tensor(line, 1)) };
                let g = slope::<T, S>(z.of(distance), dy, told);
                if Self::HAS_SLOPES {
                    // SAFETY: dy has been read; the places are this thread's.
                    unsafe { g.keep(Shared::at(Self::tensor(line, 1).byte_offset()), 0, WARP) };
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
                    let place = self.piece(half, self.warp, piece.run);
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
        self.each_piece(|piece| {
            let of_x = of_x(parameters.of::<T>(piece.number)[0]);
            self.each_line(piece, |has, line, element| {
                if !has {
                    return;
                }
                // SAFETY: the caller's, and what was kept; each access belongs to one thread.
                unsafe {
                    let distance = Self::numbers(true, Self::tensor(line, 0)).map(|x| x - normalizer.centre);
                    let of_dy = Self::tensor(line, 1);
                    let g = match Self::HAS_SLOPES {
                        true => Numbers::<T, S>::kept(Shared::at(of_dy.byte_offset()), 0, WARP),
                        false => Self::numbers(true, of_dy),
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
        self.sums
            .offset((half + warp + run - self.run_of_block) * (PAIR_BYTES / size_of::<f32>() as u32))
    }

    /// Adds up the pieces that the block has of each run, and leaves that: of blocks that share a row, each leaves its own.
    #[inline(always)]
    unsafe fn leave_runs(&self, team: &S::Team, (row, rstd): (u64, f32), half: u32) {
        if matches!(S::Team::OWNER, Owner::Blocks) {
            // The blocks' sums are no barrier.
            simt::block_barrier();
        }
        let (args, threads) = (self.args, simt::block_threads());
        let (runs, of_run, of_warp) = (args.affine.runs, self.lines_of_run.get(), at_least_one(self.lines));
        let end_of_block = self.of_block + threads / WARP * self.lines;
        let place = (u64::from(team.block()) * args.rows + row) * u64::from(runs);
        let mut run = simt::thread_index();
        while run < runs {
            let first = (run * of_run).max(self.of_block);
            let end = ((run + 1) * of_run).min(end_of_block);
            let mut sums = [0.0; 2];
            if first < end {
                let mut warp = (first - self.of_block) / of_warp;
                let last = (end - 1 - self.of_block) / of_warp;
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
