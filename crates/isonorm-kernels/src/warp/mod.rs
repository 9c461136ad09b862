//! What the 32 lanes of a warp compute together. Every function is called by a whole warp.

use crate::simt;

/// The sum over the warp; valid in every lane, with the same bits.
#[inline(always)]
pub fn sum(value: f32) -> f32 {
    let value = value + simt::shuffle_xor(value, 16);
    let value = value + simt::shuffle_xor(value, 8);
    let value = value + simt::shuffle_xor(value, 4);
    let value = value + simt::shuffle_xor(value, 2);
    value + simt::shuffle_xor(value, 1)
}

/// The sums of two values over the warp; valid in every lane, with the same bits.
#[inline(always)]
pub fn sum_pair(pair: [f32; 2]) -> [f32; 2] {
    [sum(pair[0]), sum(pair[1])]
}
