//! From the sums of threads to those of groups.

use super::{OF_SUM, Place, of_first, of_last, sums};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::at_least_one;
use crate::simt::{self, Shared, WARP};
use crate::warp;

/// The groups of a warp: the first, and how far the next is.
#[inline(always)]
pub(super) fn groups() -> (u32, u32) {
    (simt::warp_index(), simt::block_threads() / WARP)
}

/// What the elements of an access add to sums of their first and of their last group.
#[inline(always)]
pub(super) fn halves<L: Lanes>(place: &Place<'_>, sums: L) -> [f32; 2] {
    let add = |(lane, [first, last]): (u32, [f32; 2]), sum| match lane < place.to_first {
        true => (lane + 1, [first + sum, last]),
        false => (lane + 1, [first, last + sum]),
    };
    sums.fold((0, [0.0; 2]), add).1
}

/// The numbers of the first and of the last element of an access.
#[inline(always)]
pub(super) fn ends<L: Lanes>(numbers: L) -> [f32; 2] {
    let (_, ends) = numbers.fold((0, [0.0; 2]), |(lane, [first, _]), number| match lane {
        0 => (1, [number; 2]),
        _ => (lane + 1, [first, number]),
    });
    ends
}

/// Leaves `M` numbers of the thread's first group and of its last one. For a barrier that follows.
///
/// # Safety
///
/// What was there was read before a barrier.
#[inline(always)]
pub(super) unsafe fn leave<const M: usize>(place: &Place<'_>, numbers: [[f32; 2]; M]) {
    const { assert!(M <= OF_SUM as usize) };
    let (thread, groups) = (simt::thread_index(), place.of_tile);
    let has_any = thread < place.threads && place.of[1] < groups;
    unrolled::<M>(|k| {
        let [first, last] = numbers[k];
        // SAFETY: a place for each thread, and for each group of each row.
        unsafe {
            if thread < place.threads {
                simt::shared_store(of_first(groups).offset(k as u32 * place.threads + thread), first);
            }
            if has_any && place.has_two() {
                let row = k as u32 * place.at_once + place.of_block;
                let to = of_last(groups, place.threads).offset(row * groups + place.of[1]);
                simt::shared_store(to, last);
            }
        }
    });
}

/// What threads have left of a group, one after the other as a lane adds them up.
#[derive(Clone, Copy)]
pub(super) struct Left {
    group: u32,
    /// Accesses that belong to the group, of a row, and the first of them.
    of_row: u32,
    first: u32,
    /// Whether that belongs to the group before, too.
    is_shared: bool,
    /// Which row, and which access of it.
    row: u32,
    access: u32,
    /// How far the lane's next one is.
    rows: u32,
    accesses: u32,
}

impl Left {
    /// The lane's first one, of accesses of `elements` elements.
    #[inline(always)]
    pub(super) fn new(place: &Place<'_>, group: u32, elements: u32) -> Self {
        let inner = place.tiling.inner;
        let (start, end) = (group * inner, (group + 1) * inner);
        let first = start / elements;
        let of_row = at_least_one(end.div_ceil(elements) - first);
        Self {
            group,
            of_row: of_row.get(),
            first,
            is_shared: !start.is_multiple_of(elements),
            row: simt::lane() / of_row,
            access: simt::lane() % of_row,
            rows: WARP / of_row,
            accesses: WARP % of_row,
        }
    }

    /// Whether there is one.
    #[inline(always)]
    pub(super) fn is_there(&self, place: &Place<'_>) -> bool {
        self.row < place.at_once
    }

    /// The lane's next one.
    #[inline(always)]
    pub(super) fn next(self) -> Self {
        let access = self.access + self.accesses;
        let wraps = access >= self.of_row;
        Self {
            access: if wraps { access - self.of_row } else { access },
            row: self.row + self.rows + u32::from(wraps),
            ..self
        }
    }

    /// Number `k`.
    ///
    /// # Safety
    ///
    /// It was [left](leave) before a barrier.
    #[inline(always)]
    pub(super) unsafe fn number(&self, place: &Place<'_>, k: u32) -> f32 {
        let groups = place.of_tile;
        let from = match self.is_shared && self.access == 0 {
            true => of_last(groups, place.threads).offset((k * place.at_once + self.row) * groups + self.group),
            false => {
                let thread = self.row * place.tiling.lanes + self.first + self.access;
                of_first(groups).offset(k * place.threads + thread)
            }
        };
        // SAFETY: the caller's.
        unsafe { simt::shared_load(from) }
    }
}

/// Two sums of what threads have left of a group; valid in every lane of the warp, with the same bits.
///
/// # Safety
///
/// Two numbers were [left](leave) before a barrier, by accesses of `elements` elements.
#[inline(always)]
pub(super) unsafe fn pair(place: &Place<'_>, group: u32, elements: u32) -> [f32; 2] {
    let (mut sums, mut left) = ([0.0; 2], Left::new(place, group, elements));
    while left.is_there(place) {
        // SAFETY: the caller's.
        unsafe { sums = [sums[0] + left.number(place, 0), sums[1] + left.number(place, 1)] };
        left = left.next();
    }
    warp::sum_pair(sums)
}

/// Where number `k` of the block's sums of a group is.
#[inline(always)]
fn of_block(place: &Place<'_>, (round, k): (u32, u32), group: u32) -> Shared<f32> {
    sums(place.of_tile).offset((round * OF_SUM + k) * place.of_tile + group)
}

/// Tells all blocks of the tile the block's sums of a group. For [`meet`].
///
/// # Safety
///
/// Every group is told once in a round.
#[inline(always)]
pub(super) unsafe fn share<const M: usize>(place: &Place<'_>, group: u32, round: u32, sums: [f32; M]) {
    if place.tiling.blocks > 1 && simt::lane() == 0 {
        unrolled::<M>(|k| {
            // SAFETY: a place for each group of the round.
            unsafe { simt::shared_store(of_block(place, (round, k as u32), group), sums[k]) };
        });
    }
}

/// Waits until all blocks of the tile have told their sums.
#[inline(always)]
pub(super) fn meet(place: &Place<'_>) {
    if place.tiling.blocks > 1 {
        simt::cluster_barrier();
    }
}

/// Tells the other blocks of the tile that this one reads no more of their sums. All its threads have met since it did, and
/// [`end`] follows.
#[inline(always)]
pub(super) fn depart(place: &Place<'_>) {
    if place.tiling.blocks > 1 {
        simt::cluster_arrive();
    }
}

/// Waits until the other blocks of the tile read no more of this one's sums, which is gone with it.
#[inline(always)]
pub(super) fn end(place: &Place<'_>) {
    if place.tiling.blocks > 1 {
        simt::cluster_wait();
    }
}

/// The sums of a group of the block whose number is that of the lane; of a lane beyond them, those of the first one.
///
/// # Safety
///
/// They were told in this round, and the blocks [met](meet).
#[inline(always)]
pub(super) unsafe fn of_blocks<const M: usize>(place: &Place<'_>, group: u32, round: u32) -> [f32; M] {
    let (mut numbers, lane) = ([0.0; M], simt::lane());
    let block = if lane < place.tiling.blocks { lane } else { 0 };
    unrolled::<M>(|k| {
        // SAFETY: the caller's; no block ends before all have read.
        numbers[k] = unsafe { simt::peer_load(of_block(place, (round, k as u32), group), block) };
    });
    numbers
}
