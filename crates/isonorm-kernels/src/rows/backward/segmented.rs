//! The backward pass over rows in segments, each with a weight and a bias of its own: its sums of g · x̂ and of g are their gradients.

use isonorm_math::{BackwardCoefficients, Normalizer, Real, normalize};

pub use super::Args;
use super::Work;
use super::held::{Loaded, Walk};
use super::sums::Numbers;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Apart, Class, Epilogue, Told, WrittenOut};
use crate::rows::forward::later::RawOf;
use crate::rows::forward::{PlaceOf, Spec};
use crate::rows::lanes::{Lanes, total, unrolled};
use crate::rows::parameters::{Affine, at_least_one, next_set};
use crate::rows::segments::{OfRow, Segmented};
use crate::rows::team::Team;

/// Computes the gradients of the rows. For a grid of any size, or a multiple of the blocks that share a row.
///
/// # Safety
///
/// As for [`backward`](super::backward).
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn segmented<T: Data, S: Spec<Team: Team, Map = Segmented>, const V: usize>(args: &Args<T>) {
    // SAFETY: the caller's.
    let mut team = unsafe { S::Team::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let mut own = Own {
        rows: Rows::new(args, &team),
        parameters: OfRow::NONE,
    };
    // SAFETY: the caller's.
    unsafe { walk.each_row(&mut team, &mut own) };
}

/// The parameters of a team's rows, one row after the other.
pub(super) struct Rows {
    set: u32,
    step: u32,
}

impl Rows {
    #[inline(always)]
    pub(super) fn new<T: Data>(args: &Args<T>, team: &impl Team) -> Self {
        let set_of = |row| args.affine.set_of::<Segmented>(row);
        Self {
            set: set_of(team.first_row() + u64::from(team.own_row())),
            step: set_of(team.row_step()),
        }
    }

    /// The set of the next row.
    #[inline(always)]
    pub(super) fn next_set(&mut self, affine: &Affine) -> u32 {
        let set = self.set;
        self.set = next_set(set, self.step, at_least_one(affine.sets));
        set
    }

    /// The parameters of the next row.
    #[inline(always)]
    pub(super) unsafe fn next<T: Data>(&mut self, affine: &Affine) -> OfRow {
        // SAFETY: the caller's.
        unsafe { OfRow::of::<T>(affine, self.next_set(affine)) }
    }
}

/// Those of the row that a team works on.
struct Own {
    rows: Rows,
    parameters: OfRow,
}

impl<T: Data, S: Spec<Team: Team, Map = Segmented>, const V: usize> Work<T, S, V> for Own {
    #[inline(always)]
    unsafe fn fetch(&mut self, walk: &Walk<'_, T, S, V>, _row: u64) {
        // SAFETY: the caller's.
        self.parameters = unsafe { self.rows.next::<T>(&walk.args.affine) };
    }

    #[inline(always)]
    unsafe fn row(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        team: &mut S::Team,
        (row, loaded, normalizer): (u64, &Loaded<T, S::Access, V>, Normalizer<f32>),
    ) {
        let parameters = self.parameters;
        let distance = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| x - normalizer.centre);
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        let behind_activation = match S::Epilogue::CLASS {
            // SAFETY: the caller's.
            Class::Any => unsafe { walk.behind_activation(loaded, &parameters, xhat) },
            _ => [Numbers::<T, S>::splat(0.0); V],
        };
        let z = parameters.preactivation(normalizer);
        let own = match S::Epilogue::CLASS {
            Class::Any => walk.sums_of_row(distance, |v| behind_activation[v]),
            _ => walk.sums_of_row(distance, |v| {
                let (distance, dy) = (distance(v), S::Access::unpack::<T>(loaded.dy[v]));
                slope::<T, S>(walk.z(z, distance, loaded.residual[v]), dy, walk.args.activation)
            }),
        };
        let sums = normalized(team.sum_pair(own), normalizer.rstd);
        if row < walk.args.rows {
            let of_x = walk.of_x(sums, normalizer.rstd, parameters);
            // SAFETY: the caller's.
            unsafe {
                match S::Epilogue::CLASS {
                    Class::Any => walk.finish_row(distance, |v| behind_activation[v], |_| of_x, row),
                    _ => walk.finish_apart(loaded, normalizer, |_| z, |_| of_x, row),
                }
                if team.rank() == 0 {
                    walk.args.leave_row(row, sums);
                }
            }
        }
    }
}

/// What makes dx of g and of the distance from the mean: `dx = g · of_g + distance · of_distance + constant`.
#[derive(Clone, Copy)]
pub(super) struct OfX {
    of_g: f32,
    of_distance: f32,
    constant: f32,
}

impl OfX {
    /// Where g has a weight.
    #[inline(always)]
    pub(super) fn new(coefficients: BackwardCoefficients<f32>, rstd: f32, weight: f32) -> Self {
        let BackwardCoefficients { mean_g, mean_gx } = coefficients;
        Self {
            of_g: rstd * weight,
            of_distance: -(rstd * mean_gx) * rstd,
            constant: -(rstd * mean_g),
        }
    }

    /// dx of one element.
    #[inline(always)]
    pub(super) fn apply(self, g: f32, distance: f32) -> f32 {
        Real::mul_add(g, self.of_g, Real::mul_add(distance, self.of_distance, self.constant))
    }
}

/// The sums of g and of g · x̂, from those of g and of g times the distance from the mean.
#[inline(always)]
pub(super) fn normalized([of_g, of_distance]: [f32; 2], rstd: f32) -> [f32; 2] {
    [of_g, of_distance * rstd]
}

/// z = distance · scale + bias, where z is needed.
#[derive(Clone, Copy)]
pub(super) struct Preactivation {
    pub(super) scale: f32,
    pub(super) bias: f32,
}

