//! From elements to results.

use super::{Numbers, Pass, Raw};
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::Epilogue;
use crate::rows::lanes::{Lanes, unrolled};
use crate::simt;
use crate::tiles::Spec;
use crate::tiles::columns::Map;
use crate::tiles::stream::Turn;
use crate::tiles::tiling::Cursor;

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Some accesses that have come to a place in shared memory.
    #[inline(always)]
    pub(super) unsafe fn kept<const M: usize>(&self, place: u32, access: u32) -> [Raw<T, S>; M] {
        let mut loaded = [S::Access::nothing::<T>(); M];
        // SAFETY: the caller's.
        unrolled::<M>(|k| loaded[k] = unsafe { self.places.get::<T>(place, 0, access + k as u32) });
        loaded
    }

    /// A tile, straight from memory.
    #[inline(always)]
    pub(super) unsafe fn apply(&self, turn: Turn) {
        // SAFETY: the caller's.
        let map = unsafe { self.maps.map(self.walk) };
        let (mut at, mut left) = (self.walk.start(turn), self.walk.own(turn));
        // SAFETY: the caller's.
        unsafe {
            while N > 1 && left >= N as u32 {
                let loaded: [_; N] = self.load(self.args.x, &mut at.clone());
                self.store(&mut at, loaded, &map);
                left -= N as u32;
            }
            while left > 0 {
                simt::rolled();
                let loaded: [_; 1] = self.load(self.args.x, &mut at.clone());
                self.store(&mut at, loaded, &map);
                left -= 1;
            }
        }
    }

    /// Scale and shift, residual, activation, and the store, of some accesses from a place on, which is moved behind them.
    #[inline(always)]
    pub(super) unsafe fn store<const M: usize>(
        &self,
        at: &mut Cursor,
        loaded: [Raw<T, S>; M],
        map: &Map<Numbers<T, S>>,
    ) {
        let args = self.args;
        let has_residual = !args.residual.is_null();
        let mut residual = [S::Access::nothing::<T>(); M];
        if has_residual {
            // SAFETY: the caller's.
            residual = unsafe { self.load(args.residual, &mut at.clone()) };
        }
        unrolled::<M>(|k| {
            let mut z = map.apply(S::Access::unpack::<T>(loaded[k]));
            if has_residual {
                z = z.zip(S::Access::unpack::<T>(residual[k]), |z, residual| z + residual);
            }
            let [y] = S::Epilogue::apply([z], args.activation);
            let place = self.place(args.y, *at).cast_mut();
            // SAFETY: the caller's; each place belongs to one thread.
            unsafe { S::Access::store(place, S::Access::pack::<T>(y)) };
            *at = self.walk.next(*at);
        });
    }
}
