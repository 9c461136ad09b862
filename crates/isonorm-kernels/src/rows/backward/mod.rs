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
//! row when the sums of the next one are on their way: see [`gradients_later`](mod@gradients_later), or, where there is no room for that,
//! [`gradients_by_part`](mod@gradients_by_part).
//!
//! The gradients of weight and bias are sums over rows: a team adds up its own in registers, a block those of its teams, and
//! [`gather`](super::gather) those of blocks, or clusters, in a fixed order. Where runs of columns share a weight and bias, see
//! [`by_run`], whose rows stay in shared memory, [`across_runs`] and [`by_segment`]; where a row has one of its own, [`segmented`], or `by_run` too. Rows of
//! runs that are longer are for [`gradients_of_pieces`]. With few rows, blocks that have columns compute these gradients, see [`apart`](mod@apart).

pub mod across_runs;
pub mod apart;
mod args;
pub mod by_run;
pub mod by_segment;
pub mod gradients_by_part;
pub mod gradients_later;
pub mod gradients_of_pieces;
mod held;
mod joined;
pub mod segmented;
pub mod segmented_later;
mod slopes;
mod sums;

use isonorm_math::{BackwardCoefficients, Normalizer, Real, normalize};

pub use self::args::Args;
use self::held::{Loaded, Walk};
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use self::sums::bytes as sums_bytes;
use self::sums::{Numbers, Sums};
use super::access::{Access, Data};
use super::epilogue::{Class, Epilogue};
use super::forward::{PlaceOf, Spec};
use super::lanes::{Lanes, computed, unrolled};
use super::parameters::{OfType, Parameters};
use super::ring::Ring;
use super::statistics::{MeanOf, Op, Statistics};
use super::team::{Owner, Owns, Team};
use crate::simt;

/// Weight and bias as a thread has them.
type ParametersOf<T, S, const V: usize> =
    <<S as Spec>::Epilogue as Epilogue>::Parameters<<S as Spec>::Map, T, <S as Spec>::Access, V>;

/// What a thread has of a row of a tensor, as it came.
type Parts<T, S, const V: usize> = [<<S as Spec>::Access as Access>::Raw<T>; V];

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
        if S::Epilogue::CLASS == Class::Added {
            // SAFETY: the caller's.
            return unsafe { self.row_behind_relu(walk, team, (row, loaded, normalizer)) };
        }
        let parameters = &self.parameters;
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        // SAFETY: the caller's.
        let behind_activation = unsafe { walk.behind_activation(loaded, parameters, xhat) };
        // Without slopes unpacked again wherever it is needed, so that it takes no registers in between.
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

/// What normalized the row, nothing where there is none; `zero` is 0, see [`simt::zero`].
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
        let (mut first_row, step) = (team.first_row(), team.row_step());
        let args = self.args;
        let own_row = u64::from(team.own_row());
        // Where rows come ahead. Others have it beside them: what is kept from one round to the next would be waited for first.
        let mut ahead = match S::AHEAD {
            // SAFETY: the caller's.
            true => unsafe { self.normalizer(first_row + own_row) },
            false => Normalizer::default(),
        };
        let mut ring = Ring::new(
            S::Team::SHARED_BYTES,
            self.ends(),
            Walk::<T, S, V>::TENSORS,
            args.slots,
            0,
        );
        let rows_ahead = if Self::IN_PLACE { args.slots } else { ring.behind() };
        if S::AHEAD {
            // Of whole accesses, kernels with slopes have no register for it.
            if S::Access::HAS_ENDS || S::Epilogue::CLASS != Class::Piecewise {
                ring.settle();
            }
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
            let mut normalizer = ahead;
            // SAFETY: the caller's.
            unsafe {
                match S::AHEAD {
                    true => ahead = self.normalizer(first_row + own_row),
                    false => normalizer = self.normalizer(row),
                }
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
        parameters: &impl Parameters<T, S::Access, V>,
        sums: &mut Sums<Numbers<T, S>, V>,
        xhat: impl Fn(usize) -> Numbers<T, S>,
        g: impl Fn(usize) -> Numbers<T, S>,
    ) -> [f32; 2] {
        // SAFETY: the caller's.
        unsafe { self.add_and(parameters, sums, (xhat, g), |_, _| {}) }
    }

    /// The same, giving `also` the g · weight of each part.
    #[inline(always)]
    unsafe fn add_and(
        &self,
        parameters: &impl Parameters<T, S::Access, V>,
        sums: &mut Sums<Numbers<T, S>, V>,
        (xhat, g): (impl Fn(usize) -> Numbers<T, S>, impl Fn(usize) -> Numbers<T, S>),
        mut also: impl FnMut(usize, Numbers<T, S>),
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
                also(v, wg);
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
                parameters.at::<OfType<true>>(&self.args.affine, self.span, v)
            } else {
                parameters.at::<OfType<false>>(&self.args.affine, self.span, v)
            }
        }
    }

    /// The weight of part `v`.
    #[inline(always)]
    unsafe fn weight(&self, parameters: &impl Parameters<T, S::Access, V>, v: usize) -> Numbers<T, S> {
        // SAFETY: the caller's, for a part that the row has.
        unsafe {
            if self.args.affine.is_narrow::<T>() {
                parameters.weight_at::<OfType<true>>(&self.args.affine, self.span, v)
            } else {
                parameters.weight_at::<OfType<false>>(&self.args.affine, self.span, v)
            }
        }
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
        if self.args.dx.is_null() {
            return;
        }
        let results = self.results(row);
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's.
                unsafe {
                    let numbers = (&xhat, &g, |v| self.weight(parameters, v));
                    self.finish_part(v, numbers, (rstd, coefficients), (results, &dstream));
                }
            }
        });
    }

    /// Where a row of dx and of dresidual is.
    #[inline(always)]
    fn results(&self, row: u64) -> [PlaceOf<T, S>; 2] {
        let args = self.args;
        [
            PlaceOf::<T, S>::new(args.dx.cast_const(), row, args.dx_stride),
            PlaceOf::<T, S>::new(args.dresidual.cast_const(), row, args.dresidual_stride),
        ]
    }

    /// dx and dresidual of part `v`, which the row has, from x̂, g and the weight; there is a dx.
    #[inline(always)]
    unsafe fn finish_part(
        &self,
        v: usize,
        (xhat, g, weight): (
            impl Fn(usize) -> Numbers<T, S>,
            impl Fn(usize) -> Numbers<T, S>,
            impl Fn(usize) -> Numbers<T, S>,
        ),
        (rstd, coefficients): (f32, BackwardCoefficients<f32>),
        ([to_dx, dresidual], dstream): ([PlaceOf<T, S>; 2], impl Fn(usize) -> <S::Access as Access>::Raw<T>),
    ) {
        let args = self.args;
        // SAFETY: the caller's, here and below; each part belongs to one thread.
        unsafe {
            let (weight, g) = (weight(v), g(v));
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
}
