//! The backward pass over few rows: some blocks compute the gradients of weight and bias, the others dx, and neither waits for the other.
//!
//! Sums over rows that the blocks of a row leave take a second kernel to be added up, which costs more than few rows themselves. Here
//! a block has a strip of columns instead, and reads x and dy of all rows again: from the last-level cache, where the others bring them.
//!
//! ```text
//! dweight = Σ dy · x̂        dbias = Σ dy
//! ```

use isonorm_math::{Normalizer, Real, normalize};

pub use super::Args;
use super::Parts;
use super::held::Walk;
use super::joined::Joined;
#[cfg(not(target_arch = "nvptx64"))]
use super::sums::bytes as sums_bytes;
use super::sums::{Numbers, Sums};
use crate::rows::access::{Access, Data, width};
use crate::rows::by_column::ByColumn;
use crate::rows::epilogue::Plain;
use crate::rows::forward::{PlaceOf, Spec};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{Known, OfType, at_least_one};
use crate::rows::statistics::{Op, Statistics};
use crate::rows::team::{Owner, Owns, Team};
use crate::simt::{self, Shared};

/// Rows of a strip that are asked for without a branch for each, where there are as many.
const GROUP: usize = 4;

/// Accesses of a thread to the gradient of the residual stream that are on their way at once, where registers have no room for all of them.
const STREAM_AT_ONCE: usize = 2;

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
        if !args.dx.is_null() {
            rows::<T, S, V>(args);
        }
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

