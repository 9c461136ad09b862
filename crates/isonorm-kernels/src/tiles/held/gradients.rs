//! The backward pass over tiles that blocks hold; see [`backward`](crate::tiles::backward) for what it computes. x, dy, and where z depends on one, the
//! residual are in shared memory.

use core::marker::PhantomData;

use isonorm_math::Real;

use super::{NUMBERS, PARTS, Place, fold, wait};
use crate::rows::access::Data;
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, unrolled};
use crate::simt;
use crate::tiles::Spec;
pub use crate::tiles::backward::Args;
use crate::tiles::backward::units::leave;
use crate::tiles::columns::Map;
use crate::warp;

/// Tensors in shared memory.
const X: u32 = 0;
const DY: u32 = 1;
const RESIDUAL: u32 = 2;

/// Numbers of groups: what makes z of x, and slope and constant of the part of dx that is linear in x.
const OF_Z: u32 = 0;
const OF_DX: u32 = 3;

/// Computes the gradients of the tiles; as [`values`](super::values::values).
///
/// # Safety
///
/// The same. There is room for accesses to dy, too, and where z depends on a residual, to that.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn gradients<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
    let pass = Pass::<T, S, N> {
        args,
        place: Place::new(&args.tiling, T::Lanes::LANES),
        of: PhantomData,
    };
    // SAFETY: the caller's.
    unsafe { pass.run() };
}

