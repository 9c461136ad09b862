//! Parts of tiles in shared memory. Each thread fetches what it uses itself, so that nobody waits for others.

use core::marker::PhantomData;

use super::THREADS;
use super::stream::PART;
use crate::rows::access::{Access, Data};
use crate::simt::{self, Shared};

/// Places for parts of some tensors' tiles: first those for parts that stay, then those for parts that pass.
#[derive(Clone, Copy)]
pub(super) struct Places<A> {
    start: u32,
    tensors: u32,
    of: PhantomData<A>,
}

impl<A: Access> Places<A> {
    /// From byte `start` on.
    #[inline(always)]
    pub fn new(start: u32, tensors: u32) -> Self {
        Self {
            start,
            tensors,
            of: PhantomData,
        }
    }

    #[inline(always)]
    fn at(&self, place: u32, tensor: u32, access: u32) -> Shared<u32> {
        let number = (place * PART + access) * self.tensors + tensor;
        Shared::at(self.start + (number * THREADS + simt::thread_index()) * A::KEPT_BYTES)
    }

    /// Sets an access of a part on its way.
    ///
    /// # Safety
    ///
    /// `from` may be read, and is aligned to the access; there is such a place, and what was there has been used.
    #[inline(always)]
    pub unsafe fn fetch<T: Data>(&self, place: u32, tensor: u32, access: u32, from: *const T) {
        // SAFETY: the caller's; the place is this thread's.
        unsafe { A::fetch(self.at(place, tensor, access), from) };
    }

    /// What has come.
    ///
    /// # Safety
    ///
    /// This thread has fetched it, and waited for it.
    #[inline(always)]
    pub unsafe fn get<T: Data>(&self, place: u32, tensor: u32, access: u32) -> A::Raw<T> {
        // SAFETY: the caller's.
        unsafe { A::kept(self.at(place, tensor, access)) }
    }
}

/// Waits for all parts that this thread has set on their way, but so many of the last: or for a few more.
#[inline(always)]
pub(super) fn wait(behind: u32) {
    match behind {
        0 => simt::copy_wait::<0>(),
        1 => simt::copy_wait::<1>(),
        2 => simt::copy_wait::<2>(),
        3 => simt::copy_wait::<3>(),
        4 => simt::copy_wait::<4>(),
        5 => simt::copy_wait::<5>(),
        6 => simt::copy_wait::<6>(),
        _ => simt::copy_wait::<7>(),
    }
}
