//! What is done with the accesses of a thread: how they come, what they add to sums, and what becomes of them.

use isonorm_math::Real;

use super::{Numbers, OfDx, Pass, Raw, has_residual};
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, unrolled};
use crate::tiles::Spec;
use crate::tiles::columns::Map;
use crate::tiles::tiling::Cursor;

/// Some accesses to each tensor, as they came.
pub(super) struct Loaded<R, const N: usize> {
    x: [R; N],
    dy: [R; N],
    residual: [R; N],
}

impl<R: Copy, const N: usize> Loaded<R, N> {
    #[inline(always)]
    fn nothing(nothing: R) -> Self {
        Self {
            x: [nothing; N],
            dy: [nothing; N],
            residual: [nothing; N],
        }
    }
}

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    #[inline(always)]
    fn has_residual(&self) -> bool {
        has_residual::<T, S>(self.args)
    }

    #[inline(always)]
    fn place(&self, base: *const T, at: Cursor) -> *const T {
        base.wrapping_add(at.offset as usize)
    }

    /// Sets an access on its way to a place in shared memory, and moves behind it.
    #[inline(always)]
    pub(super) unsafe fn fetch_one(&self, (place, access): (u32, u32), at: &mut Cursor) {
        let args = self.args;
        // SAFETY: the caller's: the tile has this place, and what was in the other has been used.
        unsafe {
            self.places.fetch(place, 0, access, self.place(args.x, *at));
            self.places.fetch(place, 1, access, self.place(args.dy, *at));
            if self.has_residual() {
                self.places.fetch(place, 2, access, self.place(args.residual, *at));
            }
        }
        *at = self.walk.next(*at);
    }

    /// Some accesses that have come to a place in shared memory.
    #[inline(always)]
    pub(super) unsafe fn kept<const M: usize>(&self, place: u32, access: u32) -> Loaded<Raw<T, S>, M> {
        let mut loaded = Loaded::nothing(S::Access::nothing::<T>());
        unrolled::<M>(|k| {
            let access = access + k as u32;
            // SAFETY: the caller's.
            unsafe {
                loaded.x[k] = self.places.get::<T>(place, 0, access);
                loaded.dy[k] = self.places.get::<T>(place, 1, access);
                if self.has_residual() {
                    loaded.residual[k] = self.places.get::<T>(place, 2, access);
                }
            }
        });
        loaded
    }

    /// g of an access.
    #[inline(always)]
    fn gradient<const M: usize>(
        &self,
        loaded: &Loaded<Raw<T, S>, M>,
        map: &Map<Numbers<T, S>>,
        k: usize,
    ) -> Numbers<T, S> {
        let dy = S::Access::unpack::<T>(loaded.dy[k]);
        if S::Epilogue::CLASS == Class::Plain {
            return dy;
        }
        let mut z = map.apply(S::Access::unpack::<T>(loaded.x[k]));
        if self.has_residual() {
            z = z.zip(S::Access::unpack::<T>(loaded.residual[k]), |z, residual| z + residual);
        }
        let [slope] = S::Epilogue::derivative([z], self.args.activation);
        dy.zip(slope, |dy, slope| dy * slope)
    }

    /// Adds some accesses to the thread's sums.
    #[inline(always)]
    pub(super) fn add_some<const M: usize>(
        &self,
        sums: &mut [Numbers<T, S>; 2],
        loaded: &Loaded<Raw<T, S>, M>,
        map: &Map<Numbers<T, S>>,
    ) {
        unrolled::<M>(|k| {
            let g = self.gradient(loaded, map, k);
            let distance = S::Access::unpack::<T>(loaded.x[k]).zip(map.centre, |x, centre| x - centre);
            sums[0] = sums[0].zip3(g, distance, |sum, g, d| Real::mul_add(g, d, sum));
            sums[1] = sums[1].zip(g, |sum, g| sum + g);
        });
    }

    /// dx and dresidual of some accesses from a place on, which is moved behind them: the latter last, as it may be where dx is.
    #[inline(always)]
    pub(super) unsafe fn store<const M: usize>(
        &self,
        at: &mut Cursor,
        loaded: &Loaded<Raw<T, S>, M>,
        of_dx: &OfDx<Numbers<T, S>>,
    ) {
        let args = self.args;
        let OfDx { map, slope, constant } = of_dx;
        unrolled::<M>(|k| {
            if !args.dx.is_null() {
                let g = self.gradient(loaded, map, k);
                let of_x = S::Access::unpack::<T>(loaded.x[k])
                    .zip(map.centre, |x, centre| x - centre)
                    .zip3(*slope, *constant, Real::mul_add);
                let dx = g.zip3(map.scale, of_x, Real::mul_add);
                // SAFETY: the caller's; each place belongs to one thread.
                unsafe {
                    let place = self.place(args.dx, *at).cast_mut();
                    S::Access::store(place, S::Access::pack::<T>(dx));
                    if !args.dresidual.is_null() {
                        let place = self.place(args.dresidual, *at).cast_mut();
                        S::Access::store(place, S::Access::pack::<T>(g));
                    }
                }
            }
            *at = self.walk.next(*at);
        });
    }
}
