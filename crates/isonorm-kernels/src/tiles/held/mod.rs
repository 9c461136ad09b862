//! Tiles that a block holds in shared memory, or the blocks of a cluster: BatchNorm of N, C, spatial with small images.
//!
//! Images of 7x7 `f32` are 196 bytes: what a channel has of an image begins and ends within accesses of 16 bytes. But those of four channels,
//! which lie side by side, are 784 bytes, 49 accesses. So a tile is as many channels as fill accesses, of all images; a thread has the same 16
//! bytes of some of the images, and these belong to one channel, or to two neighbours. There is a block for each tile: while one waits for its sums,
//! others of the multiprocessor load and store.
//!
//! ```text
//! image 0:  [channel 0 | channel 1 | channel 2 | channel 3]   lanes 0 … 48: one access each
//! image 1:  [channel 0 | channel 1 | channel 2 | channel 3]   the next 49 threads, or those of another block, or the next access of these
//! ```
//!
//! | file | room |
//! |---|---|
//! | [`values`], [`gradients`] | the two passes |
//! | `fold` | from threads' sums to those of a group, over all blocks that hold it |

mod fold;
pub mod gradients;
pub mod values;

use super::strips::{PARTS, wait};
use super::tiling::Tiling;
use crate::rows::access::Data;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{Affine, at_least_one};
use crate::simt::{self, Shared, WARP};

/// Threads of a block, at most.
pub const MOST_THREADS: u32 = 768;
/// Groups of a tile, at most. A group has an access at least, so there is a thread for each.
pub const MOST_GROUPS: u32 = 64;

/// Numbers of a group that all threads with some of its elements read, at most.
const OF_GROUP: u32 = 5;
/// Numbers of a group that its own thread reads, at most.
const OWN: u32 = 3;
/// How often sums are made, at most.
const MOST_ROUNDS: u32 = 2;
/// Numbers of a sum, at most.
const OF_SUM: u32 = 5;

/// Where numbers of groups are, of tiles of so many: the first of all groups, then the second, ….
const NUMBERS: Shared<f32> = Shared::at(0);
/// What a group's own thread keeps, in the same order.
const fn kept(groups: u32) -> Shared<f32> {
    NUMBERS.offset(OF_GROUP * groups)
}
/// The block's sums of groups, in the same order, of each round.
const fn sums(groups: u32) -> Shared<f32> {
    kept(groups).offset(OWN * groups)
}
/// Whether any group of a warp has to be measured again.
const fn is_again(groups: u32) -> Shared<u32> {
    Shared::at(sums(groups).offset(MOST_ROUNDS * OF_SUM * groups).byte_offset())
}
/// Sums of threads of their first group: the first number of all threads, then the second, ….
const fn of_first(groups: u32) -> Shared<f32> {
    Shared::at(is_again(groups).offset(WARP).byte_offset())
}
/// Sums of their last one, of those that have two: for each row and group, in the same order.
const fn of_last(groups: u32, threads: u32) -> Shared<f32> {
    of_first(groups).offset(OF_SUM * threads)
}
/// What is kept of tensors.
const fn slots(groups: u32, threads: u32, at_once: u32) -> u32 {
    let end = of_last(groups, threads).offset(OF_SUM * groups * at_once);
    end.byte_offset().next_multiple_of(16)
}

/// Threads of a block: whole warps.
#[cfg(not(target_arch = "nvptx64"))]
pub fn threads(tiling: &Tiling) -> u32 {
    let steps = (u64::from(tiling.blocks) * u64::from(tiling.accesses)).max(1);
    let threads = u64::from(tiling.lanes).saturating_mul(tiling.rows.div_ceil(steps));
    threads.next_multiple_of(WARP.into()).min(u32::MAX.into()) as u32
}

/// Bytes of shared memory of a block, for so many accesses to all tensors of each of its threads that have any.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes(tiling: &Tiling, kept: u32) -> u32 {
    let lanes = at_least_one(tiling.lanes);
    let at_once = threads(tiling) / lanes;
    let used = at_once * lanes.get();
    let slots = slots(tiling.groups(), used, at_once);
    slots.saturating_add(kept.saturating_mul(used).saturating_mul(16))
}

