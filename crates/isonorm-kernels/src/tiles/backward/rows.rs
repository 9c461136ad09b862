//! Gradients of parameters that belong to rows. A thread has the same rows of each tile: what each of its accesses adds to them stays in
//! shared memory until the last tile, and only then do threads add up those of a row.

use super::Pass;
use super::units::leave;
use crate::rows::access::{Data, width};
use crate::rows::parameters::at_least_one;
use crate::simt::{self, Shared};
use crate::tiles::areas;
use crate::tiles::tiling::Tiling;
use crate::tiles::{Spec, THREADS};

/// The block's sums: for each access of each thread one of g · x̂ and one of g.
#[derive(Clone, Copy)]
pub(super) struct SumsOfRows {
    start: Shared<f32>,
    accesses: u32,
}

impl SumsOfRows {
    /// Behind weight and bias of the rows.
    #[inline(always)]
    pub fn new<T: Data, S: Spec>(tiling: &Tiling) -> Self {
        let start = areas::slots(tiling, width::<T, S::Access>()) + areas::row_bytes(tiling);
        Self {
            start: Shared::at(start),
            accesses: tiling.accesses,
        }
    }

    /// Where they end, in bytes.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.at(self.accesses, 0).byte_offset()
    }

    /// Of which access and thread: the first kind; the other one lies [`THREADS`] further on.
    #[inline(always)]
    fn at(&self, access: u32, thread: u32) -> Shared<f32> {
        self.start.offset(2 * access * THREADS + thread)
    }

    /// Sets those of the thread to zero.
    ///
    /// # Safety
    ///
    /// Shared memory is the kernel's.
    #[inline(always)]
    pub unsafe fn clear(&self) {
        let mut access = 0;
        while access < self.accesses {
            let place = self.at(access, simt::thread_index());
            // SAFETY: the caller's; places for each thread.
            unsafe {
                simt::shared_store(place, 0.0);
                simt::shared_store(place.offset(THREADS), 0.0);
            }
            access += 1;
        }
    }

    /// Adds to those of an access of the thread.
    ///
    /// # Safety
    ///
    /// As [`clear`](Self::clear), and the thread has this access.
    #[inline(always)]
    pub unsafe fn add(&self, access: u32, own: [f32; 2]) {
        let first = self.at(access, simt::thread_index());
        for (place, own) in [(first, own[0]), (first.offset(THREADS), own[1])] {
            // SAFETY: the caller's; a place for each thread.
            unsafe { simt::shared_store(place, simt::shared_load(place) + own) };
        }
    }
}

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    #[inline(always)]
    pub(super) fn sums_of_rows(&self) -> SumsOfRows {
        SumsOfRows::new::<T, S>(&self.args.tiling)
    }

    /// Leaves the gradients of the block's rows, when all threads have added to them.
    #[inline(always)]
    pub(super) unsafe fn leave_rows(&self) {
        let (args, walk, sums) = (self.args, &self.walk, self.sums_of_rows());
        let lanes = at_least_one(args.tiling.lanes);
        let mut index = simt::thread_index();
        while let Some(row) = walk.row(index) {
            if row < args.tiling.rows {
                let at_once = at_least_one(THREADS / lanes);
                let first = sums.at(index / at_once, index % at_once * lanes.get());
                let place = u64::from(walk.team) * args.tiling.rows + row;
                for (kind, base) in [(0, args.dweight), (1, args.dbias)] {
                    let (mut sum, mut lane) = (0.0, 0);
                    while lane < lanes.get() {
                        // SAFETY: written before a barrier.
                        sum += unsafe { simt::shared_load(first.offset(kind * THREADS + lane)) };
                        lane += 1;
                    }
                    // SAFETY: the caller's: a number for each row of each team.
                    unsafe { leave::<T>(base, place, sum, args.as_data) };
                }
            }
            index += THREADS;
        }
    }
}
