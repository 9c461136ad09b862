//! The backward pass over rows in segments that blocks of the whole chip hold in shared memory, each finished one row later: as the
//! forward pass's [`later`](crate::rows::forward::later).

use isonorm_math::Normalizer;

pub use super::Args;
use super::held::{Loaded, Walk};
use super::segmented::{Preactivation, Rows, normalized, slope};
use super::sums::Numbers;
use crate::grid::Sent;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue, Told};
use crate::rows::forward::Spec;
use crate::rows::forward::later::STAY;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::ring::{Ring, Slot};
use crate::rows::segments::{OfRow, Segmented};
use crate::rows::team::{Chip, Team};
use crate::simt;

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
    const { assert!(!S::RESIDUAL || !Walk::<T, S, V>::AT_ONCE) };
    // SAFETY: the caller's.
    let mut team = unsafe { Chip::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let (mut row, step) = (team.first_row(), team.row_step());
    let mut of_rows = Rows::new(args, &team);
    let mut ring = Ring::new(
        Chip::SHARED_BYTES,
        walk.ends(),
        Walk::<T, S, V>::TENSORS,
        args.slots,
        STAY,
    );
    ring.settle();
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
                let loaded = walk.parts(row, &slot, normalizer);
                let z = parameters.preactivation(normalizer);
                let own = match Walk::<T, S, V>::AT_ONCE {
                    true => {
                        let g = walk.gradients(&loaded, normalizer, z);
                        walk.sums_of_row(walk.distances(&loaded, normalizer), |v| g[v])
                    }
                    false => walk.sums_of_row(
                        walk.distances(&loaded, normalizer),
                        walk.slopes(&loaded, normalizer, z, args.activation),
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
                let loaded = walk.parts(row, &slot, normalizer);
                match Walk::<T, S, V>::AT_ONCE {
                    true => {
                        let g = walk.gradients(&loaded, normalizer, z);
                        walk.finish_row(walk.distances(&loaded, normalizer), |v| g[v], |_| of_x, row);
                    }
                    false => walk.finish_apart(&loaded, normalizer, |_| z, |_| of_x, row),
                }
                if team.rank() == 0 {
                    walk.args.leave_row(row, sums);
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

    /// The distances of its parts from the mean.
    #[inline(always)]
    fn distances(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        normalizer: Normalizer<f32>,
    ) -> impl Fn(usize) -> Numbers<T, S> {
        move |v| S::Access::unpack::<T>(loaded.x[v]).map(|x| x - normalizer.centre)
    }

    /// g of all of them.
    #[inline(always)]
    fn gradients(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        normalizer: Normalizer<f32>,
        z: Preactivation,
    ) -> [Numbers<T, S>; V] {
        let distance = self.distances(loaded, normalizer);
        let mut all = [Numbers::<T, S>::splat(0.0); V];
        unrolled::<V>(|v| all[v] = z.of(distance(v)));
        let mut g = S::Epilogue::derivative::<T, _, _>(all, self.args.activation);
        unrolled::<V>(|v| g[v] = g[v].zip(S::Access::unpack::<T>(loaded.dy[v]), |slope, dy| slope * dy));
        g
    }

    /// g of one.
    #[inline(always)]
    fn slopes(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        normalizer: Normalizer<f32>,
        z: Preactivation,
        told: Told,
    ) -> impl Fn(usize) -> Numbers<T, S> {
        let distance = self.distances(loaded, normalizer);
        move |v| {
            let (distance, dy) = (distance(v), S::Access::unpack::<T>(loaded.dy[v]));
            slope::<T, S>(self.z(z, distance, loaded.residual[v]), dy, told)
        }
    }
}
