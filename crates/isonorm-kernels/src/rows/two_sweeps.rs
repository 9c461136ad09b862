//! The backward pass over rows of any length: one sweep for the sums, and one for the results, which finds x and dy in the
//! second-level cache.
//!
//! ```text
//! g  = dy · act′(z)                         z = x̂ · weight + bias + residual
//! dx = rstd · (g · weight − mean(g · weight) − x̂ · mean(g · weight · x̂))     dresidual = g
//! ```
//!
//! A row is `runs` runs of columns, each with a weight and bias of its own ([`ByRun`]), or one run, whose columns have them
//! ([`ByColumn`]). A block has some whole runs of a row at a time, or a part of one; a part of one row, or some rows. Its warps share
//! the stretches of runs: each leaves sums of g·x̂ and g in a place of its own, and all places of a row are added up in a fixed order
//! by whoever needs them. Blocks that share a row wait for each other once a row; they sum over the next one before they write
//! this one, so that the wait is short.
//!
//! By run, the places are what the gradients of weight and bias are added up from ([`gather`](super::gather)). By column, the
//! second sweep adds them up: a block has the same columns of each of its rows. Shared memory holds these sums, and global memory those
//! of columns that are too many for it.
//!
//! With given statistics nothing has to be known beforehand, and the first sweep does everything.
//!
//! [`ByRun`]: super::parameters::ByRun
//! [`ByColumn`]: super::parameters::ByColumn

use core::marker::PhantomData;
use core::num::NonZero;

use isonorm_math::{BackwardCoefficients, Normalizer, Real, normalize};

use super::access::{Access, Data, width};
use super::epilogue::{Class, Epilogue, Told};
use super::forward::Spec;
use super::lanes::{Lanes, unrolled};
use super::parameters::{Affine, Map, Sharing, at_least_one};
use super::statistics::{Op, Statistics, given};
use crate::simt::{self, Shared, WARP};
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
    /// `[rows, columns]`; may be any of the inputs.
    pub dx: *mut T,
    /// `[rows, columns]`; or null. May be any of the inputs but that of dx.
    pub dresidual: *mut T,
    /// Weight and bias.
    pub affine: Affine,
    /// `[sets]`, in the parameters' type: the mean, where statistics are given.
    pub given_mean: *const u8,
    /// `[sets]`, in the parameters' type: the variance, where statistics are given.
    pub given_variance: *const u8,
    /// `[rows]`, as the forward pass saved it; or null for 0.
    pub mean: *const f32,
    /// `[rows]`, as the forward pass saved it.
    pub rstd: *const f32,
    /// `[places, rows, runs]`, where sums of g·x̂ are left (by column: of g·x̂ times the weight).
    pub sums_gx: *mut f32,
    /// `[places, rows, runs]`, where sums of g are left (by column: of g times the weight).
    pub sums_g: *mut f32,
    /// By column: `[teams, columns]`, where each team's share of the weight's gradient goes; or null.
    pub dweight: *mut f32,
    /// By column: `[teams, columns]`, where each team's share of the bias's gradient goes; or null.
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
    /// Runs of a row that a block has at a time; 1 where blocks share one.
    pub runs_at_once: u32,
    /// Rows that a block has at a time; 1 where blocks share one, and by column.
    pub rows_at_once: u32,
    /// Warps that share a stretch of a run: a power of two; by column, all of a block.
    pub warps: u32,
    /// By column: tiles whose sums are in shared memory, where each takes [`tile_bytes`].
    pub kept: u32,
    /// Added to the variance that is given.
    pub eps: f32,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
}

/// Bytes of shared memory for the sums of a tile: two numbers for each element.
pub const fn tile_bytes(tile_elements: u32) -> u32 {
    tile_elements * 2 * size_of::<f32>() as u32
}

