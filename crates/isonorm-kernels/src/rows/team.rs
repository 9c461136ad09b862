//! The threads that own a row: some lanes of a warp, or a block.

use crate::block::{self, Scratch};
use crate::simt::{self, WARP};
use crate::warp;

/// Who owns a row, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// So many neighbouring lanes of a warp.
    Lanes(u32),
    /// A block.
    Block,
    /// A block that does not hold the row.
    Alone,
    /// The blocks of a cluster.
    Cluster,
    /// Blocks of the grid.
    Grid,
}

/// A type that stands for an [`Owner`].
pub trait Owns {
    /// Which one.
    const OWNER: Owner;
}

/// Who owns a row, and holds it in registers.
pub trait Team: Owns + Sized {
    /// Bytes of dynamic shared memory of a block, for the sums.
    const SHARED_BYTES: u32;

    /// The team of this thread.
    fn new() -> Self;

    /// Threads of a team.
    fn threads(&self) -> u32;

    /// The thread's index in its team.
    fn rank(&self) -> u32;

    /// The first row of the teams that go from row to row together: those of a warp, or the block's.
    fn first_row(&self) -> u64;

    /// How many rows after that one the team's own is.
    fn own_row(&self) -> u32;

    /// How far the next row is that the team owns.
    fn row_step(&self) -> u64;

    /// The sum over the team; valid in all its threads, with the same bits.
    fn sum(&mut self, value: f32) -> f32;

    /// The sums of two values over the team; valid in all its threads, with the same bits.
    fn sum_pair(&mut self, pair: [f32; 2]) -> [f32; 2];

    /// Whether something that all threads of a team agree about holds for any of the teams that go from row to row together;
    /// valid in all their threads.
    fn any(&self, of_team: bool) -> bool;
}

/// So many neighbouring lanes of a warp: 8, 16 or 32.
pub struct Lanes<const LANES: u32>;

impl<const LANES: u32> Owns for Lanes<LANES> {
    const OWNER: Owner = Owner::Lanes(LANES);
}

impl<const LANES: u32> Team for Lanes<LANES> {
    const SHARED_BYTES: u32 = 0;

    #[inline(always)]
    fn new() -> Self {
        Self
    }

    #[inline(always)]
    fn threads(&self) -> u32 {
        LANES
    }

    #[inline(always)]
    fn rank(&self) -> u32 {
        simt::lane() % LANES
    }

    #[inline(always)]
    fn first_row(&self) -> u64 {
        let warp = u64::from(simt::block_index()) * u64::from(simt::block_threads() / WARP);
        (warp + u64::from(simt::warp_index())) * u64::from(WARP / LANES)
    }

    #[inline(always)]
    fn own_row(&self) -> u32 {
        simt::lane() / LANES
    }

    #[inline(always)]
    fn row_step(&self) -> u64 {
        u64::from(simt::grid_blocks()) * u64::from(simt::block_threads() / LANES)
    }

    #[inline(always)]
    fn sum(&mut self, value: f32) -> f32 {
        warp::sum_of_lanes::<LANES>(value)
    }

    #[inline(always)]
    fn sum_pair(&mut self, [first, second]: [f32; 2]) -> [f32; 2] {
        [self.sum(first), self.sum(second)]
    }

    #[inline(always)]
    fn any(&self, of_team: bool) -> bool {
        if LANES == WARP { of_team } else { simt::any(of_team) }
    }
}

/// A block.
pub struct Block {
    scratch: Scratch,
}

impl Owns for Block {
    const OWNER: Owner = Owner::Block;
}

impl Team for Block {
    const SHARED_BYTES: u32 = block::SCRATCH_BYTES;

    #[inline(always)]
    fn new() -> Self {
        Self {
            scratch: Scratch::at_start(),
        }
    }

    #[inline(always)]
    fn threads(&self) -> u32 {
        simt::block_threads()
    }

    #[inline(always)]
    fn rank(&self) -> u32 {
        simt::thread_index()
    }

    #[inline(always)]
    fn first_row(&self) -> u64 {
        u64::from(simt::block_index())
    }

    #[inline(always)]
    fn own_row(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn row_step(&self) -> u64 {
        u64::from(simt::grid_blocks())
    }

    #[inline(always)]
    fn sum(&mut self, value: f32) -> f32 {
        block::sum(value, &mut self.scratch)
    }

    #[inline(always)]
    fn sum_pair(&mut self, pair: [f32; 2]) -> [f32; 2] {
        block::sum_pair(pair, &mut self.scratch)
    }

    #[inline(always)]
    fn any(&self, of_team: bool) -> bool {
        of_team
    }
}