/// What a thread has of its block's tile.
#[derive(Clone, Copy)]
struct Place<'a> {
    tiling: &'a Tiling,
    /// Which block of its tile this one is.
    rank: u32,
    /// The first group of the tile.
    first_group: u32,
    /// Groups of the tile, and of those that are no line's last.
    groups: u32,
    of_tile: u32,
    /// Rows of which the block's threads have an access at once, and which of them this thread has.
    at_once: u32,
    of_block: u32,
    /// The block's threads that have any accesses.
    threads: u32,
    /// The element of its first access.
    start: u32,
    /// Elements from an access to the next.
    step: u32,
    /// Its accesses; none where there are too few columns.
    accesses: u32,
    /// The group of its first element, and of its last: the same, or the next one.
    of: [u32; 2],
    /// How many of an access's elements belong to the first of them.
    to_first: u32,
}

impl<'a> Place<'a> {
    /// Of accesses of `elements` elements.
    #[inline(always)]
    fn new(tiling: &'a Tiling, elements: u32) -> Self {
        let (lanes, blocks, inner) = (
            at_least_one(tiling.lanes),
            at_least_one(tiling.blocks),
            at_least_one(tiling.inner),
        );
        let (thread, block) = (simt::thread_index(), simt::block_index());
        let (tile, rank) = (block / blocks, block % blocks);
        let at_once = simt::block_threads() / lanes;
        let (of_block, column) = (thread / lanes, thread % lanes * elements);
        let (rows, line) = (tiling.rows as u32, tiling.line as u32);
        let first = tile * tiling.width;
        let width = tiling.width.min(line - first);
        let (row, step) = (rank * at_once + of_block, at_once * blocks.get());
        let idle = of_block >= at_once || column >= width || row >= rows;
        let group = column / inner;
        let to_first = (group + 1) * inner.get() - column;
        Self {
            tiling,
            rank,
            first_group: first / inner,
            groups: width / inner,
            of_tile: tiling.width / inner,
            at_once,
            of_block,
            threads: at_once * lanes.get(),
            start: row * line + first + column,
            step: step * line,
            accesses: if idle {
                0
            } else {
                (rows - row).div_ceil(at_least_one(step).get())
            },
            of: [group, if to_first < elements { group + 1 } else { group }],
            to_first,
        }
    }

    /// The element where an access is, computed here: addresses that are kept take two registers each.
    #[inline(always)]
    fn element(&self, k: u32) -> u32 {
        simt::opaque(self.start) + k * simt::opaque(self.step)
    }

    /// Where an access to a tensor is.
    #[inline(always)]
    fn place<T>(&self, base: *const T, k: u32) -> *const T {
        base.wrapping_add(self.element(k) as usize)
    }

    /// Where an access is in shared memory, to the tensor of that number.
    #[inline(always)]
    fn slot(&self, k: u32, tensor: u32) -> Shared<u32> {
        let access = (tensor * self.tiling.accesses + k) * self.threads + simt::thread_index();
        Shared::at(slots(self.of_tile, self.threads, self.at_once) + access * 16)
    }

    /// Of the thread's accesses, those of a part: from one to before another.
    #[inline(always)]
    fn part(&self, part: usize) -> [u32; 2] {
        let of_part = self.tiling.accesses.div_ceil(PARTS as u32);
        [part as u32, part as u32 + 1].map(|part| (part * of_part).min(self.accesses))
    }

    /// Sets the thread's accesses to some tensors on their way to shared memory, part by part.
    ///
    /// # Safety
    ///
    /// The tensors have the elements of the tile, and nothing has come to shared memory yet.
    #[inline(always)]
    unsafe fn fetch<T, const M: usize>(&self, tensors: [*const T; M]) {
        let mut part = 0;
        while part < PARTS {
            let [mut k, end] = self.part(part);
            while k < end {
                unrolled::<M>(|tensor| {
                    let (to, from) = (self.slot(k, tensor as u32), self.place(tensors[tensor], k));
                    // SAFETY: the caller's.
                    unsafe { simt::copy_async_once(to, from.cast()) };
                });
                k += 1;
            }
            simt::copy_commit();
            part += 1;
        }
    }

