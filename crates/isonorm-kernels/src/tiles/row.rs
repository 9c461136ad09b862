//! What is the same for all columns of a row: weight and bias, where they belong to rows. A block has those of its rows in shared memory,
//! as numbers.

use super::areas;
use super::tiling::{Tiling, Walk};
use super::{Spec, THREADS};
use crate::rows::access::{Access, Data, width};
use crate::rows::lanes::Lanes;
use crate::rows::parameters::{Affine, at_least_one};
use crate::simt::{self, Shared};

/// `z = x̂ · weight + bias`
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub weight: f32,
    bias: f32,
}

impl Row {
    /// What comes of x̂, where parameters belong to rows; else x̂ has been z already.
    #[inline(always)]
    pub fn apply<L: Lanes, S: Spec>(&self, normalized: L) -> L {
        use isonorm_math::Real;
        if !S::BY_ROW {
            return normalized;
        }
        normalized.map(|x| Real::mul_add(x, self.weight, self.bias))
    }
}

/// The rows of a thread's accesses.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// What is known of the first one.
    first: Shared<f32>,
    /// Words to that of the next one.
    step: u32,
}

impl Rows {
    /// Where they lie: before the sums of accesses.
    #[inline(always)]
    fn start<T: Data, A: Access>(tiling: &Tiling) -> Shared<f32> {
        Shared::at(areas::slots(tiling, width::<T, A>()))
    }

    /// Those of this thread.
    #[inline(always)]
    pub fn new<T: Data, S: Spec>(walk: &Walk<'_, S>) -> Self {
        let lanes = at_least_one(walk.tiling.lanes);
        Self {
            first: Self::start::<T, S::Access>(walk.tiling).offset(2 * (simt::thread_index() / lanes)),
            step: 2 * (THREADS / lanes),
        }
    }

    /// Loads weight and bias of all rows of the block, 1 and 0 where there are none. Ends with a barrier.
    ///
    /// # Safety
    ///
    /// There is a parameter for each row, and room for those of each access.
    #[inline(always)]
    pub unsafe fn load<T: Data, S: Spec>(walk: &Walk<'_, S>, affine: &Affine) {
        let tiling = walk.tiling;
        let mut index = simt::thread_index();
        while let Some(row) = walk.row(index) {
            if row < tiling.rows {
                let parameter = |base: *const u8, otherwise: f32| match base.is_null() {
                    true => otherwise,
                    // SAFETY: the caller's.
                    false => unsafe { affine.parameter::<T>(base, row as u32) },
                };
                let place = Self::start::<T, S::Access>(tiling).offset(2 * index);
                // SAFETY: the caller's; read after the barrier.
                unsafe {
                    simt::shared_store(place, parameter(affine.weight, 1.0));
                    simt::shared_store(place.offset(1), parameter(affine.bias, 0.0));
                }
            }
            index += THREADS;
        }
        simt::block_barrier();
    }

    /// That of an access of the thread, by its number.
    ///
    /// # Safety
    ///
    /// They have been loaded, and the tile has this access.
    #[inline(always)]
    pub unsafe fn of<S: Spec>(&self, access: u32) -> Row {
        if !S::BY_ROW {
            return Row { weight: 1.0, bias: 0.0 };
        }
        let place = self.first.offset(access * self.step);
        // SAFETY: the caller's.
        unsafe {
            Row {
                weight: simt::shared_load(place),
                bias: simt::shared_load(place.offset(1)),
            }
        }
    }

    /// The same for those who need the weight only.
    ///
    /// # Safety
    ///
    /// As [`of`](Self::of).
    #[inline(always)]
    pub unsafe fn weight_of<S: Spec>(&self, access: u32) -> Row {
        let weight = match S::BY_ROW {
            // SAFETY: the caller's.
            true => unsafe { simt::shared_load(self.first.offset(access * self.step)) },
            false => 1.0,
        };
        Row { weight, bias: 0.0 }
    }
}
