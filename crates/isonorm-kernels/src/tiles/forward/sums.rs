//! A thread's sums over its share of a tile.

use isonorm_math::Real;

use super::{Numbers, Pass, Raw};
use crate::rows::access::{Access, Data};
use crate::rows::lanes::{Lanes, unrolled};
use crate::simt;
use crate::tiles::Spec;
use crate::tiles::areas::SHIFTS;
use crate::tiles::columns;
use crate::tiles::slots::{PART, Place};
use crate::tiles::tiling::Tile;

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Adds a thread's distances from what was told, and their squares.
    #[inline(always)]
    fn add(sums: &mut [Numbers<T, S>; 2], about: Numbers<T, S>, raw: Raw<T, S>) {
        let distance = S::Access::unpack::<T>(raw).zip(about, |x, about| x - about);
        *sums = [
            sums[0].zip(distance, |sum, d| sum + d),
            sums[1].zip(distance, |sum, d| Real::mul_add(d, d, sum)),
        ];
    }

    /// The thread's sums, of parts as they come; a part that passes makes room for another.
    #[inline(always)]
    pub(super) unsafe fn sums_as_they_come(&self, tile: Tile, place: Place) -> [Numbers<T, S>; 2] {
        let (share, in_slot) = (self.walk.share(tile), self.slots.parts());
        if in_slot == 0 {
            // SAFETY: the caller's.
            return unsafe { self.sums_again(tile, place) };
        }
        // SAFETY: told before a barrier.
        let about: Numbers<T, S> = unsafe { columns::told(&self.walk, SHIFTS, self.args.tiling.inner) };
        let mut sums = [Numbers::<T, S>::splat(0.0); 2];
        let (mut place, mut part) = (place, 0);
        let mut coming = if share.passing > 0 {
            self.walk.at(in_slot * PART)
        } else {
            self.walk.start()
        };
        while part * PART < share.own {
            simt::rolled();
            self.slots.wait();
            let count = share.of_part(part);
            // SAFETY: it has come, and the tile has the places that come.
            unsafe {
                if N > 1 && count == PART {
                    let mut raw = [S::Access::nothing::<T>(); PART as usize];
                    unrolled::<{ PART as usize }>(|k| raw[k] = self.slots.part::<T>(place, 0, k as u32));
                    unrolled::<{ PART as usize }>(|k| Self::add(&mut sums, about, raw[k]));
                } else {
                    let mut access = 0;
                    while access < count {
                        simt::rolled();
                        Self::add(&mut sums, about, self.slots.part::<T>(place, 0, access));
                        access += 1;
                    }
                }
                self.fetch_part(tile, share, part + in_slot, &mut coming, place);
            }
            place = self.slots.next(place);
            part += 1;
        }
        sums
    }

    /// The thread's sums once more: what has passed is read again, the rest has stayed. The place is that of the tile's first part.
    #[inline(always)]
    pub(super) unsafe fn sums_again(&self, tile: Tile, place: Place) -> [Numbers<T, S>; 2] {
        let share = self.walk.share(tile);
        // SAFETY: told before a barrier.
        let about: Numbers<T, S> = unsafe { columns::told(&self.walk, SHIFTS, self.args.tiling.inner) };
        let mut sums = [Numbers::<T, S>::splat(0.0); 2];
        let (mut at, mut place, mut access) = (self.walk.start(), place, 0);
        while access < share.own {
            simt::rolled();
            // SAFETY: the tile has this place, or it has come.
            let [raw] = unsafe {
                match access < share.passing {
                    true => self.load(self.args.x, tile, &mut at, false),
                    false => [self.slots.part::<T>(place, 0, access % PART)],
                }
            };
            Self::add(&mut sums, about, raw);
            access += 1;
            if access.is_multiple_of(PART) {
                place = self.slots.next(place);
            }
        }
        sums
    }
}
