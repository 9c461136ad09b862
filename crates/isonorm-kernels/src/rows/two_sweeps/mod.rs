//! The backward pass over rows of any length: one sweep for the sums, and one for the results.
//!
//! ```text
//! g  = dy · act′(z)                         z = x̂ · weight + bias + residual
//! dx = rstd · (g · weight − mean(g · weight) − x̂ · mean(g · weight · x̂))     dresidual = g
//! ```
//!
//! A row is `runs` runs of columns, each with a weight and bias of its own ([`ByRun`]), or one run, whose columns have them
//! ([`ByColumn`]). A block has some whole runs of a row at a time, or a part of one; a part of one row, or some rows. A warp has a
//! stretch of one run, or shares it with others. A block leaves its sums of g·x̂ and g over a run in a place of its own, and all places
//! of a row are added up in a fixed order by whoever needs them. Blocks that share a row wait
//! for each other once a row.
//!
//! What a block has of the next row is copied to shared memory meanwhile, past the registers. Each thread copies what it uses
//! itself, in both sweeps; what shared memory does not hold is read from global memory, twice.
//!
//! By run, the places are what the gradients of weight and bias are added up from ([`gather`](super::gather)). By column, the
//! second sweep adds them up: a block has the same columns of each of its rows. Shared memory holds these sums, and global memory
//! those of tiles that it does not hold.
//!
//! With given statistics nothing has to be known beforehand, and the first sweep does everything. Where they depend on x nevertheless, as those
//! of several ranks do, the means are given, too.
//!
//! [`ByRun`]: super::parameters::ByRun
//! [`ByColumn`]: super::by_column::ByColumn

mod columns;
pub mod down_columns;
mod exchange;
mod share;

use isonorm_math::{BackwardCoefficients, Normalizer, normalize};

use self::share::{Loaded, Numbers, Stretch, Walk};
use super::access::{Access, Data};
use super::epilogue::{Class, Epilogue, Told};
use super::forward::Spec;
use super::lanes::{Lanes, unrolled};
use super::parameters::{Affine, OfColumn, OfType, at_least_one};
use super::statistics::{Op, Statistics, given};
use crate::simt;
use crate::warp;

/// What a kernel is told at launch. Rows follow each other without gaps; null pointers leave a part out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// `[rows, columns]`: what was normalized.
    pub x: *const T,
    /// `[rows, columns]`
    pub dy: *const T,
    /// `[rows, columns]`, what was added before the activation; or null.
    pub residual: *const T,
    /// By column: `[rows, columns]`, the gradient of the residual stream, added to dx; or null.
    pub dstream: *const T,
    /// `[rows, columns]`; or null, with no `dresidual` either. May be any of the inputs.
    pub dx: *mut T,
    /// `[rows, columns]`; or null. May be any of the inputs but the one that dx is; or where dx is, which is lost then.
    pub dresidual: *mut T,
    /// Weight and bias.
    pub affine: Affine,
    /// `[sets]`, in the parameters' type: the mean, where statistics are given.
    pub given_mean: *const u8,
    /// `[sets]`, in the parameters' type: the variance, where statistics are given.
    pub given_variance: *const u8,
    /// `[rows]`, as the forward pass saved it; or null for 0. Where statistics are given: `[sets]`, the mean of g that is taken off dx; or null
    /// for 0.
    pub mean: *const f32,
    /// `[rows]`, as the forward pass saved it. Where statistics are given: `[sets]`, the mean of g·x̂; null with the mean of g.
    pub rstd: *const f32,
    /// `[parts, rows, runs]`, where sums of g·x̂ are left (by column, of g·x̂ times the weight, and `[rows, parts]` if one launch makes
    /// both sweeps); or null, if statistics are given.
    pub sums_gx: *mut f32,
    /// The same of g.
    pub sums_g: *mut f32,
    /// By column: `[teams, columns]`, where each team's share of the weight's gradient goes; or null. With [`down_columns`](mod@down_columns) the
    /// gradient itself, in the parameters' type.
    pub dweight: *mut f32,
    /// The same of the bias.
    pub dbias: *mut f32,
    /// `[rows]`, 0 before the launch, where blocks share rows: how many have summed over theirs.
    pub arrived: *mut u32,
    /// How many rows.
    pub rows: u64,
    /// Elements of a row: a multiple of `run`.
    pub columns: u64,
    /// Elements of a run: all columns, where parameters are by column.
    pub run: u64,
    /// Elements of a run that a block has: below 2³¹, a multiple of an access.
    pub part: u64,
    /// Blocks that share a run.
    pub parts: u32,
    /// Sums over a run that the second sweep adds up: `parts` of the first one, or 1 where these have been added up since.
    pub sum_parts: u32,
    /// Runs of a row that a block has at a time; 1 where blocks share one.
    pub runs_at_once: u32,
    /// Rows that a block has at a time; 1 where blocks share one, and by column.
    pub rows_at_once: u32,
    /// Warps that share a stretch of a run; by column, all of a block. There are as many for each of the runs that a block has.
    pub warps: u32,
    /// Tiles of a warp that are kept in shared memory, see [`tile_bytes`]; by column, with their sums.
    pub kept: u32,
    /// Which sweeps are made: [`BOTH`], or one, where more blocks share a row than run at the same time.
    pub sweeps: u32,
    /// Added to the variance that is given.
    pub eps: f32,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
}