    /// What has come of an access.
    ///
    /// # Safety
    ///
    /// This thread has fetched it, and [waited](wait).
    #[inline(always)]
    unsafe fn kept(&self, k: u32, tensor: u32) -> [u32; 4] {
        // SAFETY: the caller's.
        unsafe { simt::shared_load_128(self.slot(k, tensor)) }
    }

    /// Whether the thread with the number of a group has one.
    #[inline(always)]
    fn has_group(&self) -> bool {
        simt::thread_index() < self.groups
    }

    /// The group of the thread, of all.
    #[inline(always)]
    fn group(&self) -> u32 {
        self.first_group + simt::thread_index()
    }

    /// Starts to load a number of the thread's group; nothing where there is none.
    ///
    /// # Safety
    ///
    /// `base` points to a number for each group.
    #[inline(always)]
    unsafe fn ask(&self, base: *const f32) -> f32 {
        match self.has_group() {
            // SAFETY: the caller's.
            true => unsafe { f32::load(base.wrapping_add(self.group() as usize)) },
            false => 0.0,
        }
    }

    /// Starts to load a parameter of the thread's group; another number where there is none.
    ///
    /// # Safety
    ///
    /// `base` is null or points to a parameter for each group, as `affine` says.
    #[inline(always)]
    unsafe fn ask_parameter<T: Data>(&self, affine: &Affine, (base, otherwise): (*const u8, f32)) -> u32 {
        match self.has_group() {
            // SAFETY: the caller's.
            true => unsafe { affine.ask::<T>(base, self.group(), otherwise) },
            false => 0,
        }
    }

    /// A number of the group of each element of an access, as it was told.
    ///
    /// # Safety
    ///
    /// It was told before a barrier.
    #[inline(always)]
    unsafe fn told<L: Lanes>(&self, k: u32) -> L {
        let last = self.of_tile - 1;
        // SAFETY: the caller's; threads without accesses read any number, and do not use it.
        let of = self.of.map(|group| unsafe { self.number(NUMBERS, k, group.min(last)) });
        self.each_group(of)
    }

    /// The number of the group of each element of an access, of its first and its last group.
    #[inline(always)]
    fn each_group<L: Lanes>(&self, [first, last]: [f32; 2]) -> L {
        L::each(|lane| if lane < self.to_first { first } else { last })
    }

    /// Whether the thread has elements of two groups.
    #[inline(always)]
    fn has_two(&self) -> bool {
        self.of[0] != self.of[1]
    }

    /// Tells `N` numbers of a group, from number `k` on. For a barrier that follows.
    ///
    /// # Safety
    ///
    /// There is a place for each, which was read before a barrier, and one thread for the group.
    #[inline(always)]
    unsafe fn tell<const N: usize>(&self, place: Shared<f32>, k: u32, group: u32, numbers: [f32; N]) {
        unrolled::<N>(|n| {
            // SAFETY: the caller's.
            unsafe { simt::shared_store(place.offset((k + n as u32) * self.of_tile + group), numbers[n]) };
        });
    }

    /// Tells zeros of the groups that the last tile of a line does not have: threads behind its columns read them, and do not use them. For a
    /// barrier that follows.
    ///
    /// # Safety
    ///
    /// Nothing else is told of them.
    #[inline(always)]
    unsafe fn tell_rest(&self) {
        let thread = simt::thread_index();
        if thread >= self.groups && thread < self.of_tile {
            // SAFETY: the caller's.
            unsafe { self.tell(NUMBERS, 0, thread, [0.0; OF_GROUP as usize]) };
        }
    }

    /// Number `k` of a group, as it was told.
    ///
    /// # Safety
    ///
    /// It was told before a barrier.
    #[inline(always)]
    unsafe fn number(&self, place: Shared<f32>, k: u32, group: u32) -> f32 {
        // SAFETY: the caller's.
        unsafe { simt::shared_load(place.offset(k * self.of_tile + group)) }
    }

    /// Where the group's own thread keeps numbers.
    #[inline(always)]
    fn kept_numbers(&self) -> Shared<f32> {
        kept(self.of_tile)
    }
}
