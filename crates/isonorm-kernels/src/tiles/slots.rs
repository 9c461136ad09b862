//! Tiles in shared memory. Each thread fetches what it uses itself, so that nobody waits for others.

use core::marker::PhantomData;

use super::THREADS;
use super::tiling::Tiling;
use crate::rows::access::{Access, Data};
use crate::simt::{self, Shared};

/// Slots for tiles of some tensors.
#[derive(Clone, Copy)]
pub(super) struct Slots<A> {
    start: u32,
    tensors: u32,
    kept: u32,
    of: PhantomData<A>,
}

impl<A: Access> Slots<A> {
    /// From byte `start` on.
    #[inline(always)]
    pub fn new(start: u32, tensors: u32, tiling: &Tiling) -> Self {
        Self {
            start,
            tensors,
            kept: tiling.kept,
            of: PhantomData,
        }
    }

    #[inline(always)]
    fn place(&self, slot: u32, tensor: u32, access: u32) -> Shared<u32> {
        let access = (slot * self.tensors + tensor) * self.kept + access;
        Shared::at(self.start + (access * THREADS + simt::thread_index()) * A::KEPT_BYTES)
    }

    /// Sets an access to a tensor on its way.
    ///
    /// # Safety
    ///
    /// `from` may be read, and is aligned to the access; it is one of those that are kept, and what was there has been used.
    #[inline(always)]
    pub unsafe fn fetch<T: Data>(&self, slot: u32, tensor: u32, access: u32, from: *const T) {
        // SAFETY: the caller's; the place is this thread's.
        unsafe { A::fetch(self.place(slot, tensor, access), from) };
    }

    /// What has come.
    ///
    /// # Safety
    ///
    /// This thread has fetched it, and waited for it.
    #[inline(always)]
    pub unsafe fn part<T: Data>(&self, slot: u32, tensor: u32, access: u32) -> A::Raw<T> {
        // SAFETY: the caller's.
        unsafe { A::kept(self.place(slot, tensor, access)) }
    }
}

/// Waits for a tile; behind it others are on their way, or none.
#[inline(always)]
pub(super) fn wait(behind: u32) {
    match behind {
        0 => simt::copy_wait::<0>(),
        1 => simt::copy_wait::<1>(),
        _ => simt::copy_wait::<2>(),
    }
}