/// Bytes of shared memory for the sums of the warps, before the tiles that are kept.
pub const HEAD_BYTES: u32 = 256;

/// The sweeps that a launch makes.
pub const BOTH: u32 = 0;
/// The first one alone.
pub const FIRST: u32 = 1;
/// The second one alone, after a launch of the first one.
pub const SECOND: u32 = 2;

/// Bytes of shared memory that a tile takes for each thread: of `accesses` of `access_bytes`, for each tensor and twice, as the next
/// row is on its way; and two sums for each element, where there are gradients by column.
pub const fn tile_bytes(accesses: u32, access_bytes: u32, access_elements: u32, class: Class, has_sums: bool) -> u32 {
    let tensors = class.tensors();
    let sums = if has_sums { 2 * access_elements * 4 } else { 0 };
    accesses * (2 * tensors * access_bytes + sums)
}

impl<T> Args<T> {
    /// Runs of a row; 1, where parameters are by column.
    #[inline(always)]
    fn runs(&self) -> u32 {
        if self.affine.runs > 0 { self.affine.runs } else { 1 }
    }

    /// Blocks that share a row.
    #[inline(always)]
    fn blocks(&self) -> u32 {
        self.runs().div_ceil(at_least_one(self.runs_at_once).get().max(1)) * self.parts
    }
}

/// Computes the gradients of the rows. For a grid of a multiple of the blocks that share a row, all of which run at the same time
/// if these are several and make both sweeps.
///
/// # Safety
///
/// The pointers of `args` are null where that is allowed, or point to what is said there, aligned to the accesses.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn two_sweeps<T: Data, S: Spec<Map: OfColumn>, const V: usize>(args: &Args<T>) {
    let walk = Walk::<T, S, V>::new(args);
    let (mut row, mut is_first, mut buffer) = (walk.first_row(), true, 0);
    // SAFETY: the caller's.
    unsafe { walk.fetch(row, buffer) };
    while row < args.rows {
        let next = row + walk.step();
        // SAFETY: the caller's, here and below.
        unsafe { walk.fetch(next, 1 - buffer) };
        let stretch = walk.own_stretch(row);
        // Before the wait, for it takes its time, too.
        // SAFETY: as above.
        let normalizer = unsafe { walk.normalizer(stretch) };
        // All but what was just asked for.
        simt::copy_wait::<1>();
        let given = S::Statistics::OP == Op::Given;
        if given || args.sweeps != SECOND {
            // SAFETY: as above.
            unsafe {
                walk.sum(stretch, normalizer, buffer);
                if !args.sums_g.is_null() {
                    walk.exchange(row);
                }
            }
        }
        if !given && args.sweeps != FIRST {
            // SAFETY: as above; after the exchange the sums of these rows are there.
            unsafe { walk.write(stretch, normalizer, (buffer, is_first)) };
        }
        (row, is_first, buffer) = (next, false, 1 - buffer);
    }
    simt::copy_wait::<0>();
    if args.sweeps != FIRST {
        // SAFETY: as above.
        unsafe { walk.leave(!is_first) };
    }
}

