//! The backward pass over rows that blocks of the whole chip hold in shared memory, each finished one row later: as the forward
//! pass's [`later`](crate::rows::forward::later), with the sums over rows in registers. Those of a single team are the gradients of weight and
//! bias, and are written as they are wanted.

use isonorm_math::Normalizer;

pub use super::Args;
use super::ParametersOf;
use super::held::Walk;
use super::sums::{Numbers, Sums};
use crate::grid::Sent;
use crate::rows::access::{Access, Data};
use crate::rows::by_column::ByColumn;
use crate::rows::epilogue::Plain;
use crate::rows::forward::Spec;
use crate::rows::forward::later::STAY;
use crate::rows::lanes::Lanes;
use crate::rows::parameters::Parameters;
use crate::rows::ring::{Ring, Slot};
use crate::rows::team::{Chip, Team};
use crate::simt;

/// A row whose sums are on their way.
struct Before<A, const V: usize> {
    slot: Slot<A, V>,
    normalizer: Normalizer<f32>,
    sent: Sent,
}

/// Computes the gradients of the rows. For a grid of a multiple of the blocks that share a row, all of which run at the same time.
///
/// # Safety
///
/// As for [`backward`](super::backward); shared memory has room for `slots` rows, at least two.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn gradients_later<T: Data, S: Spec<Team = Chip, Map = ByColumn, Epilogue = Plain>, const V: usize>(
    args: &Args<T>,
) {
    // SAFETY: the caller's.
    let mut team = unsafe { Chip::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let (mut row, step) = (team.first_row(), team.row_step());
    // SAFETY: the caller's.
    let parameters = unsafe { ParametersOf::<T, S, V>::new(&args.affine, walk.span, true) };
    let mut sums = Sums::<Numbers<T, S>, V>::zero();
    // Whether sums take most registers, and where parts are is computed again for each row.
    let is_crowded = V as u32 * Numbers::<T, S>::LANES > 16;
    let mut ring = Ring::new(Chip::SHARED_BYTES, walk.ends(), 2, args.slots, STAY);
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
                ring.wait();
                let (slot, normalizer) = (ring.arrived(), ahead);
                ahead = walk.normalizer(row + step);
                let walk = if is_crowded { &walk.anew() } else { &walk };
                let (xhat, g) = (walk.xhat(&slot, normalizer), walk.g(&slot));
                let own = walk.add(&parameters, &mut sums, xhat, g);
                let sent = team.send_pair(own);
                next = Some(Before { slot, normalizer, sent });
            }
            ring.advance();
        }
        if let Some(before) = before {
            let row = simt::opaque_64(row) - step;
            let coefficients = walk.coefficients(team.receive_pair(&before.sent));
            let walk = if is_crowded { &walk.anew() } else { &walk };
            let (xhat, g) = (walk.xhat(&before.slot, before.normalizer), walk.g(&before.slot));
            // SAFETY: the caller's.
            unsafe {
                let of_row = (before.normalizer.rstd, coefficients);
                walk.finish(&parameters, xhat, g, of_row, (row, |v| walk.part_of_dstream(row, v)));
            }
        }
        if !is_row {
            break;
        }
        before = next;
        row += step;
    }
    // SAFETY: the caller's.
    unsafe {
        match step {
            // Nobody else has sums to add.
            1 => walk.leave_gradients(&sums),
            _ => walk.leave(&team, &sums),
        }
    }
}

impl<T: Data, S: Spec<Team = Chip, Map = ByColumn, Epilogue = Plain>, const V: usize> Walk<'_, T, S, V> {
    /// x̂ of the parts of a row that has come.
    #[inline(always)]
    fn xhat(&self, slot: &Slot<S::Access, V>, normalizer: Normalizer<f32>) -> impl Fn(usize) -> Numbers<T, S> {
        // SAFETY: this thread has fetched the parts that the row has.
        move |v| S::Access::unpack::<T>(unsafe { slot.part::<T>(0, v) }).map(|x| normalizer.apply(x))
    }

    /// g of these.
    #[inline(always)]
    fn g(&self, slot: &Slot<S::Access, V>) -> impl Fn(usize) -> Numbers<T, S> {
        // SAFETY: as above.
        move |v| S::Access::unpack::<T>(unsafe { slot.part::<T>(1, v) })
    }
}
