//! The backward pass over few rows: some blocks compute the gradients of weight and bias, the others dx, and neither waits for the other.
//!
//! Sums over rows that the blocks of a row leave take a second kernel to be added up, which costs more than few rows themselves. Here
//! a block has a strip of columns instead, and reads x and dy of all rows again: from the last-level cache, where the others bring them.
//!
//! ```text
//! dweight = Σ dy · x̂        dbias = Σ dy
//! ```

use isonorm_math::{Normalizer, Real};

pub use super::Args;
use super::held::{Loaded, Walk};
use super::joined::Joined;
#[cfg(not(target_arch = "nvptx64"))]
use super::sums::bytes as sums_bytes;
use super::sums::{Numbers, Sums};
use super::{ParametersOf, Parts, Work, normalizer};
use crate::rows::access::{Access, Data, width};
use crate::rows::by_column::ByColumn;
use crate::rows::epilogue::Plain;
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{Parameters, at_least_one};
use crate::rows::statistics::{Op, Statistics};
use crate::rows::team::{Owner, Owns, Team};
use crate::simt::{self, Shared};

/// Computes the gradients of the rows. For a grid of more blocks than [`column_blocks`](Args::column_blocks), which come first: they take
/// longest. Where clusters have rows, they are whole clusters, too.
///
/// # Safety
///
/// As for [`backward`](super::backward); dx is where nothing else is, and behind the team's shared memory there is room for two numbers of
/// each column of a strip, for each thread that has it.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn apart<T: Data, S: Spec<Team: Team, Map = ByColumn, Epilogue = Plain>, const V: usize>(args: &Args<T>) {
    // SAFETY: the caller's, here and below.
    unsafe {
        if simt::block_index() < args.column_blocks {
            return match rows_at_once(V as u32) {
                8 => columns::<T, S, 8>(args),
                _ => columns::<T, S, 4>(args),
            };
        }
        if args.dx.is_null() {
            return;
        }
        let mut team = S::Team::new(args.peers());
        let walk = Walk::<T, S, V>::new(args, &team);
        let mut rows = Apart::<T, S, V> {
            parameters: ParametersOf::<T, S, V>::new(&args.affine, walk.span, false),
            dstream: [S::Access::nothing::<T>(); V],
        };
        let blocks = u64::from(args.column_blocks);
        let others = match S::Team::OWNER {
            Owner::Blocks => blocks / u64::from(at_least_one(simt::cluster_blocks()).get()),
            _ => blocks * u64::from(simt::block_threads() / at_least_one(team.threads())),
        };
        let (first_row, step) = (team.first_row() - others, team.row_step() - others);
        walk.rows_from((first_row, step), &mut team, &mut rows);
    }
}

/// Rows of a strip that a thread has on their way, in a kernel whose threads have so many accesses to a row: as registers allow.
#[inline(always)]
pub const fn rows_at_once(accesses: u32) -> u32 {
    if accesses < 8 { 4 } else { 8 }
}

/// Bytes of shared memory of a block of `threads` threads: two numbers of each column that a thread has.
#[cfg(not(target_arch = "nvptx64"))]
pub(in crate::rows) const fn bytes(threads: u32, access_elements: u32) -> u32 {
    threads * sums_bytes(2, access_elements)
}

/// dx, without the sums over rows.
struct Apart<T: Data, S: Spec<Team: Team>, const V: usize> {
    parameters: ParametersOf<T, S, V>,
    dstream: Parts<T, S, V>,
}

impl<T: Data, S: Spec<Team: Team, Map = ByColumn, Epilogue = Plain>, const V: usize> Work<T, S, V> for Apart<T, S, V> {
    #[inline(always)]
    unsafe fn fetch(&mut self, walk: &Walk<'_, T, S, V>, row: u64) {
        if Walk::<T, S, V>::STREAM_AHEAD {
            // SAFETY: the caller's.
            self.dstream = unsafe { walk.dstream(row) };
        }
    }

    #[inline(always)]
    unsafe fn row(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        team: &mut S::Team,
        (row, loaded, normalizer): (u64, &Loaded<T, S::Access, V>, Normalizer<f32>),
    ) {
        let parameters = &self.parameters;
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        let g = |v: usize| S::Access::unpack::<T>(loaded.dy[v]);
        let (mut of_g, mut of_gx) = (0.0, 0.0);
        unrolled::<V>(|v| {
            if walk.has(v) {
                // SAFETY: the caller's.
                let weight = unsafe { walk.weight(parameters, v) };
                let wg = g(v).zip(weight, |g, weight| g * weight);
                of_g = wg.fold(of_g, |sum, wg| sum + wg);
                of_gx = wg.dot(xhat(v), of_gx);
            }
        });
        let coefficients = walk.coefficients(team.sum_pair([of_g, of_gx]));
        let dstream = |v: usize| match Walk::<T, S, V>::STREAM_AHEAD {
            true => self.dstream[v],
            // SAFETY: the caller's.
            false => unsafe { walk.part_of_dstream(row, v) },
        };
        if row < walk.args.rows {
            // SAFETY: the caller's.
            unsafe { walk.finish(parameters, xhat, g, (normalizer.rstd, coefficients), (row, dstream)) };
        }
    }
}

