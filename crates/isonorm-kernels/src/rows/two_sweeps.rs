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
//! of a row are added up in a fixed order by whoever needs them. Blocks that share a row wait for each other once a row, while what they have of the next one is on its way.
//!
//! What a block has of the next row is copied to shared memory meanwhile, past the registers. Each thread copies what it uses
//! itself, in both sweeps; what shared memory does not hold is read from global memory, twice.
//!
//! By run, the places are what the gradients of weight and bias are added up from ([`gather`](super::gather)). By column, the
//! second sweep adds them up: a block has the same columns of each of its rows. Shared memory holds these sums, and global memory
//! those of tiles that it does not hold.
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
    /// `[parts, rows, runs]`, where sums of g·x̂ are left (by column: of g·x̂ times the weight); or null, if statistics are given.
    pub sums_gx: *mut f32,
    /// `[parts, rows, runs]`, where sums of g are left (by column: of g times the weight); or null, if statistics are given.
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
pub const fn tile_bytes(
    accesses: u32,
    access_bytes: u32,
    access_elements: u32,
    is_plain: bool,
    has_sums: bool,
) -> u32 {
    let tensors = if is_plain { 2 } else { 3 };
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
#[inline(always)]
pub unsafe fn two_sweeps<T: Data, S: Spec, const V: usize>(args: &Args<T>) {
    let walk = Walk::<T, S, V>::new(args);
    let (mut row, mut is_first, mut buffer) = (walk.first_row(), true, 0);
    // SAFETY: the caller's.
    unsafe { walk.fetch(row, buffer) };
    while row < args.rows {
        let next = row + walk.step();
        // SAFETY: the caller's, here and below.
        unsafe { walk.fetch(next, 1 - buffer) };
        // All but what was just asked for.
        simt::copy_wait::<1>();
        let given = S::Statistics::OP == Op::Given;
        if given || args.sweeps != SECOND {
            // SAFETY: as above.
            unsafe {
                walk.sum(row, buffer);
                if !args.sums_g.is_null() {
                    walk.exchange(row);
                }
            }
        }
        if !given && args.sweeps != FIRST {
            // SAFETY: as above; after the exchange the sums of these rows are there.
            unsafe { walk.write(row, buffer, is_first) };
        }
        (row, is_first, buffer) = (next, false, 1 - buffer);
    }
    simt::copy_wait::<0>();
    if args.sweeps != FIRST {
        // SAFETY: as above.
        unsafe { walk.leave(!is_first) };
    }
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
    /// Tensors that are kept.
    const TENSORS: u32 = if matches!(S::Epilogue::CLASS, Class::Plain) { 2 } else { 3 };

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

    /// The warp's stretch; none beyond the rows, or the runs.
    #[inline(always)]
    fn own_stretch(&self, first_row: u64) -> Option<Stretch> {
        self.stretch(first_row, simt::warp_index() / self.warps().0)
    }

    /// The block's stretches, by number.
    #[inline(always)]
    fn stretch(&self, first_row: u64, number: u32) -> Option<Stretch> {
        let args = self.args;
        // By column there is one run: the compiler should know.
        let (row, run) = match Self::BY_COLUMN {
            true => (first_row, 0),
            false => {
                let at_once = at_least_one(args.runs_at_once);
                let (rows, runs) = (number / at_once, number % at_once);
                if rows >= args.rows_at_once {
                    return None;
                }
                (first_row + u64::from(rows), self.first_run + runs)
            }
        };
        if row >= args.rows || run >= args.runs() {
            return None;
        }
        let set = match u32::try_from(row) {
            _ if Self::BY_COLUMN => 0,
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

    /// Whether gradients of weight and bias are added up by column.
    #[inline(always)]
    fn has_sums(&self) -> bool {
        Self::BY_COLUMN && !(self.args.dweight.is_null() && self.args.dbias.is_null())
    }

    /// Whether z is needed, and a residual is part of it.
    #[inline(always)]
    fn has_residual(&self) -> bool {
        S::Epilogue::CLASS != Class::Plain && !self.args.residual.is_null()
    }

    /// The tiles of a stretch: where the thread's first access of one starts, how far its accesses lie apart, and how far tiles.
    #[inline(always)]
    fn tile(&self) -> (u32, u32, u32) {
        let (apart, first) = match Self::BY_COLUMN {
            true => (simt::block_threads(), simt::thread_index()),
            false => {
                let (warps, own) = self.warps();
                (warps.get() * WARP, own * WARP + simt::lane())
            }
        };
        let width = width::<T, S::Access>();
        (first * width, apart * width, apart * width * V as u32)
    }

    /// The warp's tiles of a stretch: all lanes count alike.
    #[inline(always)]
    fn tiles(&self, stretch: Stretch) -> u32 {
        stretch.len.div_ceil(at_least_one(self.tile().2).get().max(1))
    }

    /// Where access `v` to a tensor is kept, of the warp's tile `tile`, in one of the two buffers.
    #[inline(always)]
    fn kept_at(&self, buffer: u32, tile: u32, tensor: u32, v: usize) -> Shared<u32> {
        let sums = match self.has_sums() {
            true => self.args.kept * 2 * V as u32 * width::<T, S::Access>() * 4,
            false => 0,
        };
        let access = ((buffer * self.args.kept + tile) * Self::TENSORS + tensor) * V as u32 + v as u32;
        let threads = simt::block_threads();
        Shared::at(HEAD_BYTES + sums * threads + (access * threads + simt::thread_index()) * S::Access::KEPT_BYTES)
    }

    /// Starts to copy what is kept of some rows.
    #[inline(always)]
    unsafe fn fetch(&self, first_row: u64, buffer: u32) {
        let args = self.args;
        if let Some(stretch) = self.own_stretch(first_row) {
            let (mut at, apart, step) = self.tile();
            let tiles = self.tiles(stretch).min(args.kept);
            let mut tile = 0;
            while tile < tiles {
                unrolled::<V>(|v| {
                    let at = at + v as u32 * apart;
                    if at < stretch.len {
                        let element = stretch.start as usize + at as usize;
                        // SAFETY: the stretch has these elements, and the places are this thread's.
                        unsafe {
                            S::Access::fetch(self.kept_at(buffer, tile, 0, v), args.x.wrapping_add(element));
                            S::Access::fetch(self.kept_at(buffer, tile, 1, v), args.dy.wrapping_add(element));
                            if self.has_residual() {
                                let place = self.kept_at(buffer, tile, 2, v);
                                S::Access::fetch(place, args.residual.wrapping_add(element));
                            }
                        }
                    }
                });
                (at, tile) = (at + step, tile + 1);
            }
        }
        simt::copy_commit();
    }

    /// The warp's tile `tile`, from where it is.
    #[inline(always)]
    unsafe fn load(
        &self,
        stretch: Stretch,
        (at, apart): (u32, u32),
        (buffer, tile): (u32, u32),
    ) -> Loaded<T, S::Access, V> {
        let args = self.args;
        let nothing = S::Access::nothing::<T>();
        let mut loaded = Loaded {
            x: [nothing; V],
            dy: [nothing; V],
            residual: [nothing; V],
        };
        let is_kept = tile < args.kept;
        unrolled::<V>(|v| {
            let at = at + v as u32 * apart;
            if at < stretch.len {
                let element = stretch.start as usize + at as usize;
                // SAFETY: this thread has kept it there, or the stretch has these elements.
                let one = |tensor: u32, base: *const T| unsafe {
                    if is_kept {
                        S::Access::kept(self.kept_at(buffer, tile, tensor, v))
                    } else {
                        S::Access::load(base.wrapping_add(element))
                    }
                };
                loaded.x[v] = one(0, args.x);
                loaded.dy[v] = one(1, args.dy);
                if self.has_residual() {
                    loaded.residual[v] = one(2, args.residual);
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

    /// The first sweep over the block's share of some rows.
    #[inline(always)]
    unsafe fn sum(&self, first_row: u64, buffer: u32) {
        let args = self.args;
        let Some(stretch) = self.own_stretch(first_row) else { return };
        let (mut at, apart, step) = self.tile();
        // SAFETY: the caller's, here and below.
        let (normalizer, of_run) = unsafe { (self.normalizer(stretch), self.of_run(stretch)) };
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

    /// Where a warp leaves its sums.
    #[inline(always)]
    fn sums_of(warp: u32) -> Shared<f32> {
        Shared::at(0).offset(2 * warp)
    }

    /// Leaves the sums of the block's stretches, and waits until all sums of these rows are there for this block to see.
    #[inline(always)]
    unsafe fn exchange(&self, first_row: u64) {
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
    unsafe fn means(&self, stretch: Stretch) -> BackwardCoefficients<f32> {
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

    /// The second sweep over the block's share of some rows.
    #[inline(always)]
    unsafe fn write(&self, first_row: u64, buffer: u32, is_first: bool) {
        let Some(stretch) = self.own_stretch(first_row) else { return };
        let (mut at, apart, step) = self.tile();
        // SAFETY: the caller's, here and below.
        let (means, normalizer, of_run) =
            unsafe { (self.means(stretch), self.normalizer(stretch), self.of_run(stretch)) };
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
        let shared = self.summed_at(which, at, apart);
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
    fn summed_at(&self, which: u32, at: u32, apart: u32) -> Option<Shared<f32>> {
        // A part of a tile for all threads of the block.
        let part = at / at_least_one(apart);
        (part < self.args.kept * V as u32).then(|| {
            let numbers = simt::block_threads() * width::<T, S::Access>();
            Shared::at(HEAD_BYTES).offset((part * 2 + which) * numbers)
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
        if !self.has_sums() {
            return;
        }
        let Some(stretch) = self.own_stretch(0) else { return };
        let (first, apart, _) = self.tile();
        let mut at = first;
        while at < stretch.len {
            for (which, base) in [(0, self.args.dweight), (1, self.args.dbias)] {
                let shared = self.summed_at(which, at, apart);
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
