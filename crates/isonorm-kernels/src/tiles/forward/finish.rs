//! From the statistics of a tile to its results.

use super::{Before, Numbers, Pass, Raw};
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, unrolled};
use crate::simt;
use crate::tiles::Spec;
use crate::tiles::columns::Map;
use crate::tiles::tiling::{Cursor, Tile};

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// What shared memory holds of a tile; the tile that comes to its slot takes its places.
    #[inline(always)]
    pub(super) unsafe fn finish_kept(&self, before: &Before, tile: Tile, map: &Map<Numbers<T, S>>) {
        let walk = &self.walk;
        let coming = walk.coming(before.number);
        // SAFETY: what has come, and places that the tiles have.
        unsafe {
            match (walk.own(tile), coming) {
                // Of a narrow tile.
                ([0, _], Some(coming)) => self.fetch_tile(coming, before.slot),
                (_, coming) if !self.writes() => {
                    if let Some(coming) = coming {
                        self.fetch_tile(coming, before.slot);
                    }
                }
                ([kept, _], coming) => {
                    let coming = coming.filter(|coming| walk.own_column() < coming.width);
                    let (mut at, mut access) = (walk.start(), 0);
                    while N > 1 && access + N as u32 <= kept {
                        self.take_turns::<N>((before.slot, access), (tile, coming), &mut at, map);
                        access += N as u32;
                    }
                    while access < kept {
                        self.take_turns::<1>((before.slot, access), (tile, coming), &mut at, map);
                        access += 1;
                    }
                }
            }
        }
        simt::copy_commit();
    }

    /// Finishes some accesses that have come to a slot, and fetches those of another tile to their places.
    #[inline(always)]
    unsafe fn take_turns<const M: usize>(
        &self,
        (slot, access): (u32, u32),
        (tile, coming): (Tile, Option<Tile>),
        at: &mut Cursor,
        map: &Map<Numbers<T, S>>,
    ) {
        let mut loaded = [S::Access::nothing::<T>(); M];
        // SAFETY: the caller's.
        unsafe {
            unrolled::<M>(|k| loaded[k] = self.slots.part::<T>(slot, 0, access + k as u32));
            if let Some(coming) = coming {
                let mut here = *at;
                unrolled::<M>(|k| {
                    let from = self.place(self.args.x, coming, here);
                    self.slots.fetch(slot, 0, access + k as u32, from);
                    here = self.walk.next(here);
                });
            }
            self.finish_some((tile, access), at, loaded, map);
        }
    }

    /// What shared memory does not hold, newest first.
    #[inline(always)]
    pub(super) unsafe fn finish_others(&self, tile: Tile, map: &Map<Numbers<T, S>>) {
        let [kept, own] = self.walk.own(tile);
        let mut left = own - kept;
        if left == 0 {
            return;
        }
        let mut at = self.walk.at(own);
        // SAFETY: the caller's.
        unsafe {
            while left > 0 && (N == 1 || !left.is_multiple_of(N as u32)) {
                left -= 1;
                at = self.walk.back::<1>(at);
                let loaded: [_; 1] = self.load(self.args.x, tile, &mut at.clone());
                self.finish_some((tile, kept + left), &mut at.clone(), loaded, map);
            }
            while N > 1 && left > 0 {
                left -= N as u32;
                at = self.walk.back::<N>(at);
                let loaded: [_; N] = self.load(self.args.x, tile, &mut at.clone());
                self.finish_some((tile, kept + left), &mut at.clone(), loaded, map);
            }
        }
    }

    /// Scale and shift, residual, activation, and the store, of some accesses from one on, whose place is moved behind them.
    #[inline(always)]
    unsafe fn finish_some<const M: usize>(
        &self,
        (tile, access): (Tile, u32),
        at: &mut Cursor,
        loaded: [Raw<T, S>; M],
        map: &Map<Numbers<T, S>>,
    ) {
        let args = self.args;
        let has_residual = !args.residual.is_null();
        let mut residual = [S::Access::nothing::<T>(); M];
        if has_residual {
            // SAFETY: the caller's.
            residual = unsafe { self.load(args.residual, tile, &mut at.clone()) };
        }
        unrolled::<M>(|k| {
            // SAFETY: the caller's.
            let row = unsafe { self.rows.of::<S>(access + k as u32) };
            let mut z = row.apply::<_, S>(map.apply(S::Access::unpack::<T>(loaded[k])));
            if has_residual {
                z = z.zip(S::Access::unpack::<T>(residual[k]), |z, residual| z + residual);
            }
            let [y] = S::Epilogue::apply::<T, _, _>([z], args.activation);
            let (place, raw) = (self.place(args.y, tile, *at).cast_mut(), S::Access::pack::<T>(y));
            // SAFETY: the caller's; each place belongs to one thread.
            unsafe {
                S::Access::store(place, raw);
                if S::Epilogue::CLASS == Class::Piecewise && !args.mask.is_null() {
                    let byte = (tile.start + at.offset) / u64::from(width::<T, S::Access>());
                    simt::store_8(args.mask.wrapping_add(byte as usize), S::Access::positive::<T>(raw));
                }
            }
            *at = self.walk.next(*at);
        });
    }
}
