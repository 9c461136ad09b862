//! The threads that own a row, and hold it: some lanes of a warp, a block, the blocks of a cluster, or blocks of the whole chip.

use super::access::{Access, Data};
use super::parameters::{Map, Parameters, at_least_one};
use crate::block::{self, Scratch};
use crate::cluster;
use crate::grid::{self, Peers};
use crate::simt::{self, WARP};
use crate::warp;

/// Who owns a row, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// So many neighbouring lanes of a warp.
    Lanes(u32),
    /// A block.
    Block,
    /// The blocks of a cluster, which hold the row.
    Blocks,
    /// Blocks of the grid, which hold the row: up to the registers of the whole chip.
    Chip,
    /// A block that does not hold the row.
    Alone,
    /// Blocks of the grid that do not hold the row.
    Grid,
    /// Blocks of the grid, each of which keeps a piece of one run of the row in shared memory, as much of it as there is room for.
    Pieces,
    /// Nobody: each access is on its own.
    Each,
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

    /// Whether rows that come ahead in a forward pass come to shared memory, not to registers.
    const RING: bool;

    /// Weight and bias as a forward pass has them in registers: up to 8 of each beside the next row, 16 where that has its place in
    /// shared memory and no other block of the multiprocessor reads the same.
    type Parameters<M: Map, T: Data, A: Access, const V: usize>: Parameters<T, A, V>;

    /// The team of this thread, with the blocks that share its rows.
    ///
    /// # Safety
    ///
    /// See [`Peers`], where the team spans several blocks of the grid.
    unsafe fn new(peers: Peers) -> Self;

    /// The same, to be [prepared](Self::prepare) before its first sums: when the first row is on its way, which takes longer.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    #[inline(always)]
    unsafe fn unprepared(peers: Peers) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::new(peers) }
    }

    /// What [`unprepared`](Self::unprepared) leaves to be done.
    #[inline(always)]
    fn prepare(&self) {}

    /// Threads of a team.
    fn threads(&self) -> u32;

    /// The thread's index in its team.
    fn rank(&self) -> u32;

    /// Which of the blocks that share a row this is.
    #[inline(always)]
    fn block(&self) -> u32 {
        0
    }

    /// That, and the thread's index among those that the block has for the row, of how many.
    #[inline(always)]
    fn own_place(&self) -> (u32, u32, u32) {
        (self.block(), simt::thread_index(), simt::block_threads())
    }

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

/// So many neighbouring lanes of a warp: a power of two, from 2 on.
pub struct Lanes<const LANES: u32>;

impl<const LANES: u32> Owns for Lanes<LANES> {
    const OWNER: Owner = Owner::Lanes(LANES);
}

impl<const LANES: u32> Team for Lanes<LANES> {
    const SHARED_BYTES: u32 = 0;
    const RING: bool = false;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 8>;

