//! Two sweeps over rows of so many columns that each thread has its own, of all rows: an access of each row at a time, some rows at once.
//!
//! Neither sweep waits for anyone. What the first one leaves for each row is known before the second one starts, and that one has the
//! gradients of its columns in registers. Parameters are read once a sweep. The second sweep goes over its columns in the opposite order; of rows that
//! are many times what the last-level cache holds that saves little.

use isonorm_math::{BackwardCoefficients, Normalizer, Real, normalize};

pub use super::Args;
use super::share::Numbers;
use super::{FIRST, HEAD_BYTES};
use crate::rows::access::{Access, Data, width};
use crate::rows::by_column::ByColumn;
use crate::rows::epilogue::Plain;
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::OfType;
use crate::rows::statistics::{Op, Statistics};
use crate::simt::{self, Shared, WARP};
use crate::warp;

/// Rows that a thread has on their way at once.
const AT_ONCE: usize = 2;

/// Rows whose sums shared memory has room for: a multiple of those at once.
const ROWS: u32 = 64;

/// What is kept of a row: what normalizes it, and the means over it.
const KEPT: u32 = 4;

/// Bytes of shared memory of a block of `threads` threads: what is kept of each row, and two sums of each for each warp.
pub const fn shared_bytes(threads: u32) -> u32 {
    HEAD_BYTES + ROWS * (KEPT + threads / WARP * 2) * size_of::<f32>() as u32
}

/// Makes one sweep. For a grid of as many blocks as have [`part`](Args::part) columns of the rows each. The second sweep needs the sums of rows, `[rows]`, and
/// leaves gradients, in the parameters' type, at [`dweight`](Args::dweight) and [`dbias`](Args::dbias).
///
/// # Safety
///
/// As for [`two_sweeps`](super::two_sweeps), with blocks of whole warps.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn down_columns<T: Data, S: Spec<Map = ByColumn, Epilogue = Plain>, const V: usize>(args: &Args<T>) {
    const { assert!(V == 1) };
    let start = (u64::from(simt::block_index()) * args.part).min(args.columns);
    let part = Part {
        args,
        start,
        len: (args.columns - start).min(args.part) as u32,
    };
    // SAFETY: the caller's.
    unsafe {
        match args.sweeps {
            FIRST => part.sum::<S>(),
            _ => part.write::<S>(),
        }
    }
}

/// A block's columns.
struct Part<'a, T> {
    args: &'a Args<T>,
    start: u64,
    len: u32,
}

/// What a thread has of some rows, as it came.
struct Loaded<T: Data, A: Access> {
    x: [A::Raw<T>; AT_ONCE],
    dy: [A::Raw<T>; AT_ONCE],
}

