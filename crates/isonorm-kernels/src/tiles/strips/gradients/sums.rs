//! The sums over a strip of g · (x − mean) and of g.

use super::{AT_ONCE, Loaded, NOTHING, Pass};
use crate::rows::access::Data;
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, rotated, unrolled};
use crate::simt::{self, Shared};
use crate::tiles::Spec;
use crate::tiles::columns::Map;
use crate::tiles::strips::{PARTS, Strip, wait};

/// Accesses in shared memory for which what says where dy passes is on its way, at most.
const MOST_AHEAD: usize = 4;

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Whether accesses that pass and those in shared memory are added up in turn: something is on its way from memory while the latter are,
    /// which takes long enough to pay with an activation.
    const IN_TURN: bool = matches!(
        S::Epilogue::CLASS,
        Class::Piecewise | Class::Any | Class::Added | Class::Result
    );

    /// Accesses in shared memory for which what says where dy passes is on its way: bits, or, which takes four registers, what they are made of.
    const AHEAD: usize = if Self::MADE { 2 } else { MOST_AHEAD };

    /// The thread's sums of g · (x − mean) and of g.
    #[inline(always)]
    pub(super) unsafe fn sums(
        &self,
        strip: &Strip,
        held: &mut [Loaded; N],
        told: Shared<f32>,
        slope: impl Fn(T::Lanes) -> T::Lanes + Copy,
    ) -> [T::Lanes; 2] {
        // SAFETY: told before a barrier; the strip has what is loaded.
        unsafe {
            let map = self.map(told);
            let mut sums = [T::Lanes::splat(0.0); 2];
            let mut ahead = [[0; 4]; MOST_AHEAD];
            unrolled::<MOST_AHEAD>(|k| {
                if k < Self::AHEAD {
                    ahead[k] = self.beside(strip, strip.passing + k as u32, (k as u32) < strip.kept);
                }
            });
            let mut passing = self.oldest(strip);
            if Self::IN_TURN {
                let (mut access, mut part) = (0, 0);
                while part < PARTS {
                    wait(part);
                    self.add_kept(&mut sums, &map, strip, part, &mut ahead, slope);
                    part += 1;
                    access = self.add_passing(
                        &mut sums,
                        &map,
                        strip,
                        [access, strip.passed(part)],
                        &mut passing,
                        slope,
                    );
                }
            } else {
                unrolled::<PARTS>(|part| {
                    wait(part);
                    self.add_kept(&mut sums, &map, strip, part, &mut ahead, slope);
                });
                self.add_passing(&mut sums, &map, strip, [0, strip.passing], &mut passing, slope);
            }
            unrolled::<N>(|k| {
                if (k as u32) < strip.held {
                    held[k] = Self::masked(held[k], self.bits(&held[k], &map));
                    Self::add(&mut sums, &held[k], &map, slope);
                }
            });
            sums
        }
    }

    /// Starts to load an access that passes.
    #[inline(always)]
    unsafe fn pass_one(&self, strip: &Strip, access: u32) -> Loaded {
        let (args, walk) = (self.args, &self.walk);
        // SAFETY: the caller's: the strip has this place.
        unsafe {
            Loaded {
                x: simt::load_128_again(walk.place(args.x, strip, access).cast()),
                dy: simt::load_128_again(walk.place(args.dy, strip, access).cast()),
                beside: self.beside(strip, access, true),
            }
        }
    }

    /// Starts to load the first ones that pass, if any do.
    #[inline(always)]
    unsafe fn oldest(&self, strip: &Strip) -> [Loaded; AT_ONCE as usize] {
        let mut loaded = [NOTHING; AT_ONCE as usize];
        if strip.passing > 0 {
            // SAFETY: the strip has these places.
            unrolled::<{ AT_ONCE as usize }>(|k| loaded[k] = unsafe { self.pass_one(strip, k as u32) });
        }
        loaded
    }

    /// Adds up a part of what is kept, which has come; `ahead` says where dy passes of the accesses that come first.
    #[inline(always)]
    unsafe fn add_kept(
        &self,
        sums: &mut [T::Lanes; 2],
        map: &Map<T::Lanes>,
        strip: &Strip,
        part: usize,
        ahead: &mut [[u32; 4]; MOST_AHEAD],
        slope: impl Fn(T::Lanes) -> T::Lanes + Copy,
    ) {
        let [mut kept, end] = self.walk.part(strip.kept, part);
        while kept < end {
            // SAFETY: the caller's: this thread has fetched it, and waited; the strip has what is loaded.
            unsafe {
                let mut loaded = self.kept(kept);
                if Self::MASKED {
                    let coming = kept + Self::AHEAD as u32;
                    loaded.beside = ahead[0];
                    *ahead = rotated(*ahead);
                    ahead[Self::AHEAD - 1] = self.beside(strip, strip.passing + coming, coming < strip.kept);
                    loaded = Self::masked(loaded, self.bits(&loaded, map));
                    let [_, dy] = self.slots(kept);
                    simt::shared_store_128(dy, loaded.dy);
                }
                Self::add(sums, &loaded, map, slope);
            }
            kept += 1;
        }
    }

    /// Adds up accesses that pass, from one on, before another; `passing` are the first ones, and those behind the last. Where it has come.
    #[inline(always)]
    unsafe fn add_passing(
        &self,
        sums: &mut [T::Lanes; 2],
        map: &Map<T::Lanes>,
        strip: &Strip,
        [first, end]: [u32; 2],
        passing: &mut [Loaded; AT_ONCE as usize],
        slope: impl Fn(T::Lanes) -> T::Lanes + Copy,
    ) -> u32 {
        let mut access = first;
        while access < end {
            let is_more = access + AT_ONCE < strip.passing;
            unrolled::<{ AT_ONCE as usize }>(|k| {
                let bits = self.bits(&passing[k], map);
                let loaded = Self::masked(passing[k], bits);
                // SAFETY: the caller's: the strip has these places, and there is a byte for each access.
                unsafe {
                    if is_more {
                        passing[k] = self.pass_one(strip, access + AT_ONCE + k as u32);
                    }
                    if Self::MADE {
                        simt::store_8_again(self.sign(access + k as u32), bits);
                    }
                }
                Self::add(sums, &loaded, map, slope);
            });
            access += AT_ONCE;
        }
        access
    }
}
