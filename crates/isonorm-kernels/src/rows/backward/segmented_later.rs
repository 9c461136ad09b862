//! The backward pass over rows in segments that blocks of the whole chip hold in shared memory, each finished one row later: as the
//! forward pass's [`later`](crate::rows::forward::later).

use isonorm_math::Normalizer;

pub use super::Args;
use super::held::Walk;
use super::segmented::{Preactivation, Rows, normalized, slope};
use super::sums::Numbers;
use crate::grid::Sent;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue, Told};
use crate::rows::forward::later::STAY;
use crate::rows::forward::{PlaceOf, Spec};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::ring::{Ring, Slot};
use crate::rows::segments::{OfRow, Segmented};
use crate::rows::team::{Chip, Team};
use crate::simt;

/// What a thread has of x and of dy, as it came.
type Parts<T, S, const V: usize> = [[<<S as Spec>::Access as Access>::Raw<T>; V]; 2];

/// A row whose sums are on their way.
struct Before<A, const V: usize> {
    slot: Slot<A, V>,
    normalizer: Normalizer<f32>,
    parameters: OfRow,
    sent: Sent,
}

/// Computes the gradients of the rows. For a grid of a multiple of the blocks that share a row, all of which run at the same time.
///
/// # Safety
///
/// As for [`backward`](super::backward); shared memory has room for `slots` rows, at least two.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn segmented_later<T: Data, S: Spec<Team = Chip, Map = Segmented>, const V: usize>(args: &Args<T>) {
    const { assert!(!S::RESIDUAL) };
    // SAFETY: the caller's.
    let mut team = unsafe { Chip::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let (mut row, step) = (team.first_row(), team.row_step());
    let mut of_rows = Rows::new(args, &team);
    let mut ring = Ring::new(Chip::SHARED_BYTES, Walk::<T, S, V>::TENSORS, args.slots, STAY);
    let behind = ring.behind();
    let mut rows = 0;
    while rows < behind {
        // SAFETY: the caller's.
        unsafe { walk.fetch(&ring, row + u64::from(rows) * step, rows) };
        rows += 1;
    }
    // SAFETY: the caller's.
    let mut ahead = unsafe { walk.normalizer(row) };
    let mut before: Option<Before<S::Access, V>> = None;
    loop {
        let is_row = row < args.rows;
        let mut next = None;
        if is_row {
            // SAFETY: the caller's; the row has come.
            unsafe {
                walk.fetch(&ring, row + u64::from(behind) * step, ring.slot(behind));
                let parameters = of_rows.next::<T>(&args.affine);
                ring.wait();
                let (slot, normalizer) = (ring.arrived(), ahead);
                ahead = walk.normalizer(row + step);
                let parts = walk.parts(row, &slot, normalizer);
                let z = parameters.preactivation(normalizer);
                let own = match Walk::<T, S, V>::AT_ONCE {
                    true => {
                        let g = walk.gradients(&parts, normalizer, z);
                        walk.sums_of_row(walk.distances(&parts, normalizer), |v| g[v])
                    }
                    false => walk.sums_of_row(
                        walk.distances(&parts, normalizer),
                        walk.slopes(&parts, normalizer, z, args.activation),
                    ),
                };
                let sent = team.send_pair(own);
                next = Some(Before {
                    slot,
                    normalizer,
                    parameters,
                    sent,
                });
            }
            ring.advance();
        }
        if let Some(Before {
            slot,
            normalizer,
            parameters,
            sent,
        }) = before
        {
            let row = simt::opaque_64(row) - step;
            let sums = normalized(team.receive_pair(&sent), normalizer.rstd);
            let of_x = walk.of_x(sums, normalizer.rstd, parameters);
            let z = parameters.preactivation(normalizer);
            // SAFETY: the caller's; the row has come.
            unsafe {
                let parts = walk.parts(row, &slot, normalizer);
                match Walk::<T, S, V>::AT_ONCE {
                    true => {
                        let g = walk.gradients(&parts, normalizer, z);
                        walk.finish_row(walk.distances(&parts, normalizer), |v| g[v], |_| of_x, row);
                    }
                    false => walk.finish_apart([&parts[0], &parts[1]], normalizer, |_| z, |_| of_x, row),
                }
                if team.rank() == 0 {
                    walk.leave_row(sums, row);
                }
            }
        }
        if !is_row {
            break;
        }
        before = next;
        row += step;
    }
}

impl<T: Data, S: Spec<Team = Chip, Map = Segmented>, const V: usize> Walk<'_, T, S, V> {
    /// Whether g is computed of all parts at once: the activation is one of many, whose code is there once for all of them.
    const AT_ONCE: bool = matches!(S::Epilogue::CLASS, Class::Any);

    /// The parts of a row that has come, of x and of dy, all of them asked for before one is waited for.
    ///
    /// # Safety
    ///
    /// This thread has fetched those that the row has, and waited for them.
    #[inline(always)]
    unsafe fn parts(&self, row: u64, slot: &Slot<S::Access, V>, normalizer: Normalizer<f32>) -> Parts<T, S, V> {
        let mut parts = [[S::Access::nothing::<T>(); V]; 2];
        let x = PlaceOf::<T, S>::new(self.args.x, row, self.args.x_stride);
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's.
                unsafe {
                    let own = x.own(self.span, v);
                    parts[0][v] = Self::part((slot, 0), (v, own), normalizer.centre);
                    parts[1][v] = Self::part((slot, 1), (v, own), 0.0);
                }
            }
        });
        parts
    }

    /// Their distances from the mean.
    #[inline(always)]
    fn distances(&self, parts: &Parts<T, S, V>, normalizer: Normalizer<f32>) -> impl Fn(usize) -> Numbers<T, S> {
        move |v| S::Access::unpack::<T>(parts[0][v]).map(|x| x - normalizer.centre)
    }

    /// g of all of them.
    #[inline(always)]
    fn gradients(&self, parts: &Parts<T, S, V>, normalizer: Normalizer<f32>, z: Preactivation) -> [Numbers<T, S>; V] {
        let distance = self.distances(parts, normalizer);
        let mut all = [Numbers::<T, S>::splat(0.0); V];
        unrolled::<V>(|v| all[v] = z.of(distance(v)));
        let mut g = S::Epilogue::derivative::<T, _, _>(all, self.args.activation);
        unrolled::<V>(|v| g[v] = g[v].zip(S::Access::unpack::<T>(parts[1][v]), |slope, dy| slope * dy));
        g
    }

    /// g of one.
    #[inline(always)]
    fn slopes(
        &self,
        parts: &Parts<T, S, V>,
        normalizer: Normalizer<f32>,
        z: Preactivation,
        told: Told,
    ) -> impl Fn(usize) -> Numbers<T, S> {
        let distance = self.distances(parts, normalizer);
        move |v| slope::<T, S>(distance(v), S::Access::unpack::<T>(parts[1][v]), z, told)
    }
}