impl<T> Args<T> {
    /// Runs of a row.
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
/// if these are several.
///
/// # Safety
///
/// The pointers of `args` are null where that is allowed, or point to what is said there, aligned to the accesses.
#[inline(always)]
pub unsafe fn two_sweeps<T: Data, S: Spec, const V: usize>(args: &Args<T>) {
    let walk = Walk::<T, S, V>::new(args);
    let mut row = walk.first_row();
    if S::Statistics::OP == Op::Given {
        while row < args.rows {
            // SAFETY: the caller's.
            unsafe { walk.sum(row) };
            row += walk.step();
        }
        return;
    }
    // The rows that are summed over, and wait to be written.
    let (mut summed, mut pending, mut is_first) = (row, false, true);
    loop {
        let more = row < args.rows;
        if more {
            // SAFETY: the caller's.
            unsafe { walk.sum(row) };
        }
        simt::block_barrier();
        if walk.blocks > 1 {
            if simt::thread_index() == 0 {
                // SAFETY: the caller's: a counter for each row.
                unsafe {
                    if more {
                        simt::counter_add(args.arrived.wrapping_add(row as usize), 1);
                    }
                    if pending {
                        simt::counter_wait(args.arrived.wrapping_add(summed as usize), walk.blocks);
                    }
                }
            }
            simt::block_barrier();
        }
        if pending {
            // SAFETY: the caller's; the sums of these rows are there.
            unsafe { walk.write(summed, is_first) };
            is_first = false;
        }
        if !more {
            break;
        }
        (summed, pending) = (row, true);
        row += walk.step();
    }
    // SAFETY: the caller's.
    unsafe { walk.leave(!is_first) };
}

/// What a thread has of a tile, as it came.
struct Loaded<T: Data, A: Access, const V: usize> {
    x: [A::Raw<T>; V],
    dy: [A::Raw<T>; V],
    residual: [A::Raw<T>; V],
}

/// A stretch of a run, or all of it.
#[derive(Clone, Copy)]
struct Stretch {
    row: u64,
    set: u32,
    /// The run's number in its row.
    run: u32,
    /// The column that it starts at, and the element of the tensor.
    column: u64,
    start: u64,
    len: u32,
}

/// A block's way over its share of the rows.
struct Walk<'a, T: Data, S: Spec, const V: usize> {
    args: &'a Args<T>,
    /// Blocks that share a row, which of them this is, and of which team.
    blocks: u32,
    part: u32,
    first_run: u32,
    team: u32,
    teams: u32,
    lookup: <S::Map as Map>::Lookup,
    of: PhantomData<S>,
}

type Numbers<T, S> = <<S as Spec>::Access as Access>::Numbers<T>;

impl<'a, T: Data, S: Spec, const V: usize> Walk<'a, T, S, V> {
    const BY_COLUMN: bool = matches!(S::Map::SHARING, Sharing::ByColumn);

    #[inline(always)]
    fn new(args: &'a Args<T>) -> Self {
        let blocks = at_least_one(args.blocks());
        let parts = at_least_one(args.parts);
        let rank = simt::block_index() % blocks;
        Self {
            args,
            blocks: blocks.get(),
            part: rank % parts,
            first_run: rank / parts * args.runs_at_once,
            team: simt::block_index() / blocks,
            teams: simt::grid_blocks() / blocks,
            lookup: S::Map::lookup(&args.affine),
            of: PhantomData,
        }
    }

    #[inline(always)]
    fn first_row(&self) -> u64 {
        u64::from(self.team) * u64::from(self.args.rows_at_once)
    }

    #[inline(always)]
    fn step(&self) -> u64 {
        u64::from(self.teams) * u64::from(self.args.rows_at_once)
    }

    /// Warps that share a stretch: their number, and which of them this one is.
    #[inline(always)]
    fn warps(&self) -> (NonZero<u32>, u32) {
        let warps = at_least_one(self.args.warps);
        (warps, simt::warp_index() % warps)
    }