/// dx: a row after the other, of which there are hardly more than teams. Each comes when it is needed, with its mean and rstd.
#[inline(always)]
unsafe fn rows<T: Data, S: Spec<Team: Team, Map = ByColumn, Epilogue = Plain>, const V: usize>(args: &Args<T>) {
    // SAFETY: the caller's.
    let mut team = unsafe { S::Team::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let blocks = u64::from(args.column_blocks);
    let others = match S::Team::OWNER {
        Owner::Blocks => blocks / u64::from(at_least_one(simt::cluster_blocks()).get()),
        Owner::Lanes(lanes) => blocks * u64::from(simt::block_threads() / lanes),
        _ => blocks,
    };
    let (mut first_row, step) = (team.first_row() - others, team.row_step() - others);
    while first_row < args.rows {
        // Opaque, for otherwise each address becomes a variable of the loop.
        let row = simt::opaque_64(first_row);
        // SAFETY: it is the number of a row, and the team's, which is no part of a warp; the caller's.
        unsafe {
            core::hint::assert_unchecked(row < args.rows);
            row_of::<T, S, V>(&walk, &mut team, row);
        }
        first_row = row + step;
    }
}

/// A row of dx. g · weight stays in registers, for otherwise weights would be waited for twice.
#[inline(always)]
unsafe fn row_of<T: Data, S: Spec<Team: Team, Map = ByColumn, Epilogue = Plain>, const V: usize>(
    walk: &Walk<'_, T, S, V>,
    team: &mut S::Team,
    row: u64,
) {
    let args = walk.args;
    // SAFETY: the caller's, here and below.
    unsafe {
        // There is the row; said in this form, the instructions come out in the order that was measured.
        let normalizer = match row < args.rows {
            true => normalizer_of::<T, S>(args, row + u64::from(walk.zero)),
            false => Normalizer::default(),
        };
        let loaded = walk.load(row);
        let mut stream = [S::Access::nothing::<T>(); V];
        if Walk::<T, S, V>::STREAM_AHEAD {
            stream = walk.dstream(row);
        }
        let weights = Weights::<T, S, V>::new(walk);
        let mut weighted = [Numbers::<T, S>::splat(0.0); V];
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        let (mut of_g, mut of_gx) = (0.0, 0.0);
        unrolled::<V>(|v| {
            if walk.has(v) {
                weighted[v] = S::Access::unpack::<T>(loaded.dy[v]).zip(weights.at(walk, v), |g, weight| g * weight);
                of_g = weighted[v].fold(of_g, |sum, wg| sum + wg);
                of_gx = weighted[v].dot(xhat(v), of_gx);
            }
        });
        let coefficients = walk.coefficients(team.sum_pair([of_g, of_gx]));
        let dx = |v: usize| {
            let gradient = |wg, xhat| normalize::input_gradient(wg, xhat, normalizer.rstd, coefficients);
            weighted[v].zip(xhat(v), gradient)
        };
        // Most calls ask for dx alone.
        if args.dstream.is_null() && args.dresidual.is_null() {
            let [to_dx, _] = walk.results(row);
            unrolled::<V>(|v| {
                if walk.has(v) {
                    S::Access::store(to_dx.part(walk.span, v).cast_mut(), S::Access::pack::<T>(dx(v)));
                }
            });
        } else {
            with_others(walk, row, dx, stream);
        }
    }
}

/// The weights of the parts that the row has, on their way at once with the row. Of 16-bit data, whose weights have one of two types, behind one
/// branch; in `f32` there is none.
struct Weights<T: Data, S: Spec<Team: Team>, const V: usize>([Numbers<T, S>; V]);

impl<T: Data, S: Spec<Team: Team>, const V: usize> Weights<T, S, V> {
    #[inline(always)]
    unsafe fn new(walk: &Walk<'_, T, S, V>) -> Self {
        let affine = &walk.args.affine;
        // SAFETY: the caller's.
        unsafe {
            match affine.is_narrow::<T>() {
                _ if size_of::<T>() < 4 && affine.weight.is_null() => Self([Numbers::<T, S>::splat(1.0); V]),
                true => Self::of::<OfType<true>>(walk),
                false => Self::of::<OfType<false>>(walk),
            }
        }
    }

    #[inline(always)]
    unsafe fn of<K: Known>(walk: &Walk<'_, T, S, V>) -> Self {
        let mut weights = [Numbers::<T, S>::splat(1.0); V];
        unrolled::<V>(|v| {
            if Self::is_early(v) && walk.has(v) {
                // SAFETY: the caller's: the row has this part.
                weights[v] = unsafe { Self::read::<K>(walk, v) };
            }
        });
        Self(weights)
    }

    /// Whether part `v` is asked for before the row is added up. Eight of them leave no registers for the row: the assembler finds an order, but for
    /// the part that a row may not have, which would wait behind all others.
    #[inline(always)]
    fn is_early(v: usize) -> bool {
        size_of::<T>() < 4 || V < 8 || v + 1 == V
    }

    #[inline(always)]
    unsafe fn read<K: Known>(walk: &Walk<'_, T, S, V>, v: usize) -> Numbers<T, S> {
        // SAFETY: the caller's: the row has these columns.
        unsafe { ByColumn::weight::<T, S::Access, K>(&walk.args.affine, walk.span.start(v).into()) }
    }

    /// That of part `v`, which the row has.
    #[inline(always)]
    unsafe fn at(&self, walk: &Walk<'_, T, S, V>, v: usize) -> Numbers<T, S> {
        match Self::is_early(v) {
            true => self.0[v],
            // SAFETY: the caller's.
            false => unsafe { Self::read::<OfType<false>>(walk, v) },
        }
    }
}

/// dx of a row, to which the gradient of the residual stream is added where there is one, and the residual's gradient, which is dy: read again,
/// for few ask for it.
#[inline(always)]
unsafe fn with_others<T: Data, S: Spec<Team: Team>, const V: usize>(
    walk: &Walk<'_, T, S, V>,
    row: u64,
    dx: impl Fn(usize) -> Numbers<T, S>,
    mut stream: Parts<T, S, V>,
) {
    let (args, [to_dx, to_dresidual]) = (walk.args, walk.results(row));
    let dy = PlaceOf::<T, S>::new(args.dy, row, args.dy_stride);
    unrolled::<V>(|v| {
        // SAFETY: the caller's, here and below; each part belongs to one thread. dresidual is last, as it may be where dx is.
        unsafe {
            // Lanes of a warp have no registers for all of it.
            if !Walk::<T, S, V>::STREAM_AHEAD && v % STREAM_AT_ONCE == 0 && !args.dstream.is_null() {
                unrolled::<STREAM_AT_ONCE>(|i| {
                    if v + i < V && walk.has(v + i) {
                        stream[v + i] = walk.part_of_dstream(row, v + i);
                    }
                });
            }
            if walk.has(v) {
                let mut dx = dx(v);
                if !args.dstream.is_null() {
                    dx = dx.zip(S::Access::unpack::<T>(stream[v]), |dx, more| dx + more);
                }
                S::Access::store(to_dx.part(walk.span, v).cast_mut(), S::Access::pack::<T>(dx));
                if !args.dresidual.is_null() {
                    let g = S::Access::load(dy.part(walk.span, v));
                    S::Access::store(to_dresidual.part(walk.span, v).cast_mut(), g);
                }
            }
        }
    });
}

/// The gradients of weight and bias: a strip of columns after the other, by threads that have so many rows on their way.
#[inline(always)]
unsafe fn columns<T: Data, S: Spec<Team: Team, Map = ByColumn, Epilogue = Plain>, const AT_ONCE: usize>(
    args: &Args<T>,
) {
    if args.dweight.is_null() && args.dbias.is_null() {
        return;
    }
    let (lanes, threads) = (at_least_one(args.column_lanes), simt::block_threads());
    let thread = simt::thread_index();
    let (lane, slot, slots) = match is_wide::<S>() {
        true => (thread % lanes, thread / lanes, threads / lanes),
        // A power of two.
        false => {
            let shift = lanes.ilog2();
            (thread & (lanes.get() - 1), thread >> shift, threads >> shift)
        }
    };
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
        unsafe {
            match is_wide::<S>() {
                true => leave::<T, S, true>(args, &sums, (first, columns), slots),
                false => leave::<T, S, false>(args, &sums, (first, columns), slots),
            }
        }
        first += args.column_blocks * strip;
    }
}

