//! The forward pass over tiles that blocks hold; see [`forward`](crate::tiles::forward) for what it computes, and how digits are kept.

use core::marker::PhantomData;

use isonorm_math::{Normalizer, Real};

use super::{NUMBERS, PARTS, Place, fold, is_again, wait};
use crate::rows::access::Data;
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::statistics::not_below_zero;
use crate::simt::{self, WARP};
use crate::tiles::Spec;
use crate::tiles::columns::Map;
pub use crate::tiles::forward::Args;
use crate::tiles::forward::statistics::{Measured, is_well, save};
use crate::warp;

/// Numbers of groups: weight and bias, and what makes z of x, in the places of which the first ones are also what sums are about in the second
/// round.
const OF_Z: u32 = 0;
const ABOUT: u32 = OF_Z;
const WEIGHT: u32 = 3;
const BIAS: u32 = 4;

/// What a thread leaves of a group: the number of its elements, the number that sums are about, these, and those of squares.
const COUNT: u32 = 0;
const OWN: u32 = 1;
const SUM: u32 = 2;
const SQUARES: u32 = 3;
/// Accesses that are added up at once.
const AT_ONCE: usize = 2;

/// What is known of some of a group's elements: their number, a number near them, the mean's distance from that, and the sum of squares about
/// the mean.
#[derive(Clone, Copy)]
struct Known {
    count: f32,
    near: f32,
    rest: f32,
    m2: f32,
}

