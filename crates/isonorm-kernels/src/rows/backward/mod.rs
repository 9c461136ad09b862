//! The backward pass over rows that their team holds in registers: x and dy are read once, dx is written once.
//!
//! ```text
//! g  = dy · act′(z)                         z = x̂ · weight + bias + residual
//! dx = rstd · (g · weight − mean(g · weight) − x̂ · mean(g · weight · x̂))     dresidual = g
//! ```
//!
//! z is computed again from x, with the mean and rstd that the forward pass saved. Of a residual stream x is the stream, and the
//! gradient that comes in for it is added to dx, which is then that of both summands.
//!
//! With [`Spec::AHEAD`], x and dy of the rows that come next are on their way to shared memory. Blocks of the whole chip finish each
//! row when the sums of the next one are on their way: see [`gradients_later`].
//!
//! The gradients of weight and bias are sums over rows: a team adds up its own in registers, a block those of its teams, and
//! [`gather`](super::gather) those of blocks, or clusters, in a fixed order. Where runs of columns share a weight and bias, see
//! [`by_run`] and [`by_segment`]; where a row has one of its own, [`segmented`]. Rows of runs that are longer than registers are for
//! [`gradients_of_pieces`]. With few rows, blocks that have columns compute these gradients, see [`apart`](mod@apart).

pub mod apart;
pub mod by_run;
pub mod by_segment;
pub mod gradients_later;
pub mod gradients_of_pieces;
mod held;
pub mod segmented;
pub mod segmented_later;
mod sums;

use isonorm_math::{BackwardCoefficients, Normalizer, Real, normalize};

use self::held::{Loaded, Walk};
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use self::sums::bytes as sums_bytes;
use self::sums::{Numbers, Sums};
use super::access::{Access, Data};
use super::epilogue::{Class, Epilogue, Told};
use super::forward::{PlaceOf, Spec};
use super::lanes::{Lanes, computed, unrolled};
use super::parameters::{Affine, Parameters};
use super::ring::Ring;
use super::segments::Segments;
use super::statistics::{MeanOf, Op, Statistics};
use super::team::{Owner, Owns, Team};
use crate::grid::Peers;
use crate::simt;

/// Weight and bias as a thread has them.
type ParametersOf<T, S, const V: usize> =
    <<S as Spec>::Epilogue as Epilogue>::Parameters<<S as Spec>::Map, T, <S as Spec>::Access, V>;

/// What a thread has of a row of a tensor, as it came.
type Parts<T, S, const V: usize> = [<<S as Spec>::Access as Access>::Raw<T>; V];

