//! From the sums of blocks to those of their team, through global memory: as tiles do, but a thread looks at several messages together.
//!
//! With more than a few blocks each column has an owner, who adds up what was sent, and sends the total. Owners' warps that add up are the
//! last of a block, those that wait for totals the first.

use super::THREADS;
use crate::grid::Messages;
use crate::rows::lanes::unrolled;
use crate::simt::{self, WARP};
use crate::tiles::exchange::{FEW, SLOTS, WORDS, message_words};
use crate::tiles::tiling::Tiling;
use crate::warp;

/// Sums side by side over the blocks of a team. A block has received all totals before it sends again.
pub(super) struct Exchange {
    messages: *mut u32,
    blocks: u32,
    rank: u32,
    columns: u32,
    /// The tag before the first message's.
    sent: u32,
    /// Messages so far.
    round: u32,
}

impl Exchange {
    /// Of block `rank` of team `team`.
    #[inline(always)]
    pub fn new(messages: Messages, team: u32, rank: u32, tiling: &Tiling) -> Self {
        let (blocks, columns) = (tiling.blocks, tiling.width);
        Self {
            messages: messages
                .behind(team as usize * message_words(blocks, columns) as usize)
                .places,
            blocks,
            rank,
            columns,
            sent: messages.sent,
            round: 0,
        }
    }

    /// Where block `from` leaves its sums of a column; with `from` the number of blocks, where the total is left.
    #[inline(always)]
    fn at(&self, column: u32, from: u32) -> *mut u32 {
        let slot = self.round % SLOTS * self.columns + column;
        let number = slot * (self.blocks + 1) + from;
        self.messages.wrapping_add((number * WORDS) as usize)
    }

    /// That of the messages of the round.
    #[inline(always)]
    fn tag(&self) -> u32 {
        self.sent + self.round
    }

    /// Sends the block's sums of each column, and adds up what this block owns. Called by the whole block.
    #[inline(always)]
    pub fn send(&mut self, own: [f32; 2]) {
        if self.blocks == 1 {
            return;
        }
        self.round += 1;
        let thread = simt::thread_index();
        if thread < self.columns {
            // SAFETY: a place for each block, whose message there has been received.
            unsafe { simt::message_send_kept(self.at(thread, self.rank), own, self.tag()) };
        }
        if self.blocks <= FEW {
            return;
        }
        let warps = THREADS / WARP;
        let mut column = self.rank + (warps - 1 - simt::warp_index()) * self.blocks;
        while column < self.columns {
            let total = warp::sum_pair(self.add_up::<5>(column, simt::lane(), WARP));
            if simt::lane() == 0 {
                // SAFETY: the owner's place, whose message there has been received.
                unsafe { simt::message_send_kept(self.at(column, self.blocks), total, self.tag()) };
            }
            column += warps * self.blocks;
        }
    }

    /// Adds up the sums of a column that every `step`th block has sent, from one on, `N` at a time.
    #[inline(always)]
    fn add_up<const N: usize>(&self, column: u32, first: u32, step: u32) -> [f32; 2] {
        let (mut sums, mut from) = ([0.0; 2], first);
        while from < self.blocks {
            let mut places = [self.at(column, from).cast_const(); N];
            unrolled::<N>(|k| {
                let other = from + k as u32 * step;
                if other < self.blocks {
                    places[k] = self.at(column, other);
                }
            });
            // SAFETY: a place for each block.
            let sent: [[f32; 2]; N] = unsafe { simt::messages_wait_kept(places, self.tag()) };
            unrolled::<N>(|k| {
                if from + k as u32 * step < self.blocks {
                    sums = [sums[0] + sent[k][0], sums[1] + sent[k][1]];
                }
            });
            from += N as u32 * step;
        }
        sums
    }

    /// The totals of what was sent last: thread `u` has that of column `u`, with the same bits in all blocks.
    #[inline(always)]
    pub fn receive(&self, own: [f32; 2]) -> [f32; 2] {
        let thread = simt::opaque(simt::thread_index());
        if self.blocks == 1 || thread >= self.columns {
            return own;
        }
        if self.blocks <= FEW {
            return self.add_up::<4>(thread, 0, 1);
        }
        // SAFETY: a place for the total.
        let [total] = unsafe { simt::messages_wait_kept([self.at(thread, self.blocks).cast_const()], self.tag()) };
        total
    }
}