impl<T: Data> Part<'_, T> {
    /// Columns that the block has an access of at a time.
    #[inline(always)]
    fn strip<S: Spec>() -> u32 {
        simt::block_threads() * width::<T, S::Access>()
    }

    /// The thread's columns of a strip: none beyond the part.
    #[inline(always)]
    fn own<S: Spec>(&self, strip: u32) -> Option<u64> {
        let at = strip + simt::thread_index() * width::<T, S::Access>();
        (at < self.len).then(|| self.start + u64::from(at))
    }

    #[inline(always)]
    unsafe fn weight<S: Spec<Map = ByColumn>>(&self, column: u64) -> Numbers<T, S> {
        let affine = &self.args.affine;
        // SAFETY: the caller's; the rows have these columns.
        unsafe {
            match affine.is_narrow::<T>() {
                true => ByColumn::weight::<T, S::Access, OfType<true>>(affine, column),
                false => ByColumn::weight::<T, S::Access, OfType<false>>(affine, column),
            }
        }
    }

    /// Where what is kept of a row is, of those that are.
    #[inline(always)]
    fn kept(row: u32) -> Shared<f32> {
        Shared::at(HEAD_BYTES).offset(row * KEPT)
    }

    /// Keeps what is known of some rows: all threads would ask for it, of the same few places of the last-level cache. Of rows that are at once with
    /// the last one, zeros. Called by all of the block.
    #[inline(always)]
    unsafe fn keep<S: Spec>(&self, first_row: u64, rows: u32) {
        let args = self.args;
        simt::block_barrier();
        let own = simt::thread_index();
        if own < rows.next_multiple_of(AT_ONCE as u32) {
            let row = (first_row + u64::from(own)) as usize;
            let (place, count) = (Self::kept(own), args.columns as f32);
            // SAFETY: the caller's: a number for each row, or null.
            let of = |base: *const f32| unsafe {
                match base.is_null() || own >= rows {
                    true => 0.0,
                    false => f32::load(base.wrapping_add(row)),
                }
            };
            // These the first sweep is there for.
            let (of_g, of_gx) = match args.sweeps {
                FIRST => (0.0, 0.0),
                _ => (of(args.sums_g), of(args.sums_gx)),
            };
            let mean_g = match S::Statistics::OP {
                Op::Layer => of_g / count,
                _ => 0.0,
            };
            // SAFETY: a place for each row.
            unsafe {
                simt::shared_store(place, of(args.mean));
                simt::shared_store(place.offset(1), of(args.rstd));
                simt::shared_store(place.offset(2), mean_g);
                simt::shared_store(place.offset(3), of_gx / count);
            }
        }
        simt::block_barrier();
    }

    /// What normalized a row that is kept.
    #[inline(always)]
    unsafe fn normalizer(row: u32) -> Normalizer<f32> {
        let place = Self::kept(row);
        // SAFETY: the caller's.
        let [centre, rstd] = unsafe { [simt::shared_load(place), simt::shared_load(place.offset(1))] };
        Normalizer {
            centre,
            rstd,
            offset: 0.0,
        }
    }

    /// The means over a row that is kept.
    #[inline(always)]
    unsafe fn means(row: u32) -> BackwardCoefficients<f32> {
        let place = Self::kept(row);
        // SAFETY: the caller's.
        let [mean_g, mean_gx] = unsafe { [simt::shared_load(place.offset(2)), simt::shared_load(place.offset(3))] };
        BackwardCoefficients { mean_g, mean_gx }
    }

    /// Asks for an access of each of some rows; nothing beyond the last row.
    #[inline(always)]
    unsafe fn load<S: Spec>(&self, first_row: u64, column: u64) -> Loaded<T, S::Access> {
        let args = self.args;
        let nothing = S::Access::nothing::<T>();
        let mut loaded = Loaded {
            x: [nothing; AT_ONCE],
            dy: [nothing; AT_ONCE],
        };
        unrolled::<AT_ONCE>(|i| {
            let row = first_row + i as u64;
            if row < args.rows {
                let element = (row * args.columns + column) as usize;
                // SAFETY: the caller's; the rows have these columns.
                unsafe {
                    loaded.x[i] = S::Access::load(args.x.wrapping_add(element));
                    loaded.dy[i] = S::Access::load(args.dy.wrapping_add(element));
                }
            }
        });
        loaded
    }

    /// The first sweep: the block's sums of each row, some rows after the other.
    #[inline(always)]
    unsafe fn sum<S: Spec<Map = ByColumn>>(&self) {
        let args = self.args;
        let mut first_row = 0;
        while first_row < args.rows {
            let rows = (args.rows - first_row).min(ROWS.into()) as u32;
            // SAFETY: the caller's, here and below. Each warp has places of its own.
            unsafe {
                self.keep::<S>(first_row, rows);
                self.sum_rows::<S>(first_row, rows);
                simt::block_barrier();
                let row = simt::thread_index();
                if row < rows {
                    let mut sums = [0.0; 2];
                    let mut warp = 0;
                    while warp < simt::block_threads() / WARP {
                        let place = Self::place(warp, row);
                        sums[0] += simt::shared_load(place);
                        sums[1] += simt::shared_load(place.offset(1));
                        warp += 1;
                    }
                    let place = u64::from(simt::block_index()) * args.rows + first_row + u64::from(row);
                    f32::store(args.sums_gx.wrapping_add(place as usize), sums[0]);
                    f32::store(args.sums_g.wrapping_add(place as usize), sums[1]);
                }
            }
            first_row += u64::from(rows);
        }
    }

    /// Where a warp has its sums of a row: of g · weight · x̂, and of g · weight behind it.
    #[inline(always)]
    fn place(warp: u32, row: u32) -> Shared<f32> {
        Shared::at(HEAD_BYTES).offset(ROWS * KEPT + (warp * ROWS + row) * 2)
    }

    /// The warp's sums of some rows, in shared memory.
    #[inline(always)]
    unsafe fn sum_rows<S: Spec<Map = ByColumn>>(&self, first_row: u64, rows: u32) {
        let (own_warp, mut strip) = (simt::warp_index(), 0);
        while strip < self.len {
            let column = self.own::<S>(strip);
            let weight = match column {
                // SAFETY: the caller's, here and below.
                Some(column) => unsafe { self.weight::<S>(column) },
                None => Numbers::<T, S>::splat(0.0),
            };
            let mut row = 0;
            while row < rows {
                // Opaque, for otherwise each address becomes a variable of the loop.
                row = simt::opaque(row);
                let mut sums = [[0.0; 2]; AT_ONCE];
                if let Some(column) = column {
                    // SAFETY: as above.
                    let loaded = unsafe { self.load::<S>(first_row + u64::from(row), column) };
                    unrolled::<AT_ONCE>(|i| {
                        // SAFETY: as above: kept, or zeros behind the last row.
                        let normalizer = unsafe { Self::normalizer(row + i as u32) };
                        let xhat = S::Access::unpack::<T>(loaded.x[i]).map(|x| normalizer.apply(x));
                        let wg = S::Access::unpack::<T>(loaded.dy[i]).zip(weight, |g, weight| g * weight);
                        sums[i] = [wg.dot(xhat, 0.0), wg.fold(0.0, |sum, wg| sum + wg)];
                    });
                }
                unrolled::<AT_ONCE>(|i| sums[i] = warp::sum_pair(sums[i]));
                if simt::lane() == 0 {
                    unrolled::<AT_ONCE>(|i| {
                        let place = Self::place(own_warp, row + i as u32);
                        let is_first = strip == 0;
                        // SAFETY: as above: a place of this warp's, where the first strip leaves what others add to.
                        unsafe {
                            for (place, sum) in [(place, sums[i][0]), (place.offset(1), sums[i][1])] {
                                let before = if is_first { 0.0 } else { simt::shared_load(place) };
                                simt::shared_store(place, before + sum);
                            }
                        }
                    });
                }
                row += AT_ONCE as u32;
            }
            strip += Self::strip::<S>();
        }
    }

    /// The second sweep, from the last columns to the first: dx of all rows, and the gradients of weight and bias.
    #[inline(always)]
    unsafe fn write<S: Spec<Map = ByColumn>>(&self) {
        let args = self.args;
        let mut strip = self.len.next_multiple_of(Self::strip::<S>().max(1));
        let mut is_first = true;
        while strip > 0 {
            strip -= Self::strip::<S>();
            let column = self.own::<S>(strip);
            let nothing = Numbers::<T, S>::splat(0.0);
            let weight = match column {
                // SAFETY: the caller's, here and below.
                Some(column) => unsafe { self.weight::<S>(column) },
                None => nothing,
            };
            let (mut of_gx, mut of_g) = (nothing, nothing);
            let mut first_row = 0;
            while first_row < args.rows {
                let rows = (args.rows - first_row).min(ROWS.into()) as u32;
                // SAFETY: as above.
                unsafe {
                    // Few rows are kept for all strips.
                    if is_first || args.rows > ROWS.into() {
                        self.keep::<S>(first_row, rows);
                    }
                    if let Some(column) = column {
                        [of_gx, of_g] = self.write_rows::<S>((first_row, rows), column, weight, [of_gx, of_g]);
                    }
                }
                first_row += u64::from(rows);
            }
            if let Some(column) = column {
                // SAFETY: as above.
                unsafe { self.leave_gradients::<S>(column, [of_gx, of_g]) };
            }
            is_first = false;
        }
    }

    /// dx of some rows in the thread's columns; what these add to the gradients is added to the sums.
    #[inline(always)]
    unsafe fn write_rows<S: Spec<Map = ByColumn>>(
        &self,
        (first_row, rows): (u64, u32),
        column: u64,
        weight: Numbers<T, S>,
        [mut of_gx, mut of_g]: [Numbers<T, S>; 2],
    ) -> [Numbers<T, S>; 2] {
        let args = self.args;
        let mut row = 0;
        while row < rows {
            // Opaque, for otherwise each address becomes a variable of the loop.
            row = simt::opaque(row);
            // SAFETY: the caller's, here and below.
            let loaded = unsafe { self.load::<S>(first_row + u64::from(row), column) };
            unrolled::<AT_ONCE>(|i| {
                let row = row + i as u32;
                if row < rows {
                    // SAFETY: as above: kept.
                    let normalizer = unsafe { Self::normalizer(row) };
                    let xhat = S::Access::unpack::<T>(loaded.x[i]).map(|x| normalizer.apply(x));
                    let g = S::Access::unpack::<T>(loaded.dy[i]);
                    of_gx = of_gx.zip3(g, xhat, |sum, g, xhat| Real::mul_add(g, xhat, sum));
                    of_g = of_g.zip(g, |sum, g| sum + g);
                    if !args.dx.is_null() {
                        // SAFETY: as above; each access belongs to one thread.
                        unsafe {
                            let means = Self::means(row);
                            let dx = g.zip3(weight, xhat, |g, weight, xhat| {
                                normalize::input_gradient(g * weight, xhat, normalizer.rstd, means)
                            });
                            let element = (first_row + u64::from(row)) * args.columns + column;
                            self.leave::<S>(element as usize, dx, g);
                        }
                    }
                }
            });
            row += AT_ONCE as u32;
        }
        [of_gx, of_g]
    }

    /// Writes gradients, in the parameters' type.
    #[inline(always)]
    unsafe fn leave_gradients<S: Spec>(&self, column: u64, [of_gx, of_g]: [Numbers<T, S>; 2]) {
        let args = self.args;
        for (base, sums) in [(args.dweight, of_gx), (args.dbias, of_g)] {
            // SAFETY: the caller's: a gradient for each column.
            unsafe {
                match args.affine.is_narrow::<T>() {
                    _ if base.is_null() => {}
                    true => S::Access::store(
                        base.cast::<T>().wrapping_add(column as usize),
                        S::Access::pack::<T>(sums),
                    ),
                    false => sums.store(base.wrapping_add(column as usize)),
                }
            }
        }
    }

    /// dx, with what is added to it, and dresidual: the latter last, as it may be where dx is.
    #[inline(always)]
    unsafe fn leave<S: Spec>(&self, element: usize, mut dx: Numbers<T, S>, g: Numbers<T, S>) {
        let args = self.args;
        // SAFETY: the caller's.
        unsafe {
            if !args.dstream.is_null() {
                let more = S::Access::load(args.dstream.wrapping_add(element));
                dx = dx.zip(S::Access::unpack::<T>(more), |dx, more| dx + more);
            }
            S::Access::store(args.dx.wrapping_add(element), S::Access::pack::<T>(dx));
            if !args.dresidual.is_null() {
                S::Access::store(args.dresidual.wrapping_add(element), S::Access::pack::<T>(g));
            }
        }
    }
}
