//! The backward pass over rows in segments, each with a weight and a bias of its own: its sums of g · x̂ and of g are their gradients.

use isonorm_math::{Normalizer, normalize};

pub use super::Args;
use super::Work;
use super::held::{Loaded, Walk};
use super::sums::Numbers;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::forward::{Spec, next_set};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{Affine, at_least_one};
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

    /// Those of the next row.
    #[inline(always)]
    pub(super) unsafe fn next<T: Data>(&mut self, affine: &Affine) -> OfRow {
        // SAFETY: the caller's.
        let parameters = unsafe { OfRow::of::<T>(affine, self.set) };
        self.set = next_set(self.set, self.step, at_least_one(affine.sets));
        parameters
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
        let parameters = &self.parameters;
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        let behind_activation = match S::Epilogue::CLASS {
            // SAFETY: the caller's.
            Class::Any => unsafe { walk.behind_activation(loaded, parameters, xhat) },
            _ => [Numbers::<T, S>::splat(0.0); V],
        };
        // What is computed in a moment takes no registers in between.
        let g = |v: usize| match S::Epilogue::CLASS {
            Class::Plain | Class::Masked => S::Access::unpack::<T>(loaded.dy[v]),
            Class::Piecewise => walk.slope(xhat(v), S::Access::unpack::<T>(loaded.dy[v]), *parameters),
            Class::Any => behind_activation[v],
        };
        let sums = team.sum_pair(walk.sums_of_row(xhat, g));
        if row < walk.args.rows {
            let coefficients = walk.coefficients(sums.map(|sum| sum * parameters.weight));
            // SAFETY: the caller's.
            unsafe {
                walk.finish(parameters, xhat, g, normalizer.rstd, coefficients, row);
                if team.rank() == 0 {
                    walk.leave_row(sums, row);
                }
            }
        }
    }
}

impl<T: Data, S: Spec<Team: Team, Map = Segmented>, const V: usize> Walk<'_, T, S, V> {
    /// g = dy · act′(z), where there is no residual.
    #[inline(always)]
    pub(super) fn slope(&self, xhat: Numbers<T, S>, dy: Numbers<T, S>, parameters: OfRow) -> Numbers<T, S> {
        let z = xhat.map(|xhat| normalize::affine(xhat, parameters.weight, parameters.bias));
        let [slope] = S::Epilogue::derivative([z], self.args.activation);
        slope.zip(dy, |slope, dy| slope * dy)
    }

    /// The thread's sums of g and of g · x̂.
    #[inline(always)]
    pub(super) fn sums_of_row(
        &self,
        xhat: impl Fn(usize) -> Numbers<T, S>,
        g: impl Fn(usize) -> Numbers<T, S>,
    ) -> [f32; 2] {
        let (mut of_g, mut of_gx) = (0.0, 0.0);
        unrolled::<V>(|v| {
            if self.has(v) {
                let (xhat, g) = (xhat(v), g(v));
                of_g = g.fold(of_g, |sum, g| sum + g);
                of_gx = g.dot(xhat, of_gx);
            }
        });
        [of_g, of_gx]
    }

    /// Writes the gradients of the row's weight and bias.
    ///
    /// # Safety
    ///
    /// See [`Args`]; one thread a row.
    #[inline(always)]
    pub(super) unsafe fn leave_row(&self, [of_g, of_gx]: [f32; 2], row: u64) {
        let args = self.args;
        for (base, sum) in [(args.dweight, of_gx), (args.dbias, of_g)] {
            if !base.is_null() {
                // SAFETY: the caller's: a number for each row, in the parameters' type.
                unsafe {
                    if args.affine.is_narrow::<T>() {
                        T::store(base.cast::<T>().wrapping_add(row as usize), T::from_acc(sum));
                    } else {
                        f32::store(base.wrapping_add(row as usize), sum);
                    }
                }
            }
        }
    }
}