struct Pass<'a, T, S, const N: usize> {
    args: &'a Args<T>,
    place: Place<'a>,
    of: PhantomData<S>,
}

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Whether dy passes a mask, which is read, or made of z. As soon as sums are made: bits are not needed again.
    const MASKED: bool = matches!(S::Epilogue::CLASS, Class::Masked | Class::Added);

    /// Whether the mask is made of z.
    const MADE: bool = matches!(S::Epilogue::CLASS, Class::Added);

    /// Whether what makes z is read again for each access: for eight numbers it would take 24 registers from one to the next.
    const ANEW: bool = size_of::<T>() == 2 && (Self::MADE || S::Epilogue::CLASS.has_slopes());

    #[inline(always)]
    unsafe fn run(&self) {
        let (args, place) = (self.args, &self.place);
        // SAFETY: the caller's, here and below.
        unsafe {
            let affine = &args.affine;
            // First of all, as all else has to wait for it.
            let [mean, rstd] = [args.mean, args.rstd].map(|base| place.ask(base));
            let parameters =
                [(affine.weight, 1.0), (affine.bias, 0.0)].map(|parameter| place.ask_parameter::<T>(affine, parameter));
            match self.has_residual() {
                true => place.fetch([args.x, args.dy, args.residual]),
                false => place.fetch([args.x, args.dy]),
            }
            if place.has_group() {
                let group = simt::thread_index();
                let [centre, rstd] = [mean, rstd].map(simt::opaque);
                let [weight, bias] = parameters.map(|parameter| affine.known::<T>(parameter));
                place.tell(NUMBERS, OF_Z, group, [centre, rstd * weight, bias]);
                place.tell(place.kept_numbers(), 0, group, [rstd, weight]);
            }
            place.tell_rest();
            simt::block_barrier();
            let sums = self.sums(&self.map()).map(|sums| fold::halves(place, sums));
            fold::leave(place, sums);
            simt::block_barrier();
            self.measure();
            simt::block_barrier();
            fold::depart(place);
            let of_dx = [0, 1].map(|k| place.told(OF_DX + k));
            self.finish(&self.map(), of_dx);
        }
        fold::end(place);
    }

    /// Whether z is needed, and a residual is part of it.
    #[inline(always)]
    fn has_residual(&self) -> bool {
        (Self::MADE || S::Epilogue::CLASS.has_slopes()) && !self.args.residual.is_null()
    }

    /// From x to z.
    #[inline(always)]
    unsafe fn map(&self) -> Map<T::Lanes> {
        // SAFETY: the caller's.
        let [centre, scale, shift] = [0, 1, 2].map(|k| unsafe { self.place.told(OF_Z + k) });
        Map { centre, scale, shift }
    }

    /// Distances of an access from the mean.
    #[inline(always)]
    unsafe fn distance(&self, k: u32, map: &Map<T::Lanes>) -> T::Lanes {
        // SAFETY: the caller's: it has come.
        let x = T::unpack(unsafe { self.place.kept(k, X) });
        x.zip(map.centre, |x, centre| x - centre)
    }

    /// z of an access, from distances from the mean.
    #[inline(always)]
    unsafe fn z(&self, k: u32, distance: T::Lanes, map: &Map<T::Lanes>) -> T::Lanes {
        let z = distance.zip3(map.scale, map.shift, Real::mul_add);
        if !self.has_residual() {
            return z;
        }
        // SAFETY: the caller's: it has come.
        let residual = T::unpack(unsafe { self.place.kept(k, RESIDUAL) });
        z.zip(residual, |z, residual| self.args.sum(z, residual))
    }

    /// g of an access, with dy as it passes a mask.
    #[inline(always)]
    unsafe fn gradient(&self, k: u32, distance: T::Lanes, dy: [u32; 4], map: &Map<T::Lanes>) -> T::Lanes {
        let dy = T::unpack(dy);
        if !S::Epilogue::CLASS.has_slopes() {
            return dy;
        }
        // SAFETY: the caller's.
        let z = unsafe { self.z(k, distance, map) };
        let slope = S::Epilogue::derivative_in_turn::<T, _>(z, self.args.activation);
        dy.zip(slope, |dy, slope| dy * slope)
    }

    /// The thread's sums of g · (x − mean) and of g.
    #[inline(always)]
    unsafe fn sums(&self, map: &Map<T::Lanes>) -> [T::Lanes; 2] {
        let (mut sums, mut part) = ([T::Lanes::splat(0.0); 2], 0);
        while part < PARTS {
            let [mut k, end] = self.place.part(part);
            // SAFETY: the thread has these accesses, and waits for them.
            unsafe {
                let mut bits = self.bits(k, end);
                wait(part);
                while k < end {
                    let next = self.bits(k + 1, end);
                    let again = if Self::ANEW { self.map() } else { *map };
                    self.add(&mut sums, k, bits, &again);
                    bits = next;
                    k += 1;
                }
            }
            part += 1;
        }
        sums
    }

    /// Starts to load where dy passes of an access, if there is one.
    #[inline(always)]
    unsafe fn bits(&self, k: u32, end: u32) -> u32 {
        if !Self::MASKED || Self::MADE || k >= end {
            return 0;
        }
        let byte = self.place.element(k) / T::Lanes::LANES;
        // SAFETY: the caller's.
        unsafe { simt::load_8(self.args.mask.wrapping_add(byte as usize)) }
    }

    /// Where dy passes of an access whose mask is made.
    #[inline(always)]
    unsafe fn passes(&self, k: u32, distance: T::Lanes, map: &Map<T::Lanes>) -> u32 {
        // SAFETY: the caller's.
        let z = unsafe { self.z(k, distance, map) };
        let [slope] = S::Epilogue::derivative::<T, _, _>([z], self.args.activation);
        let bit = |(n, bits), slope| (n + 1, bits | u32::from(slope != 0.0) << n);
        slope.fold((0, 0), bit).1
    }

    #[inline(always)]
    unsafe fn add(&self, sums: &mut [T::Lanes; 2], k: u32, bits: u32, map: &Map<T::Lanes>) {
        let place = &self.place;
        // SAFETY: the caller's: it has come.
        unsafe {
            let (distance, mut dy) = (self.distance(k, map), place.kept(k, DY));
            if Self::MASKED {
                let bits = if Self::MADE {
                    self.passes(k, distance, map)
                } else {
                    bits
                };
                dy = T::masked(dy, bits);
                simt::shared_store_128(place.slot(k, DY), dy);
            }
            let g = self.gradient(k, distance, dy, map);
            *sums = [
                sums[0].zip3(g, distance, |sum, g, d| Real::mul_add(g, d, sum)),
                sums[1].zip(g, |sum, g| sum + g),
            ];
        }
    }

    /// Tells all threads what dx takes of each group, and leaves the gradients of its parameters. For a barrier that follows.
    #[inline(always)]
    unsafe fn measure(&self) {
        let (args, place) = (self.args, &self.place);
        let (start, step) = fold::groups();
        let mut group = start;
        let elements = place.tiling.rows as f32 * place.tiling.inner as f32;
        // SAFETY: left or told before a barrier; a group belongs to one warp.
        unsafe {
            if place.tiling.blocks > 1 {
                while group < place.groups {
                    let own: [f32; 2] = fold::pair(place, group, T::Lanes::LANES);
                    fold::share(place, group, 0, own);
                    group += step;
                }
                fold::meet(place);
                group = start;
            }
            while group < place.groups {
                let [of_gx, of_g] = match place.tiling.blocks > 1 {
                    true => {
                        let theirs: [f32; 2] = fold::of_blocks(place, group, 0);
                        let has = simt::lane() < place.tiling.blocks;
                        warp::sum_pair(theirs.map(|sum| if has { sum } else { 0.0 }))
                    }
                    false => fold::pair(place, group, T::Lanes::LANES),
                };
                let [rstd, weight] = [0, 1].map(|k| place.number(place.kept_numbers(), k, group));
                let of_gx = of_gx * rstd;
                // dx = scale · g + (x − mean) · slope + constant
                let slope = -(rstd * (of_gx * weight / elements)) * rstd;
                let constant = -rstd * (of_g * weight / elements);
                if simt::lane() == 0 {
                    place.tell(NUMBERS, OF_DX, group, [slope, constant]);
                    if place.rank == 0 {
                        let parameter = u64::from(place.first_group + group);
                        leave::<T>(args.dweight, parameter, of_gx, args.as_data);
                        leave::<T>(args.dbias, parameter, of_g, args.as_data);
                    }
                }
                group += step;
            }
        }
    }

    /// The results of the tile.
    #[inline(always)]
    unsafe fn finish(&self, map: &Map<T::Lanes>, of_dx: [T::Lanes; 2]) {
        let mut k = 0;
        while k < self.place.accesses && !self.args.dx.is_null() {
            unrolled::<N>(|ahead| {
                if k + (ahead as u32) < self.place.accesses {
                    // SAFETY: the thread has these accesses, which have come.
                    unsafe {
                        let again = if Self::ANEW { self.map() } else { *map };
                        self.store(k + ahead as u32, &again, of_dx);
                    }
                }
            });
            k += N as u32;
        }
    }

    /// dx and dresidual of an access: the latter last, as it may be where dx is.
    #[inline(always)]
    unsafe fn store(&self, k: u32, map: &Map<T::Lanes>, [slope, constant]: [T::Lanes; 2]) {
        let (args, place) = (self.args, &self.place);
        // SAFETY: the caller's; each place belongs to one thread.
        unsafe {
            let (distance, dy) = (self.distance(k, map), place.kept(k, DY));
            let g = self.gradient(k, distance, dy, map);
            let of_x = distance.zip3(slope, constant, Real::mul_add);
            let dx = g.zip3(map.scale, of_x, Real::mul_add);
            simt::store_128(place.place(args.dx, k).cast_mut().cast(), T::pack(dx));
            if !args.dresidual.is_null() {
                // As it came, where that is the gradient.
                let of_residual = match S::Epilogue::CLASS.has_slopes() {
                    true => T::pack(g),
                    false => dy,
                };
                simt::store_128(place.place(args.dresidual, k).cast_mut().cast(), of_residual);
            }
        }
    }
}
