//! Strips: tiles of many rows of which each column is a group, shared by blocks of the whole chip. BatchNorm of channels-last tensors, and of
//! `[N, C]`.
//!
//! Such tiles are as wide as memory needs to be fast, so shared memory does not hold them. A block has a multiprocessor to itself, and a
//! thread's accesses to a strip are of three kinds, in order:
//!
//! | accesses | where they are until the statistics are known |
//! |---|---|
//! | the first ones | they *pass*: are added up, and read again, newest first, which is from the last-level cache |
//! | then [`kept`](super::tiling::Tiling::kept) | in shared memory, to which those of the next strip come as soon as they have been used |
//! | the last few | in registers |
//!
//! Where a row of memory has no whole number of accesses, kernels of [`Joined`](super::Joined) take several for one row of the strip: its
//! columns are then copies of the groups, in order, and each copy gets the sums of all of them before blocks exchange them. There is one strip.
//!
//! Kernels of [`Batched`](super::Batched) have strips of each tensor of a batch, whose groups are several columns each: GroupNorm and InstanceNorm.
//!
//! | file | room |
//! |---|---|
//! | [`values`], [`gradients`] | the two passes |
//! | `fold` | from threads' sums to a block's |
//! | `exchange` | from blocks' sums to a team's |

mod exchange;
mod fold;
pub mod gradients;
pub mod values;

use super::Spec;
use super::tiling::Tiling;
use crate::rows::access::Data;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{Affine, at_least_one};
use crate::simt::{self, Shared};

/// Threads of a block.
pub const THREADS: u32 = 512;
/// Columns of a strip, at most.
pub const MOST_COLUMNS: u32 = 256;
/// Accesses that pass at once: their number is a multiple of it.
pub const AT_ONCE: u32 = 4;
/// Parts in which accesses come to shared memory, so that the first ones are added up while others are on their way.
pub(super) const PARTS: usize = 4;
/// Numbers of a column that threads are told, at most.
const OF_COLUMN: u32 = 8;

/// What is saved of each column: the first number, and two in the place of its sums.
const SAVED: Shared<f32> = Shared::at(0);
/// The sums of columns: the first kind of all, then the second.
const SUMS: Shared<f32> = SAVED.offset(MOST_COLUMNS);
/// Numbers of columns: the first of all columns, then the second, …, each from a multiple of [`MOST_COLUMNS`] on.
const OF_COLUMNS: Shared<f32> = SUMS.offset(2 * MOST_COLUMNS);
/// Sums of threads, of one kind, of each lane of their accesses.
const OF_THREADS: Shared<f32> = OF_COLUMNS.offset(OF_COLUMN * MOST_COLUMNS);

/// Bytes of shared memory of a block before what it keeps, with accesses of `elements` elements.
pub const fn head_bytes(elements: u32) -> u32 {
    OF_THREADS.offset(elements * THREADS).byte_offset()
}

/// How many of a thread's accesses pass, of which it keeps some besides those in registers.
pub const fn passing(tiling: &Tiling, held: u32) -> u32 {
    tiling.accesses.saturating_sub(held + tiling.kept)
}

/// What a thread has of every strip.
#[derive(Clone, Copy)]
struct Walk<'a> {
    tiling: &'a Tiling,
    team: u32,
    teams: u32,
    /// Of the block in its team.
    rank: u32,
    /// The first column of its accesses.
    column: u32,
    /// Elements from the start of the strip to its first access.
    offset: u32,
    /// Elements from an access to the next.
    step: u32,
    /// Its accesses; none where there are too few columns.
    accesses: u32,
}

/// A strip, as a thread sees it.
#[derive(Clone, Copy)]
struct Strip {
    /// Which tensor of a batch it is of.
    tensor: u32,
    /// Its first column.
    first: u32,
    /// Its columns.
    width: u32,
    /// The element of the thread's first access.
    start: u32,
    /// The thread's accesses: those that pass, those in shared memory, and those in registers.
    passing: u32,
    kept: u32,
    held: u32,
}

