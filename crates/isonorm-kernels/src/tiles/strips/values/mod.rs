//! The forward pass over strips; see [`forward`](crate::tiles::forward) for what it computes, and how digits are kept.

mod sums;

use isonorm_math::{Normalizer, Real};

use super::exchange::Exchange;
use super::{AT_ONCE, MOST_COLUMNS, OF_COLUMNS, PARTS, SAVED, SUMS, Strip, THREADS, Walk};
use super::{ask, fold, head_bytes, slot, tell};
use crate::rows::access::Data;
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, rotated, unrolled};
use crate::simt::{self, Shared, WARP};
use crate::tiles::Spec;
use crate::tiles::areas::SAMPLES;
use crate::tiles::columns::Map;
pub use crate::tiles::forward::Args;
use crate::tiles::forward::statistics::{Measured, mean_of_sample, measure, save};

type Raw = [u32; 4];

/// What distances are from, of each column: told with what the strip before is finished with, so that a warp that has finished it need not wait
/// for the others.
const ABOUT: Shared<f32> = OF_COLUMNS.offset(3 * MOST_COLUMNS);
/// Whether any column of a warp has to be measured again.
const AGAIN: Shared<u32> = Shared::at(OF_COLUMNS.offset(4 * MOST_COLUMNS).byte_offset());

/// Normalizes the strips. For a grid of some teams, all of which run at the same time if a team has several blocks; `N` accesses of a
/// thread stay in registers.
///
/// # Safety
///
/// As for [`forward`](crate::tiles::forward::forward), with [`head_bytes`] of shared memory; columns are groups and the tensor is the only one of a
/// batch, but for kernels that are for others; there are no more than 2³⁰ elements, and accesses that pass are a multiple of [`AT_ONCE`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn values<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
    let pass = Pass::<T, S, N> {
        args,
        walk: Walk::new(&args.tiling, T::Lanes::LANES),
        of: core::marker::PhantomData,
    };
    // SAFETY: the caller's.
    unsafe { pass.each_strip() };
}

