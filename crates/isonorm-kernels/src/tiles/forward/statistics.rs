//! From the sums of a group to what is known of it, by one thread each.

use core::num::NonZero;

use isonorm_math::Real;

use super::{Args, Pass};
use crate::rows::access::Data;
use crate::rows::lanes::unrolled;
use crate::rows::parameters::at_least_one;
use crate::rows::running::blend;
use crate::rows::statistics::not_below_zero;
use crate::simt::{self, WARP};
use crate::tiles::Spec;
use crate::tiles::areas::{self, AGAIN, SAMPLES, SAMPLES_AT};
use crate::tiles::tiling::Tile;

/// The share of the squares about the sample's mean that those about the mean must have.
const DIGITS_KEPT: f64 = 0.25;

/// What the thread of a group knows of it.
#[derive(Clone, Copy)]
pub(in crate::tiles) struct Measured {
    pub mean: f64,
    pub variance: f32,
    pub rstd: f32,
    /// Whether enough digits are left.
    pub well: bool,
}

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Works out where the places of a sample are, for all tiles.
    #[inline(always)]
    pub(super) unsafe fn place_samples(&self) {
        let (tiling, thread) = (&self.args.tiling, simt::thread_index());
        if thread < SAMPLES {
            // In the middle of each part.
            let elements = tiling.rows * u64::from(tiling.inner);
            let part = elements / u64::from(SAMPLES);
            let element = (part * u64::from(thread) + part / 2).min(elements - 1);
            let inner = NonZero::<u64>::from(at_least_one(tiling.inner));
            let offset = element / inner * tiling.line + element % inner;
            let place = SAMPLES_AT.offset(2 * thread);
            // SAFETY: a place for each thread, before the barrier.
            unsafe {
                simt::shared_store(place, offset as u32);
                simt::shared_store(place.offset(1), (offset >> 32) as u32);
            }
        }
        simt::block_barrier();
    }

    /// Starts to load the sample of the thread's group; nothing where there is none.
    #[inline(always)]
    pub(super) unsafe fn sample(&self, number: u32) -> [T; SAMPLES as usize] {
        let (tiling, mut sample) = (&self.args.tiling, [T::default(); SAMPLES as usize]);
        if number < tiling.tiles && !self.is_about_zero() {
            let tile = self.walk.tile(number);
            let column = simt::thread_index() * tiling.inner;
            if simt::thread_index() < tiling.groups() && column < tile.width {
                let group = self.args.x.wrapping_add((tile.first + u64::from(column)) as usize);
                unrolled::<{ SAMPLES as usize }>(|k| {
                    let place = SAMPLES_AT.offset(2 * k as u32);
                    // SAFETY: written before a barrier; the group has this element.
                    sample[k] = unsafe {
                        let (low, high) = (simt::shared_load(place), simt::shared_load(place.offset(1)));
                        T::load(group.wrapping_add((u64::from(high) << 32 | u64::from(low)) as usize))
                    };
                });
            }
        }
        sample
    }

    /// From the sums of the thread's group to what is known of it.
    #[inline(always)]
    pub(super) fn measure(&self, [sum, squares]: [f32; 2], about: f32) -> Measured {
        let sum = if self.is_about_zero() { 0.0 } else { sum };
        measure([sum, squares], about, self.args.reciprocal, self.args.eps)
    }

    /// Whether something holds for any thread that has a group; the same in all of the block. Ends with a barrier.
    #[inline(always)]
    pub(super) unsafe fn any(&self, own: bool) -> bool {
        let of_warp = simt::any(own);
        if simt::lane() == 0 {
            // SAFETY: a place for each warp, which was read before a barrier.
            unsafe { simt::shared_store(AGAIN.offset(simt::warp_index()), of_warp.into()) };
        }
        simt::block_barrier();
        let (mut any, mut warp, warps) = (0, 0, self.args.tiling.groups().div_ceil(WARP));
        while warp < warps {
            // SAFETY: written before the barrier.
            any |= unsafe { simt::shared_load(AGAIN.offset(warp)) };
            warp += 1;
        }
        any != 0
    }

    /// Saves what is known of the thread's group, as it has been kept.
    #[inline(always)]
    pub(super) unsafe fn save(&self, tile: Tile, slot: u32) {
        let group = tile.group + u64::from(simt::thread_index());
        // SAFETY: this thread has kept it, and the caller's.
        unsafe {
            let known = [0, 1, 2].map(|k| simt::shared_load(areas::own(slot, k)));
            save(self.args, group, known);
        }
    }
}

/// Saves mean, variance and rstd of a group, and takes them into its running statistics.
///
/// # Safety
///
/// The pointers are as [`Args`] says; one thread a group.
#[inline(always)]
pub(in crate::tiles) unsafe fn save<T: Data>(args: &Args<T>, group: u64, [mean, variance, rstd]: [f32; 3]) {
    for (place, number) in [(args.mean, mean), (args.rstd, rstd), (args.variance, variance)] {
        if !place.is_null() {
            // SAFETY: the caller's: a number for each group.
            unsafe { f32::store(place.wrapping_add(group as usize), number) };
        }
    }
    if !args.running_mean.is_null() {
        let how = (args.factor, args.affine.as_data);
        // SAFETY: the caller's: a number for each group.
        unsafe {
            blend::<T>(args.running_mean, group, mean.into(), how);
            blend::<T>(args.running_variance, group, f64::from(variance) * args.unbias, how);
        }
    }
}

/// From the sums of distances from a number, and of their squares, to what is known of a group; `reciprocal` is 1 / n.
#[inline(always)]
pub(in crate::tiles) fn measure(sums: [f32; 2], about: f32, reciprocal: f64, eps: f32) -> Measured {
    let [sum, squares] = sums.map(f64::from);
    let rest = sum * reciprocal;
    let m2 = squares - rest * sum;
    let variance = not_below_zero((m2 * reciprocal) as f32);
    Measured {
        mean: f64::from(about) + rest,
        variance,
        rstd: 1.0 / Real::sqrt(variance + eps),
        // Not for a NaN either.
        well: is_well(m2, squares),
    }
}

/// Whether a sum of squares about the mean has enough digits, made from squares about numbers nearby.
#[inline(always)]
pub(in crate::tiles) fn is_well(m2: f64, squares: f64) -> bool {
    m2 >= DIGITS_KEPT * squares
}

/// The mean of a sample: of equal numbers exactly that one. The first of them, if the sum is no number.
#[inline(always)]
pub(in crate::tiles) fn mean_of_sample<T: Data>(sample: [T; SAMPLES as usize]) -> f32 {
    let [a, b, c, d, e, f, g, h] = sample.map(T::to_acc);
    let mean = (((a + b) + (c + d)) + ((e + f) + (g + h))) * (1.0 / SAMPLES as f32);
    if mean.is_finite() { mean } else { a }
}
