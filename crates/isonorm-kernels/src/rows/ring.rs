//! Rows that come to shared memory before they are needed, past the registers. Each thread fetches what it uses itself, so that
//! nobody waits for others.

use core::marker::PhantomData;

use super::access::{Access, Data};
use crate::simt::{self, Shared};

/// Rows that shared memory has room for, at most: the one that comes next, and those behind it.
pub const MOST_SLOTS: u32 = 3;

/// Slots that rows come to in turn, each with `V` accesses a thread of some tensors.
pub(super) struct Ring<A, const V: usize> {
    /// Where it starts in shared memory.
    start: u32,
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
    pub(super) fn new(start: u32, tensors: u32, slots: u32, stay: u32) -> Self {
        Self {
            start,
            tensors,
            slots,
            stay,
            next: 0,
            of: PhantomData,
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

/// A row in shared memory.
pub(super) struct Slot<A, const V: usize> {
    /// Where the slots start.
    start: u32,
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