/// What a kernel is told at launch. Strides are from row to row, in elements; null pointers leave a part out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// `[rows, columns]`: what was normalized.
    pub x: *const T,
    /// `[rows, columns]`
    pub dy: *const T,
    /// `[rows, columns]`, what was added before the activation; or null.
    pub residual: *const T,
    /// `[rows, columns]`, the gradient of the residual stream, added to dx; or null, as always where rows begin anywhere.
    pub dstream: *const T,
    /// `[rows, columns]`; or null, with no `dresidual` either. May be any of the inputs.
    pub dx: *mut T,
    /// `[rows, columns]`; or null. May be any of the inputs but the one that dx is; or where dx is, which is lost then.
    pub dresidual: *mut T,
    /// Weight and bias.
    pub affine: Affine,
    /// `[rows]`, as the forward pass saved it; or null for 0.
    pub mean: *const f32,
    /// `[rows]`, as the forward pass saved it.
    pub rstd: *const f32,
    /// `[blocks of the grid, or its clusters, columns]`, where their shares of the weight's gradient go, or, by run, `[rows, runs]`, of
    /// pieces of runs `[pieces of a run, rows, runs]`, by segment `[parts, rows, segments]` of as many [`parts`](by_segment::parts) as there
    /// are; or the gradient itself in the parameters' type, of rows in segments `[rows]`, and `[columns]` where these go
    /// [`apart`](mod@apart); or null.
    pub dweight: *mut f32,
    /// The same of the bias's gradient; or null.
    pub dbias: *mut f32,
    /// How many rows.
    pub rows: u64,
    /// Elements of a row; at least 1, and what the kernel's key fits.
    pub columns: u64,
    /// From a row of `x` to the next.
    pub x_stride: u64,
    /// From a row of `dy` to the next.
    pub dy_stride: u64,
    /// From a row of `residual` to the next.
    pub residual_stride: u64,
    /// From a row of `dstream` to the next.
    pub dstream_stride: u64,
    /// From a row of `dx` to the next.
    pub dx_stride: u64,
    /// From a row of `dresidual` to the next.
    pub dresidual_stride: u64,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
    /// Rows that shared memory has room for, where they come ahead: at least 1, at most [`MOST_SLOTS`](super::ring::MOST_SLOTS); of pieces, groups of
    /// accesses.
    pub slots: u32,
    /// Blocks of the grid that share a row.
    pub blocks: u32,
    /// Where these leave messages for each other, see [`Messages`](crate::grid::Messages); or null.
    pub messages: *mut u32,
    /// Where rows lie in segments.
    pub segments: Segments,
    /// See [`Messages`](crate::grid::Messages).
    pub sent: u32,
    /// Blocks of the grid that have strips of columns, where rows and columns go [`apart`](mod@apart).
    pub column_blocks: u32,
    /// Threads of theirs that lie side by side in a strip, with an access each: a power of two, at most those of a warp.
    pub column_lanes: u32,
}

impl<T> Args<T> {
    #[inline(always)]
    fn peers(&self) -> Peers {
        Peers::new(self.messages, self.sent, self.blocks)
    }

    /// Leaves sums of g and of g · x̂ in a place of their own.
    ///
    /// # Safety
    ///
    /// The place is among those that `dweight` and `dbias` say; one thread a place.
    #[inline(always)]
    unsafe fn leave_sums(&self, place: u64, [of_g, of_gx]: [f32; 2]) {
        for (base, sum) in [(self.dweight, of_gx), (self.dbias, of_g)] {
            if !base.is_null() {
                // SAFETY: the caller's.
                unsafe { f32::store(base.wrapping_add(place as usize), sum) };
            }
        }
    }
}

impl<T: Data> Args<T> {
    /// Writes a gradient of weight or bias, in the parameters' type.
    ///
    /// # Safety
    ///
    /// There are more than `index` at `base`, one of `dweight` and `dbias`; one thread an index.
    #[inline(always)]
    unsafe fn leave_gradient(&self, base: *mut f32, index: u64, sum: f32) {
        // SAFETY: the caller's.
        unsafe {
            if self.affine.is_narrow::<T>() {
                T::store(base.cast::<T>().wrapping_add(index as usize), T::from_acc(sum));
            } else {
                f32::store(base.wrapping_add(index as usize), sum);
            }
        }
    }
}

