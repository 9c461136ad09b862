//! How a long row is spread over blocks, and how these learn the moments of the whole.

use isonorm_math::Moments;

use super::forward::Args;
use super::parameters::at_least_one;
use super::team::{Owner, Owns};
use crate::simt::{self, WARP};
use crate::{block, warp};

/// Bytes of shared memory before the tiles that are kept, for the sums of the block.
pub const HEAD_BYTES: u32 = block::SCRATCH_BYTES.next_multiple_of(128);

/// The blocks that share a row.
pub trait Spread: Owns {
    /// Those of this block.
    fn new<T>(args: &Args<T>) -> Self;

    /// How many blocks share a row.
    fn blocks(&self) -> u32;

    /// Which of them this one is.
    fn rank(&self) -> u32 {
        simt::block_index() % at_least_one(self.blocks())
    }

    /// The moments of the row from those of the blocks' shares; valid in every thread of every block, with the same bits.
    /// Called by all of them.
    ///
    /// # Safety
    ///
    /// See [`Args`]; shared memory has [`HEAD_BYTES`].
    unsafe fn merge<T>(&mut self, own: Moments<f32>, args: &Args<T>) -> Moments<f32>;
}

/// A block has rows of its own.
pub struct Alone {
    blocks: u32,
}

/// `Args::blocks` blocks of the grid share a row, and exchange moments through global memory. All blocks have to run at the
/// same time.
pub struct Grid {
    blocks: u32,
    /// Rows so far.
    round: u32,
}

impl Owns for Alone {
    const OWNER: Owner = Owner::Alone;
}

impl Spread for Alone {
    #[inline(always)]
    fn new<T>(args: &Args<T>) -> Self {
        Self {
            blocks: at_least_one(args.blocks).get(),
        }
    }

    #[inline(always)]
    fn blocks(&self) -> u32 {
        self.blocks
    }

    #[inline(always)]
    unsafe fn merge<T>(&mut self, own: Moments<f32>, _args: &Args<T>) -> Moments<f32> {
        own
    }
}

impl Owns for Grid {
    const OWNER: Owner = Owner::Grid;
}

impl Spread for Grid {
    #[inline(always)]
    fn new<T>(args: &Args<T>) -> Self {
        Self {
            blocks: at_least_one(args.blocks).get(),
            round: 0,
        }
    }

    #[inline(always)]
    fn blocks(&self) -> u32 {
        self.blocks
    }

    #[inline(always)]
    unsafe fn merge<T>(&mut self, own: Moments<f32>, args: &Args<T>) -> Moments<f32> {
        let team = simt::block_index() / at_least_one(self.blocks);
        // Two slots in turn: whoever writes one again has seen the sum of the round between, to which all added after reading.
        let slot = u64::from(team * 2 + self.round % 2) * u64::from(self.blocks);
        let place = |rank: u32| {
            args.moments
                .wrapping_add(((slot + u64::from(rank)) * 3) as usize)
                .cast::<u32>()
        };
        self.round += 1;
        if simt::thread_index() == 0 {
            let (place, arrived) = (place(self.rank()), args.arrived.wrapping_add(team as usize));
            // SAFETY: the caller's: there is a place for each block, and a counter for each team.
            unsafe {
                simt::store_32(place, own.count.to_bits());
                simt::store_32(place.wrapping_add(1), own.mean.to_bits());
                simt::store_32(place.wrapping_add(2), own.m2.to_bits());
                simt::counter_add(arrived, 1);
                simt::counter_wait(arrived, self.round * self.blocks);
            }
        }
        simt::block_barrier();
        let mut all = Moments::EMPTY;
        let mut peer = simt::lane();
        while peer < self.blocks {
            let place = place(peer);
            // SAFETY: as above, and written: all blocks have arrived.
            let theirs = unsafe {
                Moments {
                    count: f32::from_bits(simt::load_32(place)),
                    mean: f32::from_bits(simt::load_32(place.wrapping_add(1))),
                    m2: f32::from_bits(simt::load_32(place.wrapping_add(2))),
                }
            };
            all = all.merge(theirs);
            peer += WARP;
        }
        warp::moments(all)
    }
}
