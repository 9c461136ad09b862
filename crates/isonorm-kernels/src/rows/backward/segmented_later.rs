//! The backward pass over rows in segments that blocks of the whole chip hold in shared memory, each finished one row later: as the
//! forward pass's [`later`](crate::rows::forward::later).

use isonorm_math::Normalizer;

pub use super::Args;
use super::held::Walk;
use super::segmented::Rows;
use super::sums::Numbers;
use crate::grid::Sent;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::forward::Spec;
use crate::rows::forward::later::STAY;
use crate::rows::lanes::Lanes;
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
                let own = walk.sums_of_row(
                    walk.distances(&slot, normalizer),
                    walk.slopes(&slot, normalizer, parameters),
                );
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
            let sums = team.receive_pair(&sent);
            let coefficients = walk.coefficients(sums.map(|sum| sum * parameters.weight));
            let (xhat, g) = (
                walk.distances(&slot, normalizer),
                walk.slopes(&slot, normalizer, parameters),
            );
            // SAFETY: the caller's.
            unsafe {
                walk.finish(&parameters, xhat, g, normalizer.rstd, coefficients, row);
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
    /// x̂ of the parts of a row that has come.
    #[inline(always)]
    fn distances(&self, slot: &Slot<S::Access, V>, normalizer: Normalizer<f32>) -> impl Fn(usize) -> Numbers<T, S> {
        // SAFETY: this thread has fetched the parts that the row has.
        move |v| S::Access::unpack::<T>(unsafe { slot.part::<T>(0, v) }).map(|x| normalizer.apply(x))
    }

    /// g of these.
    #[inline(always)]
    fn slopes(
        &self,
        slot: &Slot<S::Access, V>,
        normalizer: Normalizer<f32>,
        parameters: OfRow,
    ) -> impl Fn(usize) -> Numbers<T, S> {
        let xhat = self.distances(slot, normalizer);
        move |v| {
            // SAFETY: as above.
            let dy = S::Access::unpack::<T>(unsafe { slot.part::<T>(1, v) });
            match S::Epilogue::CLASS {
                Class::Plain | Class::Masked => dy,
                _ => self.slope(xhat(v), dy, parameters),
            }
        }
    }
}
