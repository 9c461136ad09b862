//! The backward pass over strips; see [`backward`](crate::tiles::backward) for what it computes.

mod column;
mod sums;

use isonorm_math::Real;

use super::exchange::Exchange;
use super::{MOST_COLUMNS, OF_COLUMNS, PARTS, Strip, THREADS, Walk, fold, head_bytes, slot, tell};
use crate::rows::access::Data;
use crate::rows::epilogue::{Class, Epilogue, WrittenOut};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::at_least_one;
use crate::simt::{self, Shared};
use crate::tiles::Spec;
pub use crate::tiles::backward::Args;
use crate::tiles::backward::units::leave;
use crate::tiles::columns::Map;

/// Tensors that are kept.
const TENSORS: u32 = 2;
/// Accesses that pass at once.
const AT_ONCE: u32 = super::AT_ONCE / TENSORS;

/// Accesses to x and to dy, as they came, and what says where dy passes: bits, in the first word, or what they are made of.
#[derive(Clone, Copy)]
struct Loaded {
    x: [u32; 4],
    dy: [u32; 4],
    beside: [u32; 4],
}

const NOTHING: Loaded = Loaded {
    x: [0; 4],
    dy: [0; 4],
    beside: [0; 4],
};

/// Where threads are told of a strip's columns, of two places that strips have in turn.
#[inline(always)]
fn set(number: u32) -> Shared<f32> {
    OF_COLUMNS.offset(simt::opaque(number) * (5 * MOST_COLUMNS))
}

/// What dx has of x − mean, and what is added to it, of each column.
const OF_DX: Shared<f32> = OF_COLUMNS.offset(3 * MOST_COLUMNS);

