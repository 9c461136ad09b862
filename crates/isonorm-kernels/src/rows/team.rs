//! The threads that own a row: a warp, or a block.

use crate::block::{self, Scratch};
use crate::simt::{self, WARP};
use crate::warp;

/// A warp (`BLOCK` false: as many rows a block as it has warps) or a block.
pub(super) struct Team<const BLOCK: bool> {
    scratch: Scratch,
}

impl<const BLOCK: bool> Team<BLOCK> {
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            scratch: Scratch::at_start(),
        }
    }

    /// Threads of a team.
    #[inline(always)]
    pub fn threads(&self) -> u32 {
        if BLOCK { simt::block_threads() } else { WARP }
    }

    /// The thread's index in its team.
    #[inline(always)]
    pub fn rank(&self) -> u32 {
        if BLOCK { simt::thread_index() } else { simt::lane() }
    }

    /// The team's first row.
    #[inline(always)]
    pub fn first_row(&self) -> u64 {
        if BLOCK {
            return u64::from(simt::block_index());
        }
        u64::from(simt::block_index()) * u64::from(simt::block_threads() / WARP) + u64::from(simt::warp_index())
    }

    /// How many rows further its next one is.
    #[inline(always)]
    pub fn row_step(&self) -> u64 {
        let teams = if BLOCK { 1 } else { simt::block_threads() / WARP };
        u64::from(simt::grid_blocks()) * u64::from(teams)
    }

    /// The sum over the team; valid in all its threads.
    #[inline(always)]
    pub fn sum(&mut self, value: f32) -> f32 {
        if BLOCK {
            block::sum(value, &mut self.scratch)
        } else {
            warp::sum(value)
        }
    }

    /// The sums of two values over the team; valid in all its threads.
    #[inline(always)]
    pub fn sum_pair(&mut self, pair: [f32; 2]) -> [f32; 2] {
        if BLOCK {
            block::sum_pair(pair, &mut self.scratch)
        } else {
            warp::sum_pair(pair)
        }
    }
}
