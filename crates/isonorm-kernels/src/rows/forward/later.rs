//! The forward pass over rows that blocks of the whole chip hold in shared memory, each finished one row later.
//!
//! Blocks that tell each other their sums through global memory would wait for that as long as a row takes. So they send the sums
//! of a row, and finish the row before, whose sums have come meanwhile. Nothing of a row stays in registers, which leaves them to
//! its parameters. What is added before the activation comes past shared memory, to registers, while the sums do.

use isonorm_math::Normalizer;

pub use super::Args;
use super::held::Walk;
use super::{ParametersOf, PlaceOf, Spec};
use crate::grid::Sent;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Apart, Epilogue, Told};
use crate::rows::lanes::{FourPairs, Lanes, rotated, unrolled};
use crate::rows::parameters::{Known, OfType, Parameters, at_least_one, next_set};
use crate::rows::ring::{Ring, Slot};
use crate::rows::statistics::{Measured, Summed};
use crate::rows::team::{Chip, Team};
use crate::simt;

/// Rows that are yet to be finished when the next one comes.
pub const STAY: u32 = 1;

/// Parts of a row that are read from shared memory together.
const AT_ONCE: usize = 4;

/// What an access loads.
pub(in crate::rows) type RawOf<T, S> = <<S as Spec>::Access as Access>::Raw<T>;

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
    const { assert!(!S::RESIDUAL || Walk::<T, S, V>::JOINED && !Walk::<T, S, V>::IS_ANY) };
    // SAFETY: the caller's.
    let mut team = unsafe { Chip::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let (mut row, step) = (team.first_row(), team.row_step());
    let sets = at_least_one(args.affine.sets);
    let (mut set, set_step) = (args.affine.set_of::<S::Map>(row), args.affine.set_of::<S::Map>(step));
    // SAFETY: the caller's.
    let mut parameters = unsafe { ParametersOf::<T, S, V>::new(&args.affine, walk.span, true) };
    let mut ring = Ring::new(
        Chip::SHARED_BYTES,
        walk.ends(),
        Walk::<T, S, V>::TENSORS,
        args.kept,
        STAY,
    );
    ring.settle();
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
            let sums = unsafe { walk.sums(row, &slot, own_first) };
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
                let residual = walk.residual(row);
                let updates = Walk::<T, S, V>::RUNNING && team.rank() == 0;
                let running = walk.running(updates, row);
                let measured = walk.measure(row, &before, &mut team);
                if team.rank() == 0 {
                    measured.save(args, row);
                }
                walk.finish_later(row, (&before.slot, &residual), &parameters, measured.normalizer);
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
    /// Parts in front of those that are read together: what a segment that begins anywhere may have but a part of.
    const FIRST: usize = S::Access::HAS_ENDS as usize;

    /// The thread's sums of a row that has come, about a number: a few parts at a time, as there is no room for all.
    #[inline(always)]
    unsafe fn sums(&self, row: u64, slot: &Slot<S::Access, V>, number: f32) -> [f32; 2] {
        const { assert!((V - Self::FIRST).is_multiple_of(AT_ONCE)) };
        let (mut apart, mut in_turn) = (FourPairs::ZERO, [0.0; 2]);
        let (mut start, parts) = (Self::FIRST, simt::opaque(V as u32) as usize);
        if Self::FIRST > 0 && self.has(0) {
            let place = PlaceOf::<T, S>::new(self.args.x, row, self.args.x_stride);
            // SAFETY: the caller's.
            let part = unsafe { slot.part::<T>(0, 0) };
            let part = S::Access::filled::<T>(part, place.own(self.span, 0), number);
            apart = S::Statistics::add_apart::<T, S::Access>(apart, part, number);
        }
        while start < parts {
            if S::Access::IS_OF_SEGMENTS {
                // SAFETY: the caller's.
                let some = unsafe { self.parts(slot, start) };
                unrolled::<AT_ONCE>(|k| {
                    let v = start + k;
                    // Zeros, where there is no part, are no distance from 0.
                    let about = if self.has(v) { number } else { 0.0 };
                    apart = S::Statistics::add_apart::<T, S::Access>(apart, some[k], about);
                });
            } else {
                unrolled::<AT_ONCE>(|k| {
                    let v = start + k;
                    if self.has(v) {
                        // SAFETY: the caller's.
                        let part = unsafe { slot.part::<T>(0, v) };
                        in_turn = S::Statistics::add::<T, S::Access>(in_turn, part, number);
                    }
                });
            }
            start += AT_ONCE;
        }
        if S::Access::IS_OF_SEGMENTS {
            apart.total()
        } else {
            in_turn
        }
    }

    /// Some parts of a row that has come, all of them asked for before one is waited for; zeros where there is none.
    #[inline(always)]
    unsafe fn parts(&self, slot: &Slot<S::Access, V>, start: usize) -> [RawOf<T, S>; AT_ONCE] {
        let mut some = [S::Access::nothing::<T>(); AT_ONCE];
        unrolled::<AT_ONCE>(|k| {
            if self.has(start + k) {
                // SAFETY: the caller's: this thread has fetched it.
                some[k] = unsafe { slot.part::<T>(0, start + k) };
            }
        });
        some
    }

    /// The row's statistics.
    #[inline(always)]
    unsafe fn measure(&self, row: u64, before: &Before<S::Access, V>, team: &mut Chip) -> Measured {
        let (mut sums, mut number, mut repeated) = (team.receive_pair(&before.sent), before.first, false);
        loop {
            let (measured, again) = S::Statistics::conclude::<T, V>(sums, number, self.args);
            match again {
                // All threads of the team agree.
                Some(about) if !repeated => {
                    (number, repeated) = (S::Access::near::<T>(about), true);
                    // SAFETY: the row is still there.
                    sums = team.sum_pair(unsafe { self.sums(row, &before.slot, number) });
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
        (slot, residual): (&Slot<S::Access, V>, &[RawOf<T, S>; V]),
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
    ) {
        let (args, normalizer) = (self.args, parameters.joined(normalizer));
        let (narrow, y) = (
            args.affine.is_narrow::<T>(),
            PlaceOf::<T, S>::new(args.y.cast_const(), row, args.y_stride),
        );
        let finished = |told| Finished {
            y,
            residual,
            parameters,
            normalizer,
            told,
        };
        // SAFETY: the caller's.
        unsafe {
            match args.activation.apart::<S::Epilogue>() {
                Apart::Identity => self.finish_known(&finished(Told::IDENTITY), slot, narrow),
                Apart::Relu => self.finish_known(&finished(Told::RELU), slot, narrow),
                Apart::Other => self.finish_known(&finished(args.activation), slot, narrow),
            }
        }
    }

    #[inline(always)]
    unsafe fn finish_known(&self, finished: &Finished<'_, T, S, V>, slot: &Slot<S::Access, V>, narrow: bool) {
        // SAFETY: the caller's, for parts that the row has.
        unsafe {
            if Self::IS_ANY {
                self.finish_some_at_once(finished, slot);
            } else if Self::READS && !(finished.parameters.is_packed() && narrow) {
                // Parameters that are read, part by part: there is no room for all of them.
                let (mut v, parts) = (0, simt::opaque(V as u32) as usize);
                while v < parts {
                    if self.has(v) {
                        let part = slot.part::<T>(0, v);
                        let raw = [part, S::Access::nothing::<T>()];
                        if narrow {
                            self.finish_part::<OfType<true>>(finished, raw, v);
                        } else {
                            self.finish_part::<OfType<false>>(finished, raw, v);
                        }
                    }
                    v += 1;
                }
            } else if Self::READS {
                self.finish_parts::<OfType<true>>(finished, slot);
            } else {
                self.finish_parts::<OfType<false>>(finished, slot);
            }
        }
    }

    /// All parts that the row has, written out.
    #[inline(always)]
    unsafe fn finish_parts<K: Known>(&self, finished: &Finished<'_, T, S, V>, slot: &Slot<S::Access, V>) {
        let mut some = [S::Access::nothing::<T>(); AT_ONCE];
        unrolled::<V>(|v| {
            // SAFETY: the caller's.
            unsafe {
                if !S::Access::IS_OF_SEGMENTS {
                    if self.has(v) {
                        self.finish_part::<K>(finished, [slot.part::<T>(0, v), finished.residual[v]], v);
                    }
                    return;
                }
                if v < Self::FIRST {
                    if self.has(v) {
                        self.finish_part::<K>(finished, [slot.part::<T>(0, v), finished.residual[v]], v);
                    }
                    return;
                }
                let behind = (v - Self::FIRST) % AT_ONCE;
                if behind == 0 {
                    some = self.parts(slot, v);
                }
                if self.has(v) {
                    self.finish_part::<K>(finished, [some[behind], finished.residual[v]], v);
                }
            }
        });
    }

    /// The same by code that is there once for all parts, a few of which are side by side: where they have a weight and bias each.
    #[inline(always)]
    unsafe fn finish_some_at_once(&self, finished: &Finished<'_, T, S, V>, slot: &Slot<S::Access, V>) {
        let &Finished {
            y,
            parameters,
            normalizer,
            told,
            ..
        } = finished;
        let mut joined = [normalizer; V];
        unrolled::<V>(|v| joined[v] = parameters.joined_at(normalizer, v));
        let (mut start, parts) = (0, simt::opaque(V as u32) as usize);
        while start < parts {
            // SAFETY: the caller's.
            let some = unsafe { self.parts(slot, start) };
            let mut z = [<S::Access as Access>::Numbers::<T>::splat(0.0); AT_ONCE];
            unrolled::<AT_ONCE>(|k| z[k] = S::Access::unpack::<T>(some[k]).map(|x| joined[k].apply(x)));
            let numbers = S::Epilogue::apply::<T, _, _>(z, told);
            unrolled::<AT_ONCE>(|k| {
                if self.has(start + k) {
                    // SAFETY: the caller's.
                    unsafe { self.store(y, start + k, numbers[k]) };
                }
                joined = rotated(joined);
            });
            start += AT_ONCE;
        }
    }

    /// Part `v`, which the row has, of x and of what is added.
    #[inline(always)]
    unsafe fn finish_part<K: Known>(&self, finished: &Finished<'_, T, S, V>, raw: [RawOf<T, S>; 2], v: usize) {
        let &Finished {
            y,
            parameters,
            normalizer,
            told,
            ..
        } = finished;
        // SAFETY: the caller's, for a part that has come.
        unsafe {
            let z = self.preactivation::<K>(raw, parameters, normalizer, v);
            let [numbers] = S::Epilogue::apply::<T, _, _>([z], told);
            self.store(y, v, numbers);
        }
    }
}

/// What a row is finished with.
struct Finished<'a, T: Data, S: Spec<Team = Chip>, const V: usize> {
    /// Where it goes.
    y: PlaceOf<T, S>,
    /// What is added before the activation.
    residual: &'a [RawOf<T, S>; V],
    parameters: &'a ParametersOf<T, S, V>,
    normalizer: Normalizer<f32>,
    told: Told,
}
