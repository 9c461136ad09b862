//! From the sums of blocks to those of their team, through global memory.
//!
//! Of a single sum each block reads what all have sent; and of several, where there are few blocks. With more, each sum has an owner,
//! who adds up what was sent, and sends the total: two messages' time instead of one, but not the square of the blocks in messages.
//! Either way the sums are added up in the same order every time.

use super::stream::Turn;
use super::tiling::Walk;
use super::{Spec, THREADS, areas};
use crate::block::{self, Scratch};
use crate::rows::lanes::unrolled;
use crate::rows::parameters::at_least_one;
use crate::simt::{self, WARP};
use crate::warp;

/// Tiles whose sums may be under way. A block sends those of a tile when it has received those of the tile before the last, for which
/// all that was in their place had been read.
const TILES: u32 = 4;
/// Tiles whose sums are exchanged once more, where they are measured again.
const AGAIN: u32 = 2;
/// Of a message.
const WORDS: u32 = 4;
/// Blocks of which each reads what all have sent.
const FEW: u32 = 8;

/// Words of the messages of a team: for each sum one from each block, and the total.
#[inline(always)]
pub const fn message_words(blocks: u32, places: u32) -> u32 {
    (TILES + AGAIN) * places * (blocks + 1) * WORDS
}

/// Sums side by side over the blocks of a team.
pub(super) struct Exchange {
    messages: *mut u32,
    blocks: u32,
    rank: u32,
    /// Sums side by side; no more than threads.
    places: u32,
}

/// Sums that all blocks of a team send.
#[derive(Clone, Copy)]
pub(super) struct Round {
    /// Which of the places for messages is theirs.
    place: u32,
    /// What is new in messages there.
    mark: u32,
    /// Where the tile's numbers are kept.
    slot: u32,
}

impl Round {
    /// The sums of a tile.
    #[inline(always)]
    pub fn of(turn: Turn) -> Self {
        Self {
            place: turn.0 % TILES,
            mark: turn.0 + 1,
            slot: turn.slot(),
        }
    }

    /// The sums of a tile that is measured again: all blocks had received those of the tile before the last then.
    #[inline(always)]
    pub fn again(turn: Turn) -> Self {
        Self {
            place: TILES + turn.0 % AGAIN,
            ..Self::of(turn)
        }
    }
}

impl Exchange {
    /// This block's, of so many sums side by side.
    #[inline(always)]
    pub fn new<S: Spec>(messages: *mut u32, walk: &Walk<'_, S>, places: u32) -> Self {
        let blocks = walk.tiling.blocks;
        Self {
            messages: messages.wrapping_add(walk.team as usize * message_words(blocks, places) as usize),
            blocks,
            rank: walk.rank(),
            places,
        }
    }

    /// Where block `from` leaves its sum number `place`; with `from` the number of blocks, where the total is left.
    #[inline(always)]
    fn at(&self, round: Round, place: u32, from: u32) -> *mut u32 {
        let number = (round.place * self.places + place) * (self.blocks + 1) + from;
        self.messages.wrapping_add((number * WORDS) as usize)
    }

    /// Sends the block's sums: thread `u` that of place `u`.
    #[inline(always)]
    pub fn send(&self, round: Round, sums: [f32; 2]) {
        let place = simt::thread_index();
        if place < self.places {
            // SAFETY: a place for each block, whose message there has been received; or this thread's own.
            unsafe {
                if self.blocks > 1 {
                    simt::message_send(self.at(round, place, self.rank), sums, round.mark);
                } else {
                    simt::shared_store(areas::own(round.slot, 1), sums[0]);
                    simt::shared_store(areas::own(round.slot, 2), sums[1]);
                }
            }
        }
    }

