//! The sums over a strip of distances from what was told of each column, and of their squares.

use isonorm_math::Real;

use super::{ABOUT, Pass, Raw};
use crate::rows::access::Data;
use crate::rows::lanes::{Lanes, unrolled};
use crate::simt;
use crate::tiles::Spec;
use crate::tiles::strips::{AT_ONCE, PARTS, Strip, wait};

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// The thread's sums of distances from what was told, and of their squares.
    #[inline(always)]
    pub(super) unsafe fn sums(&self, strip: &Strip, held: &[Raw; N]) -> [T::Lanes; 2] {
        let walk = &self.walk;
        // SAFETY: told before a barrier.
        let about: T::Lanes = unsafe { walk.told(ABOUT) };
        let mut sums = [T::Lanes::splat(0.0); 2];
        let mut passing = self.oldest(strip);
        unrolled::<PARTS>(|part| {
            wait(part);
            let [mut kept, end] = walk.part(strip.kept, part);
            while kept < end {
                // SAFETY: this thread has fetched it, and waited.
                add::<T>(&mut sums, about, unsafe { simt::shared_load_128(self.slot(kept)) });
                kept += 1;
            }
        });
        let mut access = 0;
        while access < strip.passing {
            let is_more = access + AT_ONCE < strip.passing;
            unrolled::<{ AT_ONCE as usize }>(|k| {
                let raw = passing[k];
                if is_more {
                    passing[k] = self.pass_one(strip, access + AT_ONCE + k as u32);
                }
                add::<T>(&mut sums, about, raw);
            });
            access += AT_ONCE;
        }
        unrolled::<N>(|k| {
            if (k as u32) < strip.held {
                add::<T>(&mut sums, about, held[k]);
            }
        });
        sums
    }

    /// Starts to load an access that passes.
    #[inline(always)]
    fn pass_one(&self, strip: &Strip, access: u32) -> Raw {
        // SAFETY: the strip has this place.
        unsafe { simt::load_128_again(self.walk.place(self.args.x, strip, access).cast()) }
    }

    /// Starts to load the first ones that pass, if any do.
    #[inline(always)]
    fn oldest(&self, strip: &Strip) -> [Raw; AT_ONCE as usize] {
        let mut loaded = [[0; 4]; AT_ONCE as usize];
        if strip.passing > 0 {
            unrolled::<{ AT_ONCE as usize }>(|k| loaded[k] = self.pass_one(strip, k as u32));
        }
        loaded
    }
}

/// Adds an access to the sums.
#[inline(always)]
fn add<T: Data>(sums: &mut [T::Lanes; 2], about: T::Lanes, raw: Raw) {
    let distance = T::unpack(raw).zip(about, |x, about| x - about);
    *sums = [
        sums[0].zip(distance, |sum, d| sum + d),
        sums[1].zip(distance, |sum, d| Real::mul_add(d, d, sum)),
    ];
}