/// The gradients of weight and bias: a strip of columns after the other, by threads that have so many rows on their way.
#[inline(always)]
unsafe fn columns<T: Data, S: Spec<Team: Team, Map = ByColumn, Epilogue = Plain>, const AT_ONCE: usize>(
    args: &Args<T>,
) {
    if args.dweight.is_null() && args.dbias.is_null() {
        return;
    }
    let lanes = at_least_one(args.column_lanes);
    let (lane, slot) = (simt::thread_index() % lanes, simt::thread_index() / lanes);
    let slots = simt::block_threads() / lanes;
    let (width, columns) = (width::<T, S::Access>(), args.columns as u32);
    let strip = lanes.get() * width;
    let mut first = simt::block_index() * strip;
    while first < columns {
        let own = first + lane * width;
        let mut sums = Sums::<Numbers<T, S>, 1>::zero();
        // Where strips are wider than a warp, some threads may be left over.
        if own < columns && (!is_wide::<S>() || slot < slots) {
            // SAFETY: the caller's; the rows have these columns.
            sums = unsafe { over_rows::<T, S, AT_ONCE>(args, own, (slot, slots)) };
        }
        // SAFETY: the caller's.
        unsafe { leave::<T, S>(args, &sums, (first, columns)) };
        first += args.column_blocks * strip;
    }
}

/// The thread's sums of g · x̂ and of g: every so many rows, in order.
#[inline(always)]
unsafe fn over_rows<T: Data, S: Spec<Team: Team>, const AT_ONCE: usize>(
    args: &Args<T>,
    column: u32,
    (slot, slots): (u32, u32),
) -> Sums<Numbers<T, S>, 1> {
    let mut sums = Sums::<Numbers<T, S>, 1>::zero();
    let (mut row, step) = (u64::from(slot), u64::from(slots));
    while row < args.rows {
        // All on their way at once. Opaque, for otherwise each address becomes a variable of the loop.
        row = simt::opaque_64(row);
        let nothing = S::Access::nothing::<T>();
        let (mut x, mut dy) = ([nothing; AT_ONCE], [nothing; AT_ONCE]);
        let mut normalizers = [Normalizer::default(); AT_ONCE];
        unrolled::<AT_ONCE>(|i| {
            let row = row + i as u64 * step;
            if row < args.rows {
                let place =
                    |tensor: *const T, stride: u64| tensor.wrapping_add((row * stride) as usize + column as usize);
                // SAFETY: the caller's.
                unsafe {
                    x[i] = S::Access::load(place(args.x, args.x_stride));
                    dy[i] = S::Access::load(place(args.dy, args.dy_stride));
                    normalizers[i] = normalizer::<T, S>(args, row, 0);
                }
            }
        });
        unrolled::<AT_ONCE>(|i| {
            let mut normalizer = normalizers[i];
            if S::Statistics::OP == Op::Rms {
                // Opaque, for otherwise x̂ is computed where x is loaded, and each row waited for before the next one is asked for.
                normalizer.rstd = f32::from_bits(simt::opaque(normalizer.rstd.to_bits()));
            }
            let g = S::Access::unpack::<T>(dy[i]);
            let xhat = S::Access::unpack::<T>(x[i]).map(|x| normalizer.apply(x));
            sums.weight[0] = sums.weight[0].zip3(g, xhat, |sum, g, xhat| Real::mul_add(g, xhat, sum));
            sums.bias[0] = sums.bias[0].zip(g, |sum, g| sum + g);
        });
        row += AT_ONCE as u64 * step;
    }
    sums
}

/// Whether strips may be wider than a warp: where clusters have rows, which are then few.
#[inline(always)]
const fn is_wide<S: Spec<Team: Team>>() -> bool {
    matches!(<S::Team as Owns>::OWNER, Owner::Blocks)
}

/// Adds up what the threads of a strip have, in a fixed order, and writes the gradients of its columns.
#[inline(always)]
unsafe fn leave<T: Data, S: Spec<Team: Team>>(
    args: &Args<T>,
    sums: &Sums<Numbers<T, S>, 1>,
    (first, columns): (u32, u32),
) {
    let (lanes, width) = (at_least_one(args.column_lanes), Numbers::<T, S>::LANES);
    let joined = Joined {
        from: Shared::at(S::Team::SHARED_BYTES),
        lanes: lanes.get(),
        slots: simt::block_threads() / lanes,
    };
    // SAFETY: room for two numbers of each column for each thread.
    unsafe {
        joined.keep(0, sums.weight[0]);
        joined.keep(1, sums.bias[0]);
    }
    simt::block_barrier();
    // SAFETY: kept before the barrier.
    unsafe {
        joined.add_up::<Numbers<T, S>>(2, |(of_bias, lane), number, sums| {
            let base = if of_bias == 0 { args.dweight } else { args.dbias };
            sums.fold(first + lane * width + number, |column, sum| {
                if column < columns && !base.is_null() {
                    // SAFETY: the caller's: a number for each column, in the parameters' type.
                    args.leave_gradient(base, u64::from(column), sum);
                }
                column + 1
            });
        });
    }
    simt::block_barrier();
}