/// Normalizes the tiles. For a grid of as many blocks as tiles have in all, in clusters of those of a tile if that has several; a thread
/// finishes `N` accesses at once.
///
/// # Safety
///
/// As for [`forward`](crate::tiles::forward::forward), with [`shared_bytes`](super::shared_bytes) of shared memory for all accesses to x, and blocks
/// of [`threads`](super::threads). Groups are runs of as many elements as an access has at least; a tile has [`MOST_GROUPS`](super::MOST_GROUPS)
/// at most. The tensor is the only one of a batch, of no more than 2³¹ elements.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn values<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
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
    #[inline(always)]
    unsafe fn run(&self) {
        let (args, place) = (self.args, &self.place);
        let mut round = 0;
        // SAFETY: the caller's, here and below.
        unsafe {
            place.fetch([args.x]);
            if place.has_group() {
                let affine = &args.affine;
                let parameters = [(affine.weight, 1.0), (affine.bias, 0.0)]
                    .map(|parameter| place.ask_parameter::<T>(affine, parameter))
                    .map(|parameter| affine.known::<T>(parameter));
                place.tell(NUMBERS, WEIGHT, simt::thread_index(), parameters);
            }
            loop {
                self.add_up(round);
                simt::block_barrier();
                self.measure(round);
                simt::block_barrier();
                if round > 0 || !self.any_again() {
                    break;
                }
                // All blocks of the tile agree.
                if place.has_group() {
                    let group = simt::thread_index();
                    place.tell(NUMBERS, ABOUT, group, [place.number(place.kept_numbers(), 0, group)]);
                }
                round += 1;
                simt::block_barrier();
            }
            fold::depart(place);
            self.finish();
            if place.rank == 0 && place.has_group() {
                let known = [0, 1, 2].map(|k| place.number(place.kept_numbers(), k, simt::thread_index()));
                save(args, place.group().into(), known);
            }
        }
        fold::end(place);
    }

    /// Leaves the thread's sums of distances from a number, and of their squares: from its first element, or in the second round from what was
    /// told.
    #[inline(always)]
    unsafe fn add_up(&self, round: u32) {
        let place = &self.place;
        let mut sums = [T::Lanes::splat(0.0); 2];
        let mut about = T::Lanes::splat(0.0);
        let mut part = 0;
        // SAFETY: told before a barrier, and waited for.
        unsafe {
            while part < PARTS {
                wait(part);
                if part == 0 {
                    about = self.about(round);
                }
                let [mut k, end] = place.part(part);
                while k < end {
                    let mut raw = [[0; 4]; AT_ONCE];
                    unrolled::<AT_ONCE>(|ahead| {
                        if k + (ahead as u32) < end {
                            raw[ahead] = place.kept(k + ahead as u32, 0);
                        }
                    });
                    unrolled::<AT_ONCE>(|ahead| {
                        if k + (ahead as u32) < end {
                            let distance = T::unpack(raw[ahead]).zip(about, |x, about| x - about);
                            sums = [
                                sums[0].zip(distance, |sum, d| sum + d),
                                sums[1].zip(distance, |sum, d| Real::mul_add(d, d, sum)),
                            ];
                        }
                    });
                    k += AT_ONCE as u32;
                }
                part += 1;
            }
            let [sum, squares] = sums.map(|sums| fold::halves(place, sums));
            let of_first = place.to_first.min(T::Lanes::LANES);
            let count = [of_first, T::Lanes::LANES - of_first].map(|lanes| (lanes * place.accesses) as f32);
            // Lanes of a group have the same number.
            fold::leave(place, [count, fold::ends(about), sum, squares]);
        }
    }

    /// What sums are about, of each element of an access.
    #[inline(always)]
    unsafe fn about(&self, round: u32) -> T::Lanes {
        let place = &self.place;
        if place.accesses == 0 {
            return T::Lanes::splat(0.0);
        }
        // SAFETY: told before a barrier, or it has come.
        unsafe {
            match round {
                0 => place.each_group(fold::ends(T::unpack(place.kept(0, 0)))),
                _ => place.told(ABOUT),
            }
        }
    }

    /// Tells all threads what is known of each of the warp's groups, and whether any of them has to be measured again. For a barrier that follows.
    #[inline(always)]
    unsafe fn measure(&self, round: u32) {
        let (args, place) = (self.args, &self.place);
        let ((start, step), mut again) = (fold::groups(), false);
        let mut group = start;
        // SAFETY: left or told before a barrier; a group belongs to one warp.
        unsafe {
            if place.tiling.blocks > 1 {
                while group < place.groups {
                    let (known, squares) = self.of_block(group);
                    let Known { count, near, rest, m2 } = known;
                    fold::share(place, group, round, [count, near, rest, m2, squares]);
                    group += step;
                }
                fold::meet(place);
                group = start;
            }
            while group < place.groups {
                let (all, squares) = match place.tiling.blocks > 1 {
                    true => self.of_blocks(group, round),
                    false => self.of_block(group),
                };
                let variance = not_below_zero((f64::from(all.m2) * args.reciprocal) as f32);
                let measured = Measured {
                    mean: f64::from(all.near) + f64::from(all.rest),
                    variance,
                    rstd: 1.0 / Real::sqrt(variance + args.eps),
                    well: is_well(all.m2.into(), squares.into()),
                };
                again |= !measured.well;
                let Normalizer { centre, rstd, offset } = Normalizer::<f32>::new(measured.mean, measured.rstd.into());
                let [weight, bias] = [WEIGHT, BIAS].map(|k| place.number(NUMBERS, k, group));
                if simt::lane() == 0 {
                    let of_z = [centre, rstd * weight, Real::mul_add(offset, weight, bias)];
                    place.tell(NUMBERS, OF_Z, group, of_z);
                    let known = [measured.mean as f32, measured.variance, measured.rstd];
                    place.tell(place.kept_numbers(), 0, group, known);
                }
                group += step;
            }
            if simt::lane() == 0 {
                simt::shared_store(is_again(place.of_tile).offset(simt::warp_index()), again.into());
            }
        }
    }

    /// Whether any group of the tile has to be measured again.
    #[inline(always)]
    unsafe fn any_again(&self) -> bool {
        let (lane, warps) = (simt::lane(), simt::block_threads() / WARP);
        // SAFETY: told before a barrier, by each warp.
        simt::any(lane < warps && unsafe { simt::shared_load(is_again(self.place.of_tile).offset(lane)) } != 0)
    }

    /// What is known of the block's elements of a group, and the sum of squares that it comes from; valid in every lane, with the same bits.
    #[inline(always)]
    unsafe fn of_block(&self, group: u32) -> (Known, f32) {
        let place = &self.place;
        let mut left = fold::Left::new(place, group, T::Lanes::LANES);
        // SAFETY: the caller's.
        unsafe {
            // The mean of what some threads' sums are about, of which there is one at least: the first. Of equal numbers exactly that one.
            let is_there = left.is_there(place) && left.number(place, COUNT) > 0.0;
            let own = if is_there { left.number(place, OWN) } else { 0.0 };
            let first = simt::shuffle_index(own, 0);
            let [apart, of] = warp::sum_pair(if is_there { [own - first, 1.0] } else { [0.0; 2] });
            let near = first + apart / of;
            let [mut sums, mut counts] = [[0.0; 2], [0.0; 2]];
            while left.is_there(place) {
                let [count, about, sum, squares] = [COUNT, OWN, SUM, SQUARES].map(|k| left.number(place, k));
                let apart = about - near;
                let moved = Real::mul_add(count, apart, sum);
                sums = [sums[0] + moved, sums[1] + Real::mul_add(apart, moved + sum, squares)];
                counts[0] += count;
                left = left.next();
            }
            let ([sum, squares], [count, _]) = (warp::sum_pair(sums), warp::sum_pair(counts));
            let rest = sum / count;
            let m2 = (f64::from(squares) - f64::from(sum) * f64::from(rest)) as f32;
            (Known { count, near, rest, m2 }, squares)
        }
    }

    /// The same of the elements of all blocks.
    #[inline(always)]
    unsafe fn of_blocks(&self, group: u32, round: u32) -> (Known, f32) {
        // SAFETY: the caller's.
        let [count, near, rest, m2, squares] = unsafe { fold::of_blocks(&self.place, group, round) };
        let count = if simt::lane() < self.place.tiling.blocks {
            count
        } else {
            0.0
        };
        let first = simt::shuffle_index(near, 0);
        let mean = (near - first) + rest;
        let [all, sum] = warp::sum_pair([count, count * mean]);
        let rest = sum / all;
        let apart = mean - rest;
        let (m2, squares) = if count > 0.0 { (m2, squares) } else { (0.0, 0.0) };
        let [m2, squares] = warp::sum_pair([Real::mul_add(count * apart, apart, m2), squares]);
        let known = Known {
            count: all,
            near: first,
            rest,
            m2,
        };
        (known, squares)
    }

    /// The results of the tile.
    #[inline(always)]
    unsafe fn finish(&self) {
        let place = &self.place;
        if place.accesses == 0 {
            // Perhaps a thread behind the columns of the last tile of a line, of whose groups nothing was told.
            return;
        }
        // SAFETY: told before a barrier; here and below places that the tile has, whose accesses have come.
        unsafe {
            let [centre, scale, shift] = [0, 1, 2].map(|k| place.told(OF_Z + k));
            let map = Map { centre, scale, shift };
            let mut k = 0;
            while k < place.accesses {
                let (mut raw, mut residuals) = ([[0; 4]; N], [[0; 4]; N]);
                unrolled::<N>(|ahead| {
                    if k + (ahead as u32) < place.accesses {
                        residuals[ahead] = self.residual(k + ahead as u32);
                        raw[ahead] = place.kept(k + ahead as u32, 0);
                    }
                });
                unrolled::<N>(|ahead| {
                    if k + (ahead as u32) < place.accesses {
                        self.finish_one(k + ahead as u32, (raw[ahead], residuals[ahead]), &map);
                    }
                });
                k += N as u32;
            }
        }
    }

    /// Starts to load what is added to an access, if anything is.
    #[inline(always)]
    unsafe fn residual(&self, k: u32) -> [u32; 4] {
        match self.args.residual.is_null() {
            true => [0; 4],
            // SAFETY: the caller's.
            false => unsafe { simt::load_128(self.place.place(self.args.residual, k).cast()) },
        }
    }

    /// Scale and shift, residual, activation, and the store.
    #[inline(always)]
    unsafe fn finish_one(&self, k: u32, (raw, residual): ([u32; 4], [u32; 4]), map: &Map<T::Lanes>) {
        let (args, place) = (self.args, &self.place);
        let mut z = map.apply(T::unpack(raw));
        if !args.residual.is_null() {
            z = z.zip(T::unpack(residual), |z, residual| z + residual);
        }
        let [y] = S::Epilogue::apply::<T, _, _>([z], args.activation);
        let y = T::pack(y);
        // SAFETY: the caller's; each place belongs to one thread.
        unsafe {
            simt::store_128(place.place(args.y, k).cast_mut().cast(), y);
            if S::Epilogue::CLASS == Class::Piecewise && !args.mask.is_null() {
                let byte = place.element(k) / T::Lanes::LANES;
                simt::store_8(args.mask.wrapping_add(byte as usize), T::positive(y));
            }
        }
    }
}
