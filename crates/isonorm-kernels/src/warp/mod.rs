//! What the 32 lanes of a warp compute together. Every function is called by a whole warp.

use isonorm_math::Moments;

use crate::rows::lanes::unrolled;
use crate::simt::{self, WARP};

/// The sum over the warp; valid in every lane, with the same bits.
#[inline(always)]
pub fn sum(value: f32) -> f32 {
    sum_of_lanes::<WARP>(value)
}

/// The sum over each `LANES` neighbouring lanes, a power of two up to 32; valid in every lane, with the same bits in all of
/// those.
#[inline(always)]
pub fn sum_of_lanes<const LANES: u32>(value: f32) -> f32 {
    let mut value = value;
    if LANES > 16 {
        value += simt::shuffle_xor(value, 16);
    }
    if LANES > 8 {
        value += simt::shuffle_xor(value, 8);
    }
    if LANES > 4 {
        value += simt::shuffle_xor(value, 4);
    }
    if LANES > 2 {
        value += simt::shuffle_xor(value, 2);
    }
    if LANES > 1 {
        value += simt::shuffle_xor(value, 1);
    }
    value
}

/// The sums of two values over the warp; valid in every lane, with the same bits.
#[inline(always)]
pub fn sum_pair(pair: [f32; 2]) -> [f32; 2] {
    sum_pair_of_lanes::<WARP>(pair)
}

/// The sums of two values over each `LANES` neighbouring lanes, a power of two up to 32; valid in every lane, with the same bits
/// in all of those.
#[inline(always)]
pub fn sum_pair_of_lanes<const LANES: u32>(pair: [f32; 2]) -> [f32; 2] {
    // A shuffle takes as long as four additions: from some lanes on it is worth while to tell the two halves apart.
    if LANES < 8 {
        return [sum_of_lanes::<LANES>(pair[0]), sum_of_lanes::<LANES>(pair[1])];
    }
    let own = half_sum::<LANES>(pair);
    let other = simt::shuffle_xor(own, LANES / 2);
    if in_upper_half::<LANES>() {
        [other, own]
    } else {
        [own, other]
    }
}

/// The sums of two values over each `LANES` neighbouring lanes, at least two: the first one in the lower half of those lanes, with
/// the same bits in all of it, and the second one in the upper half.
#[inline(always)]
pub fn half_sum<const LANES: u32>([first, second]: [f32; 2]) -> f32 {
    let (own, other) = if in_upper_half::<LANES>() {
        (second, first)
    } else {
        (first, second)
    };
    let value = own + simt::shuffle_xor(other, LANES / 2);
    match LANES {
        32 => sum_of_lanes::<16>(value),
        16 => sum_of_lanes::<8>(value),
        8 => sum_of_lanes::<4>(value),
        4 => sum_of_lanes::<2>(value),
        _ => value,
    }
}

/// The sums of eight values over the warp: that of value `k` in lanes `4k` to `4k + 3`, with the same bits. Nine shuffles instead of forty.
#[inline(always)]
pub fn eight_sums(values: [f32; 8]) -> f32 {
    let fours: [f32; 4] = halved(values, 16);
    let twos: [f32; 2] = halved(fours, 8);
    let [one] = halved(twos, 4);
    sum_of_lanes::<4>(one)
}

/// Sums of values of two lanes, which differ by `lanes`: of the first half of the values in the lower lane, of the second half in the upper one.
#[inline(always)]
fn halved<const N: usize, const HALF: usize>(values: [f32; N], lanes: u32) -> [f32; HALF] {
    const { assert!(N == 2 * HALF) };
    let is_upper = simt::lane() & lanes != 0;
    let mut sums = [0.0; HALF];
    unrolled::<HALF>(|k| {
        let (own, other) = if is_upper {
            (values[HALF + k], values[k])
        } else {
            (values[k], values[HALF + k])
        };
        sums[k] = own + simt::shuffle_xor(other, lanes);
    });
    sums
}

/// Whether the lane is in the upper half of its `LANES` neighbours.
#[inline(always)]
pub fn in_upper_half<const LANES: u32>() -> bool {
    simt::lane() & (LANES / 2) != 0
}

/// The moments of the sets of all lanes; valid in every lane, with the same bits. A set may be empty.
#[inline(always)]
pub fn moments(own: Moments<f32>) -> Moments<f32> {
    let own = merge_across(own, 16);
    let own = merge_across(own, 8);
    let own = merge_across(own, 4);
    let own = merge_across(own, 2);
    merge_across(own, 1)
}

/// Merges with the lane whose index differs by `lanes`. The lower lane's set comes first in both: a merge is not the same bits
/// the other way round.
#[inline(always)]
fn merge_across(own: Moments<f32>, lanes: u32) -> Moments<f32> {
    let other = Moments {
        count: simt::shuffle_xor(own.count, lanes),
        mean: simt::shuffle_xor(own.mean, lanes),
        m2: simt::shuffle_xor(own.m2, lanes),
    };
    let first = simt::lane() & lanes == 0;
    let (low, high) = if first { (own, other) } else { (other, own) };
    low.merge(high)
}