impl OfRow {
    #[inline(always)]
    pub(super) fn preactivation(self, normalizer: Normalizer<f32>) -> Preactivation {
        Preactivation {
            scale: normalizer.rstd * self.weight,
            bias: self.bias,
        }
    }
}

impl Preactivation {
    /// z of numbers so far from the mean.
    #[inline(always)]
    pub(super) fn of<L: Lanes>(self, distance: L) -> L {
        distance.map(|distance| normalize::affine(distance, self.scale, self.bias))
    }
}

/// g = dy · act′(z)
#[inline(always)]
pub(super) fn slope<T: Data, S: Spec>(z: Numbers<T, S>, dy: Numbers<T, S>, told: Told) -> Numbers<T, S> {
    if !S::Epilogue::CLASS.has_slopes() {
        return dy;
    }
    let [slope] = S::Epilogue::derivative::<T, _, _>([z], told);
    slope.zip(dy, |slope, dy| slope * dy)
}

/// The same of one activation.
#[inline(always)]
pub(super) fn written_out<L: Lanes>(f: WrittenOut, z: L, dy: L) -> L {
    z.zip(dy, |z, dy| f.slope(z) * dy)
}

impl<T: Data, S: Spec<Team: Team>, const V: usize> Walk<'_, T, S, V> {
    /// z of numbers so far from the mean, with what was added to them.
    #[inline(always)]
    pub(super) fn z(&self, z: Preactivation, distance: Numbers<T, S>, residual: RawOf<T, S>) -> Numbers<T, S> {
        let z = z.of(distance);
        match self.has_residual() {
            true => z.zip(S::Access::unpack::<T>(residual), |z, residual| z + residual),
            false => z,
        }
    }

    /// The thread's sums of g and of g times the distance from the mean.
    #[inline(always)]
    pub(super) fn sums_of_row(
        &self,
        distance: impl Fn(usize) -> Numbers<T, S>,
        g: impl Fn(usize) -> Numbers<T, S>,
    ) -> [f32; 2] {
        let (mut of_g, mut of_distance) = ([0.0; 4], [0.0; 4]);
        unrolled::<V>(|v| {
            if self.has(v) {
                let (distance, g) = (distance(v), g(v));
                of_g = g.add_to(of_g);
                of_distance = g.dot_to(distance, of_distance);
            }
        });
        [total(of_g), total(of_distance)]
    }

    /// What makes dx, from the sums of g and of g · x̂ over the row.
    #[inline(always)]
    pub(super) fn of_x(&self, sums: [f32; 2], rstd: f32, parameters: OfRow) -> OfX {
        let coefficients = self.coefficients(sums.map(|sum| sum * parameters.weight));
        OfX::new(coefficients, rstd, parameters.weight)
    }

    /// [`finish_row`](Walk::finish_row) of a row as it came, by code for each of the usual activations; of each part, what makes z and dx.
    ///
    /// # Safety
    ///
    /// The same.
    #[inline(always)]
    pub(super) unsafe fn finish_apart(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        normalizer: Normalizer<f32>,
        z: impl Fn(usize) -> Preactivation,
        of_x: impl Fn(usize) -> OfX,
        row: u64,
    ) {
        let told = self.args.activation;
        // SAFETY: the caller's.
        unsafe {
            match told.apart::<S::Epilogue>() {
                Apart::Identity => self.finish_as(loaded, normalizer, z, Told::IDENTITY, of_x, row),
                Apart::Relu => self.finish_as(loaded, normalizer, z, Told::RELU, of_x, row),
                Apart::Other => self.finish_as(loaded, normalizer, z, told, of_x, row),
            }
        }
    }

    #[inline(always)]
    unsafe fn finish_as(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        normalizer: Normalizer<f32>,
        z: impl Fn(usize) -> Preactivation,
        told: Told,
        of_x: impl Fn(usize) -> OfX,
        row: u64,
    ) {
        let distance = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| x - normalizer.centre);
        // What is computed in a moment takes no registers in between.
        let g = |v: usize| {
            let (distance, dy) = (distance(v), S::Access::unpack::<T>(loaded.dy[v]));
            slope::<T, S>(self.z(z(v), distance, loaded.residual[v]), dy, told)
        };
        // SAFETY: the caller's.
        unsafe { self.finish_row(distance, g, of_x, row) };
    }

    /// dx and dresidual: the latter last, as it may be where dx is; of each part, what makes dx.
    ///
    /// # Safety
    ///
    /// See [`Args`]; each part belongs to one thread.
    #[inline(always)]
    pub(super) unsafe fn finish_row(
        &self,
        distance: impl Fn(usize) -> Numbers<T, S>,
        g: impl Fn(usize) -> Numbers<T, S>,
        of_x: impl Fn(usize) -> OfX,
        row: u64,
    ) {
        let args = self.args;
        if args.dx.is_null() {
            return;
        }
        let dx = PlaceOf::<T, S>::new(args.dx.cast_const(), row, args.dx_stride);
        let dresidual = PlaceOf::<T, S>::new(args.dresidual.cast_const(), row, args.dresidual_stride);
        unrolled::<V>(|v| {
            if self.has(v) {
                let (g, of_x) = (g(v), of_x(v));
                let numbers = g.zip(distance(v), |g, distance| of_x.apply(g, distance));
                let own = dx.own(self.span, v);
                // SAFETY: the caller's.
                unsafe {
                    S::Access::store_own(dx.part(self.span, v).cast_mut(), S::Access::pack::<T>(numbers), own);
                    if !args.dresidual.is_null() {
                        let place = dresidual.part(self.span, v).cast_mut();
                        S::Access::store_own(place, S::Access::pack::<T>(g), own);
                    }
                }
            }
        });
    }
}
