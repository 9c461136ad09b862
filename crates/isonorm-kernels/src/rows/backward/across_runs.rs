//! The backward pass over contiguous rows whose accesses may lie across two runs ([`across_runs`](crate::rows::across_runs)).
//!
//! A thread's sums of g and g · x̂ over an access are two of each, which it leaves in shared memory, a place for each access; so lanes that are neighbours
//! add up those of a run, wherever it begins. Weighted, they add up to those of the row.

use isonorm_math::{Normalizer, Real, normalize};

pub use super::Args;
use super::Work;
use super::held::{Loaded, Walk};
use super::segmented::{Rows, normalized, slope};
use super::sums::Numbers;
use crate::rows::access::{Access, Data, width};
use crate::rows::across_runs::{AcrossRuns, OfRuns};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::at_least_one;
use crate::rows::team::{Block, Team};
use crate::simt::{self, Shared, WARP};

/// Bytes of shared memory for sums of accesses, of which rows take turns with two halves.
#[inline(always)]
pub const fn sums_bytes(threads: u32, accesses: u32) -> u32 {
    2 * threads * accesses * OF_ACCESS * size_of::<f32>() as u32
}

/// Numbers of an access: two sums of each of two runs.
const OF_ACCESS: u32 = 4;

/// Computes the gradients of the rows. For a grid of any size.
///
/// # Safety
///
/// As for [`backward`](super::backward); shared memory has [`sums_bytes`] behind the rows that come ahead.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn across_runs<T: Data, S: Spec<Team = Block, Map = AcrossRuns>, const V: usize>(args: &Args<T>) {
    // SAFETY: the caller's.
    let mut team = unsafe { Block::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let slots = Walk::<T, S, V>::TENSORS * args.slots * V as u32 * S::Access::KEPT_BYTES;
    let mut own = Own {
        rows: Rows::new(args, &team),
        parameters: OfRuns::new(&args.affine, walk.span),
        sums: Shared::at(Block::SHARED_BYTES + slots * simt::block_threads()),
        half: 0,
    };
    // SAFETY: the caller's.
    unsafe { walk.each_row(&mut team, &mut own) };
}

/// Those of the row that a block works on.
struct Own<const V: usize> {
    rows: Rows,
    parameters: OfRuns<V>,
    /// Where the sums of accesses are.
    sums: Shared<f32>,
    /// Which half of them is the row's.
    half: u32,
}

impl<T: Data, S: Spec<Team = Block, Map = AcrossRuns>, const V: usize> Work<T, S, V> for Own<V> {
    #[inline(always)]
    unsafe fn fetch(&mut self, walk: &Walk<'_, T, S, V>, _row: u64) {
        let affine = &walk.args.affine;
        let set = self.rows.next_set(affine);
        // SAFETY: the caller's.
        unsafe { self.parameters.load::<T, S::Access>(affine, walk.span, set) };
    }

    #[inline(always)]
    unsafe fn row(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        team: &mut Block,
        (row, loaded, normalizer): (u64, &Loaded<T, S::Access, V>, Normalizer<f32>),
    ) {
        let (args, parameters) = (walk.args, self.parameters);
        let distance = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| x - normalizer.centre);
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        let behind_activation = match S::Epilogue::CLASS {
            // SAFETY: the caller's.
            Class::Any => unsafe { walk.behind_activation(loaded, &parameters, xhat) },
            _ => [Numbers::<T, S>::splat(0.0); V],
        };
        let g = |v: usize| {
            let dy = S::Access::unpack::<T>(loaded.dy[v]);
            match S::Epilogue::CLASS {
                Class::Any => behind_activation[v],
                Class::Plain => dy,
                _ => {
                    // SAFETY: the caller's.
                    let [weight, bias] = unsafe { walk.parameters(&parameters, v) };
                    slope::<T, S>(xhat(v).zip3(weight, bias, normalize::affine), dy, args.activation)
                }
            }
        };
        let leaves = !args.dweight.is_null() || !args.dbias.is_null();
        let mut own = [0.0; 2];
        unrolled::<V>(|v| {
            if walk.has(v) {
                let distance = distance(v);
                let of_runs = parameters
                    .apart(g(v), v)
                    .map(|g| [g.fold(0.0, |sum, g| sum + g), g.dot(distance, 0.0)]);
                let weights = parameters.weights::<T>(v);
                unrolled::<2>(|k| {
                    own = [
                        Real::mul_add(of_runs[k][0], weights[k], own[0]),
                        Real::mul_add(of_runs[k][1], weights[k], own[1]),
                    ];
                });
                if leaves {
                    let [[a, b], [c, d]] = of_runs;
                    let access = v as u32 * simt::block_threads() + simt::thread_index();
                    // SAFETY: inside of the sums; they were last read before a barrier.
                    unsafe { simt::shared_store_128(self.place(access, 0), [a, b, c, d]) };
                }
            }
        });
        let sums = normalized(team.sum_pair(own), normalizer.rstd);
        let coefficients = walk.coefficients(sums);
        // SAFETY: the caller's; there is no residual stream.
        unsafe {
            walk.finish(
                &parameters,
                xhat,
                g,
                (normalizer.rstd, coefficients),
                (row, |_| S::Access::nothing::<T>()),
            );
            if leaves {
                self.leave_runs(walk, (row, normalizer.rstd));
            }
        }
    }
}

impl<const V: usize> Own<V> {
    /// Where the sums of an access are, from number `k` on.
    #[inline(always)]
    fn place(&self, access: u32, k: u32) -> Shared<f32> {
        self.sums.offset(self.half + access * OF_ACCESS + k)
    }

    /// Adds up the sums of the accesses to each run, and leaves that. They were kept before a barrier.
    #[inline(always)]
    unsafe fn leave_runs<T: Data, S: Spec<Team = Block, Map = AcrossRuns>>(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        (row, rstd): (u64, f32),
    ) {
        let (args, threads, width) = (walk.args, simt::block_threads(), width::<T, S::Access>());
        let (runs, length) = (args.affine.runs, args.affine.run as u32);
        // A power of two for each run, as far as there are threads.
        let lanes = 1 << (WARP.min(threads / at_least_one(runs)) | 1).ilog2();
        let (lane, mut before) = (simt::thread_index() % lanes, 0);
        while before < runs {
            let run = before + simt::thread_index() / lanes;
            let mut sums = [0.0; 2];
            if run < runs {
                let (start, end) = (run * length, (run + 1) * length);
                let mut add = |place: Shared<f32>| {
                    // SAFETY: kept before the barrier.
                    let [g, gx] = unsafe { simt::shared_load_64(place) };
                    sums = [sums[0] + g, sums[1] + gx];
                };
                if lane == 0 && !start.is_multiple_of(width) {
                    // What lies before it is the run's before.
                    add(self.place(start / width, 2));
                }
                let mut access = start.div_ceil(width) + lane;
                while access * width < end {
                    add(self.place(access, 0));
                    access += lanes;
                }
            }
            let mut others = lanes / 2;
            while others > 0 {
                sums = sums.map(|sum| sum + simt::shuffle_xor(sum, others));
                others /= 2;
            }
            if run < runs && lane == 0 {
                // SAFETY: the caller's: a number for each run of each row.
                unsafe { args.leave_sums(row * u64::from(runs) + u64::from(run), normalized(sums, rstd)) };
            }
            before += threads / lanes;
        }
        // Whoever keeps something in this half again has passed the barrier of the row between.
        self.half = V as u32 * threads * OF_ACCESS - self.half;
    }
}
