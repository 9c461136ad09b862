//! The conversions as integer arithmetic and selects.

const F32_SIGN: u32 = 0x8000_0000;
const F32_INFINITY: u32 = 0x7f80_0000;

/// Fraction bits that an `f32` has and a binary16 has not.
const F16_SHIFT: u32 = 13;
const F16_INFINITY: u32 = 0x7c00;
const F16_QUIET: u32 = 0x0200;
const BF16_QUIET: u32 = 0x0040;
/// The one NaN that GPUs convert to.
const NAN: u16 = 0x7fff;

#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    // From binary16's bias of the exponent (15) to binary32's (127).
    const REBIAS: u32 = (127 - 15) << 23;
    const SMALLEST_NORMAL: u32 = 0x0400;
    let bits = u32::from(bits);
    let magnitude = bits & 0x7fff;
    let normal = (magnitude << F16_SHIFT) + REBIAS;
    // A subnormal number is the fraction of one whose exponent is the smallest: the distance from that power of two. So no number is
    // subnormal in binary32, which a processor may be told to take for 0.
    let above = f32::from_bits(normal + (1 << 23));
    let subnormal = (above - f32::from_bits(REBIAS + (1 << 23))).to_bits();
    let finite = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
    let quiet = if magnitude > F16_INFINITY { F16_QUIET } else { 0 };
    let special = F32_INFINITY | ((magnitude | quiet) << F16_SHIFT);
    let unsigned = if magnitude >= F16_INFINITY { special } else { finite };
    f32::from_bits(unsigned | ((bits & 0x8000) << 16))
}

#[inline(always)]
pub(crate) fn f16_from_f32(value: f32) -> u16 {
    // The smallest normal number, 2⁻¹⁴, as an f32.
    const SMALLEST_NORMAL: u32 = (127 - 14) << 23;
    // One unit in the last place of 1/2 is 2⁻²⁴, the spacing of binary16's subnormal numbers.
    const SUBNORMAL_MAGIC: f32 = 0.5;
    const REBIAS: u32 = 112 << 10;
    let bits = value.to_bits();
    let magnitude = bits & !F32_SIGN;

    let odd = (magnitude >> F16_SHIFT) & 1;
    let rounded = magnitude.wrapping_add(0x0fff + odd) >> F16_SHIFT;
    let normal = rounded.wrapping_sub(REBIAS);
    let normal = if normal < F16_INFINITY { normal } else { F16_INFINITY };

    let sum = f32::from_bits(magnitude) + SUBNORMAL_MAGIC;
    let subnormal = sum.to_bits().wrapping_sub(SUBNORMAL_MAGIC.to_bits());

    let number = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
    let nan = F16_INFINITY | F16_QUIET | ((magnitude >> F16_SHIFT) & 0x03ff);
    let unsigned = if magnitude > F32_INFINITY { nan } else { number };
    (unsigned | ((bits & F32_SIGN) >> 16)) as u16
}

#[inline(always)]
pub(crate) fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let odd = (bits >> 16) & 1;
    let number = bits.wrapping_add(0x7fff + odd) >> 16;
    let nan = (bits >> 16) | BF16_QUIET;
    let unsigned = if bits & !F32_SIGN > F32_INFINITY { nan } else { number };
    unsigned as u16
}

/// Two numbers rounded at once; `low` goes to the lower half. As GPUs have it, NaN has no sign.
#[inline(always)]
pub(crate) fn f16_pair_from_f32(low: f32, high: f32) -> u32 {
    pair(f16_from_f32, low, high)
}

/// As [`f16_pair_from_f32`].
#[inline(always)]
pub(crate) fn bf16_pair_from_f32(low: f32, high: f32) -> u32 {
    pair(bf16_from_f32, low, high)
}

#[inline(always)]
fn pair(round: impl Fn(f32) -> u16, low: f32, high: f32) -> u32 {
    let rounded = |value: f32| if value.is_nan() { NAN } else { round(value) };
    u32::from(rounded(low)) | u32::from(rounded(high)) << 16
}
