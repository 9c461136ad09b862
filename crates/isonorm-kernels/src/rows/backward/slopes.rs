//! What an activation makes of dy: the slopes at z, which is computed again from x.

use isonorm_math::normalize;

use super::held::{Loaded, Walk};
use super::sums::Numbers;
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue};
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

    /// g = dy · act′(z) of the parts that the row has, where there may be any activation.
    #[inline(always)]
    pub(super) unsafe fn behind_activation(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &impl Parameters<T, S::Access, V>,
        xhat: impl Fn(usize) -> Numbers<T, S>,
    ) -> [Numbers<T, S>; V] {
        let mut g = [Numbers::<T, S>::splat(0.0); V];
        if S::Epilogue::CLASS != Class::Any {
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
