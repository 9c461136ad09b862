//! What the threads of neighbouring blocks of the grid compute together. Every function is called by all of these blocks, which
//! have to run at the same time.

use crate::block;
use crate::simt;

/// Words of the messages of so many blocks, to themselves: in each slot one from each block.
pub const fn message_words(blocks: u32) -> u32 {
    SLOTS * blocks * WORDS
}

/// A block that sends the message of sum n may have two sums open, but has received all up to n − 3. Whoever sent that of sum n − 3
/// had received all up to n − 6: so those before may be overwritten.
const SLOTS: u32 = 8;
/// Of a message.
const WORDS: u32 = 4;

/// Bytes of shared memory that a [`Scratch`] takes.
pub const SCRATCH_BYTES: u32 = block::SCRATCH_BYTES;

/// Where blocks leave messages for each other. Memory that was zero once, and has held nothing but messages since, may be used again and
/// again, in whatever way it is divided: a message is known by its tag, which none before had.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Messages {
    /// Aligned to 16 bytes; or null, where there is nobody to leave one for.
    pub places: *mut u32,
    /// No message that was left there before has a tag beyond this. Those of the launch have the next ones.
    pub sent: u32,
}

impl Messages {
    /// The same, behind so many words.
    #[inline(always)]
    pub(crate) fn behind(self, words: usize) -> Self {
        Self {
            places: self.places.wrapping_add(words),
            ..self
        }
    }
}

/// Blocks that compute together, and where they leave messages for each other.
#[derive(Clone, Copy)]
pub struct Peers {
    /// `[grid / blocks]` of [`message_words`]; or null, for blocks that leave none.
    pub messages: Messages,
    /// How many blocks; at least 1.
    pub blocks: u32,
}

impl Peers {
    /// With places for messages, none of which has a tag beyond `sent`.
    #[inline(always)]
    pub(crate) fn new(places: *mut u32, sent: u32, blocks: u32) -> Self {
        Self {
            messages: Messages { places, sent },
            blocks,
        }
    }
}

/// Memory for sums over neighbouring blocks: shared memory of each from byte 0 on, and messages in global memory.
///
/// A sum over a block is a message to all. The slots for messages take turns: when a block sends to one again, all have received what
/// was there.
pub struct Scratch {
    block: block::Scratch,
    peers: Peers,
    team: u32,
    rank: u32,
    /// Sums so far.
    round: u32,
}

impl Scratch {
    /// At the start of the shared memory of each block, which nothing else uses there; of the blocks that are number `team` of the
    /// grid's, block `rank`.
    ///
    /// # Safety
    ///
    /// See [`Peers`].
    #[inline(always)]
    pub unsafe fn at_start(peers: Peers, team: u32, rank: u32) -> Self {
        Self {
            block: block::Scratch::at_start(),
            peers,
            team,
            rank,
            round: 0,
        }
    }

    /// Where a block leaves its message of a round. Found again each time, so that no address takes registers.
    #[inline(always)]
    fn place(&self, round: u32, rank: u32) -> *mut u32 {
        let (team, blocks) = (self.team, self.peers.blocks);
        let number = round % SLOTS * blocks + rank;
        let words = team as usize * message_words(blocks) as usize + (number * WORDS) as usize;
        self.peers.messages.places.wrapping_add(words)
    }

    /// The tag of the messages of a round.
    #[inline(always)]
    fn tag(&self, round: u32) -> u32 {
        self.peers.messages.sent + round
    }
}

/// A sum whose result is on its way.
pub struct Sent {
    round: u32,
}

/// The sums of two values over the block alone; valid in every thread, with the same bits.
#[inline(always)]
pub fn sum_of_block(pair: [f32; 2], scratch: &mut Scratch) -> [f32; 2] {
    block::sum_pair(pair, &mut scratch.block)
}

/// Sends the sums of two values over the block to all blocks.
#[inline(always)]
pub fn send_pair(pair: [f32; 2], scratch: &mut Scratch) -> Sent {
    let own = sum_of_block(pair, scratch);
    send(own, scratch)
}

/// Sends two numbers, those of thread 0, to all blocks, as the block's part of a sum.
#[inline(always)]
pub fn send(own: [f32; 2], scratch: &mut Scratch) -> Sent {
    scratch.round += 1;
    let round = scratch.round;
    if simt::thread_index() == 0 {
        // SAFETY: a place for each block, whose message there has been received, see above.
        unsafe { simt::message_send(scratch.place(round, scratch.rank), own, scratch.tag(round)) };
    }
    Sent { round }
}

/// The sums of what all blocks have sent; valid in every thread, with the same bits. At most one other sum may have been sent since.
#[inline(always)]
pub fn receive_pair(sent: &Sent, scratch: &mut Scratch) -> [f32; 2] {
    let (mut partial, mut peer) = ([0.0; 2], simt::thread_index());
    while peer < scratch.peers.blocks {
        // SAFETY: a place for each block, which nobody sends to before this has been received.
        let theirs: [f32; 2] = unsafe { simt::message_wait(scratch.place(sent.round, peer), scratch.tag(sent.round)) };
        partial = [partial[0] + theirs[0], partial[1] + theirs[1]];
        peer += simt::block_threads();
    }
    block::sum_pair(partial, &mut scratch.block)
}

/// The sums of two values over the blocks; valid in every thread, with the same bits.
#[inline(always)]
pub fn sum_pair(pair: [f32; 2], scratch: &mut Scratch) -> [f32; 2] {
    let sent = send_pair(pair, scratch);
    receive_pair(&sent, scratch)
}
