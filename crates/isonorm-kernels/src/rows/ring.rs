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
    /// The slot of the row that comes next.
    next: u32,
    of: PhantomData<A>,
}

impl<A: Access, const V: usize> Ring<A, V> {
    /// `slots` is at least 1, and at most [`MOST_SLOTS`].
    #[inline(always)]
    pub(super) fn new(start: u32, tensors: u32, slots: u32) -> Self {
        Self {
            start,
            tensors,
            slots,
            next: 0,
            of: PhantomData,
        }
    }

    /// Rows on their way behind the one that comes next.
    #[inline(always)]
    pub(super) fn behind(&self) -> u32 {
        self.slots.max(1) - 1
    }

    /// The slot of the row that is so many behind the next one.
    #[inline(always)]
    pub(super) fn slot(&self, behind: u32) -> u32 {
        let slot = self.next + behind;
        if slot < self.slots { slot } else { slot - self.slots }
    }

    /// Where a slot has the thread's part `v` of one of the tensors.
    #[inline(always)]
    fn place(&self, slot: u32, tensor: u32, v: usize) -> Shared<u32> {
        let access = (slot * self.tensors + tensor) * V as u32 + v as u32;
        let own = access * simt::block_threads() + simt::thread_index();
        Shared::at(self.start + own * A::KEPT_BYTES)
    }

    /// Sets part `v` of a tensor's row on its way to a slot.
    ///
    /// # Safety
    ///
    /// `from` may be read, and is aligned to the access; the slot is free.
    #[inline(always)]
    pub(super) unsafe fn fetch<T: Data>(&self, slot: u32, tensor: u32, v: usize, from: *const T) {
        // SAFETY: the caller's; the place is this thread's.
        unsafe { A::fetch(self.place(slot, tensor, v), from) };
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

    /// Part `v` of a tensor's row that has come.
    ///
    /// # Safety
    ///
    /// This thread has fetched it, and waited for it.
    #[inline(always)]
    pub(super) unsafe fn arrived<T: Data>(&self, tensor: u32, v: usize) -> A::Raw<T> {
        // SAFETY: the caller's.
        unsafe { A::kept(self.place(self.next, tensor, v)) }
    }

    /// Goes on to the row behind, after this one has been read.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.next = self.slot(1);
    }
}
