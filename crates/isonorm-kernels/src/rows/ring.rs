//! Rows that come to shared memory before they are needed, past the registers. Each thread fetches what it uses itself, so that
//! nobody waits for others.

use core::marker::PhantomData;

use super::access::{Access, Data};
use super::team::Owner;
use crate::simt::{self, Shared};

/// Rows that shared memory has room for, at most: the one that comes next, and those behind it.
pub const MOST_SLOTS: u32 = 3;

/// Slots that rows come to in turn, each with `V` accesses a thread of some tensors.
pub(super) struct Ring<A, const V: usize> {
    /// Where it starts in shared memory.
    start: u32,
    ends: Ends,
    tensors: u32,
    slots: u32,
    /// Rows that stay behind the one that has come.
    stay: u32,
    /// The slot of the row that comes next.
    next: u32,
    of: PhantomData<A>,
}

impl<A: Access, const V: usize> Ring<A, V> {
    /// `slots` is at most [`MOST_SLOTS`], and at least one more than the rows that `stay` when the next one comes.
    #[inline(always)]
    pub(super) fn new(start: u32, ends: Ends, tensors: u32, slots: u32, stay: u32) -> Self {
        Self {
            ends,
            start,
            tensors,
            slots,
            stay,
            next: 0,
            of: PhantomData,
        }
    }

    /// Where each segment is accessed apart from others, by many addresses: what they begin with, [in a register](simt::settled). For a warp.
    #[inline(always)]
    pub(super) fn settle(&mut self) {
        if A::IS_OF_SEGMENTS && !A::BY_SEGMENT {
            self.start = simt::settled(Shared::<u32>::at(self.start)).byte_offset();
        }
    }

    /// Rows on their way behind the one that comes next.
    #[inline(always)]
    pub(super) fn behind(&self) -> u32 {
        self.slots.max(1 + self.stay) - 1 - self.stay
    }

    /// The slot of the row that is so many behind the next one.
    #[inline(always)]
    pub(super) fn slot(&self, behind: u32) -> u32 {
        let slot = self.next + behind;
        if slot < self.slots { slot } else { slot - self.slots }
    }

    /// A slot, by its number.
    #[inline(always)]
    fn place(&self, slot: u32) -> Slot<A, V> {
        Slot {
            start: self.start,
            ends: self.ends,
            tensor: slot * self.tensors,
            of: PhantomData,
        }
    }

    /// Sets part `v` of a tensor's row on its way to a slot.
    ///
    /// # Safety
    ///
    /// `from` may be read, as far as `left` elements, and is aligned to the access; the slot is free.
    #[inline(always)]
    pub(super) unsafe fn fetch<T: Data>(&self, slot: u32, tensor: u32, v: usize, from: *const T, left: Option<u32>) {
        // SAFETY: the caller's; the place is this thread's.
        unsafe { A::fetch_some(self.place(slot).place(tensor, v), from, left) };
    }

    /// The same, of a part that a row has all of, if it has it.
    ///
    /// # Safety
    ///
    /// As for [`fetch`](Ring::fetch), if the row has it.
    #[inline(always)]
    pub(super) unsafe fn fetch_if<T: Data>(&self, has: bool, slot: u32, tensor: u32, v: usize, from: *const T) {
        // SAFETY: the caller's; the place is this thread's.
        unsafe { A::fetch_if(self.place(slot).place(tensor, v), from, has) };
    }

    /// Ends what belongs to a row.
    #[inline(always)]
    pub(super) fn commit(&self) {
        simt::copy_commit();
    }

    /// Waits for the row that comes next, when that many are [`behind`](Ring::behind) it.
    #[inline(always)]
    pub(super) fn wait(&self) {
        match self.behind() {
            0 => simt::copy_wait::<0>(),
            1 => simt::copy_wait::<1>(),
            _ => simt::copy_wait::<{ MOST_SLOTS - 1 }>(),
        }
    }

    /// The same, if no rows stay: one wait after the other, and no choice among them. Of that the assembler would make an indirect branch, and
    /// behind one it does not know any more what is the same in all threads, such as addresses of rows.
    #[inline(always)]
    pub(super) fn wait_in_turn(&self) {
        simt::copy_wait::<{ MOST_SLOTS - 1 }>();
        if self.behind() <= 1 {
            simt::copy_wait::<1>();
        }
        if self.behind() == 0 {
            simt::copy_wait::<0>();
        }
    }

    /// Where the row is that has come, until its slot is fetched to again: when as many have come after it as stay, and one more.
    #[inline(always)]
    pub(super) fn arrived(&self) -> Slot<A, V> {
        self.place(self.next)
    }

    /// Goes on to the row behind.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.next = self.slot(1);
    }
}

/// Where accesses are that segments which begin anywhere may have a part of only, one of a thread at most.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// Places for them, in each tensor of a slot.
    pub(super) places: u32,
    /// The thread's own.
    pub(super) own: u32,
}

/// Places for such accesses of a block of so many threads: for all of these, or, of blocks of the whole chip, for one of so many.
#[inline(always)]
pub fn end_places(threads: u32, owner: Owner) -> u32 {
    match owner {
        Owner::Chip => threads / CHIP_APART,
        _ => threads,
    }
}

/// Threads of the whole chip for each such access, at least: so many of them are no more than half a part of what threads keep.
pub const CHIP_APART: u32 = 4;

/// A row in shared memory.
pub(super) struct Slot<A, const V: usize> {
    /// Where the slots start.
    start: u32,
    ends: Ends,
    /// Tensors in the slots before this one.
    tensor: u32,
    of: PhantomData<A>,
}

impl<A: Access, const V: usize> Slot<A, V> {
    /// Where the thread's part `v` of one of the tensors is.
    #[inline(always)]
    fn place(&self, tensor: u32, v: usize) -> Shared<u32> {
        let (threads, thread) = (simt::block_threads(), simt::thread_index());
        let access = tensor * V as u32 + v as u32;
        match A::IS_OF_SEGMENTS {
            // The ends behind all others.
            true if A::HAS_ENDS => {
                let whole = (V as u32 - 1) * threads;
                let start = self.start + (self.tensor + tensor) * (whole + self.ends.places) * A::KEPT_BYTES;
                let own = match v {
                    0 => whole + self.ends.own,
                    _ => (v as u32 - 1) * threads + thread,
                };
                Shared::at(start + own * A::KEPT_BYTES)
            }
            // What all parts have in common is computed once.
            true => {
                let own = self.start + (self.tensor * V as u32 * threads + thread) * A::KEPT_BYTES;
                // Otherwise the compiler takes it apart again, for each part.
                let own = if A::BY_SEGMENT { simt::opaque(own) } else { own };
                Shared::at(own + access * (threads * A::KEPT_BYTES))
            }
            false => {
                let own = (self.tensor * V as u32 + access) * threads + thread;
                Shared::at(self.start + own * A::KEPT_BYTES)
            }
        }
    }

    /// The thread's part `v` of one of the tensors.
    ///
    /// # Safety
    ///
    /// This thread has fetched it, and waited for it.
    #[inline(always)]
    pub(super) unsafe fn part<T: Data>(&self, tensor: u32, v: usize) -> A::Raw<T> {
        // SAFETY: the caller's.
        unsafe { A::kept(self.place(tensor, v)) }
    }
}
