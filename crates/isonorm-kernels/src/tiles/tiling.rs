//! Where a tile lies in memory, and what a thread has of it.
//!
//! Where groups lie side by side in a tile, a thread has the same columns of some of its rows, so that its sums of each column
//! stay in registers. Where a tile is one group, threads take its accesses in turn, row by row.

use core::marker::PhantomData;
use core::num::NonZero;

use super::stream::Turn;
use super::{Spec, THREADS};
use crate::rows::access::{Access, Data, Width, width};
use crate::rows::parameters::at_least_one;
use crate::simt;

/// How a tensor is divided into tiles, as a kernel is told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Tiling {
    /// Rows of a tile: elements of a group that do not lie side by side.
    pub rows: u64,
    /// Elements from a row to the next.
    pub line: u64,
    /// Neighbouring elements of a row that belong to a group; divides `line`.
    pub inner: u32,
    /// Neighbouring elements of a row that share weight and bias; divides `inner`.
    pub run: u32,
    /// Elements of a row that belong to a tile; a multiple of `inner`. The last tile of a line may have fewer.
    pub width: u32,
    /// Groups of a tile: `width` / `inner`.
    pub groups: u32,
    /// Parameters of a tile, of each kind: `width` / `run`.
    pub units: u32,
    /// Parameters of a group: `inner` / `run`.
    pub units_of_group: u32,
    /// Tiles side by side.
    pub across: u32,
    /// Tiles in all: `across` for each tensor of a batch, which lie one behind the other.
    pub tiles: u32,
    /// Groups of a line.
    pub groups_of_line: u32,
    /// Threads side by side in a row, each with columns of its own; 0: a tile is one group, and threads take its accesses in turn.
    pub lanes: u32,
    /// Blocks of a team.
    pub blocks: u32,
    /// Teams of the grid.
    pub teams: u32,
    /// Parts of a tile, each of [`PART`](super::PART) accesses of a thread or fewer, which come to shared memory together.
    pub parts: u32,
    /// Parts that stay in shared memory until the tile's results are known: all, or the first ones.
    pub kept: u32,
    /// Parts of this kind that shared memory has room for: `kept`, or more where all stay, for those of tiles to come.
    pub room: u32,
    /// Parts of the other kind that shared memory has room for: no more than a tile has; they come twice.
    pub passing: u32,
    /// By how many parts sums are ahead of results, where all parts stay: at least those of a tile, at most of two, and at most
    /// `room`; or 0: a tile is finished before the next one is added up.
    pub lead: u32,
    /// Accesses that shared memory has room for: those of `room` and `passing` parts, or a few less where there is room for one
    /// tile, whose last part has fewer.
    pub held: u32,
}

/// A tile.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Its first element.
    pub start: u64,
    /// Its first group, of all.
    pub group: u64,
    /// Its first parameter.
    pub unit: u32,
    /// Elements of a row that belong to it.
    pub width: u32,
}

/// A thread's place in memory.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// The column of the access in the tile.
    column: u32,
    /// How many elements behind the first of all it is.
    pub offset: u64,
}

/// A thread's way over tiles.
pub(super) struct Walk<'a, S> {
    pub tiling: &'a Tiling,
    /// Which team this block belongs to.
    pub team: u32,
    /// The thread's first place, and how far the next one is.
    start: Cursor,
    step: Cursor,
    /// Accesses of the thread to a tile.
    own: u32,
    of: PhantomData<S>,
}

impl<'a, S: Spec> Walk<'a, S> {
    /// Whether a tile may be one group, whose accesses threads take in turn.
    const TURNS: bool = S::ONE || matches!(S::Access::WIDTH, Width::Element);

    #[inline(always)]
    pub fn new<T: Data>(tiling: &'a Tiling) -> Self {
        let elements = width::<T, S::Access>();
        let blocks = at_least_one(tiling.blocks);
        let (rank, thread) = (simt::block_index() % blocks, simt::thread_index());
        let place = |row: u64, column: u32| Cursor {
            column,
            offset: row * tiling.line + u64::from(column),
        };
        let steps = |all: u64, first: u64, step: u64| {
            let step = NonZero::new(step).unwrap_or(NonZero::<u64>::MIN);
            (all.saturating_sub(first) + (step.get() - 1)) / step
        };
        let (start, step, own) = match NonZero::new(tiling.lanes) {
            // Of vectors it is known which.
            lanes if !Self::TURNS || !S::ONE && lanes.is_some() => {
                let lanes = lanes.unwrap_or(NonZero::<u32>::MIN);
                let rows = THREADS / lanes;
                // Threads beyond the last whole row have nothing.
                let row = match thread / lanes {
                    row if row < rows => u64::from(rank * rows + row),
                    _ => tiling.rows,
                };
                let step = u64::from(blocks.get()) * u64::from(rows);
                (
                    place(row, thread % lanes * elements),
                    place(step, 0),
                    steps(tiling.rows, row, step),
                )
            }
            _ => {
                let of_row = NonZero::<u64>::from(at_least_one(tiling.inner / elements));
                let at = |access: u64| place(access / of_row, (access % of_row) as u32 * elements);
                let first = u64::from(rank) * u64::from(THREADS) + u64::from(thread);
                let step = u64::from(blocks.get()) * u64::from(THREADS);
                (at(first), at(step), steps(tiling.rows * of_row.get(), first, step))
            }
        };
        Self {
            tiling,
            team: simt::block_index() / blocks,
            start,
            step,
            own: own as u32,
            of: PhantomData,
        }
    }