impl<T: Data, S: Spec<Map: OfColumn>, const V: usize> Walk<'_, T, S, V> {
    /// Weight and bias from a column on.
    #[inline(always)]
    unsafe fn parameters(&self, set: u32, column: u64) -> [Numbers<T, S>; 2] {
        let affine = &self.args.affine;
        // SAFETY: the caller's.
        unsafe {
            if affine.is_narrow::<T>() {
                S::Map::at::<T, S::Access, OfType<true>>(affine, self.lookup, set, column)
            } else {
                S::Map::at::<T, S::Access, OfType<false>>(affine, self.lookup, set, column)
            }
        }
    }

    /// What normalized a row.
    #[inline(always)]
    unsafe fn normalizer(&self, stretch: Option<Stretch>) -> Normalizer<f32> {
        let args = self.args;
        let Some(stretch) = stretch else {
            return Normalizer::default();
        };
        // SAFETY: the caller's: a number for each set, or for each row.
        unsafe {
            if S::Statistics::OP == Op::Given {
                let (mean, variance) = (args.given_mean, args.given_variance);
                return given::<T>(&args.affine, [mean, variance], stretch.set, args.eps).normalizer;
            }
            let row = stretch.row as usize;
            Normalizer {
                centre: if args.mean.is_null() {
                    0.0
                } else {
                    f32::load(args.mean.wrapping_add(row))
                },
                rstd: f32::load(args.rstd.wrapping_add(row)),
                offset: 0.0,
            }
        }
    }

    /// g of a tile.
    #[inline(always)]
    unsafe fn gradient(
        &self,
        stretch: Stretch,
        (at, apart): (u32, u32),
        loaded: &Loaded<T, S::Access, V>,
        normalizer: Normalizer<f32>,
        of_run: [Numbers<T, S>; 2],
    ) -> [Numbers<T, S>; V] {
        let mut g = [Numbers::<T, S>::splat(0.0); V];
        if S::Epilogue::CLASS == Class::Plain {
            unrolled::<V>(|v| g[v] = S::Access::unpack::<T>(loaded.dy[v]));
            return g;
        }
        unrolled::<V>(|v| {
            let at = at + v as u32 * apart;
            if at < stretch.len {
                // SAFETY: the caller's.
                let [weight, bias] = unsafe { self.at(stretch, of_run, at) };
                let xhat = S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
                g[v] = xhat.zip3(weight, bias, normalize::affine);
                if self.has_residual() {
                    g[v] = g[v].zip(S::Access::unpack::<T>(loaded.residual[v]), |z, residual| z + residual);
                }
            }
        });
        g = S::Epilogue::derivative::<T, _, _>(g, self.args.activation);
        unrolled::<V>(|v| g[v] = g[v].zip(S::Access::unpack::<T>(loaded.dy[v]), |slope, dy| slope * dy));
        g
    }

    /// Weight and bias of the elements from `at` on, which the stretch has: those of the run, or of the columns. What is read again
    /// wherever it is needed takes no registers in between.
    #[inline(always)]
    unsafe fn at(&self, stretch: Stretch, of_run: [Numbers<T, S>; 2], at: u32) -> [Numbers<T, S>; 2] {
        if Self::BY_COLUMN {
            // SAFETY: the caller's.
            unsafe { self.parameters(stretch.set, stretch.column + u64::from(at)) }
        } else {
            of_run
        }
    }

    /// Weight and bias of a run; by column, nothing.
    #[inline(always)]
    unsafe fn of_run(&self, stretch: Stretch) -> [Numbers<T, S>; 2] {
        if Self::BY_COLUMN {
            return [Numbers::<T, S>::splat(1.0), Numbers::<T, S>::splat(0.0)];
        }
        let affine = &self.args.affine;
        let of = |base: *const u8, otherwise: f32| {
            if base.is_null() {
                return otherwise;
            }
            // SAFETY: the caller's: a number for each run of each set.
            unsafe { affine.parameter::<T>(base, stretch.set * self.args.runs() + stretch.run) }
        };
        [of(affine.weight, 1.0), of(affine.bias, 0.0)].map(Numbers::<T, S>::splat)
    }

    /// With given statistics: the means that dx needs, of g times the weight of a row's set, where they are told.
    #[inline(always)]
    unsafe fn told_means(&self, stretch: Stretch) -> BackwardCoefficients<f32> {
        let args = self.args;
        if S::Statistics::OP != Op::Given || args.mean.is_null() {
            return BackwardCoefficients::default();
        }
        let (set, affine) = (stretch.set as usize, &args.affine);
        // SAFETY: the caller's: a number for each set, which has one weight.
        unsafe {
            let weight = match affine.weight.is_null() {
                true => 1.0,
                false => affine.parameter::<T>(affine.weight, stretch.set),
            };
            BackwardCoefficients {
                mean_g: weight * f32::load(args.mean.wrapping_add(set)),
                mean_gx: weight * f32::load(args.rstd.wrapping_add(set)),
            }
        }
    }

    /// The first sweep over the block's share of some rows.
    #[inline(always)]
    unsafe fn sum(&self, stretch: Option<Stretch>, normalizer: Normalizer<f32>, buffer: u32) {
        let args = self.args;
        let Some(stretch) = stretch else { return };
        let (mut at, apart, step) = self.tile();
        // SAFETY: the caller's, here and below.
        let (of_run, told) = unsafe { (self.of_run(stretch), self.told_means(stretch)) };
        let (mut of_gx, mut of_g) = (0.0, 0.0);
        let (mut tile, tiles) = (0, self.tiles(stretch));
        while tile < tiles {
            // SAFETY: as above.
            let loaded = unsafe { self.load(stretch, (at, apart), (buffer, tile)) };
            // SAFETY: as above.
            let g = unsafe { self.gradient(stretch, (at, apart), &loaded, normalizer, of_run) };
            unrolled::<V>(|v| {
                let at = at + v as u32 * apart;
                if at < stretch.len {
                    let xhat = S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
                    let wg = if Self::BY_COLUMN {
                        // SAFETY: as above.
                        let [weight, _] = unsafe { self.at(stretch, of_run, at) };
                        g[v].zip(weight, |g, weight| g * weight)
                    } else {
                        g[v]
                    };
                    of_g = wg.fold(of_g, |sum, wg| sum + wg);
                    of_gx = wg.dot(xhat, of_gx);
                }
            });
            if S::Statistics::OP == Op::Given {
                // SAFETY: as above.
                unsafe { self.store(stretch, (at, apart), &loaded, &g, of_run, (normalizer, told)) };
            }
            (at, tile) = (at + step, tile + 1);
        }
        if args.sums_g.is_null() {
            return;
        }
        let [of_gx, of_g] = warp::sum_pair([of_gx, of_g]);
        if simt::lane() == 0 {
            let place = Self::sums_of(simt::warp_index());
            // SAFETY: this place belongs to this warp, and was last read before the barrier at the end of an exchange.
            unsafe {
                simt::shared_store(place, of_gx);
                simt::shared_store(place.offset(1), of_g);
            }
        }
    }

    /// The second sweep over the block's share of some rows.
    #[inline(always)]
    unsafe fn write(&self, stretch: Option<Stretch>, normalizer: Normalizer<f32>, (buffer, is_first): (u32, bool)) {
        let Some(stretch) = stretch else { return };
        let (mut at, apart, step) = self.tile();
        // SAFETY: the caller's, here and below.
        let (means, of_run) = unsafe { (self.means(stretch), self.of_run(stretch)) };
        let (mut tile, tiles) = (0, self.tiles(stretch));
        while tile < tiles {
            // SAFETY: as above.
            unsafe {
                let loaded = self.load(stretch, (at, apart), (buffer, tile));
                let g = self.gradient(stretch, (at, apart), &loaded, normalizer, of_run);
                if self.has_sums() {
                    self.add(stretch, (at, apart), &loaded, &g, normalizer, is_first);
                }
                self.store(stretch, (at, apart), &loaded, &g, of_run, (normalizer, means));
            }
            (at, tile) = (at + step, tile + 1);
        }
    }

    /// dx and dresidual of a tile: the latter last, as it may be where dx is.
    #[inline(always)]
    unsafe fn store(
        &self,
        stretch: Stretch,
        (at, apart): (u32, u32),
        loaded: &Loaded<T, S::Access, V>,
        g: &[Numbers<T, S>; V],
        of_run: [Numbers<T, S>; 2],
        (normalizer, means): (Normalizer<f32>, BackwardCoefficients<f32>),
    ) {
        let args = self.args;
        if args.dx.is_null() {
            return;
        }
        unrolled::<V>(|v| {
            let at = at + v as u32 * apart;
            if at < stretch.len {
                let element = stretch.start as usize + at as usize;
                let xhat = S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
                // SAFETY: the caller's, here and below; each part belongs to one thread.
                unsafe {
                    let [weight, _] = self.at(stretch, of_run, at);
                    let mut dx = g[v].zip3(weight, xhat, |g, weight, xhat| {
                        normalize::input_gradient(g * weight, xhat, normalizer.rstd, means)
                    });
                    if Self::BY_COLUMN && !args.dstream.is_null() {
                        let more = S::Access::load(args.dstream.wrapping_add(element));
                        dx = dx.zip(S::Access::unpack::<T>(more), |dx, more| dx + more);
                    }
                    S::Access::store(args.dx.wrapping_add(element), S::Access::pack::<T>(dx));
                    if !args.dresidual.is_null() {
                        S::Access::store(args.dresidual.wrapping_add(element), S::Access::pack::<T>(g[v]));
                    }
                }
            }
        });
    }
}