    /// What some blocks have sent, added up: block `from`, and each `step` further, of those that there are. `N` are waited for at
    /// once.
    #[inline(always)]
    fn collect<const N: usize>(&self, round: Round, place: u32, from: u32, step: u32) -> [f32; 2] {
        let (mut sums, mut from) = ([0.0; 2], from);
        while from < self.blocks {
            simt::rolled();
            let mut places = [self.at(round, place, from).cast_const(); N];
            unrolled::<N>(|k| {
                let further = from + k as u32 * step;
                if further < self.blocks {
                    places[k] = self.at(round, place, further);
                }
            });
            // SAFETY: a place for each block.
            let messages: [[f32; 2]; N] = unsafe { simt::messages_wait(places, round.mark) };
            unrolled::<N>(|k| {
                if from + (k as u32) * step < self.blocks {
                    sums = [sums[0] + messages[k][0], sums[1] + messages[k][1]];
                }
            });
            from += N as u32 * step;
        }
        sums
    }

    /// Adds up what this block owns, and sends the totals. Called by the whole block, when other blocks may yet have to send.
    #[inline(always)]
    pub fn gather(&self, round: Round) {
        if self.blocks <= FEW || self.places == 1 || self.rank >= self.places {
            return;
        }
        let owned = (self.places - self.rank).div_ceil(at_least_one(self.blocks).get());
        let (warps, warp, lane) = (THREADS / WARP, simt::warp_index(), simt::lane());
        let place = |index: u32| self.rank + index * self.blocks;
        let send = |index: u32, total: [f32; 2]| {
            let to = self.at(round, place(index), self.blocks);
            // SAFETY: the owner's place, whose message there has been received.
            unsafe { simt::message_send(to, total, round.mark) };
        };
        // Warps share a place where that leaves none idle: then each thread waits for one message, or two.
        let together = match owned {
            1 => warps,
            2 => warps / 2,
            3..=4 => warps / 4,
            _ => {
                let mut index = warp;
                while index < owned {
                    simt::rolled();
                    let total = warp::sum_pair(self.collect::<2>(round, place(index), lane, WARP));
                    if lane == 0 {
                        send(index, total);
                    }
                    index += warps;
                }
                return;
            }
        };
        let (index, part) = (warp / together, warp % together);
        if index < owned {
            let own = self.collect::<2>(round, place(index), part * WARP + lane, together * WARP);
            let own = warp::sum_pair(own);
            if lane == 0 {
                // SAFETY: a place for each warp, which was read before a barrier.
                unsafe {
                    simt::shared_store(areas::OF_WARPS.offset(2 * warp), own[0]);
                    simt::shared_store(areas::OF_WARPS.offset(2 * warp + 1), own[1]);
                }
            }
        }
        simt::block_barrier();
        let index = simt::thread_index();
        if index < owned {
            let (mut total, mut part) = ([0.0; 2], 0);
            while part < together {
                simt::rolled();
                let from = areas::OF_WARPS.offset(2 * (index * together + part));
                // SAFETY: written before the barrier.
                let [first, second] = unsafe { [simt::shared_load(from), simt::shared_load(from.offset(1))] };
                total = [total[0] + first, total[1] + second];
                part += 1;
            }
            send(index, total);
        }
    }

    /// The totals: thread `u` has that of place `u`, with the same bits in all blocks. Called by the whole block.
    #[inline(always)]
    pub fn receive(&self, round: Round, scratch: &mut Scratch) -> [f32; 2] {
        let place = simt::thread_index();
        if self.blocks > 1 && self.places == 1 {
            let partial = self.collect::<2>(round, 0, place, THREADS);
            return block::sum_pair(partial, scratch);
        }
        if place >= self.places {
            return [0.0; 2];
        }
        if self.blocks == 1 {
            // SAFETY: this thread has kept them.
            return [1, 2].map(|k| unsafe { simt::shared_load(areas::own(round.slot, k)) });
        }
        if self.blocks > FEW {
            // SAFETY: a place for the total.
            return unsafe { simt::message_wait(self.at(round, place, self.blocks), round.mark) };
        }
        self.collect::<4>(round, place, 0, 1)
    }
}
