//! The forward pass over rows that blocks of the whole chip hold in shared memory, each finished one row later.
//!
//! Blocks that tell each other their sums through global memory would wait for that as long as a row takes. So they send the sums
//! of a row, and finish the row before, whose sums have come meanwhile. Nothing of a row stays in registers, which leaves them to
//! its parameters.

use isonorm_math::Normalizer;

pub use super::Args;
use super::held::Walk;
use super::{ParametersOf, Spec, next_set};
use crate::grid::Sent;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::Epilogue;
use crate::rows::lanes::unrolled;
use crate::rows::parameters::{Parameters, at_least_one};
use crate::rows::ring::{Ring, Slot};
use crate::rows::statistics::{Measured, Summed};
use crate::rows::team::{Chip, Team};
use crate::simt;

/// Rows that are yet to be finished when the next one comes.
pub const STAY: u32 = 1;

/// A row whose sums are on their way.
struct Before<A, const V: usize> {
    set: u32,
    slot: Slot<A, V>,
    /// What the sums are about: the row's first element.
    first: f32,
    sent: Sent,
}

/// Normalizes the rows. For a grid of a multiple of the blocks that share a row, all of which run at the same time.
///
/// # Safety
///
/// As for [`forward`](super::forward); shared memory has room for `kept` rows, at least two.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn later<T: Data, S: Spec<Team = Chip, Statistics: Summed>, const V: usize>(args: &Args<T>) {
    const { assert!(!S::RESIDUAL) };
    // SAFETY: the caller's.
    let mut team = unsafe { Chip::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let (mut row, step) = (team.first_row(), team.row_step());
    let sets = at_least_one(args.affine.sets);
    let (mut set, set_step) = (args.affine.set_of::<S::Map>(row), args.affine.set_of::<S::Map>(step));
    // SAFETY: the caller's.
    let mut parameters = unsafe { ParametersOf::<T, S, V>::new(&args.affine, walk.span, true) };
    let mut ring = Ring::new(Chip::SHARED_BYTES, 1, args.kept, STAY);
    let behind = ring.behind();
    let mut rows = 0;
    while rows < behind {
        walk.fetch(&ring, row + u64::from(rows) * step, rows);
        rows += 1;
    }
    let mut first = walk.first(row);
    let mut before: Option<Before<S::Access, V>> = None;
    loop {
        let is_row = row < args.rows;
        let mut next = None;
        if is_row {
            walk.fetch(&ring, row + u64::from(behind) * step, ring.slot(behind));
            ring.wait();
            let (slot, own_first) = (ring.arrived(), walk.shift(first));
            first = walk.first(row + step);
            // SAFETY: the row has come.
            let sums = unsafe { walk.sums(&slot, own_first) };
            next = Some(Before {
                set,
                slot,
                first: own_first,
                sent: team.send_pair(sums),
            });
            ring.advance();
            set = next_set(set, set_step, sets);
        }
        if let Some(before) = before {
            let row = simt::opaque_64(row) - step;
            // SAFETY: the caller's.
            unsafe {
                parameters.fetch(&args.affine, walk.span, before.set);
                let updates = Walk::<T, S, V>::RUNNING && team.rank() == 0;
                let running = walk.running(updates, row);
                let measured = walk.measure(&before, &mut team);
                if team.rank() == 0 {
                    measured.save(args, row);
                }
                walk.finish_later(row, &before.slot, &parameters, measured.normalizer);
                walk.update(updates, row, running, &measured);
            }
        }
        if !is_row {
            break;
        }
        before = next;
        row += step;
    }
}

impl<T: Data, S: Spec<Team = Chip, Statistics: Summed>, const V: usize> Walk<'_, T, S, V> {
    /// The thread's sums of a row that has come, about a number: a few parts at a time, as there is no room for all.
    #[inline(always)]
    unsafe fn sums(&self, slot: &Slot<S::Access, V>, number: f32) -> [f32; 2] {
        const AT_ONCE: usize = 4;
        const { assert!(V.is_multiple_of(AT_ONCE)) };
        let (mut sums, mut start, parts) = ([0.0; 2], 0, simt::opaque(V as u32) as usize);
        while start < parts {
            unrolled::<AT_ONCE>(|v| {
                let v = start + v;
                if self.has(v) {
                    // SAFETY: the caller's.
                    let part = unsafe { slot.part::<T>(0, v) };
                    sums = S::Statistics::add::<T, S::Access>(sums, part, number);
                }
            });
            start += AT_ONCE;
        }
        sums
    }

    /// The row's statistics.
    #[inline(always)]
    unsafe fn measure(&self, before: &Before<S::Access, V>, team: &mut Chip) -> Measured {
        let (mut sums, mut number, mut repeated) = (team.receive_pair(&before.sent), before.first, false);
        loop {
            let (measured, again) = S::Statistics::conclude::<T, V>(sums, number, self.args);
            match again {
                // All threads of the team agree.
                Some(about) if !repeated => {
                    (number, repeated) = (about, true);
                    // SAFETY: the row is still there.
                    sums = team.sum_pair(unsafe { self.sums(&before.slot, number) });
                }
                _ => return measured,
            }
        }
    }

    /// Scale and shift, activation, and the store.
    #[inline(always)]
    unsafe fn finish_later(
        &self,
        row: u64,
        slot: &Slot<S::Access, V>,
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
    ) {
        let narrow = self.args.affine.is_narrow::<T>();
        // SAFETY: the caller's, for parts that the row has.
        unsafe {
            if Self::READS && !(parameters.is_packed() && narrow) {
                // Parameters that are read, part by part: there is no room for all of them.
                let (mut v, parts) = (0, simt::opaque(V as u32) as usize);
                while v < parts {
                    if narrow {
                        self.finish_part::<true>(row, slot, parameters, normalizer, v);
                    } else {
                        self.finish_part::<false>(row, slot, parameters, normalizer, v);
                    }
                    v += 1;
                }
            } else if Self::READS {
                unrolled::<V>(|v| self.finish_part::<true>(row, slot, parameters, normalizer, v));
            } else {
                unrolled::<V>(|v| self.finish_part::<false>(row, slot, parameters, normalizer, v));
            }
        }
    }

    /// Part `v`, if the row has it; `NARROW` where parameters have the data's type.
    #[inline(always)]
    unsafe fn finish_part<const NARROW: bool>(
        &self,
        row: u64,
        slot: &Slot<S::Access, V>,
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
        v: usize,
    ) {
        if self.has(v) {
            // SAFETY: the caller's, for a part that has come.
            unsafe {
                let raw = [slot.part::<T>(0, v), S::Access::nothing::<T>()];
                let z = self.preactivation::<NARROW>(raw, parameters, normalizer, v);
                let [y] = S::Epilogue::apply([z], self.args.activation);
                self.store(row, v, y);
            }
        }
    }
}