/// Computes the gradients of the rows. For a grid of any size; with given statistics they are constants.
///
/// # Safety
///
/// As for [`forward`](super::forward::forward).
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn backward<T: Data, S: Spec<Team: Team>, const V: usize>(args: &Args<T>) {
    // SAFETY: the caller's.
    let mut team = unsafe { S::Team::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    // SAFETY: the caller's.
    unsafe {
        let mut columns = ByColumns::<T, S, V> {
            parameters: ParametersOf::<T, S, V>::new(&args.affine, walk.span, false),
            sums: Sums::zero(),
            dstream: [S::Access::nothing::<T>(); V],
        };
        walk.each_row(&mut team, &mut columns);
        walk.leave(&team, &columns.sums);
    }
}

/// What is done with rows, besides loading them.
trait Work<T: Data, S: Spec<Team: Team>, const V: usize> {
    /// Starts to load what depends on the row, which may not exist; the row is on its way.
    unsafe fn fetch(&mut self, walk: &Walk<'_, T, S, V>, row: u64);

    /// All that is done with a row; every thread of the team takes part.
    unsafe fn row(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        team: &mut S::Team,
        of_row: (u64, &Loaded<T, S::Access, V>, Normalizer<f32>),
    );
}

/// A parameter each column: its gradient is a sum over rows, which threads keep in registers.
struct ByColumns<T: Data, S: Spec, const V: usize> {
    parameters: ParametersOf<T, S, V>,
    sums: Sums<Numbers<T, S>, V>,
    /// A row of the gradient of the residual stream, where it is asked for ahead.
    dstream: Parts<T, S, V>,
}

impl<T: Data, S: Spec<Team: Team>, const V: usize> Work<T, S, V> for ByColumns<T, S, V> {
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
        // SAFETY: the caller's.
        let behind_activation = unsafe { walk.behind_activation(loaded, parameters, xhat) };
        // Without an activation unpacked again wherever it is needed, so that it takes no registers in between.
        let g = |v: usize| match S::Epilogue::CLASS.has_slopes() {
            false => S::Access::unpack::<T>(loaded.dy[v]),
            true => behind_activation[v],
        };
        // SAFETY: the caller's.
        let own = unsafe { walk.add(parameters, &mut self.sums, xhat, g) };
        let coefficients = walk.coefficients(team.sum_pair(own));
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

/// What normalized the row; `zero` is 0, see [`simt::zero`].
#[inline(always)]
unsafe fn normalizer<T: Data, S: Spec>(args: &Args<T>, row: u64, zero: u32) -> Normalizer<f32> {
    let mut normalizer = Normalizer::default();
    if row < args.rows {
        let row = row + u64::from(zero);
        // SAFETY: there is a number for each row.
        unsafe {
            normalizer.rstd = f32::load(args.rstd.wrapping_add(row as usize));
            if S::Statistics::OP != Op::Rms && !args.mean.is_null() {
                normalizer.centre = f32::load(args.mean.wrapping_add(row as usize));
            }
        }
    }
    normalizer
}

/// What makes dx, from the sums of g · weight and of g · weight · x̂ over a row.
#[inline(always)]
fn coefficients<T: Data, S: Spec, const V: usize>(
    args: &Args<T>,
    [of_g, of_gx]: [f32; 2],
) -> BackwardCoefficients<f32> {
    let mean_of = MeanOf::new::<V>(args.columns);
    match S::Statistics::OP {
        Op::Layer => BackwardCoefficients {
            mean_g: mean_of.all(of_g),
            mean_gx: mean_of.all(of_gx),
        },
        Op::Rms => BackwardCoefficients {
            mean_g: 0.0,
            mean_gx: mean_of.all(of_gx),
        },
        Op::Given => BackwardCoefficients::default(),
    }
}

impl<T: Data, S: Spec<Team: Team>, const V: usize> Walk<'_, T, S, V> {
    /// Goes over the team's rows.
    #[inline(always)]
    unsafe fn each_row(&self, team: &mut S::Team, work: &mut impl Work<T, S, V>) {
        // SAFETY: the caller's.
        unsafe { self.rows_from((team.first_row(), team.row_step()), team, work) };
    }

    /// The same, from such a row on by such steps.
    #[inline(always)]
    unsafe fn rows_from(&self, (mut first_row, step): (u64, u64), team: &mut S::Team, work: &mut impl Work<T, S, V>) {
        let args = self.args;
        let own_row = u64::from(team.own_row());
        // SAFETY: the caller's.
        let mut ahead = unsafe { self.normalizer(first_row + own_row) };
        let mut ring = Ring::new(S::Team::SHARED_BYTES, Walk::<T, S, V>::TENSORS, args.slots, 0);
        let rows_ahead = if Self::IN_PLACE { args.slots } else { ring.behind() };
        if S::AHEAD {
            let mut rows = 0;
            while rows < rows_ahead {
                // SAFETY: the caller's.
                unsafe { self.fetch(&ring, first_row + own_row + u64::from(rows) * step, rows) };
                rows += 1;
            }
        }
        while first_row < args.rows {
            // Opaque as in the forward pass.
            let row = simt::opaque_64(first_row) + own_row;
            first_row = simt::opaque_64(first_row) + step;
            let normalizer = ahead;
            // SAFETY: the caller's.
            unsafe {
                ahead = self.normalizer(first_row + own_row);
                let loaded = if S::AHEAD {
                    let later = row + u64::from(rows_ahead) * step;
                    if !Self::IN_PLACE {
                        self.fetch(&ring, later, ring.slot(ring.behind()));
                    }
                    work.fetch(self, row);
                    let slot = ring.slot(0);
                    let loaded = self.arrived(&mut ring, row, normalizer);
                    if Self::IN_PLACE {
                        self.fetch(&ring, later, slot);
                    }
                    loaded
                } else {
                    work.fetch(self, row);
                    self.load(row)
                };
                work.row(self, team, (row, &loaded, normalizer));
            }
        }
    }

    /// See [`normalizer`].
    #[inline(always)]
    unsafe fn normalizer(&self, row: u64) -> Normalizer<f32> {
        // SAFETY: the caller's.
        unsafe { normalizer::<T, S>(self.args, row, self.zero) }
    }

    /// Adds the thread's part of a row to the gradients of weight and bias; its sums of g · weight and of g · weight · x̂.
    #[inline(always)]
    unsafe fn add(
        &self,
        parameters: &ParametersOf<T, S, V>,
        sums: &mut Sums<Numbers<T, S>, V>,
        xhat: impl Fn(usize) -> Numbers<T, S>,
        g: impl Fn(usize) -> Numbers<T, S>,
    ) -> [f32; 2] {
        let (mut of_g, mut of_gx) = (0.0, 0.0);
        unrolled::<V>(|v| {
            if self.has(v) {
                let (xhat, g) = (xhat(v), g(v));
                let of_weight = sums.weight[v].zip3(g, xhat, |sum, g, xhat| Real::mul_add(g, xhat, sum));
                sums.weight[v] = computed(of_weight);
                sums.bias[v] = computed(sums.bias[v].zip(g, |sum, g| sum + g));
                // SAFETY: the caller's.
                let weight = unsafe { self.weight(parameters, v) };
                let wg = g.zip(weight, |g, weight| g * weight);
                of_g = wg.fold(of_g, |sum, wg| sum + wg);
                of_gx = wg.dot(xhat, of_gx);
            }
        });
        [of_g, of_gx]
    }

    #[inline(always)]
    fn coefficients(&self, sums: [f32; 2]) -> BackwardCoefficients<f32> {
        coefficients::<T, S, V>(self.args, sums)
    }

    /// Weight and bias of part `v`.
    #[inline(always)]
    unsafe fn parameters(&self, parameters: &impl Parameters<T, S::Access, V>, v: usize) -> [Numbers<T, S>; 2] {
        // SAFETY: the caller's, for a part that the row has.
        unsafe {
            if self.args.affine.is_narrow::<T>() {
                parameters.at::<true>(&self.args.affine, self.span, v)
            } else {
                parameters.at::<false>(&self.args.affine, self.span, v)
            }
        }
    }

    /// The weight of part `v`.
    #[inline(always)]
    unsafe fn weight(&self, parameters: &impl Parameters<T, S::Access, V>, v: usize) -> Numbers<T, S> {
        // SAFETY: the caller's, for a part that the row has.
        unsafe {
            if self.args.affine.is_narrow::<T>() {
                parameters.weight_at::<true>(&self.args.affine, self.span, v)
            } else {
                parameters.weight_at::<false>(&self.args.affine, self.span, v)
            }
        }
    }

    /// g = dy · act′(z) of the parts that the row has, where there may be an activation.
    #[inline(always)]
    unsafe fn behind_activation(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &impl Parameters<T, S::Access, V>,
        xhat: impl Fn(usize) -> Numbers<T, S>,
    ) -> [Numbers<T, S>; V] {
        let mut g = [Numbers::<T, S>::splat(0.0); V];
        if S::Epilogue::CLASS == Class::Plain {
            return g;
        }
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's.
                let [weight, bias] = unsafe { self.parameters(parameters, v) };
                g[v] = xhat(v).zip3(weight, bias, normalize::affine);
                if self.has_residual() {
                    let residual = S::Access::unpack::<T>(loaded.residual[v]);
                    g[v] = g[v].zip(residual, |z, residual| z + residual);
                }
            }
        });
        g = S::Epilogue::derivative::<T, _, _>(g, self.args.activation);
        unrolled::<V>(|v| g[v] = g[v].zip(S::Access::unpack::<T>(loaded.dy[v]), |slope, dy| slope * dy));
        g
    }

    /// Whether a row of the gradient of the residual stream is asked for before the row's sums are there: lanes of a warp have no registers
    /// for it, and wait for few others.
    const STREAM_AHEAD: bool = !matches!(S::Team::OWNER, Owner::Lanes(_));

    /// Starts to load a row of the gradient of the residual stream; nothing where there is none.
    #[inline(always)]
    unsafe fn dstream(&self, row: u64) -> Parts<T, S, V> {
        let mut parts = [S::Access::nothing::<T>(); V];
        if !S::Access::BY_SEGMENT && !self.args.dstream.is_null() && row < self.args.rows {
            unrolled::<V>(|v| {
                if self.has(v) {
                    // SAFETY: the caller's; the row has this part.
                    parts[v] = unsafe { self.part_of_dstream(row, v) };
                }
            });
        }
        parts
    }

    /// Part `v` of it, where there is one.
    #[inline(always)]
    unsafe fn part_of_dstream(&self, row: u64, v: usize) -> <S::Access as Access>::Raw<T> {
        let dstream = PlaceOf::<T, S>::new(self.args.dstream, row, self.args.dstream_stride);
        // SAFETY: the caller's.
        unsafe { S::Access::load(dstream.part(self.span, v)) }
    }

    /// dx and dresidual: the latter last, as it may be where dx is. Of a row, with what finds a part of the gradient of the
    /// residual stream.
    #[inline(always)]
    unsafe fn finish(
        &self,
        parameters: &impl Parameters<T, S::Access, V>,
        xhat: impl Fn(usize) -> Numbers<T, S>,
        g: impl Fn(usize) -> Numbers<T, S>,
        (rstd, coefficients): (f32, BackwardCoefficients<f32>),
        (row, dstream): (u64, impl Fn(usize) -> <S::Access as Access>::Raw<T>),
    ) {
        let args = self.args;
        if args.dx.is_null() {
            return;
        }
        let to_dx = PlaceOf::<T, S>::new(args.dx.cast_const(), row, args.dx_stride);
        let dresidual = PlaceOf::<T, S>::new(args.dresidual.cast_const(), row, args.dresidual_stride);
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's, here and below; each part belongs to one thread.
                unsafe {
                    let (weight, g) = (self.weight(parameters, v), g(v));
                    let mut dx = g.zip3(weight, xhat(v), |g, weight, xhat| {
                        normalize::input_gradient(g * weight, xhat, rstd, coefficients)
                    });
                    if !S::Access::BY_SEGMENT && !args.dstream.is_null() {
                        let more = S::Access::unpack::<T>(dstream(v));
                        dx = dx.zip(more, |dx, more| dx + more);
                    }
                    let own = to_dx.own(self.span, v);
                    S::Access::store_own(to_dx.part(self.span, v).cast_mut(), S::Access::pack::<T>(dx), own);
                    if !args.dresidual.is_null() {
                        let place = dresidual.part(self.span, v).cast_mut();
                        S::Access::store_own(place, S::Access::pack::<T>(g), own);
                    }
                }
            }
        });
    }
}