struct Pass<'a, T, S, const N: usize> {
    args: &'a Args<T>,
    walk: Walk<'a>,
    of: core::marker::PhantomData<S>,
}

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Whether a residual is added, which is loaded ahead: first that of accesses that passed, then that of those in registers, and in shared
    /// memory. In the order in which they are finished, which is the same in all threads but for those in registers, of which a thread may have
    /// fewer.
    const ADDS: bool = matches!(S::Epilogue::CLASS, Class::Masked);
    const _AHEAD: () = assert!(!Self::ADDS || N == AT_ONCE as usize);

    #[inline(always)]
    unsafe fn each_strip(&self) {
        let (args, walk) = (self.args, &self.walk);
        let mut exchange = Exchange::new(args.messages, walk.team, walk.rank, &args.tiling);
        let mut number = walk.team;
        let mut held = [[0; 4]; N];
        // SAFETY: the caller's, and nothing was told before.
        let mut about = unsafe {
            let sample = self.sample(number);
            if walk.has(number) {
                let strip = walk.strip::<S>(number, N as u32);
                self.fetch(&strip);
                held = self.hold(&strip);
            }
            let about = mean_of_sample(sample);
            tell(ABOUT, [about]);
            about
        };
        simt::block_barrier();
        while walk.has(number) {
            let own = number;
            number = number.saturating_add(walk.teams);
            // SAFETY: as above.
            unsafe {
                let mut repeated = false;
                loop {
                    let sums =
                        fold::pairs::<T::Lanes, S>(self.sums(&walk.strip::<S>(own, N as u32), &held), &args.tiling);
                    let sums = fold::over_group::<S>(sums, &args.tiling);
                    exchange.send(sums);
                    // What comes while others send.
                    let strip = walk.strip::<S>(own, N as u32);
                    let newest = self.newest(&strip);
                    let added = self.first_added(&strip);
                    let next = mean_of_sample(self.sample(number));
                    let affine = &args.affine;
                    let parameters = [(affine.weight, 1.0), (affine.bias, 0.0)]
                        .map(|parameter| ask::<T, S>(affine, parameter, (walk, &strip)));
                    let measured = measure(exchange.receive(sums), about, args.reciprocal, args.eps);
                    let parameters = parameters.map(|parameter| affine.known::<T>(parameter));
                    if self.tell(&strip, &measured, parameters, next) && !repeated {
                        // All blocks of the team agree.
                        (about, repeated) = (measured.mean as f32, true);
                        tell(ABOUT, [about]);
                        simt::block_barrier();
                        continue;
                    }
                    about = next;
                    let coming = walk.has(number).then(|| walk.strip::<S>(number, N as u32));
                    self.finish(&walk.strip::<S>(own, N as u32), &held, newest, added, coming);
                    self.save(&walk.strip::<S>(own, N as u32));
                    if walk.has(number) {
                        held = self.hold(&walk.strip::<S>(number, N as u32));
                    }
                    break;
                }
            }
        }
    }

    /// Starts to load the sample of the thread's column of a strip; nothing where there is none.
    #[inline(always)]
    unsafe fn sample(&self, number: u32) -> [T; SAMPLES as usize] {
        let (args, mut sample) = (self.args, [T::default(); SAMPLES as usize]);
        if !self.walk.has(number) {
            return sample;
        }
        let strip = self.walk.strip::<S>(number, N as u32);
        if self.walk.has_column(&strip) {
            let (rows, line) = (args.tiling.rows as u32, args.tiling.line as u32);
            let part = rows / SAMPLES;
            let first =
                strip.tensor * (rows * line) + strip.first + self.walk.first_of_group::<S>(simt::thread_index());
            unrolled::<{ SAMPLES as usize }>(|k| {
                // In the middle of each part.
                let row = (part * k as u32 + part / 2).min(rows - 1);
                let place = first + row * line;
                // SAFETY: the column has this element.
                sample[k] = unsafe { T::load(args.x.wrapping_add(place as usize)) };
            });
        }
        sample
    }

    #[inline(always)]
    fn slot(&self, kept: u32) -> Shared<u32> {
        slot(head_bytes(T::Lanes::LANES), (kept, 1, 0))
    }

    #[inline(always)]
    unsafe fn fetch_one(&self, strip: &Strip, kept: u32) {
        let from = self.walk.place(self.args.x, strip, strip.passing + kept);
        // SAFETY: the strip has this place, and what was in shared memory has been used.
        unsafe { simt::copy_async_once(self.slot(kept), from.cast()) };
    }

    /// Sets what is kept of a strip on its way, part by part.
    #[inline(always)]
    unsafe fn fetch(&self, strip: &Strip) {
        // SAFETY: the caller's.
        self.walk
            .each_kept(strip, |kept| unsafe { self.fetch_one(strip, kept) });
    }

    /// Starts to load what stays in registers.
    #[inline(always)]
    unsafe fn hold(&self, strip: &Strip) -> [Raw; N] {
        let mut held = [[0; 4]; N];
        let first = strip.passing + strip.kept;
        unrolled::<N>(|k| {
            if (k as u32) < strip.held {
                let place = self.walk.place(self.args.x, strip, first + k as u32);
                // SAFETY: the strip has this place.
                held[k] = unsafe { simt::load_128_once(place.cast()) };
            }
        });
        held
    }

    /// Starts to load the access of that number from the last one that passed, for the last time.
    #[inline(always)]
    fn pass_again(&self, strip: &Strip, back: u32) -> Raw {
        let place = self.walk.place(self.args.x, strip, strip.passing - 1 - back);
        // SAFETY: the strip has this place.
        unsafe { simt::load_128_once(place.cast()) }
    }

    /// Starts to load the last ones that passed, if any did.
    #[inline(always)]
    fn newest(&self, strip: &Strip) -> [Raw; AT_ONCE as usize] {
        let mut loaded = [[0; 4]; AT_ONCE as usize];
        if strip.passing > 0 {
            unrolled::<{ AT_ONCE as usize }>(|k| loaded[k] = self.pass_again(strip, k as u32));
        }
        loaded
    }

    /// Tells all threads what is known of the thread's column, and what distances in the next strip are from. Whether any column has to be
    /// measured again. Ends with a barrier.
    #[inline(always)]
    unsafe fn tell(&self, strip: &Strip, measured: &Measured, [weight, bias]: [f32; 2], next: f32) -> bool {
        let Normalizer { centre, rstd, offset } = Normalizer::<f32>::new(measured.mean, measured.rstd.into());
        let own = self.walk.has_column(strip);
        let again = simt::any(own && !measured.well);
        let warps = MOST_COLUMNS / WARP;
        // SAFETY: what was told before was read before a barrier, and sums are not needed any more.
        unsafe {
            // The last of them at [`ABOUT`].
            tell(
                OF_COLUMNS,
                [centre, rstd * weight, Real::mul_add(offset, weight, bias), next],
            );
            // By the thread that saves it.
            tell(SAVED, [measured.mean as f32, measured.variance, measured.rstd]);
            if simt::lane() == 0 && simt::warp_index() < warps {
                simt::shared_store(AGAIN.offset(simt::warp_index()), again.into());
            }
        }
        simt::block_barrier();
        let mut any = 0;
        unrolled::<{ (MOST_COLUMNS / WARP) as usize }>(|warp| {
            // SAFETY: written before the barrier.
            any |= unsafe { simt::shared_load(AGAIN.offset(warp as u32)) };
        });
        any != 0
    }

    /// The results of a strip; what is kept of another one comes to its places.
    #[inline(always)]
    unsafe fn finish(
        &self,
        strip: &Strip,
        held: &[Raw; N],
        mut newest: [Raw; AT_ONCE as usize],
        mut added: [Raw; AT_ONCE as usize],
        coming: Option<Strip>,
    ) {
        let walk = &self.walk;
        // SAFETY: told before a barrier; here and below places that the strip has.
        unsafe {
            let map = Map::<T::Lanes> {
                centre: walk.told(OF_COLUMNS),
                scale: walk.told(OF_COLUMNS.offset(MOST_COLUMNS)),
                shift: walk.told(OF_COLUMNS.offset(2 * MOST_COLUMNS)),
            };
            let mut back = 0;
            while back < strip.passing {
                let is_more = back + AT_ONCE < strip.passing;
                unrolled::<{ AT_ONCE as usize }>(|k| {
                    let (raw, back) = (newest[k], back + k as u32);
                    if is_more {
                        newest[k] = self.pass_again(strip, back + AT_ONCE);
                    }
                    let residual = Self::turn(&mut added, k, || match is_more {
                        true => self.load_residual(strip, strip.passing - 1 - back - AT_ONCE),
                        false => self.added_to_held(strip, k as u32),
                    });
                    self.finish_one(strip, strip.passing - 1 - back, (raw, residual), &map);
                });
                back += AT_ONCE;
            }
            let first = strip.passing + strip.kept;
            unrolled::<N>(|k| {
                let residual = Self::turn(&mut added, k, || self.added_to_kept(strip, k as u32));
                if (k as u32) < strip.held {
                    self.finish_one(strip, first + k as u32, (held[k], residual), &map);
                }
            });
            // A narrower strip is the last, and a thread that has none of this one has none of the next.
            let is_next = coming.filter(|coming| coming.kept > 0);
            let mut part = 0;
            while part < PARTS {
                let [mut kept, end] = walk.part(strip.kept, part);
                while kept < end {
                    let raw = simt::shared_load_128(self.slot(kept));
                    if let Some(coming) = is_next {
                        self.fetch_one(&coming, kept);
                    }
                    let residual = Self::turn(&mut added, 0, || self.added_to_kept(strip, kept + AT_ONCE));
                    if Self::ADDS {
                        added = rotated(added);
                    }
                    self.finish_one(strip, strip.passing + kept, (raw, residual), &map);
                    kept += 1;
                }
                simt::copy_commit();
                part += 1;
            }
        }
    }

    /// Scale and shift, residual, activation, and the store.
    #[inline(always)]
    unsafe fn finish_one(&self, strip: &Strip, access: u32, (raw, residual): (Raw, Raw), map: &Map<T::Lanes>) {
        let (args, walk) = (self.args, &self.walk);
        let mut z = map.apply(T::unpack(raw));
        // SAFETY: the caller's; each place belongs to one thread.
        unsafe {
            if Self::ADDS {
                z = z.zip(T::unpack(residual), |z, residual| z + residual);
            } else if !args.residual.is_null() {
                let residual = T::unpack(self.load_residual(strip, access));
                z = z.zip(residual, |z, residual| z + residual);
            }
            let [y] = S::Epilogue::apply::<T, _, _>([z], args.activation);
            let (place, y) = (walk.place(args.y, strip, access).cast_mut(), T::pack(y));
            simt::store_128_once(place.cast(), y);
            if Self::ADDS && !args.mask.is_null() {
                let byte = walk.byte(strip, access, T::Lanes::LANES);
                simt::store_8_again(args.mask.wrapping_add(byte), T::positive(y));
            }
        }
    }

    /// Starts to load what is added to an access.
    #[inline(always)]
    unsafe fn load_residual(&self, strip: &Strip, access: u32) -> Raw {
        let place = self.walk.place(self.args.residual, strip, access);
        // SAFETY: the caller's: the strip has this place.
        unsafe { simt::load_128_once(place.cast()) }
    }

    /// What was loaded ahead at a place, which the next takes.
    #[inline(always)]
    fn turn(ahead: &mut [Raw; AT_ONCE as usize], place: usize, next: impl FnOnce() -> Raw) -> Raw {
        match Self::ADDS {
            true => core::mem::replace(&mut ahead[place], next()),
            false => [0; 4],
        }
    }

    /// Starts to load what is added to an access in registers, if there is one.
    #[inline(always)]
    unsafe fn added_to_held(&self, strip: &Strip, held: u32) -> Raw {
        if held >= strip.held {
            return [0; 4];
        }
        // SAFETY: the caller's.
        unsafe { self.load_residual(strip, strip.passing + strip.kept + held) }
    }

    /// Starts to load what is added to an access in shared memory, if there is one.
    #[inline(always)]
    unsafe fn added_to_kept(&self, strip: &Strip, kept: u32) -> Raw {
        if kept >= strip.kept {
            return [0; 4];
        }
        // SAFETY: the caller's.
        unsafe { self.load_residual(strip, strip.passing + kept) }
    }

    /// Starts to load what is added to the accesses that are finished first.
    #[inline(always)]
    unsafe fn first_added(&self, strip: &Strip) -> [Raw; AT_ONCE as usize] {
        let mut added = [[0; 4]; AT_ONCE as usize];
        if !Self::ADDS {
            return added;
        }
        unrolled::<{ AT_ONCE as usize }>(|k| {
            // SAFETY: the caller's.
            added[k] = unsafe {
                match strip.passing {
                    0 => self.added_to_held(strip, k as u32),
                    passing => self.load_residual(strip, passing - 1 - k as u32),
                }
            };
        });
        added
    }

    /// Saves what is known of the thread's column, as this thread has kept it.
    #[inline(always)]
    unsafe fn save(&self, strip: &Strip) {
        let (walk, thread) = (&self.walk, simt::thread_index());
        if walk.rank != 0 || !walk.is_first::<S>(strip) || walk.first_of_group::<S>(thread) != thread {
            return;
        }
        // SAFETY: this thread has kept it, and the caller's.
        unsafe {
            let known = [0, 1, 2].map(|k| simt::shared_load(SAVED.offset(k * MOST_COLUMNS + thread)));
            save(self.args, walk.group::<S>(strip, thread), known);
        }
    }
}

const _: () = assert!(SAVED.offset(MOST_COLUMNS).byte_offset() == SUMS.byte_offset() && THREADS >= MOST_COLUMNS);