impl Strip {
    /// How many accesses have passed behind so many parts of what is kept, where they take turns: all of them behind the last.
    #[inline(always)]
    fn passed(&self, parts: usize) -> u32 {
        let of_part = self.passing.div_ceil(AT_ONCE * PARTS as u32) * AT_ONCE;
        (of_part * parts as u32).min(self.passing)
    }
}

impl<'a> Walk<'a> {
    /// Of accesses of `elements` elements.
    #[inline(always)]
    fn new(tiling: &'a Tiling, elements: u32) -> Self {
        let (lanes, blocks) = (at_least_one(tiling.lanes), at_least_one(tiling.blocks));
        let (thread, block) = (simt::thread_index(), simt::block_index());
        let (at_once, rank) = (THREADS / lanes, block % blocks);
        let (row, step) = (rank * at_once + thread / lanes, at_once * blocks.get());
        let (rows, line) = (tiling.rows as u32, tiling.line as u32);
        let idle = thread / lanes >= at_once || row >= rows;
        let column = thread % lanes * elements;
        Self {
            tiling,
            team: block / blocks,
            teams: simt::grid_blocks() / blocks,
            rank,
            column,
            offset: row * line + column,
            step: step * line,
            accesses: if idle {
                0
            } else {
                (rows - row).div_ceil(at_least_one(step).get())
            },
        }
    }

    /// Whether there is a strip of that number.
    #[inline(always)]
    fn has(&self, number: u32) -> bool {
        number < self.tiling.tiles
    }

    /// A strip, of whose accesses `held` are in registers. Computed here: what follows from it would take many registers until it is needed
    /// again.
    #[inline(always)]
    fn strip<S: Spec>(&self, number: u32, held: u32) -> Strip {
        let (tiling, number) = (self.tiling, simt::opaque(number));
        let (tensor, number) = match S::BATCHED {
            true => {
                let across = at_least_one(tiling.across);
                (number / across, number % across)
            }
            false => (0, number),
        };
        let first = number * tiling.width;
        let width = tiling.width.min(tiling.line as u32 - first);
        let accesses = if self.column < width {
            simt::opaque(self.accesses)
        } else {
            0
        };
        let (passing, kept) = match accesses {
            0 => (0, 0),
            _ => (passing(tiling, held), tiling.kept),
        };
        Strip {
            tensor,
            first,
            width,
            start: tensor * (tiling.rows as u32 * tiling.line as u32) + first + self.offset,
            passing,
            kept,
            held: accesses - passing - kept,
        }
    }

    /// The element where an access is, computed here: addresses that are kept take two registers each.
    #[inline(always)]
    fn element(&self, strip: &Strip, access: u32) -> u32 {
        simt::opaque(strip.start) + access * simt::opaque(self.step)
    }

    /// Where an access to a tensor is.
    #[inline(always)]
    fn place<T>(&self, base: *const T, strip: &Strip, access: u32) -> *const T {
        base.wrapping_add(self.element(strip, access) as usize)
    }

    /// Which byte of a mask is of an access of so many elements.
    #[inline(always)]
    fn byte(&self, strip: &Strip, access: u32, elements: u32) -> usize {
        (self.element(strip, access) / elements) as usize
    }

    /// Which of a strip's columns has the parameters of another one: that of the first copy.
    #[inline(always)]
    fn unit<S: Spec>(&self, column: u32) -> u32 {
        match S::JOINED {
            true => column % at_least_one(self.tiling.groups_of_line),
            false => column,
        }
    }

    /// Which of a strip's columns is the first of another one's group.
    #[inline(always)]
    fn first_of_group<S: Spec>(&self, column: u32) -> u32 {
        match S::BATCHED {
            true => column - column % at_least_one(self.tiling.inner),
            false => self.unit::<S>(column),
        }
    }

