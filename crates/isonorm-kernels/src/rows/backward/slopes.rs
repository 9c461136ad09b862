//! What an activation makes of dy: the slopes at z, which is computed again from x.

use core::cell::Cell;

use isonorm_math::{Normalizer, normalize};

use super::ByColumns;
use super::held::{Loaded, Walk};
use super::sums::Numbers;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::Epilogue;
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::Parameters;
use crate::rows::team::Team;

impl<T: Data, S: Spec<Team: Team>, const V: usize> Walk<'_, T, S, V> {
    /// z of part `v`, which the row has.
    #[inline(always)]
    unsafe fn preactivation(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &impl Parameters<T, S::Access, V>,
        xhat: impl Fn(usize) -> Numbers<T, S>,
        v: usize,
    ) -> Numbers<T, S> {
        // SAFETY: the caller's.
        let [weight, bias] = unsafe { self.parameters(parameters, v) };
        let z = xhat(v).zip3(weight, bias, normalize::affine);
        match self.has_residual() {
            true => z.zip(S::Access::unpack::<T>(loaded.residual[v]), |z, residual| z + residual),
            false => z,
        }
    }

    /// g = dy · act′(z) of the parts that the row has, where it is not dy or 0.
    #[inline(always)]
    pub(super) unsafe fn behind_activation(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &impl Parameters<T, S::Access, V>,
        xhat: impl Fn(usize) -> Numbers<T, S>,
    ) -> [Numbers<T, S>; V] {
        let mut g = [Numbers::<T, S>::splat(0.0); V];
        if !S::Epilogue::CLASS.has_slopes() {
            return g;
        }
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's.
                g[v] = unsafe { self.preactivation(loaded, parameters, &xhat, v) };
            }
        });
        g = S::Epilogue::derivative::<T, _, _>(g, self.args.activation);
        unrolled::<V>(|v| g[v] = g[v].zip(S::Access::unpack::<T>(loaded.dy[v]), |slope, dy| slope * dy));
        g
    }

    /// Part `v` of dy, which the row has, behind a ReLU: 0 where z is not above 0.
    #[inline(always)]
    pub(super) unsafe fn behind_relu(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &impl Parameters<T, S::Access, V>,
        xhat: impl Fn(usize) -> Numbers<T, S>,
        v: usize,
    ) -> Numbers<T, S> {
        // SAFETY: the caller's.
        let z = unsafe { self.preactivation(loaded, parameters, xhat, v) };
        z.zip(
            S::Access::unpack::<T>(loaded.dy[v]),
            |z, dy| if z <= 0.0 { 0.0 } else { dy },
        )
    }
}

impl<T: Data, S: Spec<Team: Team>, const V: usize> ByColumns<T, S, V> {
    /// All that is done with a row behind a ReLU: what that makes of dy takes the place of dy as it is added up.
    #[inline(always)]
    pub(super) unsafe fn row_behind_relu(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        team: &mut S::Team,
        (row, loaded, normalizer): (u64, &Loaded<T, S::Access, V>, Normalizer<f32>),
    ) {
        let parameters = &self.parameters;
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        let dy = Cell::new(loaded.dy);
        let masked = |v: usize| {
            // SAFETY: the caller's, for a part that the row has.
            let g = unsafe { walk.behind_relu(loaded, parameters, xhat, v) };
            let mut parts = dy.get();
            parts[v] = S::Access::pack::<T>(g);
            dy.set(parts);
            g
        };
        // SAFETY: the caller's.
        let own = unsafe { walk.add(parameters, &mut self.sums, xhat, masked) };
        let coefficients = walk.coefficients(team.sum_pair(own));
        let g = |v: usize| S::Access::unpack::<T>(dy.get()[v]);
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
