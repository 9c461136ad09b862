//! From the statistics of a tile to its results.

use super::{Before, Numbers, Pass, Raw};
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, unrolled};
use crate::simt;
use crate::tiles::Spec;
use crate::tiles::columns::Map;
use crate::tiles::slots::{PART, Place};
use crate::tiles::tiling::{Cursor, Share, Tile};

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// What shared memory holds of a tile; the tile that comes to its slot takes its places, from the one on that is returned.
    #[inline(always)]
    pub(super) unsafe fn finish_kept(&self, before: &Before, tile: Tile, map: &Map<Numbers<T, S>>) -> Place {
        let (walk, in_slot) = (&self.walk, self.slots.parts());
        let share = walk.share(tile);
        let coming = walk.coming(before.number).map(|coming| (coming, walk.share(coming)));
        let first = share.passing / PART;
        let behind = self.slots.further(before.place, first);
        let (mut place, mut at, mut here, mut part) = (behind, walk.at(share.passing), walk.start(), 0);
        while part < in_slot {
            simt::rolled();
            let count = share.of_part(first + part);
            let of_coming = coming.map_or(0, |(_, share)| share.of_part(part));
            // SAFETY: what has come, and places that the tiles have.
            unsafe {
                let before = (first + part) * PART;
                if N > 1 && count == PART && (of_coming == PART || of_coming == 0) {
                    let coming = coming.filter(|_| of_coming > 0);
                    let mut access = 0;
                    while access < PART {
                        simt::rolled();
                        let turn = (place, access, before);
                        self.take_turns::<N>(turn, (tile, &mut at), (coming, part, &mut here), map);
                        access += N as u32;
                    }
                } else {
                    let mut access = 0;
                    while access < count.max(of_coming) {
                        simt::rolled();
                        let coming = coming.filter(|_| access < of_coming);
                        if access < count {
                            let turn = (place, access, before);
                            self.take_turns::<1>(turn, (tile, &mut at), (coming, part, &mut here), map);
                        } else if let Some((coming, share)) = coming {
                            self.fetch_one(coming, &mut here, (place, access), share.passes(part));
                        }
                        access += 1;
                    }
                }
            }
            simt::copy_commit();
            place = self.slots.next(place);
            part += 1;
        }
        behind
    }

    /// Finishes some accesses of a part that has come, and fetches those of another tile to their places.
    #[inline(always)]
    unsafe fn take_turns<const M: usize>(
        &self,
        (place, access, before): (Place, u32, u32),
        (tile, at): (Tile, &mut Cursor),
        (coming, part, here): (Option<(Tile, Share)>, u32, &mut Cursor),
        map: &Map<Numbers<T, S>>,
    ) {
        let mut loaded = [S::Access::nothing::<T>(); M];
        // SAFETY: the caller's.
        unsafe {
            unrolled::<M>(|k| loaded[k] = self.slots.part::<T>(place, 0, access + k as u32));
            if let Some((coming, share)) = coming {
                self.fetch_some::<M>(coming, here, (place, access), share.passes(part));
            }
            self.finish_some((tile, before + access), at, loaded, map);
        }
    }

    /// What shared memory does not hold, newest first.
    #[inline(always)]
    pub(super) unsafe fn finish_others(&self, tile: Tile, map: &Map<Numbers<T, S>>) {
        let mut left = self.walk.share(tile).passing;
        if left == 0 {
            return;
        }
        let last = !S::GIVEN;
        let mut at = self.walk.at(left);
        // SAFETY: the caller's.
        unsafe {
            while left > 0 && (N == 1 || !left.is_multiple_of(N as u32)) {
                simt::rolled();
                left -= 1;
                at = self.walk.back::<1>(at);
                let loaded: [_; 1] = self.load(self.args.x, tile, &mut at.clone(), last);
                self.finish_some((tile, left), &mut at.clone(), loaded, map);
            }
            if N == 1 || left == 0 {
                return;
            }
            at = self.walk.back::<N>(at);
            if S::Epilogue::CLASS != Class::Plain {
                // No registers are left for what comes next.
                while left > 0 {
                    simt::rolled();
                    left -= N as u32;
                    let loaded: [_; N] = self.load(self.args.x, tile, &mut at.clone(), last);
                    self.finish_some((tile, left), &mut at.clone(), loaded, map);
                    at = self.walk.back::<N>(at);
                }
                return;
            }
            let mut coming: [_; N] = self.load(self.args.x, tile, &mut at.clone(), last);
            while left > 0 {
                simt::rolled();
                left -= N as u32;
                let (loaded, mut here) = (coming, at);
                if left > 0 {
                    at = self.walk.back::<N>(at);
                    coming = self.load(self.args.x, tile, &mut at.clone(), last);
                }
                self.finish_some((tile, left), &mut here, loaded, map);
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
            residual = unsafe { self.load(args.residual, tile, &mut at.clone(), false) };
        }
        unrolled::<M>(|k| {
            // SAFETY: the caller's.
            let row = unsafe { self.rows.of::<S>(access + k as u32) };
            let mut z = row.apply::<_, S>(map.apply(S::Access::unpack::<T>(loaded[k])));
            if has_residual {
                z = z.zip(S::Access::unpack::<T>(residual[k]), |z, residual| z + residual);
            }
            let [y] = S::Epilogue::apply([z], args.activation);
            let place = self.place(args.y, tile, *at).cast_mut();
            // SAFETY: the caller's; each place belongs to one thread.
            unsafe { S::Access::store(place, S::Access::pack::<T>(y)) };
            *at = self.walk.next(*at);
        });
    }
}