    /// The warp's stretches from the rows after `first_row`, by number: the first, how far the next is, and how many there are.
    #[inline(always)]
    fn stretches(&self) -> (u32, u32, u32) {
        let (warps, _) = self.warps();
        let all = simt::block_threads() / WARP / warps;
        let count = self.args.rows_at_once * self.args.runs_at_once;
        (simt::warp_index() / warps, if all > 0 { all } else { 1 }, count)
    }

    /// A stretch; none beyond the rows, or the runs.
    #[inline(always)]
    fn stretch(&self, first_row: u64, number: u32) -> Option<Stretch> {
        let args = self.args;
        let at_once = at_least_one(args.runs_at_once);
        let row = first_row + u64::from(number / at_once);
        let run = self.first_run + number % at_once;
        if row >= args.rows || run >= args.runs() {
            return None;
        }
        let set = match u32::try_from(row) {
            Ok(row) => row % at_least_one(args.affine.sets),
            Err(_) => (row % NonZero::<u64>::from(at_least_one(args.affine.sets))) as u32,
        };
        let start = (u64::from(self.part) * args.part).min(args.run);
        let column = u64::from(run) * args.run + start;
        Some(Stretch {
            row,
            set,
            run,
            column,
            start: row * args.columns + column,
            len: (args.run - start).min(args.part) as u32,
        })
    }

    /// Whether z is needed, and a residual is part of it.
    #[inline(always)]
    fn has_residual(&self) -> bool {
        S::Epilogue::CLASS != Class::Plain && !self.args.residual.is_null()
    }

    /// The tiles of a stretch: where the thread's first access of one starts, how far its accesses lie apart, and how far tiles.
    #[inline(always)]
    fn tile(&self) -> (u32, u32, u32) {
        let (warps, own) = self.warps();
        let apart = warps.get() * WARP * width::<T, S::Access>();
        let first = (own * WARP + simt::lane()) * width::<T, S::Access>();
        (first, apart, apart * V as u32)
    }

    #[inline(always)]
    unsafe fn load(&self, stretch: Stretch, at: u32, apart: u32) -> Loaded<T, S::Access, V> {
        let args = self.args;
        let nothing = S::Access::nothing::<T>();
        let mut loaded = Loaded {
            x: [nothing; V],
            dy: [nothing; V],
            residual: [nothing; V],
        };
        let start = stretch.start as usize + at as usize;
        unrolled::<V>(|v| {
            if at + v as u32 * apart < stretch.len {
                let element = start + v * apart as usize;
                // SAFETY: the stretch has these elements, here and below.
                unsafe {
                    loaded.x[v] = S::Access::load(args.x.wrapping_add(element));
                    loaded.dy[v] = S::Access::load(args.dy.wrapping_add(element));
                    if self.has_residual() {
                        loaded.residual[v] = S::Access::load(args.residual.wrapping_add(element));
                    }
                }
            }
        });
        loaded
    }

    /// Weight and bias from a column on.
    #[inline(always)]
    unsafe fn parameters(&self, set: u32, column: u64) -> [Numbers<T, S>; 2] {
        let affine = &self.args.affine;
        // SAFETY: the caller's.
        unsafe {
            if affine.is_narrow::<T>() {
                S::Map::at::<T, S::Access, true>(affine, self.lookup, set, column)
            } else {
                S::Map::at::<T, S::Access, false>(affine, self.lookup, set, column)
            }
        }
    }

