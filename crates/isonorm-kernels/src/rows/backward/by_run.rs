//! The backward pass over rows whose runs of columns share a weight and bias, held in the registers of a cluster.
//!
//! Each warp has a stretch of one run, and its sums of g and g · x̂ come to every block of the cluster. Weighted, they add up to
//! those of the row; run by run, to the row's share of the gradients of weight and bias. So both cost one exchange, and no more
//! than two numbers a warp.

use core::num::NonZero;

use isonorm_math::Normalizer;

pub use super::Args;
use super::Work;
use super::held::{Loaded, Walk};
use super::sums::Numbers;
use crate::cluster::{MOST_BLOCKS, MOST_WARPS, Pairs};
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::Epilogue;
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, total, unrolled};
use crate::rows::parameters::{Affine, ByRun, Runs, at_least_one, next_set, number, words_of_run};
use crate::rows::team::{Blocks, Team};
use crate::simt::{self, WARP};
use crate::warp;

/// Warps of a cluster whose sums a lane adds up, at most.
const WARPS_OF_LANE: usize = (MOST_BLOCKS * MOST_WARPS / WARP) as usize;

/// Computes the gradients of the rows. For a grid of any number of clusters; a stretch, of `V` accesses of each lane of a warp,
/// divides a run, and all stretches of a cluster are a row.
///
/// # Safety
///
/// As for [`backward`](super::backward).
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn by_run<T: Data, S: Spec<Team = Blocks, Map = ByRun>, const V: usize>(args: &Args<T>) {
    // SAFETY: the caller's.
    let mut team = unsafe { Blocks::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let mut runs = ByRuns::new::<T, S, V>(&walk, &team);
    // SAFETY: the caller's.
    unsafe { walk.each_row(&mut team, &mut runs) };
}

/// Which runs a thread has to do with, and their parameters.
struct ByRuns {
    /// The set of the next row, and how many further that of the row behind it is.
    set: u32,
    set_step: u32,
    sets: NonZero<u32>,
    /// The warp's number in the cluster.
    warp: u32,
    warps_of_run: NonZero<u32>,
    /// The first parameter of the row.
    start: u32,
    /// Weight and bias of the warp's run, as they come.
    own: [u32; 2],
}

impl ByRuns {
    #[inline(always)]
    fn new<T: Data, S: Spec<Team = Blocks, Map = ByRun>, const V: usize>(
        walk: &Walk<'_, T, S, V>,
        team: &Blocks,
    ) -> Self {
        let affine = &walk.args.affine;
        let stretch = V as u32 * WARP * width::<T, S::Access>();
        Self {
            set: affine.set_of::<ByRun>(team.first_row()),
            set_step: affine.set_of::<ByRun>(team.row_step()),
            sets: at_least_one(affine.sets),
            warp: team.rank() / WARP,
            warps_of_run: at_least_one(affine.run as u32 / stretch),
            start: 0,
            own: [0; 2],
        }
    }

    /// Weights of the warps whose sums the lane adds up.
    #[inline(always)]
    unsafe fn weights<T: Data>(&self, affine: &Affine) -> [f32; WARPS_OF_LANE] {
        let mut weights = [1.0; WARPS_OF_LANE];
        if !affine.weight.is_null() {
            unrolled::<WARPS_OF_LANE>(|k| {
                let warp = k as u32 * WARP + simt::lane();
                if warp < simt::cluster_blocks() * (simt::block_threads() / WARP) {
                    // SAFETY: the caller's: a number for each run of each set.
                    weights[k] = unsafe { affine.parameter::<T>(affine.weight, self.parameter(warp)) };
                }
            });
        }
        weights
    }

    /// The parameter of a warp's run.
    #[inline(always)]
    fn parameter(&self, warp: u32) -> u32 {
        self.start + warp / self.warps_of_run
    }

    /// The sums over the row of g · weight and of g · weight · x̂.
    #[inline(always)]
    fn of_row(pairs: &Pairs, weights: [f32; WARPS_OF_LANE]) -> [f32; 2] {
        let mut partial = [0.0; 2];
        unrolled::<WARPS_OF_LANE>(|k| {
            let warp = k as u32 * WARP + simt::lane();
            if warp < pairs.warps() {
                let [of_g, of_gx] = pairs.of_warp(warp);
                let weight = weights[k];
                partial = [partial[0] + weight * of_g, partial[1] + weight * of_gx];
            }
        });
        warp::sum_pair(partial)
    }

    /// Leaves the sums of g · x̂ and of g over a run of the row: by its first warp, so that every block has its share of this.
    #[inline(always)]
    unsafe fn leave<T>(&self, args: &Args<T>, pairs: &Pairs, row: u64) {
        let (run, before) = (self.warp / self.warps_of_run, self.warp % self.warps_of_run);
        if before > 0 || (args.dweight.is_null() && args.dbias.is_null()) {
            return;
        }
        let (mut sums, mut warp) = ([0.0; 2], simt::lane());
        while warp < self.warps_of_run.get() {
            let [of_g, of_gx] = pairs.of_warp(self.warp + warp);
            sums = [sums[0] + of_g, sums[1] + of_gx];
            warp += WARP;
        }
        let sums = warp::sum_pair(sums);
        if simt::lane() == 0 {
            // SAFETY: the caller's: a number for each run of each row.
            unsafe { args.leave_sums(row * u64::from(args.affine.runs) + u64::from(run), sums) };
        }
    }
}

impl<T: Data, S: Spec<Team = Blocks, Map = ByRun>, const V: usize> Work<T, S, V> for ByRuns {
    #[inline(always)]
    unsafe fn fetch(&mut self, walk: &Walk<'_, T, S, V>, _row: u64) {
        let affine = &walk.args.affine;
        self.start = self.set * affine.runs;
        // SAFETY: the caller's.
        self.own = unsafe { words_of_run::<T>(affine, self.parameter(self.warp)) };
        self.set = next_set(self.set, self.set_step, self.sets);
    }

    #[inline(always)]
    unsafe fn row(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        team: &mut Blocks,
        (row, loaded, normalizer): (u64, &Loaded<T, S::Access, V>, Normalizer<f32>),
    ) {
        let parameters = Runs::<V>::of_one(
            self.own
                .map(|word| number::<T>(walk.args.affine.is_narrow::<T>(), word)),
        );
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        // SAFETY: the caller's.
        let behind_activation = unsafe { walk.behind_activation(loaded, &parameters, xhat) };
        let g = |v: usize| -> Numbers<T, S> {
            match S::Epilogue::CLASS.has_slopes() {
                false => S::Access::unpack::<T>(loaded.dy[v]),
                true => behind_activation[v],
            }
        };
        let (mut of_g, mut of_gx) = ([0.0; 4], [0.0; 4]);
        unrolled::<V>(|v| {
            let (xhat, g) = (xhat(v), g(v));
            of_g = g.add_to(of_g);
            of_gx = g.dot_to(xhat, of_gx);
        });
        // On their way while the warps wait for each other.
        // SAFETY: the caller's.
        let weights = unsafe { self.weights::<T>(&walk.args.affine) };
        let pairs = team.share_pairs([total(of_g), total(of_gx)]);
        let coefficients = walk.coefficients(Self::of_row(&pairs, weights));
        // SAFETY: the caller's.
        unsafe {
            walk.finish(
                &parameters,
                xhat,
                g,
                (normalizer.rstd, coefficients),
                (row, |v| walk.part_of_dstream(row, v)),
            );
            self.leave(walk.args, &pairs, row);
        }
    }
}
