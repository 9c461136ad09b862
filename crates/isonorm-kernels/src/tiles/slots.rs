//! Tiles in shared memory. Each thread fetches what it uses itself, so that nobody waits for others.
//!
//! A slot has places for a few accesses of a thread, in *parts* of [`PART`], which come and are used in the order of the tile's
//! accesses, round and round. Where a tile has more parts than its slot, the first ones only pass through: a part that was added up
//! makes room for the one that comes as many later as the slot has. The last ones stay until their results are stored, and then the next tile's
//! first ones take their places.

use core::marker::PhantomData;

use super::THREADS;
use super::tiling::Tiling;
use crate::rows::access::{Access, Data};
use crate::rows::parameters::at_least_one;
use crate::simt::{self, Shared};

/// Accesses of a thread to each tensor that are waited for at once.
pub const PART: u32 = 4;

/// Slots for tiles of some tensors.
#[derive(Clone, Copy)]
pub(super) struct Slots<A> {
    start: u32,
    tensors: u32,
    kept: u32,
    of: PhantomData<A>,
}

/// Where a part is: which place of which slot.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub slot: u32,
    part: u32,
}

impl Place {
    /// The first one of a slot.
    #[inline(always)]
    pub fn first_of(slot: u32) -> Self {
        Self { slot, part: 0 }
    }
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

    /// Parts of a slot.
    #[inline(always)]
    pub fn parts(&self) -> u32 {
        self.kept.div_ceil(PART)
    }

    /// The place of the part behind one.
    #[inline(always)]
    pub fn next(&self, place: Place) -> Place {
        let part = place.part + 1;
        Place {
            part: if part < self.parts() { part } else { 0 },
            ..place
        }
    }

    /// The place so many parts further on.
    #[inline(always)]
    pub fn further(&self, place: Place, parts: u32) -> Place {
        Place {
            part: (place.part + parts) % at_least_one(self.parts()),
            ..place
        }
    }

    #[inline(always)]
    fn at(&self, place: Place, tensor: u32, access: u32) -> Shared<u32> {
        let access = (place.slot * self.tensors + tensor) * self.kept + place.part * PART + access;
        Shared::at(self.start + (access * THREADS + simt::thread_index()) * A::KEPT_BYTES)
    }

    /// Sets an access of a part, to a tensor, on its way.
    ///
    /// # Safety
    ///
    /// `from` may be read, and is aligned to the access; what was there has been used.
    #[inline(always)]
    pub unsafe fn fetch<T: Data>(&self, place: Place, tensor: u32, access: u32, from: *const T, passes: bool) {
        // SAFETY: the caller's; the place is this thread's.
        unsafe {
            match passes {
                true => A::fetch_keep(self.at(place, tensor, access), from),
                false => A::fetch(self.at(place, tensor, access), from),
            }
        }
    }

    /// What has come.
    ///
    /// # Safety
    ///
    /// This thread has fetched it, and waited for it.
    #[inline(always)]
    pub unsafe fn part<T: Data>(&self, place: Place, tensor: u32, access: u32) -> A::Raw<T> {
        // SAFETY: the caller's.
        unsafe { A::kept(self.at(place, tensor, access)) }
    }

    /// Waits for a part, behind which as many less one as a slot has were committed: those that pass, those that stay, and one without
    /// anything for each part that was waited for since and made room for none.
    #[inline(always)]
    pub fn wait(&self) {
        // An instruction has the number; to wait for a few more does no harm.
        match self.parts() {
            0 | 1 => simt::copy_wait::<0>(),
            2 | 3 => simt::copy_wait::<1>(),
            4..=7 => simt::copy_wait::<3>(),
            _ => simt::copy_wait::<7>(),
        }
    }
}
