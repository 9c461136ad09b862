//! What is known of the thread's unit, and what becomes of its sums.

use isonorm_math::Real;

use super::Pass;
use crate::rows::access::Data;
use crate::rows::parameters::at_least_one;
use crate::simt;
use crate::tiles::Spec;
use crate::tiles::areas::{MOST_UNITS, SUMS};
use crate::tiles::columns::{self, Map};
use crate::tiles::tiling::Tile;

/// What is known of the thread's unit.
#[derive(Clone, Copy, Default)]
pub(super) struct Unit {
    /// From x to z.
    pub map: Map<f32>,
    pub weight: f32,
    pub rstd: f32,
}

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Whether no mean was taken off.
    #[inline(always)]
    pub(super) fn is_about_zero(&self) -> bool {
        S::BY_ROW && self.args.centred == 0
    }

    /// Whether the thread has a unit of the tile.
    #[inline(always)]
    pub(super) fn has_unit(&self, tile: Tile) -> bool {
        let (tiling, thread) = (&self.args.tiling, simt::thread_index());
        thread < tiling.units() && thread * tiling.run < tile.width
    }

    /// Whether anybody needs the sums.
    #[inline(always)]
    pub(super) fn has_sums(&self) -> bool {
        !(S::GIVEN && self.args.dweight.is_null() && self.args.dbias.is_null())
    }

    /// With given statistics: what makes the part of dx that is linear in x of the thread's unit, slope and constant, by means that are told.
    #[inline(always)]
    pub(super) unsafe fn told_means(&self, tile: Tile, unit: &Unit) -> [f32; 2] {
        let args = self.args;
        if args.mean.is_null() || !self.has_unit(tile) {
            return [0.0; 2];
        }
        let place = (tile.unit + simt::thread_index()) as usize;
        // SAFETY: the caller's: a number for each unit.
        let [of_g, of_gx] = [args.mean, args.rstd].map(|base| unsafe { f32::load(base.wrapping_add(place)) });
        let scale = unit.rstd * unit.weight;
        [-(scale * of_gx) * unit.rstd, -scale * of_g]
    }

    /// Starts to load what is known of the thread's unit of a tile; nothing where there is none.
    #[inline(always)]
    pub(super) unsafe fn unit(&self, number: u32) -> Unit {
        let (args, tiling, thread) = (self.args, &self.args.tiling, simt::thread_index());
        if number >= tiling.tiles {
            return Unit::default();
        }
        let tile = self.walk.tile(number);
        if !self.has_unit(tile) {
            return Unit::default();
        }
        let parameter = |base: *const u8, otherwise: f32| {
            if S::BY_ROW || base.is_null() {
                return otherwise;
            }
            // SAFETY: the caller's: a parameter for each unit.
            unsafe { args.affine.parameter::<T>(base, tile.unit + thread) }
        };
        let [weight, bias] = [parameter(args.affine.weight, 1.0), parameter(args.affine.bias, 0.0)];
        let [centre, rstd] = if S::GIVEN {
            let variance = parameter(args.given_variance, 0.0);
            [parameter(args.given_mean, 0.0), 1.0 / Real::sqrt(variance + args.eps)]
        } else {
            let of_group = at_least_one(tiling.inner / at_least_one(tiling.run));
            let group = tile.group + u64::from(thread / of_group);
            // SAFETY: the caller's: a number for each group.
            let of = |base: *const f32| unsafe { f32::load(base.wrapping_add(group as usize)) };
            [if self.is_about_zero() { 0.0 } else { of(args.mean) }, of(args.rstd)]
        };
        Unit {
            map: Map {
                centre,
                scale: rstd * weight,
                shift: bias,
            },
            weight,
            rstd,
        }
    }

    /// Leaves the gradients of the thread's parameter.
    #[inline(always)]
    pub(super) unsafe fn leave(&self, number: u32, tile: Tile, [of_gx, of_g]: [f32; 2]) {
        let (args, tiling) = (self.args, &self.args.tiling);
        let units = tiling.groups_of_line * (tiling.inner / at_least_one(tiling.run));
        let batch = u64::from(number / at_least_one(tiling.across));
        let place = batch * u64::from(units) + u64::from(tile.unit + simt::thread_index());
        for (base, sum) in [(args.dweight, of_gx), (args.dbias, of_g)] {
            // SAFETY: the caller's: a number for each parameter.
            unsafe { leave::<T>(base, place, sum, args.as_data) };
        }
    }

    /// The means of g · weight · x̂ and of g · weight over the group of the thread's unit, from those of units.
    #[inline(always)]
    pub(super) unsafe fn means(&self, of_unit: [f32; 2]) -> [f32; 2] {
        let tiling = &self.args.tiling;
        let (groups, units) = (tiling.groups(), tiling.units());
        let mut sums = of_unit;
        if units != groups {
            let of_group = at_least_one(tiling.inner / at_least_one(tiling.run));
            // SAFETY: shared memory is the kernel's; read after the barrier.
            unsafe { columns::tell(SUMS, units, of_unit) };
            simt::block_barrier();
            let first = simt::thread_index().min(units - 1) / of_group * of_group.get();
            let mut index = 0;
            sums = [0.0; 2];
            while index < of_group.get() {
                let place = SUMS.offset(first + index);
                // SAFETY: written before the barrier.
                let [of_gx, of_g] = unsafe { [simt::shared_load(place), simt::shared_load(place.offset(MOST_UNITS))] };
                sums = [sums[0] + of_gx, sums[1] + of_g];
                index += 1;
            }
        }
        self.over_group(sums)
    }

    /// Sums of a group as means.
    #[inline(always)]
    pub(super) fn over_group(&self, sums: [f32; 2]) -> [f32; 2] {
        let elements = self.args.tiling.rows as f32 * self.args.tiling.inner as f32;
        sums.map(|sum| sum / elements)
    }
}

/// Leaves a gradient at a place, in the data's type or as it is; nothing where it is not wanted.
#[inline(always)]
pub(in crate::tiles) unsafe fn leave<T: Data>(base: *mut u8, place: u64, sum: f32, as_data: u32) {
    if base.is_null() {
        return;
    }
    // SAFETY: the caller's.
    unsafe {
        if as_data != 0 {
            T::store(base.cast::<T>().wrapping_add(place as usize), T::from_acc(sum));
        } else {
            f32::store(base.cast::<f32>().wrapping_add(place as usize), sum);
        }
    }
}