    /// What normalized a row.
    #[inline(always)]
    unsafe fn normalizer(&self, stretch: Stretch) -> Normalizer<f32> {
        let args = self.args;
        // SAFETY: the caller's: a number for each set, or for each row.
        unsafe {
            if S::Statistics::OP == Op::Given {
                let (mean, variance) = (args.given_mean, args.given_variance);
                return given::<T>(&args.affine, [mean, variance], stretch.set, args.eps).1;
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
        g = S::Epilogue::derivative(g, self.args.activation);
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
        // SAFETY: the caller's.
        unsafe { self.parameters(stretch.set, stretch.column) }
    }

    /// The first sweep over the block's share of some rows.
    #[inline(always)]
    unsafe fn sum(&self, first_row: u64) {
        let args = self.args;
        let (warps, own) = self.warps();
        let (first, apart, step) = self.tile();
        let (mut number, next, count) = self.stretches();
        while number < count {
            let found = self.stretch(first_row, number);
            number += next;
            let Some(stretch) = found else { continue };
            // SAFETY: the caller's, here and below.
            let (normalizer, of_run) = unsafe { (self.normalizer(stretch), self.of_run(stretch)) };
            let (mut of_gx, mut of_g) = (0.0, 0.0);
            let mut at = first;
            while at < stretch.len {
                // SAFETY: as above.
                let loaded = unsafe { self.load(stretch, at, apart) };
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
                        of_gx = wg
                            .zip(xhat, |wg, xhat| wg * xhat)
                            .fold(of_gx, |sum, product| sum + product);
                    }
                });
                if S::Statistics::OP == Op::Given {
                    let none = BackwardCoefficients {
                        mean_g: 0.0,
                        mean_gx: 0.0,
                    };
                    // SAFETY: as above.
                    unsafe { self.store(stretch, (at, apart), &loaded, &g, of_run, (normalizer, none)) };
                }
                at += step;
            }
            if !args.sums_g.is_null() {
                let [of_gx, of_g] = warp::sum_pair([of_gx, of_g]);
                if simt::lane() == 0 {
                    let place = u64::from(self.part * warps.get() + own);
                    let place = (place * args.rows + stretch.row) * u64::from(args.runs()) + u64::from(stretch.run);
                    // SAFETY: as above; this place belongs to this warp.
                    unsafe {
                        f32::store(args.sums_gx.wrapping_add(place as usize), of_gx);
                        f32::store(args.sums_g.wrapping_add(place as usize), of_g);
                    }
                }
            }
        }
    }

    /// The means over a row, from all its sums; the same bits in each warp.
    #[inline(always)]
    unsafe fn means(&self, stretch: Stretch) -> BackwardCoefficients<f32> {
        let args = self.args;
        let (runs, places) = (at_least_one(args.runs()), args.parts * args.warps);
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

    /// The second sweep over the block's share of some rows.
    #[inline(always)]
    unsafe fn write(&self, first_row: u64, is_first: bool) {
        let (first, apart, step) = self.tile();
        let (mut number, next, count) = self.stretches();
        let mut means = BackwardCoefficients {
            mean_g: 0.0,
            mean_gx: 0.0,
        };
        let mut row_of_means = u64::MAX;
        while number < count {
            let found = self.stretch(first_row, number);
            number += next;
            let Some(stretch) = found else { continue };
            if stretch.row != row_of_means {
                // SAFETY: the caller's, here and below.
                means = unsafe { self.means(stretch) };
                row_of_means = stretch.row;
            }
            // SAFETY: as above.
            let (normalizer, of_run) = unsafe { (self.normalizer(stretch), self.of_run(stretch)) };
            let mut at = first;
            while at < stretch.len {
                // SAFETY: as above.
                unsafe {
                    let loaded = self.load(stretch, at, apart);
                    let g = self.gradient(stretch, (at, apart), &loaded, normalizer, of_run);
                    if Self::BY_COLUMN {
                        self.add(stretch, (at, apart), &loaded, &g, normalizer, is_first);
                    }
                    self.store(stretch, (at, apart), &loaded, &g, of_run, (normalizer, means));
                }
                at += step;
            }
        }
    }

    /// dresidual and dx of a tile.
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
        unrolled::<V>(|v| {
            let at = at + v as u32 * apart;
            if at < stretch.len {
                let element = stretch.start as usize + at as usize;
                let xhat = S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
                // SAFETY: the caller's, here and below; each part belongs to one thread.
                unsafe {
                    let [weight, _] = self.at(stretch, of_run, at);
                    let dx = g[v].zip3(weight, xhat, |g, weight, xhat| {
                        normalize::input_gradient(g * weight, xhat, normalizer.rstd, means)
                    });
                    if !args.dresidual.is_null() {
                        S::Access::store(args.dresidual.wrapping_add(element), S::Access::pack::<T>(g[v]));
                    }
                    S::Access::store(args.dx.wrapping_add(element), S::Access::pack::<T>(dx));
                }
            }
        });
    }

    /// Adds a tile of a row to the gradients of its columns.
    #[inline(always)]
    unsafe fn add(
        &self,
        stretch: Stretch,
        (at, apart): (u32, u32),
        loaded: &Loaded<T, S::Access, V>,
        g: &[Numbers<T, S>; V],
        normalizer: Normalizer<f32>,
        is_first: bool,
    ) {
        unrolled::<V>(|v| {
            let at = at + v as u32 * apart;
            if at < stretch.len {
                let xhat = S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
                let gx = g[v].zip(xhat, |g, xhat| g * xhat);
                let bases = [self.args.dweight, self.args.dbias];
                for (which, base, more) in [(0, bases[0], gx), (1, bases[1], g[v])] {
                    if !base.is_null() {
                        // SAFETY: the caller's; these numbers belong to this thread.
                        unsafe { self.add_to(which, base, stretch, (at, apart), more, is_first) };
                    }
                }
            }
        });
    }

    /// Adds to the weight's sums, or to the bias's, those of the elements from `at` on, in shared or in global memory.
    #[inline(always)]
    unsafe fn add_to(
        &self,
        which: u32,
        base: *mut f32,
        stretch: Stretch,
        (at, apart): (u32, u32),
        more: Numbers<T, S>,
        is_first: bool,
    ) {
        let shared = self.kept_at(which, at, apart);
        let place = self.place(base, stretch.column + u64::from(at));
        let mut sum = more;
        // SAFETY: the caller's.
        unsafe {
            if !is_first {
                let before = match shared {
                    Some(shared) => Numbers::<T, S>::kept(shared, simt::thread_index(), simt::block_threads()),
                    None => Numbers::<T, S>::load(place),
                };
                sum = before.zip(more, |before, more| before + more);
            }
            match shared {
                Some(shared) => sum.keep(shared, simt::thread_index(), simt::block_threads()),
                None => sum.store(place),
            }
        }
    }

    /// Where the sums of the elements from `at` on are kept in shared memory, if they are.
    #[inline(always)]
    fn kept_at(&self, which: u32, at: u32, apart: u32) -> Option<Shared<f32>> {
        // A part of a tile for all threads of the block.
        let part = at / at_least_one(apart);
        (part < self.args.kept * V as u32).then(|| {
            let numbers = simt::block_threads() * width::<T, S::Access>();
            Shared::at(0).offset((part * 2 + which) * numbers)
        })
    }

    /// Where the team's sum of a column goes.
    #[inline(always)]
    fn place(&self, base: *mut f32, column: u64) -> *mut f32 {
        base.wrapping_add((u64::from(self.team) * self.args.columns + column) as usize)
    }

    /// Leaves what shared memory holds of the gradients by column; zeros where the team had no row.
    #[inline(always)]
    unsafe fn leave(&self, any: bool) {
        if !Self::BY_COLUMN {
            return;
        }
        let Some(stretch) = self.stretch(0, 0) else { return };
        let (first, apart, _) = self.tile();
        let mut at = first;
        while at < stretch.len {
            for (which, base) in [(0, self.args.dweight), (1, self.args.dbias)] {
                let shared = self.kept_at(which, at, apart);
                let place = self.place(base, stretch.column + u64::from(at));
                // SAFETY: the caller's; these numbers belong to this thread.
                unsafe {
                    match shared {
                        _ if base.is_null() => {}
                        _ if !any => Numbers::<T, S>::splat(0.0).store(place),
                        Some(shared) => Numbers::<T, S>::kept(shared, simt::thread_index(), simt::block_threads()).store(place),
                        None => {}
                    }
                }
            }
            at += apart;
        }
    }
}
