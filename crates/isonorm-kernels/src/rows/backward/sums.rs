//! The gradients of weight and bias: sums over the rows of a team, and then of the teams of a block.

use super::held::Walk;
use super::joined::Joined;
use crate::rows::access::{Access, Data};
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::team::{Owner, Owns, Team};
use crate::simt::{self, Shared};

/// The numbers of an access.
pub(super) type Numbers<T, S> = <<S as Spec>::Access as Access>::Numbers<T>;

/// The thread's sums over rows: of g · x̂ and of g.
pub(super) struct Sums<N, const V: usize> {
    pub(super) weight: [N; V],
    pub(super) bias: [N; V],
}

impl<N: Lanes, const V: usize> Sums<N, V> {
    #[inline(always)]
    pub(super) fn zero() -> Self {
        let nothing = N::splat(0.0);
        Self {
            weight: [nothing; V],
            bias: [nothing; V],
        }
    }
}

impl<T: Data, S: Spec<Team: Team>, const V: usize> Walk<'_, T, S, V> {
    /// Leaves the sums of a team that spans the block, or the cluster, in global memory, or those of the block's teams added up.
    /// Called by all of the block, when no row is on its way.
    #[inline(always)]
    pub(super) unsafe fn leave(&self, team: &S::Team, sums: &Sums<Numbers<T, S>, V>) {
        let args = self.args;
        // Not a loop: numbers that a variable chooses among would be in memory.
        // SAFETY: the caller's.
        unsafe {
            self.leave_one(team, args.dweight, &sums.weight);
            self.leave_one(team, args.dbias, &sums.bias);
        }
    }

    /// Writes the gradients, of which the team has all the sums, in the parameters' type.
    #[inline(always)]
    pub(super) unsafe fn leave_gradients(&self, sums: &Sums<Numbers<T, S>, V>) {
        const { assert!(!S::Access::BY_SEGMENT) };
        let (args, is_narrow) = (self.args, self.args.affine.is_narrow::<T>());
        for (base, numbers) in [(args.dweight, &sums.weight), (args.dbias, &sums.bias)] {
            if base.is_null() {
                continue;
            }
            unrolled::<V>(|v| {
                if self.has(v) {
                    let start = self.span.start(v) as usize;
                    // SAFETY: the caller's: a gradient for each column, in the parameters' type.
                    unsafe {
                        match is_narrow {
                            true => {
                                S::Access::store(
                                    base.cast::<T>().wrapping_add(start),
                                    S::Access::pack::<T>(numbers[v]),
                                );
                            }
                            false => numbers[v].store(base.wrapping_add(start)),
                        }
                    }
                }
            });
        }
    }

    /// The same for the sums of one parameter, where they are wanted.
    #[inline(always)]
    unsafe fn leave_one(&self, team: &S::Team, base: *mut f32, numbers: &[Numbers<T, S>; V]) {
        if base.is_null() {
            return;
        }
        // SAFETY: the caller's, in both.
        unsafe {
            if let Owner::Lanes(_) = S::Team::OWNER {
                self.leave_joined(team, base, numbers);
            } else {
                // The first row of a block or of a cluster is its number.
                self.leave_own(base, team.first_row(), numbers);
            }
        }
    }

    #[inline(always)]
    unsafe fn leave_own(&self, base: *mut f32, part: u64, numbers: &[Numbers<T, S>; V]) {
        unrolled::<V>(|v| {
            if self.has(v) {
                let row = base.wrapping_add((part * self.args.columns) as usize);
                // SAFETY: the caller's: a row of numbers for each part.
                unsafe {
                    match S::Access::BY_SEGMENT {
                        true => self.leave_elements(row, v, numbers[v]),
                        false => numbers[v].store(row.wrapping_add(self.span.start(v) as usize)),
                    }
                }
            }
        });
    }

    /// The same of an access, number by number, where rows begin anywhere.
    #[inline(always)]
    unsafe fn leave_elements(&self, row: *mut f32, v: usize, numbers: Numbers<T, S>) {
        let (start, own) = self.span.columns_of::<T, S::Access>(v);
        numbers.fold(0, |element, number| {
            if own.has(element) {
                let column = (start + element as i32) as usize;
                // SAFETY: the caller's; the row has this column.
                unsafe { f32::store(row.wrapping_add(column), number) };
            }
            element + 1
        });
    }

    /// The block's teams put their numbers side by side in shared memory, in place of rows, and add them up.
    #[inline(always)]
    unsafe fn leave_joined(&self, team: &S::Team, base: *mut f32, numbers: &[Numbers<T, S>; V]) {
        let (lanes, width) = (team.threads(), Numbers::<T, S>::LANES);
        let joined = Joined::<false> {
            from: Shared::at(S::Team::SHARED_BYTES),
            lanes,
            slots: simt::block_threads() / lanes,
        };
        simt::block_barrier();
        // SAFETY: there is room for the numbers of all threads.
        unrolled::<V>(|v| unsafe { joined.keep(v as u32, numbers[v]) });
        simt::block_barrier();
        // SAFETY: kept before the barrier; the caller's: a row of numbers for each block.
        unsafe {
            joined.add_up::<Numbers<T, S>>(V as u32, |(v, lane), number, sum| {
                let column = (v * lanes + lane) * width + number;
                if u64::from(column) < self.args.columns {
                    let row = u64::from(simt::block_index()) * self.args.columns;
                    sum.store(base.wrapping_add((row + u64::from(column)) as usize));
                }
            });
        }
    }
}

/// Bytes of shared memory that a thread's sums take, of so many accesses.
#[cfg(not(target_arch = "nvptx64"))]
pub(in crate::rows) const fn bytes(accesses: u32, access_elements: u32) -> u32 {
    accesses * access_elements * size_of::<f32>() as u32
}
