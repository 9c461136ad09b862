//! The gradients of weight and bias: sums over the rows of a team, and then of the teams of a block.

use super::held::Walk;
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
        for (base, numbers) in [(args.dweight, &sums.weight), (args.dbias, &sums.bias)] {
            if base.is_null() {
                continue;
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
    }

    #[inline(always)]
    unsafe fn leave_own(&self, base: *mut f32, part: u64, numbers: &[Numbers<T, S>; V]) {
        unrolled::<V>(|v| {
            if self.has(v) {
                let column = part * self.args.columns + u64::from(self.span.start(v));
                // SAFETY: the caller's: a row of numbers for each part.
                unsafe { numbers[v].store(base.wrapping_add(column as usize)) };
            }
        });
    }

    /// The block's teams put their numbers side by side in shared memory, in place of rows; then a thread adds up a column.
    #[inline(always)]
    unsafe fn leave_joined(&self, team: &S::Team, base: *mut f32, numbers: &[Numbers<T, S>; V]) {
        let columns = self.args.columns as u32;
        let place = |team: u32, column: u32| Shared::<f32>::at(S::Team::SHARED_BYTES).offset(team * columns + column);
        simt::block_barrier();
        let own = simt::thread_index() / team.threads();
        unrolled::<V>(|v| {
            if self.has(v) {
                numbers[v].fold(self.span.start(v), |column, number| {
                    // SAFETY: there is room for the numbers of all threads.
                    unsafe { simt::shared_store(place(own, column), number) };
                    column + 1
                });
            }
        });
        simt::block_barrier();
        let mut column = simt::thread_index();
        while column < columns {
            let (mut sum, mut team_index) = (0.0, 0);
            while team_index < simt::block_threads() / team.threads() {
                // SAFETY: written before the barrier.
                sum += unsafe { simt::shared_load(place(team_index, column)) };
                team_index += 1;
            }
            let index = u64::from(simt::block_index()) * self.args.columns + u64::from(column);
            // SAFETY: the caller's: a row of numbers for each block.
            unsafe { f32::store(base.wrapping_add(index as usize), sum) };
            column += simt::block_threads();
        }
    }
}

/// Bytes of shared memory that a thread's sums take, of so many accesses.
#[cfg(not(target_arch = "nvptx64"))]
pub(in crate::rows) const fn bytes(accesses: u32, access_elements: u32) -> u32 {
    accesses * access_elements * size_of::<f32>() as u32
}
