//! From the sums of warps to the means over rows, through shared memory and, where blocks share rows, through global memory.

use isonorm_math::{BackwardCoefficients, Real};

use super::BOTH;
use super::share::{Stretch, Walk};
use crate::rows::access::Data;
use crate::rows::forward::Spec;
use crate::rows::parameters::at_least_one;
use crate::rows::statistics::{Op, Statistics};
use crate::simt::{self, Shared, WARP};
use crate::warp;

impl<T: Data, S: Spec, const V: usize> Walk<'_, T, S, V> {
    /// Where a warp leaves its sums.
    #[inline(always)]
    pub(super) fn sums_of(warp: u32) -> Shared<f32> {
        Shared::at(0).offset(2 * warp)
    }

    /// Leaves the sums of the block's stretches, and waits until all sums of these rows are there for this block to see.
    #[inline(always)]
    pub(super) unsafe fn exchange(&self, first_row: u64) {
        let args = self.args;
        simt::block_barrier();
        if simt::warp_index() == 0 {
            let (warps, number) = (self.warps().0, simt::lane());
            let is_one = number < simt::block_threads() / WARP / warps;
            if let Some(stretch) = self.stretch(first_row, number)
                && is_one
            {
                let (mut of_gx, mut of_g) = (0.0, 0.0);
                let mut own = 0;
                while own < warps.get() {
                    let place = Self::sums_of(number * warps.get() + own);
                    // SAFETY: written before the barrier.
                    unsafe {
                        of_gx += simt::shared_load(place);
                        of_g += simt::shared_load(place.offset(1));
                    }
                    own += 1;
                }
                let place = u64::from(self.part) * args.rows + stretch.row;
                let place = place * u64::from(args.runs()) + u64::from(stretch.run);
                // SAFETY: the caller's; this place belongs to this block.
                unsafe {
                    f32::store(args.sums_gx.wrapping_add(place as usize), of_gx);
                    f32::store(args.sums_g.wrapping_add(place as usize), of_g);
                }
            }
            if S::Statistics::OP != Op::Given && self.blocks > 1 && args.sweeps == BOTH {
                simt::warp_barrier();
                if simt::lane() == 0 {
                    let arrived = args.arrived.wrapping_add(first_row as usize);
                    // SAFETY: the caller's: a counter for each row.
                    unsafe {
                        simt::counter_add(arrived, 1);
                        simt::counter_wait(arrived, self.blocks);
                    }
                }
            }
        }
        simt::block_barrier();
    }

    /// The means over a row, from all its sums; the same bits in each warp.
    #[inline(always)]
    pub(super) unsafe fn means(&self, stretch: Stretch) -> BackwardCoefficients<f32> {
        let args = self.args;
        let (runs, places) = (at_least_one(args.runs()), args.parts);
        let (mut of_gx, mut of_g) = (0.0, 0.0);
        let mut number = simt::lane();
        while number < places * runs.get() {
            let (place, run) = (number / runs, number % runs);
            let at = (u64::from(place) * args.rows + stretch.row) * u64::from(runs.get()) + u64::from(run);
            // SAFETY: the caller's: written, and seen by this block.
            let (gx, g) = unsafe {
                (
                    f32::load(args.sums_gx.wrapping_add(at as usize)),
                    f32::load(args.sums_g.wrapping_add(at as usize)),
                )
            };
            let weight = if Self::BY_COLUMN || args.affine.weight.is_null() {
                1.0
            } else {
                // SAFETY: the caller's: a number for each run of each set.
                unsafe {
                    args.affine
                        .parameter::<T>(args.affine.weight, stretch.set * runs.get() + run)
                }
            };
            of_gx = Real::mul_add(weight, gx, of_gx);
            of_g = Real::mul_add(weight, g, of_g);
            number += WARP;
        }
        let [of_gx, of_g] = warp::sum_pair([of_gx, of_g]);
        let count = args.columns as f32;
        BackwardCoefficients {
            mean_g: if S::Statistics::OP == Op::Layer {
                of_g / count
            } else {
                0.0
            },
            mean_gx: of_gx / count,
        }
    }
}
