//! From the sums of warps to the means over rows, through shared memory and, where blocks share rows, through global memory.

use isonorm_math::{BackwardCoefficients, Real};

use super::BOTH;
use super::share::{Stretch, Walk};
use crate::rows::access::Data;
use crate::rows::forward::Spec;
use crate::rows::lanes::unrolled;
use crate::rows::parameters::{OfColumn, at_least_one};
use crate::rows::statistics::{Op, Statistics};
use crate::simt::{self, Shared, WARP};
use crate::warp;

/// Sums of other blocks that a lane asks for at once.
const AT_ONCE: usize = 4;

impl<T: Data, S: Spec<Map: OfColumn>, const V: usize> Walk<'_, T, S, V> {
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
                let place = self.place_of_sums(self.part, stretch.row, stretch.run);
                // SAFETY: the caller's; this place belongs to this block.
                unsafe {
                    f32::store(args.sums_gx.wrapping_add(place), of_gx);
                    f32::store(args.sums_g.wrapping_add(place), of_g);
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

    /// Where the sums of a part of a run of a row are. By column, those of a row lie together if every warp reads them all; else those
    /// of a part do, which are added up by themselves.
    #[inline(always)]
    fn place_of_sums(&self, part: u32, row: u64, run: u32) -> usize {
        let args = self.args;
        let place = if Self::BY_COLUMN && args.sweeps == BOTH {
            row * u64::from(args.sum_parts) + u64::from(part)
        } else {
            (u64::from(part) * args.rows + row) * u64::from(args.runs()) + u64::from(run)
        };
        place as usize
    }

    /// The sums of a lane's share of the parts of a row.
    #[inline(always)]
    unsafe fn share_by_column(&self, row: u64) -> [f32; 2] {
        let args = self.args;
        let mut sums = [0.0; 2];
        let mut part = simt::lane();
        while part < args.sum_parts {
            // All on their way at once.
            let mut some = [[0.0; 2]; AT_ONCE];
            unrolled::<AT_ONCE>(|i| {
                let part = part + i as u32 * WARP;
                if part < args.sum_parts {
                    let place = self.place_of_sums(part, row, 0);
                    // SAFETY: the caller's: written, and seen by this block.
                    some[i] = unsafe {
                        [
                            f32::load(args.sums_gx.wrapping_add(place)),
                            f32::load(args.sums_g.wrapping_add(place)),
                        ]
                    };
                }
            });
            unrolled::<AT_ONCE>(|i| sums = [sums[0] + some[i][0], sums[1] + some[i][1]]);
            part += AT_ONCE as u32 * WARP;
        }
        sums
    }

    /// The sums of a lane's share of the parts of all runs of a row, each times its weight.
    #[inline(always)]
    unsafe fn share_by_run(&self, stretch: Stretch) -> [f32; 2] {
        let args = self.args;
        let (runs, places) = (at_least_one(args.runs()), args.sum_parts);
        let (mut of_gx, mut of_g) = (0.0, 0.0);
        let mut number = simt::lane();
        while number < places * runs.get() {
            let run = number % runs;
            let at = self.place_of_sums(number / runs, stretch.row, run);
            // SAFETY: the caller's: written, and seen by this block.
            let (gx, g) = unsafe {
                (
                    f32::load(args.sums_gx.wrapping_add(at)),
                    f32::load(args.sums_g.wrapping_add(at)),
                )
            };
            let weight = if args.affine.weight.is_null() {
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
        [of_gx, of_g]
    }

    /// The means over a row, from all its sums; the same bits in each warp.
    #[inline(always)]
    pub(super) unsafe fn means(&self, stretch: Stretch) -> BackwardCoefficients<f32> {
        let args = self.args;
        // SAFETY: the caller's.
        let share = unsafe {
            if Self::BY_COLUMN {
                self.share_by_column(stretch.row)
            } else {
                self.share_by_run(stretch)
            }
        };
        let [of_gx, of_g] = warp::sum_pair(share);
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