/// Rows of a strip, as they came, and what normalized them; nothing where there is no row.
struct Several<T: Data, A: Access, const AT_ONCE: usize> {
    x: [A::Raw<T>; AT_ONCE],
    dy: [A::Raw<T>; AT_ONCE],
    normalizers: [Normalizer<f32>; AT_ONCE],
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
    let (x_step, dy_step) = (step * args.x_stride, step * args.dy_stride);
    while row < args.rows {
        // All on their way at once. Opaque, for otherwise each address becomes a variable of the loop.
        row = simt::opaque_64(row);
        let place = |tensor: *const T, stride: u64| tensor.wrapping_add((row * stride) as usize + column as usize);
        let (x, dy) = (place(args.x, args.x_stride), place(args.dy, args.dy_stride));
        let nothing = S::Access::nothing::<T>();
        let mut several = Several::<T, S::Access, AT_ONCE> {
            x: [nothing; AT_ONCE],
            dy: [nothing; AT_ONCE],
            normalizers: [Normalizer::default(); AT_ONCE],
        };
        // SAFETY: the caller's, for a row that there is.
        let mut load = |i: usize| unsafe {
            several.x[i] = S::Access::load(x.wrapping_add(i * x_step as usize));
            several.dy[i] = S::Access::load(dy.wrapping_add(i * dy_step as usize));
            several.normalizers[i] = normalizer_of::<T, S>(args, row + i as u64 * step);
        };
        let left = args.rows - row;
        unrolled::<AT_ONCE>(|first| {
            if first % GROUP != 0 {
                return;
            }
            if left > (first + GROUP - 1) as u64 * step {
                unrolled::<GROUP>(|i| load(first + i));
            } else if first == 0 || left > first as u64 * step {
                unrolled::<GROUP>(|i| {
                    if left > (first + i) as u64 * step {
                        load(first + i);
                    }
                });
            }
        });
        unrolled::<AT_ONCE>(|i| {
            let mut normalizer = several.normalizers[i];
            if S::Statistics::OP == Op::Rms {
                // Opaque, for otherwise x̂ is computed where x is loaded, and each row waited for before the next one is asked for.
                normalizer.rstd = f32::from_bits(simt::opaque(normalizer.rstd.to_bits()));
            }
            let g = S::Access::unpack::<T>(several.dy[i]);
            let xhat = S::Access::unpack::<T>(several.x[i]).map(|x| normalizer.apply(x));
            sums.weight[0] = sums.weight[0].zip3(g, xhat, |sum, g, xhat| Real::mul_add(g, xhat, sum));
            sums.bias[0] = sums.bias[0].zip(g, |sum, g| sum + g);
        });
        row += AT_ONCE as u64 * step;
    }
    sums
}

/// What normalized a row that there is. Shared with other kernels, it would make their instructions come out in another order.
#[inline(always)]
unsafe fn normalizer_of<T: Data, S: Spec>(args: &Args<T>, row: u64) -> Normalizer<f32> {
    let mut normalizer = Normalizer::default();
    // SAFETY: there is a number for each row.
    unsafe {
        normalizer.rstd = f32::load(args.rstd.wrapping_add(row as usize));
        if S::Statistics::OP != Op::Rms && !args.mean.is_null() {
            normalizer.centre = f32::load(args.mean.wrapping_add(row as usize));
        }
    }
    normalizer
}

/// Whether strips may be wider than a warp: where clusters have rows, which are then few.
#[inline(always)]
const fn is_wide<S: Spec<Team: Team>>() -> bool {
    matches!(<S::Team as Owns>::OWNER, Owner::Blocks)
}

/// Adds up what the threads of a strip have, in a fixed order, and writes the gradients of its columns.
#[inline(always)]
unsafe fn leave<T: Data, S: Spec<Team: Team>, const WIDE: bool>(
    args: &Args<T>,
    sums: &Sums<Numbers<T, S>, 1>,
    (first, columns): (u32, u32),
    slots: u32,
) {
    let width = Numbers::<T, S>::LANES;
    let joined = Joined::<WIDE> {
        from: Shared::at(S::Team::SHARED_BYTES),
        lanes: args.column_lanes,
        slots,
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
