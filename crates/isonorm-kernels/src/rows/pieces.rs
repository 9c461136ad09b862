//! Rows of millions of elements, in pieces. Each of the blocks of the grid that share a row has a piece of one run of it, which stays in shared
//! memory between the two times that it is needed. An access makes room there for the same one of the next row as soon as it is done with, so
//! that a row is on its way while the one before it is finished. What shared memory has no room for is read twice, the second time newest first,
//! while the last-level cache has it.

use core::marker::PhantomData;

use super::access::{Access, Data, width};
use super::lanes::unrolled;
use super::parameters::{Affine, at_least_one};
use super::team::{Chip, Owner, Owns, Team};
use crate::simt::{self, Shared};

/// Pieces start on lines of the cache.
pub const LINE_BYTES: u32 = 128;

/// Groups of accesses that may be on their way when one is waited for; with more, some are waited for too early.
const MOST_PENDING: u32 = 7;

/// See [`pieces`](self).
pub struct Pieces;

impl Owns for Pieces {
    const OWNER: Owner = Owner::Pieces;
}

/// Elements of a piece, where so many blocks share a run of elements of so many bytes; the last ones may have fewer, or none.
pub const fn share(run: u64, parts: u64, bytes: u32) -> u64 {
    let line = (LINE_BYTES / bytes) as u64;
    run.div_ceil(parts).next_multiple_of(line)
}

/// What an access loads of each tensor, for a group of accesses.
pub(super) type Group<T, A, const V: usize, const TENSORS: usize> = [[<A as Access>::Raw<T>; V]; TENSORS];

/// A block's piece of each row of some tensors. Each thread accesses it in groups of `V`.
pub(super) struct Piece<T, A, const V: usize, const TENSORS: usize> {
    /// Which run of the row it belongs to, of how many, and which piece of that it is.
    pub(super) run: u32,
    pub(super) runs: u32,
    pub(super) part: u32,
    /// Elements of the row before it.
    start: u64,
    length: u32,
    /// Groups of a thread, how many of them have all of their accesses, whoever the thread is, and how many are kept, where there is room for
    /// so many.
    groups: u32,
    full: u32,
    kept: u32,
    room: u32,
    of: PhantomData<(T, A)>,
}

impl<T: Data, A: Access, const V: usize, const TENSORS: usize> Piece<T, A, V, TENSORS> {
    /// That of a block of the team that shares rows of so many columns, with room for so many groups.
    #[inline(always)]
    pub(super) fn new(team: &Chip, blocks: u32, affine: &Affine, columns: u64, room: u32) -> Self {
        let runs = at_least_one(affine.runs);
        let parts = at_least_one(blocks / runs);
        let (run, part) = (team.block() / parts, team.block() % parts);
        let of_run = columns / u64::from(runs.get());
        let share = share(of_run, u64::from(parts.get()), size_of::<T>() as u32);
        let before = of_run.min(u64::from(part) * share);
        let length = share.min(of_run - before) as u32;
        let of_group = at_least_one(V as u32 * simt::block_threads() * width::<T, A>());
        let groups = length.div_ceil(of_group.get());
        Self {
            run,
            runs: runs.get(),
            part,
            start: u64::from(run) * of_run + before,
            length,
            groups,
            full: length / of_group,
            kept: groups.min(room),
            room,
            of: PhantomData,
        }
    }

    /// Where the piece of a row of a tensor starts.
    #[inline(always)]
    pub(super) fn of_row(&self, base: *const T, row: u64, stride: u64) -> *const T {
        base.wrapping_add((row * stride + self.start) as usize)
    }

    /// The first column of the thread's access `v` of a group.
    #[inline(always)]
    pub(super) fn column(&self, group: u32, v: usize) -> u64 {
        self.start + u64::from(self.within(group, v))
    }

    /// The same, from the start of the piece.
    #[inline(always)]
    pub(super) fn within(&self, group: u32, v: usize) -> u32 {
        ((group * V as u32 + v as u32) * simt::block_threads() + simt::thread_index()) * width::<T, A>()
    }

    /// Whether the piece has access `v` of a group.
    #[inline(always)]
    pub(super) fn has(&self, group: u32, v: usize) -> bool {
        self.within(group, v) < self.length
    }

    /// Calls with each access of a group that the piece has: where it has all of them, without a branch for each.
    #[inline(always)]
    pub(super) fn each(&self, group: u32, mut take: impl FnMut(usize)) {
        match group < self.full {
            true => unrolled::<V>(take),
            false => unrolled::<V>(|v| {
                if self.has(group, v) {
                    take(v);
                }
            }),
        }
    }