/// Computes the gradients of the strips. For a grid of some teams, all of which run at the same time if a team has several blocks; `N`
/// accesses of a thread to each tensor stay in registers.
///
/// # Safety
///
/// As for [`values`](super::values::values). There is no residual where there is an activation, but in kernels that are for one.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn gradients<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
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
    /// Whether dy passes a mask, which is read, or made. As soon as it is used: what stays on chip needs its bits no more.
    const MASKED: bool = matches!(S::Epilogue::CLASS, Class::Masked | Class::Added | Class::Result);

    /// Whether the mask is made of a tensor: of what was added to z, or of the result.
    const MADE: bool = matches!(S::Epilogue::CLASS, Class::Added | Class::Result);

    #[inline(always)]
    unsafe fn each_strip(&self) {
        let (args, walk) = (self.args, &self.walk);
        let mut exchange = Exchange::new(args.messages, walk.team, walk.rank, &args.tiling);
        let mut number = walk.team;
        let mut own_set = 0;
        // SAFETY: the caller's, and nothing was told before.
        let mut weight = unsafe {
            // First of all, as all else of the strip has to wait for it.
            let column = self.ask(number);
            if walk.has(number) {
                self.fetch(&walk.strip::<S>(number, N as u32));
            }
            let column = self.known(column);
            self.tell(set(own_set), &column);
            column.weight
        };
        simt::block_barrier();
        while walk.has(number) {
            let own = number;
            number = number.saturating_add(walk.teams);
            // SAFETY: as above.
            unsafe {
                let mut held = self.hold(&walk.strip::<S>(own, N as u32));
                let strip = walk.strip::<S>(own, N as u32);
                let sums = match self.is_silu() {
                    true => self.sums(&strip, &mut held, set(own_set), |z| WrittenOut::Silu.slopes_in_turn(z)),
                    false => self.sums(&strip, &mut held, set(own_set), |z| self.slopes(z)),
                };
                let sums = fold::pairs::<T::Lanes, S>(sums, &args.tiling);
                exchange.send(sums);
                // What comes while others send.
                let strip = walk.strip::<S>(own, N as u32);
                let newest = self.newest(&strip);
                let next = self.ask(number);
                let [of_gx, of_g] = exchange.receive(sums);
                let next = self.known(next);
                let rstd = self.own_rstd();
                let of_gx = of_gx * rstd;
                // dx = scale · g + (x − mean) · slope + constant
                let columns = match () {
                    () if S::JOINED => args.tiling.line as u32 / at_least_one(args.tiling.groups_of_line),
                    () if S::BATCHED => args.tiling.inner,
                    () => 1,
                };
                let elements = (args.tiling.rows as u32 * columns) as f32;
                let [of_weighted_gx, of_weighted_g] =
                    fold::over_group::<S>([of_gx * weight, of_g * weight], &args.tiling);
                let slope = -(rstd * (of_weighted_gx / elements)) * rstd;
                let constant = -rstd * (of_weighted_g / elements);
                tell(OF_DX, [slope, constant]);
                // With that, so that a warp that has finished this strip need not wait for the others.
                self.tell(set(1 - own_set), &next);
                simt::block_barrier();
                if walk.rank == 0 && walk.is_first::<S>(&strip) {
                    let place =
                        u64::from(strip.tensor) * args.tiling.line + u64::from(strip.first + simt::thread_index());
                    leave::<T>(args.dweight, place, of_gx, args.as_data);
                    leave::<T>(args.dbias, place, of_g, args.as_data);
                }
                let coming = walk.has(number).then(|| walk.strip::<S>(number, N as u32));
                let (strip, loaded) = (walk.strip::<S>(own, N as u32), (&held, newest));
                match self.is_silu() {
                    true => self.finish(&strip, loaded, coming, set(own_set), |z| {
                        WrittenOut::Silu.slopes_in_turn(z)
                    }),
                    false => self.finish(&strip, loaded, coming, set(own_set), |z| self.slopes(z)),
                }
                weight = next.weight;
                own_set = 1 - own_set;
            }
        }
    }

    #[inline(always)]
    fn slots(&self, kept: u32) -> [Shared<u32>; TENSORS as usize] {
        [0, 1].map(|tensor| slot(head_bytes(T::Lanes::LANES), (kept, TENSORS, tensor)))
    }

    #[inline(always)]
    unsafe fn fetch_one(&self, strip: &Strip, kept: u32) {
        let (args, walk, access, [x, dy]) = (self.args, &self.walk, strip.passing + kept, self.slots(kept));
        // SAFETY: the strip has this place, and what was in shared memory has been used.
        unsafe {
            simt::copy_async_once(x, walk.place(args.x, strip, access).cast());
            simt::copy_async_once(dy, walk.place(args.dy, strip, access).cast());
        }
    }

    /// Sets what is kept of a strip on its way, part by part.
    #[inline(always)]
    unsafe fn fetch(&self, strip: &Strip) {
        // SAFETY: the caller's.
        self.walk
            .each_kept(strip, |kept| unsafe { self.fetch_one(strip, kept) });
    }

    /// What has come to shared memory.
    #[inline(always)]
    unsafe fn kept(&self, kept: u32) -> Loaded {
        // SAFETY: the caller's.
        let [x, dy] = self.slots(kept).map(|place| unsafe { simt::shared_load_128(place) });
        Loaded { x, dy, beside: [0; 4] }
    }

    /// Starts to load what says where dy passes of an access, if there is one.
    #[inline(always)]
    unsafe fn beside(&self, strip: &Strip, access: u32, has: bool) -> [u32; 4] {
        let (args, walk) = (self.args, &self.walk);
        if !Self::MASKED || !has {
            return [0; 4];
        }
        // SAFETY: the caller's: the strip has this place.
        unsafe {
            match Self::MADE {
                true => simt::load_128_once(walk.place(args.residual, strip, access).cast()),
                false => {
                    let byte = walk.byte(strip, access, T::Lanes::LANES);
                    [simt::load_8_again(args.mask.wrapping_add(byte)), 0, 0, 0]
                }
            }
        }
    }

    /// Starts to load where dy passed of an access that did.
    #[inline(always)]
    unsafe fn beside_again(&self, strip: &Strip, access: u32) -> [u32; 4] {
        // SAFETY: the caller's, and this thread has left the byte.
        unsafe {
            match Self::MADE {
                true => [simt::load_8_again(self.sign(access)), 0, 0, 0],
                false => self.beside(strip, access, true),
            }
        }
    }

    /// Where a byte is left of an access that passes.
    #[inline(always)]
    fn sign(&self, access: u32) -> *mut u8 {
        let block = access * simt::grid_blocks() + simt::block_index();
        self.args
            .signs
            .wrapping_add((block * THREADS + simt::thread_index()) as usize)
    }

    /// Where dy passes.
    #[inline(always)]
    fn bits(&self, loaded: &Loaded, map: &Map<T::Lanes>) -> u32 {
        match S::Epilogue::CLASS {
            Class::Added => {}
            Class::Result => return T::positive(loaded.beside),
            _ => return loaded.beside[0],
        }
        let z = map.apply(T::unpack(loaded.x));
        let z = z.zip(T::unpack(loaded.beside), |z, residual| z + residual);
        let [slope] = S::Epilogue::derivative::<T, _, _>([z], self.args.activation);
        let bit = |(n, bits), slope| (n + 1, bits | u32::from(slope != 0.0) << n);
        slope.fold((0, 0), bit).1
    }

    /// With dy as it passes a mask.
    #[inline(always)]
    fn masked(loaded: Loaded, bits: u32) -> Loaded {
        if !Self::MASKED {
            return loaded;
        }
        Loaded {
            dy: T::masked(loaded.dy, bits),
            ..loaded
        }
    }

    /// Starts to load an access that nobody reads again soon.
    #[inline(always)]
    unsafe fn load_once(&self, strip: &Strip, access: u32, beside: [u32; 4]) -> Loaded {
        let (args, walk) = (self.args, &self.walk);
        // SAFETY: the caller's: the strip has this place.
        unsafe {
            Loaded {
                x: simt::load_128_once(walk.place(args.x, strip, access).cast()),
                dy: simt::load_128_once(walk.place(args.dy, strip, access).cast()),
                beside,
            }
        }
    }

    /// Starts to load what stays in registers.
    #[inline(always)]
    unsafe fn hold(&self, strip: &Strip) -> [Loaded; N] {
        let mut held = [NOTHING; N];
        let first = strip.passing + strip.kept;
        unrolled::<N>(|k| {
            if (k as u32) < strip.held {
                let access = first + k as u32;
                // SAFETY: the strip has this place.
                held[k] = unsafe { self.load_once(strip, access, self.beside(strip, access, true)) };
            }
        });
        held
    }

    /// Starts to load an access that passed for the last time.
    #[inline(always)]
    unsafe fn pass_again(&self, strip: &Strip, access: u32) -> Loaded {
        // SAFETY: the caller's: the strip has this place.
        unsafe { self.load_once(strip, access, self.beside_again(strip, access)) }
    }

    /// Starts to load the last ones that passed once more, if any did: the last first.
    #[inline(always)]
    unsafe fn newest(&self, strip: &Strip) -> [Loaded; AT_ONCE as usize] {
        let mut loaded = [NOTHING; AT_ONCE as usize];
        if strip.passing > 0 {
            unrolled::<{ AT_ONCE as usize }>(|k| {
                // SAFETY: the strip has this place.
                loaded[k] = unsafe { self.pass_again(strip, strip.passing - 1 - k as u32) };
            });
        }
        loaded
    }

    /// What was told of the thread's columns.
    #[inline(always)]
    unsafe fn map(&self, told: Shared<f32>) -> Map<T::Lanes> {
        // SAFETY: the caller's.
        let [centre, scale, shift] = [0, 1, 2].map(|k| unsafe { self.walk.told(told.offset(k * MOST_COLUMNS)) });
        Map { centre, scale, shift }
    }

    /// Whether the activation is a SiLU, which has loops of its own: chosen among the others for every access, it would take longer.
    #[inline(always)]
    fn is_silu(&self) -> bool {
        matches!(S::Epilogue::CLASS, Class::Any) && matches!(self.args.activation.written_out(), Some(WrittenOut::Silu))
    }

    /// Slopes of whatever the activation is.
    #[inline(always)]
    fn slopes(&self, z: T::Lanes) -> T::Lanes {
        S::Epilogue::derivative_in_turn::<T, _>(z, self.args.activation)
    }

    /// g of an access.
    #[inline(always)]
    fn gradient(loaded: &Loaded, map: &Map<T::Lanes>, slope: impl Fn(T::Lanes) -> T::Lanes) -> T::Lanes {
        let dy = T::unpack(loaded.dy);
        if !S::Epilogue::CLASS.has_slopes() {
            return dy;
        }
        dy.zip(slope(map.apply(T::unpack(loaded.x))), |dy, slope| dy * slope)
    }

    #[inline(always)]
    fn add(sums: &mut [T::Lanes; 2], loaded: &Loaded, map: &Map<T::Lanes>, slope: impl Fn(T::Lanes) -> T::Lanes) {
        let g = Self::gradient(loaded, map, slope);
        let distance = T::unpack(loaded.x).zip(map.centre, |x, centre| x - centre);
        sums[0] = sums[0].zip3(g, distance, |sum, g, d| Real::mul_add(g, d, sum));
        sums[1] = sums[1].zip(g, |sum, g| sum + g);
    }

    /// The results of a strip; what is kept of another one comes to its places.
    #[inline(always)]
    unsafe fn finish(
        &self,
        strip: &Strip,
        (held, mut newest): (&[Loaded; N], [Loaded; AT_ONCE as usize]),
        coming: Option<Strip>,
        told: Shared<f32>,
        slope: impl Fn(T::Lanes) -> T::Lanes + Copy,
    ) {
        let walk = &self.walk;
        // SAFETY: told before a barrier; here and below places that the strip has.
        unsafe {
            let map = self.map(told);
            let of_dx = [0, 1].map(|k| walk.told(OF_DX.offset(k * MOST_COLUMNS)));
            let mut left = strip.passing;
            while left > 0 {
                let is_more = left > AT_ONCE;
                unrolled::<{ AT_ONCE as usize }>(|k| {
                    let (loaded, access) = (Self::masked(newest[k], newest[k].beside[0]), left - 1 - k as u32);
                    if is_more {
                        newest[k] = self.pass_again(strip, access - AT_ONCE);
                    }
                    self.store(strip, access, &loaded, (&map, of_dx), slope);
                });
                left -= AT_ONCE;
            }
            let first = strip.passing + strip.kept;
            unrolled::<N>(|k| {
                if (k as u32) < strip.held {
                    self.store(strip, first + k as u32, &held[k], (&map, of_dx), slope);
                }
            });
            let is_next = coming.filter(|coming| coming.kept > 0);
            let mut part = 0;
            while part < PARTS {
                let [mut kept, end] = walk.part(strip.kept, part);
                while kept < end {
                    let loaded = self.kept(kept);
                    if let Some(coming) = is_next {
                        self.fetch_one(&coming, kept);
                    }
                    self.store(strip, strip.passing + kept, &loaded, (&map, of_dx), slope);
                    kept += 1;
                }
                simt::copy_commit();
                part += 1;
            }
        }
    }

    /// dx and dresidual of an access: the latter last, as it may be where dx is.
    #[inline(always)]
    unsafe fn store(
        &self,
        strip: &Strip,
        access: u32,
        loaded: &Loaded,
        (map, [of_distance, constant]): (&Map<T::Lanes>, [T::Lanes; 2]),
        slope: impl Fn(T::Lanes) -> T::Lanes,
    ) {
        let (args, walk) = (self.args, &self.walk);
        if args.dx.is_null() {
            return;
        }
        let g = Self::gradient(loaded, map, slope);
        let of_x =
            T::unpack(loaded.x)
                .zip(map.centre, |x, centre| x - centre)
                .zip3(of_distance, constant, Real::mul_add);
        let dx = g.zip3(map.scale, of_x, Real::mul_add);
        // SAFETY: the caller's; each place belongs to one thread.
        unsafe {
            let place = walk.place(args.dx, strip, access).cast_mut();
            simt::store_128_once(place.cast(), T::pack(dx));
            if !S::Epilogue::CLASS.has_slopes() && !args.dresidual.is_null() {
                let place = walk.place(args.dresidual, strip, access).cast_mut();
                simt::store_128_once(place.cast(), loaded.dy);
            }
        }
    }
}
