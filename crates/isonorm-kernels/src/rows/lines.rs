//! Rows of runs in the shared memory of the blocks that hold them: contiguous rows whose runs share a weight and bias, as the channels of a group or
//! of an instance, and rows whose runs are [segments](super::segments). Runs are a multiple of 16 bytes.
//!
//! A warp has some lines of a row, of an access of each lane, one after the other; all of a line is of one run. So what is the same for a run is
//! found once for some lines, and a thread has no more of a row in registers than what it works on, however long that is.

use core::marker::PhantomData;
use core::num::NonZero;

use super::access::{Access, Data, width};
use super::parameters::{Affine, at_least_one, number};
use super::segments::Segments;
use super::team::Team;
use crate::simt::{self, Shared, WARP};

/// Lines of a warp, at most: each of its lanes asks for the parameters of one run.
pub const MOST_LINES: u32 = WARP;

/// Lines of a run of so many accesses.
#[inline(always)]
pub const fn lines_of_run(accesses: u32) -> u32 {
    accesses.div_ceil(WARP)
}

/// The runs of a row.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    /// Elements of a run.
    length: u32,
    count: u32,
    /// Elements from the start of a run to that of the next.
    step: u32,
}

impl Runs {
    /// Those that share a weight and bias.
    #[inline(always)]
    pub(super) fn of_parameters(affine: &Affine) -> Self {
        let length = affine.run as u32;
        Self {
            length,
            count: affine.runs,
            step: length,
        }
    }

    /// Segments.
    #[inline(always)]
    pub(super) fn of_segments(segments: &Segments) -> Self {
        let &Segments { length, stride, count } = segments;
        Self {
            length,
            count,
            step: stride,
        }
    }
}

/// What a warp has of a row, and where.
pub(super) struct Lines<T: Data, A: Access> {
    /// Accesses of a run, elements from one to the next, and lines.
    of_run: u32,
    step: u32,
    pub(super) lines_of_run: NonZero<u32>,
    /// Lines of a warp, which the row may not have.
    pub(super) of_warp: u32,
    /// The warp's number in the block.
    pub(super) warp: u32,
    /// The block's first line of the row, and the warp's, and the end of these.
    pub(super) of_block: u32,
    first: u32,
    end: u32,
    /// The run of the block's first line, of the warp's first line, and how many of the run are before that.
    pub(super) run_of_block: u32,
    run: u32,
    before: u32,
    /// Where the lane's first access is in shared memory, and what is behind the lines.
    place: Shared<u32>,
    pub(super) behind: Shared<f32>,
    of: PhantomData<(T, A)>,
}

/// Lines that follow each other in a run.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Which one of the warp's.
    pub(super) number: u32,
    pub(super) run: u32,
    /// Lines of the run, and of the warp, before it.
    before: u32,
    own_before: u32,
    lines: u32,
}

/// Weight and bias of a run as they came: the lane's number of that among the warp's.
#[derive(Clone, Copy)]
pub(super) struct OfRuns {
    words: [u32; 2],
    is_narrow: bool,
}

impl OfRuns {
    /// Those of a piece of the warp, by its number; every lane takes part.
    #[inline(always)]
    pub(super) fn of<T: Data>(&self, piece: u32) -> [f32; 2] {
        self.words
            .map(|word| number::<T>(self.is_narrow, simt::shuffle_index(word, piece)))
    }
}

impl<T: Data, A: Access> Lines<T, A> {
    /// Shared memory of a line, of one place of each lane.
    const LINE_BYTES: u32 = WARP * A::KEPT_BYTES;

    /// Those of the team's rows, where threads have room for `slots` places of accesses, and an access takes `places`.
    #[inline(always)]
    pub(super) fn new<G: Team>(runs: Runs, team: &G, slots: u32, places: u32) -> Self {
        let of_run = runs.length / width::<T, A>();
        let lines_of_run = at_least_one(lines_of_run(of_run));
        let of_warp = slots / places;
        // The assembler does not know that it is the same in all lanes, nor that what follows from it is.
        let warp = simt::shuffle_index(simt::warp_index(), 0);
        let warps = simt::block_threads() / WARP;
        let of_block = team.block() * warps * of_warp;
        let first = of_block + warp * of_warp;
        let start = simt::settled(Shared::<u32>::at(G::SHARED_BYTES));
        let own = warp * slots * Self::LINE_BYTES + simt::lane() * A::KEPT_BYTES;
        Self {
            of_run,
            step: runs.step,
            lines_of_run,
            of_warp,
            warp,
            of_block,
            first,
            end: (first + of_warp).min(runs.count * lines_of_run.get()),
            run_of_block: of_block / lines_of_run,
            run: first / lines_of_run,
            before: first % lines_of_run,
            place: Shared::at(start.byte_offset() + own),
            behind: Shared::at(start.byte_offset() + warps * slots * Self::LINE_BYTES),
            of: PhantomData,
        }
    }

    /// The warp's pieces of a row, in order; the same in all lanes.
    #[inline(always)]
    pub(super) fn each_piece(&self, mut take: impl FnMut(Piece)) {
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

    /// What the lane has of a piece, if it has any of a line: where that is in shared memory, `places` to an access, and how many elements of
    /// the row are before it.
    #[inline(always)]
    pub(super) fn each_line(&self, piece: Piece, places: u32, mut take: impl FnMut(bool, Shared<u32>, u32)) {
        let (of_line, width) = (places * Self::LINE_BYTES, width::<T, A>());
        let mut access = piece.before * WARP + simt::lane();
        let mut element = match A::IS_OF_SEGMENTS {
            true => piece.run * self.step + access * width,
            false => (piece.run * self.of_run + access) * width,
        };
        let mut place = self.place.byte_offset() + piece.own_before * of_line;
        let end = place + piece.lines * of_line;
        while place < end {
            take(access < self.of_run, Shared::at(place), element);
            access += WARP;
            element += WARP * width;
            place += of_line;
        }
    }

    /// Where the lane has an access of one of the tensors of a line.
    #[inline(always)]
    pub(super) fn tensor(line: Shared<u32>, tensor: u32) -> Shared<u32> {
        Shared::at(line.byte_offset() + tensor * Self::LINE_BYTES)
    }

    /// Asks for the parameters of the warp's runs, of a set.
    ///
    /// # Safety
    ///
    /// As [`Affine`] says: a number for each run of each set.
    #[inline(always)]
    pub(super) unsafe fn parameters(&self, affine: &Affine, set: u32) -> OfRuns {
        let run = (self.run + simt::lane()).min(affine.runs - 1);
        let index = set * affine.runs + run;
        // SAFETY: the caller's.
        let word = |base, otherwise| unsafe { affine.ask::<T>(base, index, otherwise) };
        OfRuns {
            words: [word(affine.weight, 1.0), word(affine.bias, 0.0)],
            is_narrow: affine.is_narrow::<T>(),
        }
    }

    /// An access as numbers; 0 where the row has none.
    ///
    /// # Safety
    ///
    /// If the row has it, it has come.
    #[inline(always)]
    pub(super) unsafe fn numbers(has: bool, place: Shared<u32>) -> A::Numbers<T> {
        let mut raw = A::nothing::<T>();
        if has {
            // SAFETY: the caller's.
            raw = unsafe { A::kept::<T>(place) };
        }
        A::unpack::<T>(raw)
    }
}
