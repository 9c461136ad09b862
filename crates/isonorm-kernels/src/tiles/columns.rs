//! What is the same for all rows of a column. One thread for each unit works it out, and tells the others, who look it up for each
//! part: in registers it would be in the way.

use super::areas::{self, MOST_UNITS};
use super::tiling::{Tiling, Walk};
use super::{Spec, THREADS};
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

/// `N` numbers of each column, in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Columns<const N: usize> {
    /// Of units; of the tile, where it is one group.
    units: Shared<f32>,
    /// Of columns: the first number of all, then the second, …
    columns: Shared<f32>,
}

impl<const N: usize> Columns<N> {
    /// Where there is a place for so many numbers of units, and for those of columns after so many others, in a kernel with accesses
    /// of `elements` elements.
    #[inline(always)]
    pub fn new(units: Shared<f32>, after: u32, tiling: &Tiling, elements: u32) -> Self {
        Self {
            units,
            columns: areas::columns(tiling, elements).offset(after * tiling.width),
        }
    }

    /// Tells the numbers of the thread's unit, `wide` columns of which lie side by side, of `units`, which threads have in order. Called by the
    /// whole block; ends with a barrier.
    ///
    /// # Safety
    ///
    /// What was told before was read before a barrier.
    #[inline(always)]
    pub unsafe fn tell<S: Spec>(&self, (wide, units): (u32, u32), walk: &Walk<'_, S>, numbers: [f32; N]) {
        let (thread, width) = (simt::thread_index(), walk.tiling.width);
        let of_column = |k: usize, column: u32| self.columns.offset(k as u32 * width + column);
        // SAFETY: the caller's, here and below.
        unsafe {
            if !walk.takes_turns() && wide == 1 {
                if thread < width {
                    unrolled::<N>(|k| simt::shared_store(of_column(k, thread), numbers[k]));
                }
            } else {
                tell(self.units, units, numbers);
                if !walk.takes_turns() {
                    simt::block_barrier();
                    let mut column = thread;
                    while column < width {
                        simt::rolled();
                        let unit = column / at_least_one(wide);
                        unrolled::<N>(|k| {
                            let number = simt::shared_load(self.units.offset(k as u32 * MOST_UNITS + unit));
                            simt::shared_store(of_column(k, column), number);
                        });
                        column += THREADS;
                    }
                }
            }
            simt::block_barrier();
        }
    }

    /// Number `k` of each of the columns of a thread's accesses.
    ///
    /// # Safety
    ///
    /// It was told.
    #[inline(always)]
    pub unsafe fn told<L: Lanes, S: Spec>(&self, k: u32, walk: &Walk<'_, S>) -> L {
        let tiling = walk.tiling;
        // SAFETY: the caller's, here and below.
        unsafe {
            if walk.takes_turns() {
                return L::splat(simt::shared_load(self.units.offset(k * MOST_UNITS)));
            }
            let place = self.columns.offset(k * tiling.width + walk.own_column());
            let mut four = [0; 4];
            L::each(|lane| {
                if L::LANES == 1 {
                    return simt::shared_load(place);
                }
                if lane.is_multiple_of(4) {
                    four = simt::shared_load_128(Shared::at(place.offset(lane).byte_offset()));
                }
                f32::from_bits(four[lane as usize % 4])
            })
        }
    }

    /// The first three numbers.
    ///
    /// # Safety
    ///
    /// They were told.
    #[inline(always)]
    pub unsafe fn map<L: Lanes, S: Spec>(&self, walk: &Walk<'_, S>) -> Map<L> {
        // SAFETY: the caller's.
        unsafe {
            Map {
                centre: self.told(0, walk),
                scale: self.told(1, walk),
                shift: self.told(2, walk),
            }
        }
    }
}
