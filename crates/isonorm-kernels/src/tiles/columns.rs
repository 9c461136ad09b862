//! What is the same for all rows of a column. One thread for each unit works it out, and tells the others.

use super::Spec;
use super::areas::{MOST_UNITS, OF_UNITS};
use super::tiling::Walk;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::at_least_one;
use crate::simt::{self, Shared};

/// `z = (x − centre) · scale + shift`, with `scale` = rstd · weight: of numbers, or of the columns of an access.
///
/// Where all elements are equal they are the mean, so that z is the bias exactly.
#[derive(Clone, Copy, Default)]
pub(super) struct Map<L> {
    pub centre: L,
    pub scale: L,
    pub shift: L,
}

impl<L: Lanes> Map<L> {
    #[inline(always)]
    pub fn apply(&self, x: L) -> L {
        use isonorm_math::Real;
        x.zip(self.centre, |x, centre| x - centre)
            .zip3(self.scale, self.shift, Real::mul_add)
    }
}

/// Tells `N` numbers of the thread's unit, of `count` units, which threads have in order. For a barrier that follows.
///
/// # Safety
///
/// There is a place for each, which was read before a barrier.
#[inline(always)]
pub(super) unsafe fn tell<const N: usize>(place: Shared<f32>, count: u32, numbers: [f32; N]) {
    let thread = simt::thread_index();
    if thread < count {
        unrolled::<N>(|k| {
            // SAFETY: the caller's.
            unsafe { simt::shared_store(place.offset(k as u32 * MOST_UNITS + thread), numbers[k]) };
        });
    }
}

/// What was told of each of the thread's columns, `wide` of which lie side by side in a unit.
///
/// # Safety
///
/// It was told before a barrier.
#[inline(always)]
pub(super) unsafe fn told<L: Lanes, S: Spec>(walk: &Walk<'_, S>, place: Shared<f32>, wide: u32) -> L {
    // SAFETY: the caller's, here and below.
    let of = |unit: u32| unsafe { simt::shared_load(place.offset(unit)) };
    let column = walk.own_column();
    if S::ONE {
        return L::splat(of(0));
    }
    if column >= walk.tiling.width {
        return L::splat(0.0);
    }
    match wide {
        1 => L::each(|lane| of(column + lane)),
        _ => {
            let wide = at_least_one(wide);
            L::each(|lane| of((column + lane) / wide))
        }
    }
}

impl<L: Lanes> Map<L> {
    /// What was told of the units of the thread's columns.
    ///
    /// # Safety
    ///
    /// The three numbers were told before a barrier.
    #[inline(always)]
    pub unsafe fn told<S: Spec>(walk: &Walk<'_, S>) -> Self {
        let run = walk.tiling.run;
        // SAFETY: the caller's.
        let number = |k: u32| unsafe { told(walk, OF_UNITS.offset(k * MOST_UNITS), run) };
        Self {
            centre: number(0),
            scale: number(1),
            shift: number(2),
        }
    }
}