    /// Where access `v` of a group of a tensor is kept.
    #[inline(always)]
    fn place(&self, tensor: usize, group: u32, v: usize) -> Shared<u32> {
        let access = (tensor as u32 * self.room + group) * V as u32 + v as u32;
        let own = access * simt::block_threads() + simt::thread_index();
        Shared::at(Chip::SHARED_BYTES + own * A::KEPT_BYTES)
    }

    /// Sets a group on its way to where it is kept.
    ///
    /// # Safety
    ///
    /// The tensors have the piece; what was there is done with.
    #[inline(always)]
    unsafe fn fetch(&self, rows: [*const T; TENSORS], group: u32) {
        unrolled::<TENSORS>(|tensor| {
            unrolled::<V>(|v| {
                if self.has(group, v) {
                    let from = rows[tensor].wrapping_add(self.within(group, v) as usize);
                    // SAFETY: the caller's.
                    unsafe { A::fetch(self.place(tensor, group, v), from) };
                }
            });
        });
        simt::copy_commit();
    }

    /// Sets what is kept of the first row on its way.
    ///
    /// # Safety
    ///
    /// As for [`first_time`](Piece::first_time).
    #[inline(always)]
    pub(super) unsafe fn begin(&self, rows: [*const T; TENSORS]) {
        let mut group = 0;
        while group < self.kept {
            // SAFETY: the caller's.
            unsafe { self.fetch(rows, group) };
            group += 1;
        }
    }

    /// Waits for a group, behind which the others that are kept may be on their way; for up to two of those as well, rather than by an indirect
    /// branch to the one wait that is right.
    #[inline(always)]
    fn wait(&self, group: u32) {
        let behind = self.kept - 1 - group;
        simt::copy_wait::<MOST_PENDING>();
        if behind < MOST_PENDING {
            simt::copy_wait::<4>();
        }
        if behind < 4 {
            simt::copy_wait::<2>();
        }
        if behind < 2 {
            simt::copy_wait::<1>();
        }
        if behind == 0 {
            simt::copy_wait::<0>();
        }
    }

    /// A group that has come, or is read now; nothing where the piece has none.
    #[inline(always)]
    unsafe fn group(&self, rows: [*const T; TENSORS], group: u32) -> Group<T, A, V, TENSORS> {
        let mut parts = [[A::nothing::<T>(); V]; TENSORS];
        // SAFETY: the caller's: this thread has fetched it, or the tensor has it.
        unsafe {
            match group < self.kept {
                true => self.each(group, |v| {
                    unrolled::<TENSORS>(|tensor| parts[tensor][v] = A::kept::<T>(self.place(tensor, group, v)));
                }),
                false => self.each(group, |v| {
                    let within = self.within(group, v) as usize;
                    unrolled::<TENSORS>(|tensor| parts[tensor][v] = A::load(rows[tensor].wrapping_add(within)));
                }),
            }
        }
        parts
    }

    /// Hands out the groups of a row in order.
    ///
    /// # Safety
    ///
    /// The tensors have the piece; what is kept is on its way, or has come.
    #[inline(always)]
    pub(super) unsafe fn first_time(
        &self,
        rows: [*const T; TENSORS],
        mut take: impl FnMut(u32, &Group<T, A, V, TENSORS>),
    ) {
        let mut group = 0;
        while group < self.groups {
            if group < self.kept {
                self.wait(group);
            }
            // SAFETY: the caller's.
            take(group, &unsafe { self.group(rows, group) });
            group += 1;
        }
    }

    /// Hands out the groups of a row once more: those that are not kept newest first, then those that are, each of which makes room for that of
    /// the next row.
    ///
    /// # Safety
    ///
    /// As for [`first_time`](Piece::first_time), of both rows; everything that is kept has come.
    #[inline(always)]
    pub(super) unsafe fn last_time(
        &self,
        rows: [*const T; TENSORS],
        next: Option<[*const T; TENSORS]>,
        mut take: impl FnMut(u32, Group<T, A, V, TENSORS>),
    ) {
        let (mut index, others) = (0, self.groups - self.kept);
        while index < self.groups {
            let group = match index < others {
                true => self.groups - 1 - index,
                false => index - others,
            };
            // SAFETY: the caller's.
            unsafe {
                take(group, self.group(rows, group));
                if let Some(next) = next
                    && group < self.kept
                {
                    self.fetch(next, group);
                }
            }
            index += 1;
        }
    }
}
