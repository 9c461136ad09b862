//! Where a tile lies in memory, and what a thread has of it.
//!
//! Where groups lie side by side in a tile, a thread has the same columns of some of its rows, so that its sums of each column
//! stay in registers. Where a tile is one group, threads take its accesses in turn, row by row.

use core::marker::PhantomData;
use core::num::NonZero;

use super::{Spec, THREADS};
use crate::rows::access::{Access, Data, Width, width};
use crate::rows::lanes::unrolled;
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
    /// Elements of a row that belong to a tile; a multiple of `inner`. The last tile of a line may have fewer. Of a part of a group's
    /// columns, less than `inner`; the last part may have fewer.
    pub width: u32,
    /// Parts of a group's columns, for different blocks of a team; 1 where tiles are whole groups.
    pub parts: u32,
    /// Tiles side by side; the parts of a group count as one.
    pub across: u32,
    /// Tiles in all: `across` for each tensor of a batch, which lie one behind the other.
    pub tiles: u32,
    /// Groups of a line.
    pub groups_of_line: u32,
    /// Threads side by side in a row, each with columns of its own; 0: a tile is one group, and threads take its accesses in turn.
    pub lanes: u32,
    /// Blocks of a team; the grid is some teams.
    pub blocks: u32,
    /// Accesses of a thread to a tile, at most.
    pub accesses: u32,
    /// Those that shared memory holds: all, or a multiple of four.
    pub kept: u32,
    /// Tiles that shared memory has room for: two, or one, which is finished before the next one comes.
    pub slots: u32,
}

impl Tiling {
    /// Groups of a tile; 1 of a part of one.
    #[inline(always)]
    pub fn groups(&self) -> u32 {
        if self.parts > 1 {
            1
        } else {
            self.width / at_least_one(self.inner)
        }
    }

    /// Columns of a tile that belong to a group.
    #[inline(always)]
    pub fn of_group(&self) -> u32 {
        self.inner.min(self.width)
    }

    /// Parameters of a tile, of each kind.
    #[inline(always)]
    pub fn units(&self) -> u32 {
        self.width / at_least_one(self.run)
    }
}

/// A tile.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// The first element of its first group.
    pub first: u64,
    /// Its first element.
    pub start: u64,
    /// Its first group, of all.
    pub group: u64,
    /// Its first parameter.
    pub unit: u32,
    /// Elements of a row that belong to it.
    pub width: u32,
}

/// A thread's place in a tile.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// The column of the access in the tile.
    column: u32,
    /// How many elements behind the tile's first it is.
    pub offset: u64,
}

/// A thread's way over tiles.
pub(super) struct Walk<'a, S> {
    pub tiling: &'a Tiling,
    /// Which block of its team this one is, and which team of how many.
    pub rank: u32,
    pub team: u32,
    pub teams: u32,
    /// Which part of a group's columns it has.
    pub part: u32,
    /// Which block it is of those that have the same columns, and of how many.
    pub of_part: (u32, u32),
    /// The thread's first place, and how far the next one is.
    start: Cursor,
    step: Cursor,
    /// Accesses of the thread to a tile.
    own: u32,
    of: PhantomData<S>,
}

impl<'a, S: Spec> Walk<'a, S> {
    /// Whether a tile may be one group, whose accesses threads take in turn.
    const TURNS: bool = S::ONE || S::GIVEN || matches!(S::Access::WIDTH, Width::Element);

    #[inline(always)]
    pub fn new<T: Data>(tiling: &'a Tiling) -> Self {
        let elements = width::<T, S::Access>();
        let of_team = at_least_one(tiling.blocks);
        let (in_team, thread) = (simt::block_index() % of_team, simt::thread_index());
        let (part, rank, blocks) = match S::WIDE {
            true => {
                let blocks = at_least_one(tiling.blocks / at_least_one(tiling.parts));
                (in_team / blocks, in_team % blocks, blocks)
            }
            false => (0, in_team, of_team),
        };
        let place = |row: u64, column: u32| Cursor {
            column,
            offset: row * tiling.line + u64::from(column),
        };
        let steps = |all: u64, first: u64, step: u64| {
            let step = NonZero::new(step).unwrap_or(NonZero::<u64>::MIN);
            (all.saturating_sub(first) + (step.get() - 1)) / step
        };
        let (start, step, own) = match NonZero::new(tiling.lanes) {
            // Of vectors it is known which, but where statistics are given.
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
            rank: in_team,
            team: simt::block_index() / of_team,
            teams: simt::grid_blocks() / of_team,
            part,
            of_part: (rank, blocks.get()),
            start,
            step,
            own: own as u32,
            of: PhantomData,
        }
    }