    /// Which block of its team this one is. Worked out where it is needed, rarely, rather than kept in a register.
    #[inline(always)]
    pub fn rank(&self) -> u32 {
        simt::opaque(simt::block_index()) % at_least_one(self.tiling.blocks)
    }

    /// Whether a tile is one group, whose accesses threads take in turn.
    #[inline(always)]
    pub fn takes_turns(&self) -> bool {
        S::ONE || Self::TURNS && self.tiling.lanes == 0
    }

    /// The number of a tile of the team's.
    #[inline(always)]
    pub fn number(&self, turn: Turn) -> u32 {
        // Of all tiles, which are fewer than 2³², with those that teams would have after the last.
        self.team + turn.0 * self.tiling.teams
    }

    /// Whether there is such a tile.
    #[inline(always)]
    pub fn has(&self, turn: Turn) -> bool {
        self.number(turn) < self.tiling.tiles
    }

    /// A tile of the team's.
    #[inline(always)]
    pub fn tile(&self, turn: Turn) -> Tile {
        let (tiling, number) = (self.tiling, self.number(turn));
        let across = at_least_one(tiling.across);
        // Of a single tensor without a division, which takes as long as a few accesses.
        let (batch, along) = match tiling.across == tiling.tiles {
            true => (0, number),
            false => (number / across, number % across),
        };
        let column = u64::from(along) * u64::from(tiling.width);
        Tile {
            start: u64::from(batch) * tiling.rows * tiling.line + column,
            group: u64::from(batch) * u64::from(tiling.groups_of_line) + u64::from(along * tiling.groups),
            unit: along * tiling.units,
            width: (tiling.line - column).min(tiling.width.into()) as u32,
        }
    }

    /// Accesses of the thread to a tile.
    #[inline(always)]
    pub fn own(&self, turn: Turn) -> u32 {
        let has = self.takes_turns() || self.start.column < self.tile(turn).width;
        if has { self.own } else { 0 }
    }

    /// The column of the thread's accesses, where it has the same of each row; 0 where a tile is one group.
    #[inline(always)]
    pub fn own_column(&self) -> u32 {
        if self.takes_turns() { 0 } else { self.start.column }
    }

    /// The thread's first place in a tile.
    #[inline(always)]
    pub fn start(&self, turn: Turn) -> Cursor {
        self.within(turn, self.start)
    }

    /// A place of the first tile, in another one.
    #[inline(always)]
    fn within(&self, turn: Turn, at: Cursor) -> Cursor {
        Cursor {
            offset: self.tile(turn).start + at.offset,
            ..at
        }
    }

    /// The place that lies as far behind another as a third behind the first.
    #[inline(always)]
    fn plus(&self, at: Cursor, further: Cursor) -> Cursor {
        let mut sum = Cursor {
            column: at.column,
            offset: at.offset + further.offset,
        };
        if Self::TURNS {
            sum.column += further.column;
        }
        if self.takes_turns() && sum.column >= self.tiling.inner {
            sum.column -= self.tiling.inner;
            sum.offset += self.tiling.line - u64::from(self.tiling.inner);
        }
        sum
    }

    /// The place behind.
    #[inline(always)]
    pub fn next(&self, at: Cursor) -> Cursor {
        self.plus(at, self.step)
    }

    /// The thread's place number `access` in a tile.
    #[inline(always)]
    pub fn at(&self, turn: Turn, access: u32) -> Cursor {
        if !self.takes_turns() {
            let offset = self.start.offset + u64::from(access) * self.step.offset;
            return self.within(turn, Cursor { offset, ..self.start });
        }
        // In as many steps as that has bits, for a division takes longer and more registers.
        let (mut at, mut left, mut step) = (self.start, access, self.step);
        while left > 0 {
            simt::rolled();
            if !left.is_multiple_of(2) {
                at = self.plus(at, step);
            }
            step = self.plus(step, step);
            left /= 2;
        }
        self.within(turn, at)
    }
}
