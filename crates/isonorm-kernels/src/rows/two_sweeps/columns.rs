//! Gradients of weight and bias by column: sums over the rows of a team, in shared memory as far as that holds them.

use isonorm_math::Normalizer;

use super::HEAD_BYTES;
use super::share::{Loaded, Numbers, Stretch, Walk};
use crate::rows::access::{Access, Data, width};
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{OfColumn, at_least_one};
use crate::simt::{self, Shared};

impl<T: Data, S: Spec<Map: OfColumn>, const V: usize> Walk<'_, T, S, V> {
    /// Adds a tile of a row to the gradients of its columns.
    #[inline(always)]
    pub(super) unsafe fn add(
        &self,
        stretch: Stretch,
        (at, apart): (u32, u32),
        loaded: &Loaded<T, S::Access, V>,
        g: &[Numbers<T, S>; V],
        normalizer: Normalizer<f32>,
        is_first: bool,
    ) {
        unrolled::<V>(|v| {
            let at = at + v as u32 * apart;
            if at < stretch.len {
                let xhat = S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
                let gx = g[v].zip(xhat, |g, xhat| g * xhat);
                let bases = [self.args.dweight, self.args.dbias];
                for (which, base, more) in [(0, bases[0], gx), (1, bases[1], g[v])] {
                    if !base.is_null() {
                        // SAFETY: the caller's; these numbers belong to this thread.
                        unsafe { self.add_to(which, base, stretch, (at, apart), more, is_first) };
                    }
                }
            }
        });
    }

    /// Adds to the weight's sums, or to the bias's, those of the elements from `at` on, in shared or in global memory.
    #[inline(always)]
    pub(super) unsafe fn add_to(
        &self,
        which: u32,
        base: *mut f32,
        stretch: Stretch,
        (at, apart): (u32, u32),
        more: Numbers<T, S>,
        is_first: bool,
    ) {
        let shared = self.summed_at(which, at, apart);
        let place = self.place(base, stretch.column + u64::from(at));
        let mut sum = more;
        // SAFETY: the caller's.
        unsafe {
            if !is_first {
                let before = match shared {
                    Some(shared) => Numbers::<T, S>::kept(shared, simt::thread_index(), simt::block_threads()),
                    None => Numbers::<T, S>::load(place),
                };
                sum = before.zip(more, |before, more| before + more);
            }
            match shared {
                Some(shared) => sum.keep(shared, simt::thread_index(), simt::block_threads()),
                None => sum.store(place),
            }
        }
    }

    /// Where the sums of the elements from `at` on are kept in shared memory, if they are.
    #[inline(always)]
    pub(super) fn summed_at(&self, which: u32, at: u32, apart: u32) -> Option<Shared<f32>> {
        // A part of a tile for all threads of the block.
        let part = at / at_least_one(apart);
        (part < self.args.kept * V as u32).then(|| {
            let numbers = simt::block_threads() * width::<T, S::Access>();
            Shared::at(HEAD_BYTES).offset((part * 2 + which) * numbers)
        })
    }

    /// Where the team's sum of a column goes.
    #[inline(always)]
    pub(super) fn place(&self, base: *mut f32, column: u64) -> *mut f32 {
        base.wrapping_add((u64::from(self.team) * self.args.columns + column) as usize)
    }

    /// Leaves what shared memory holds of the gradients by column; zeros where the team had no row.
    #[inline(always)]
    pub(super) unsafe fn leave(&self, any: bool) {
        if !self.has_sums() {
            return;
        }
        let Some(stretch) = self.own_stretch(0) else { return };
        let (first, apart, _) = self.tile();
        let mut at = first;
        while at < stretch.len {
            for (which, base) in [(0, self.args.dweight), (1, self.args.dbias)] {
                let shared = self.summed_at(which, at, apart);
                let place = self.place(base, stretch.column + u64::from(at));
                // SAFETY: the caller's; these numbers belong to this thread.
                unsafe {
                    match shared {
                        _ if base.is_null() => {}
                        _ if !any => Numbers::<T, S>::splat(0.0).store(place),
                        Some(shared) => {
                            Numbers::<T, S>::kept(shared, simt::thread_index(), simt::block_threads()).store(place)
                        }
                        None => {}
                    }
                }
            }
            at += apart;
        }
    }
}