    /// Whether a tile is one group, whose accesses threads take in turn.
    #[inline(always)]
    fn takes_turns(&self) -> bool {
        S::ONE || Self::TURNS && self.tiling.lanes == 0
    }

    /// A tile, by its number.
    #[inline(always)]
    pub fn tile(&self, number: u32) -> Tile {
        let tiling = self.tiling;
        let across = at_least_one(tiling.across);
        let (batch, along) = (number / across, number % across);
        if S::WIDE {
            let before = self.part * tiling.width;
            let column = u64::from(along) * u64::from(tiling.inner);
            let first = u64::from(batch) * tiling.rows * tiling.line + column;
            return Tile {
                first,
                start: first + u64::from(before),
                group: u64::from(batch) * u64::from(tiling.groups_of_line) + u64::from(along),
                unit: column as u32 + before,
                width: (tiling.inner - before).min(tiling.width),
            };
        }
        let column = u64::from(along) * u64::from(tiling.width);
        let start = u64::from(batch) * tiling.rows * tiling.line + column;
        Tile {
            first: start,
            start,
            group: u64::from(batch) * u64::from(tiling.groups_of_line) + u64::from(along * tiling.groups()),
            unit: along * tiling.units(),
            width: (tiling.line - column).min(tiling.width.into()) as u32,
        }
    }

    /// The tile that takes the place of another in shared memory, if there is one.
    #[inline(always)]
    pub fn coming(&self, number: u32) -> Option<Tile> {
        // Numbers may be close to the end of their range.
        let number = u64::from(number) + u64::from(self.tiling.slots) * u64::from(self.teams);
        (number < self.tiling.tiles.into()).then(|| self.tile(number as u32))
    }

    /// Accesses of the thread to a tile: those that are kept, and all.
    #[inline(always)]
    pub fn own(&self, tile: Tile) -> [u32; 2] {
        let own = if self.own_column() < tile.width { self.own } else { 0 };
        [own.min(self.tiling.kept), own]
    }

    /// The column of the thread's accesses, where it has the same of each row; 0 where a tile is one group.
    #[inline(always)]
    pub fn own_column(&self) -> u32 {
        if self.takes_turns() { 0 } else { self.start.column }
    }

    /// The row that number `index` of the block's is, which may lie behind the tile's last one; none behind those of the last access.
    /// Where threads have the same columns of each row: of an access, the threads' rows are neighbours.
    #[inline(always)]
    pub fn row(&self, index: u32) -> Option<u64> {
        let at_once = at_least_one(THREADS / at_least_one(self.tiling.lanes));
        let (access, row) = (index / at_once, index % at_once);
        let before = u64::from(access) * u64::from(self.tiling.blocks) + u64::from(self.rank);
        (access < self.tiling.accesses).then(|| before * u64::from(at_once.get()) + u64::from(row))
    }

    /// The thread's first place.
    #[inline(always)]
    pub fn start(&self) -> Cursor {
        self.start
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

    /// The place so many before.
    #[inline(always)]
    pub fn back<const M: usize>(&self, at: Cursor) -> Cursor {
        let mut at = at;
        unrolled::<M>(|_| {
            let wraps = self.takes_turns() && at.column < self.step.column;
            at.offset -= self.step.offset;
            if Self::TURNS {
                at.column = at.column.wrapping_sub(self.step.column);
            }
            if wraps {
                at.column = at.column.wrapping_add(self.tiling.inner);
                at.offset -= self.tiling.line - u64::from(self.tiling.inner);
            }
        });
        at
    }

    /// The place of an access, by its number: in as many steps as that has bits, for a division takes longer and more registers.
    #[inline(always)]
    pub fn at(&self, access: u32) -> Cursor {
        let (mut at, mut left, mut step) = (self.start, access, self.step);
        while left > 0 {
            if !left.is_multiple_of(2) {
                at = self.plus(at, step);
            }
            step = self.plus(step, step);
            left /= 2;
        }
        at
    }
}