    #[inline(always)]
    unsafe fn new(_peers: Peers) -> Self {
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
    fn sum_pair(&mut self, pair: [f32; 2]) -> [f32; 2] {
        warp::sum_pair_of_lanes::<LANES>(pair)
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
    const RING: bool = false;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 8>;

    #[inline(always)]
    unsafe fn new(_peers: Peers) -> Self {
        Self {
            scratch: Scratch::at_start(),
        }
    }

    #[inline(always)]
    unsafe fn unprepared(_peers: Peers) -> Self {
        Self {
            scratch: Scratch::unprepared(),
        }
    }

    #[inline(always)]
    fn prepare(&self) {
        self.scratch.prepare();
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

/// The blocks of a cluster (compute capability 9.0).
pub struct Blocks {
    scratch: cluster::Scratch,
}

impl Blocks {
    /// Which cluster of the grid this is, and how many there are.
    #[inline(always)]
    fn cluster() -> (u32, u32) {
        let blocks = at_least_one(simt::cluster_blocks());
        (simt::block_index() / blocks, simt::grid_blocks() / blocks)
    }
}

impl Owns for Blocks {
    const OWNER: Owner = Owner::Blocks;
}

impl Team for Blocks {
    const SHARED_BYTES: u32 = cluster::SCRATCH_BYTES;
    const RING: bool = true;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 16>;

    #[inline(always)]
    unsafe fn new(_peers: Peers) -> Self {
        Self {
            scratch: cluster::Scratch::at_start(),
        }
    }

    #[inline(always)]
    fn threads(&self) -> u32 {
        simt::cluster_blocks() * simt::block_threads()
    }

    #[inline(always)]
    fn rank(&self) -> u32 {
        simt::cluster_rank() * simt::block_threads() + simt::thread_index()
    }

    #[inline(always)]
    fn block(&self) -> u32 {
        simt::cluster_rank()
    }

    #[inline(always)]
    fn first_row(&self) -> u64 {
        Self::cluster().0.into()
    }

    #[inline(always)]
    fn own_row(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn row_step(&self) -> u64 {
        Self::cluster().1.into()
    }

    #[inline(always)]
    fn sum(&mut self, value: f32) -> f32 {
        let [sum, _] = self.sum_pair([value, 0.0]);
        sum
    }

    #[inline(always)]
    fn sum_pair(&mut self, pair: [f32; 2]) -> [f32; 2] {
        cluster::sum_pair(pair, &mut self.scratch)
    }

    #[inline(always)]
    fn any(&self, of_team: bool) -> bool {
        of_team
    }
}

/// Blocks of the grid, all of which run at the same time.
pub struct Chip {
    scratch: grid::Scratch,
    blocks: u32,
    /// Which team of the grid this is, and which of its blocks.
    team: u32,
    block: u32,
}

impl Chip {
    /// As [`grid::send_pair`].
    #[inline(always)]
    pub fn send_pair(&mut self, pair: [f32; 2]) -> grid::Sent {
        grid::send_pair(pair, &mut self.scratch)
    }

    /// As [`grid::sum_of_block`].
    #[inline(always)]
    pub fn sum_of_block(&mut self, pair: [f32; 2]) -> [f32; 2] {
        grid::sum_of_block(pair, &mut self.scratch)
    }

    /// As [`grid::send`].
    #[inline(always)]
    pub fn send(&mut self, own: [f32; 2]) -> grid::Sent {
        grid::send(own, &mut self.scratch)
    }

    /// As [`grid::receive_pair`].
    #[inline(always)]
    pub fn receive_pair(&mut self, sent: &grid::Sent) -> [f32; 2] {
        grid::receive_pair(sent, &mut self.scratch)
    }
}

impl Owns for Chip {
    const OWNER: Owner = Owner::Chip;
}

impl Team for Chip {
    const SHARED_BYTES: u32 = grid::SCRATCH_BYTES;
    const RING: bool = true;
    type Parameters<M: Map, T: Data, A: Access, const V: usize> = M::Of<T, A, V, 32>;

    #[inline(always)]
    unsafe fn new(peers: Peers) -> Self {
        let blocks = at_least_one(peers.blocks);
        let (team, block) = (simt::block_index() / blocks, simt::block_index() % blocks);
        Self {
            // SAFETY: the caller's.
            scratch: unsafe { grid::Scratch::at_start(peers, team, block) },
            blocks: blocks.get(),
            team,
            block,
        }
    }

    #[inline(always)]
    fn threads(&self) -> u32 {
        self.blocks * simt::block_threads()
    }

    #[inline(always)]
    fn rank(&self) -> u32 {
        self.block * simt::block_threads() + simt::thread_index()
    }

    #[inline(always)]
    fn block(&self) -> u32 {
        self.block
    }

    #[inline(always)]
    fn first_row(&self) -> u64 {
        self.team.into()
    }

    #[inline(always)]
    fn own_row(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn row_step(&self) -> u64 {
        (simt::grid_blocks() / at_least_one(self.blocks)).into()
    }

    #[inline(always)]
    fn sum(&mut self, value: f32) -> f32 {
        let [sum, _] = self.sum_pair([value, 0.0]);
        sum
    }

    #[inline(always)]
    fn sum_pair(&mut self, pair: [f32; 2]) -> [f32; 2] {
        grid::sum_pair(pair, &mut self.scratch)
    }

    #[inline(always)]
    fn any(&self, of_team: bool) -> bool {
        of_team
    }
}