    /// The group of a strip's column, of all.
    #[inline(always)]
    fn group<S: Spec>(&self, strip: &Strip, column: u32) -> u64 {
        match S::BATCHED {
            true => {
                let group = (strip.first + column) / at_least_one(self.tiling.inner);
                u64::from(strip.tensor) * u64::from(self.tiling.groups_of_line) + u64::from(group)
            }
            false => u64::from(strip.first + self.unit::<S>(column)),
        }
    }

    /// Whether that column is there, and the first that has its parameters.
    #[inline(always)]
    fn is_first<S: Spec>(&self, strip: &Strip) -> bool {
        match S::JOINED {
            true => simt::thread_index() < self.tiling.groups_of_line,
            false => self.has_column(strip),
        }
    }

    /// Whether the thread with the number of a column has one.
    #[inline(always)]
    fn has_column(&self, strip: &Strip) -> bool {
        simt::thread_index() < strip.width
    }

    /// Of the accesses in shared memory, those of a part: from one to before another.
    #[inline(always)]
    fn part(&self, kept: u32, part: usize) -> [u32; 2] {
        let of_part = simt::opaque(self.tiling.kept).div_ceil(PARTS as u32);
        [part as u32, part as u32 + 1].map(|part| (part * of_part).min(kept))
    }

    /// Sets each access to a strip that is kept on its way to shared memory, part by part.
    #[inline(always)]
    fn each_kept(&self, strip: &Strip, fetch: impl Fn(u32)) {
        let mut part = 0;
        while part < PARTS {
            let [mut kept, end] = self.part(strip.kept, part);
            while kept < end {
                fetch(kept);
                kept += 1;
            }
            simt::copy_commit();
            part += 1;
        }
    }

    /// What was told of each of the thread's columns.
    ///
    /// # Safety
    ///
    /// It was told before a barrier.
    #[inline(always)]
    unsafe fn told<L: Lanes>(&self, place: Shared<f32>) -> L {
        // SAFETY: the caller's; columns that no thread has are read, and not used.
        L::each(|lane| unsafe { simt::shared_load(place.offset(self.column + lane)) })
    }
}

/// Tells `N` numbers of the thread's column to all who have it. For a barrier that follows.
///
/// # Safety
///
/// What was told before was read before a barrier.
#[inline(always)]
unsafe fn tell<const N: usize>(place: Shared<f32>, numbers: [f32; N]) {
    let thread = simt::thread_index();
    if thread < MOST_COLUMNS {
        unrolled::<N>(|k| {
            // SAFETY: the caller's.
            unsafe { simt::shared_store(place.offset(k as u32 * MOST_COLUMNS + thread), numbers[k]) };
        });
    }
}

/// Where access `kept` to one of `tensors` tensors is in shared memory, with a head of so many bytes.
#[inline(always)]
fn slot(head: u32, (kept, tensors, tensor): (u32, u32, u32)) -> Shared<u32> {
    let access = (kept * tensors + tensor) * THREADS + simt::thread_index();
    Shared::at(head + access * 16)
}

/// Waits for a part of what comes to shared memory, the parts behind which are on their way.
#[inline(always)]
pub(super) fn wait(part: usize) {
    match part {
        0 => simt::copy_wait::<3>(),
        1 => simt::copy_wait::<2>(),
        2 => simt::copy_wait::<1>(),
        _ => simt::copy_wait::<0>(),
    }
}

/// Starts to load a parameter of the thread's column; another number where there is none.
///
/// # Safety
///
/// `base` is null or points to a parameter for each column of a line, or each group, as `affine` says.
#[inline(always)]
unsafe fn ask<T: Data, S: Spec>(
    affine: &Affine,
    (base, otherwise): (*const u8, f32),
    (walk, strip): (&Walk<'_>, &Strip),
) -> u32 {
    if !walk.has_column(strip) {
        return 0;
    }
    // SAFETY: the caller's.
    unsafe { affine.ask::<T>(base, strip.first + walk.unit::<S>(simt::thread_index()), otherwise) }
}
