//! From the sums of blocks to those of their team, through global memory.
//!
//! Of a single sum each block reads what all have sent; and of several, where there are few blocks. With more, each sum has an owner, who adds up what was sent, and sends the
//! total: two messages' time instead of one, but not the square of the blocks in messages. Either way the sums are added up in
//! the same order every time.

use super::{THREADS, areas};
use crate::block::{self, Scratch};
use crate::grid::Messages;
use crate::simt::{self, WARP};
use crate::warp;

/// Sums that may be under way. A block sends to a slot again when it has received all totals of the round before the last, for which
/// all that was in the slot had been read.
pub(super) const SLOTS: u32 = 4;
/// Of a message.
pub(super) const WORDS: u32 = 4;
/// Blocks of which each reads what all have sent.
pub(super) const FEW: u32 = 8;

/// Words of the messages of a team: for each sum one from each block, and the total.
#[inline(always)]
pub const fn message_words(blocks: u32, places: u32) -> u32 {
    SLOTS * places * (blocks + 1) * WORDS
}

/// Sums side by side over the blocks of a team.
pub(super) struct Exchange {
    messages: *mut u32,
    blocks: u32,
    rank: u32,
    /// Sums side by side; no more than threads.
    places: u32,
    /// The tag before the first message's.
    sent: u32,
    /// Messages so far.
    round: u32,
}

/// Sums whose totals are on their way.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    round: u32,
    /// Where the tile is.
    slot: u32,
}

impl Exchange {
    /// Of block `rank` of `blocks` of team `team`.
    #[inline(always)]
    pub fn new(messages: Messages, team: u32, (blocks, rank): (u32, u32), places: u32) -> Self {
        Self {
            messages: messages
                .behind(team as usize * message_words(blocks, places) as usize)
                .places,
            blocks,
            rank,
            places,
            sent: messages.sent,
            round: 0,
        }
    }

    /// Where block `from` leaves its sum number `place`; with `from` the number of blocks, where the total is left.
    #[inline(always)]
    fn at(&self, round: u32, place: u32, from: u32) -> *mut u32 {
        let slot = round % SLOTS * self.places + place;
        let number = slot * (self.blocks + 1) + from;
        self.messages.wrapping_add((number * WORDS) as usize)
    }

    /// Sends the block's sums of the tile in a slot: thread `u` that of place `u`.
    #[inline(always)]
    pub fn send(&mut self, slot: u32, sums: [f32; 2]) -> Sent {
        self.round += 1;
        let (place, round) = (simt::thread_index(), self.round);
        if place < self.places {
            // SAFETY: a place for each block, whose message there has been received; or this thread's own.
            unsafe {
                if self.blocks > 1 {
                    simt::message_send(self.at(round, place, self.rank), sums, self.sent + round);
                } else {
                    simt::shared_store(areas::own(slot, 1), sums[0]);
                    simt::shared_store(areas::own(slot, 2), sums[1]);
                }
            }
        }
        Sent { round, slot }
    }

    /// Adds up what this block owns, and sends the totals. Called by whole warps, when other blocks may yet have to send.
    #[inline(always)]
    pub fn gather(&self, sent: Sent) {
        if self.blocks <= FEW || self.places == 1 {
            return;
        }
        let warps = THREADS / WARP;
        let mut place = self.rank + simt::warp_index() * self.blocks;
        while place < self.places {
            let (mut sums, mut from) = ([0.0; 2], simt::lane());
            while from < self.blocks {
                // SAFETY: a place for each block.
                let [first, second]: [f32; 2] =
                    unsafe { simt::message_wait(self.at(sent.round, place, from), self.sent + sent.round) };
                sums = [sums[0] + first, sums[1] + second];
                from += WARP;
            }
            let total = warp::sum_pair(sums);
            if simt::lane() == 0 {
                // SAFETY: the owner's place, whose message there has been received.
                unsafe { simt::message_send(self.at(sent.round, place, self.blocks), total, self.sent + sent.round) };
            }
            place += warps * self.blocks;
        }
    }

    /// The totals: thread `u` has that of place `u`, with the same bits in all blocks. Called by the whole block.
    #[inline(always)]
    pub fn receive(&self, sent: Sent, scratch: &mut Scratch) -> [f32; 2] {
        let place = simt::thread_index();
        if self.blocks > 1 && self.places == 1 {
            let (mut partial, mut from) = ([0.0; 2], place);
            while from < self.blocks {
                // SAFETY: a place for each block.
                let [first, second]: [f32; 2] =
                    unsafe { simt::message_wait(self.at(sent.round, 0, from), self.sent + sent.round) };
                partial = [partial[0] + first, partial[1] + second];
                from += THREADS;
            }
            return block::sum_pair(partial, scratch);
        }
        if place >= self.places {
            return [0.0; 2];
        }
        if self.blocks == 1 {
            // SAFETY: this thread has kept them.
            return [1, 2].map(|k| unsafe { simt::shared_load(areas::own(sent.slot, k)) });
        }
        if self.blocks > FEW {
            // SAFETY: a place for the total.
            return unsafe { simt::message_wait(self.at(sent.round, place, self.blocks), self.sent + sent.round) };
        }
        let (mut sums, mut from) = ([0.0; 2], 0);
        while from < self.blocks {
            // SAFETY: a place for each block.
            let [first, second]: [f32; 2] =
                unsafe { simt::message_wait(self.at(sent.round, place, from), self.sent + sent.round) };
            sums = [sums[0] + first, sums[1] + second];
            from += 1;
        }
        sums
    }
}
