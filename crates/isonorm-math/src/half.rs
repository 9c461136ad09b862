//! 16-bit floating-point storage types: [`F16`] (IEEE 754 binary16) and [`Bf16`] (bfloat16).
//!
//! They hold data and do no arithmetic. Conversions are integer arithmetic and selects, so that loops over them
//! vectorize on any processor; on the GPU they are its conversion instructions. Both give the same bits, except in
//! a NaN, where only NaN-ness is promised across devices.

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits; largest 65504, smallest normal 2⁻¹⁴.
///
/// Equality and hashing are those of the bits: `+0 ≠ −0`, and a NaN equals itself. Compare
/// [`to_f32`](F16::to_f32) where numbers are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F16(pub u16);

/// bfloat16: the upper half of an `f32`; 1 sign, 8 exponent and 7 fraction bits.
///
/// Equality and hashing are those of the bits: `+0 ≠ −0`, and a NaN equals itself. Compare
/// [`to_f32`](Bf16::to_f32) where numbers are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bf16(pub u16);

const F32_SIGN: u32 = 0x8000_0000;
const F32_INFINITY: u32 = 0x7f80_0000;

/// Fraction bits that an `f32` has and an `F16` has not.
const F16_SHIFT: u32 = 13;
const F16_INFINITY: u32 = 0x7c00;
const F16_QUIET: u32 = 0x0200;
const BF16_QUIET: u32 = 0x0040;

impl F16 {
    /// The same number as an `f32`; exact, subnormal numbers included. A NaN keeps its payload and becomes quiet.
    ///
    /// ```
    /// use isonorm_math::F16;
    /// assert_eq!(F16(0x3c00).to_f32(), 1.0);
    /// assert_eq!(F16(0x0001).to_f32(), 2f32.powi(-24));
    /// ```
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        // 2¹¹² moves the exponent from binary16's bias (15) to binary32's (127), and normalizes subnormal numbers.
        const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
        let bits = u32::from(self.0);
        let magnitude = bits & 0x7fff;
        let finite = (f32::from_bits(magnitude << F16_SHIFT) * REBIAS).to_bits();
        let quiet = if magnitude > F16_INFINITY { F16_QUIET } else { 0 };
        let special = F32_INFINITY | ((magnitude | quiet) << F16_SHIFT);
        let unsigned = if magnitude >= F16_INFINITY { special } else { finite };
        f32::from_bits(unsigned | ((bits & 0x8000) << 16))
    }

    /// The nearest number, ties to even. Beyond the largest number (from 65520 on) it is ±∞; a NaN becomes a quiet
    /// NaN.
    ///
    /// ```
    /// use isonorm_math::F16;
    /// assert_eq!(F16::from_f32(1.0), F16(0x3c00));
    /// assert_eq!(F16::from_f32(65519.0), F16(0x7bff));
    /// assert_eq!(F16::from_f32(65520.0), F16(0x7c00));
    /// ```
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
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
        Self((unsigned | ((bits & F32_SIGN) >> 16)) as u16)
    }
}

impl Bf16 {
    /// The same number as an `f32`; exact. Every bit of a NaN is kept.
    ///
    /// ```
    /// use isonorm_math::Bf16;
    /// assert_eq!(Bf16(0x3f80).to_f32(), 1.0);
    /// ```
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// The nearest number, ties to even. Beyond the largest number it is ±∞; a NaN becomes a quiet NaN.
    ///
    /// ```
    /// use isonorm_math::Bf16;
    /// assert_eq!(Bf16::from_f32(1.0), Bf16(0x3f80));
    /// assert_eq!(Bf16::from_f32(f32::MAX), Bf16(0x7f80));
    /// ```
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let odd = (bits >> 16) & 1;
        let number = bits.wrapping_add(0x7fff + odd) >> 16;
        let nan = (bits >> 16) | BF16_QUIET;
        let unsigned = if bits & !F32_SIGN > F32_INFINITY { nan } else { number };
        Self(unsigned as u16)
    }
}

#[cfg(target_arch = "nvptx64")]
impl F16 {
    /// The same number as an `f32`; exact.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        crate::nvptx::f16_to_f32(self.0)
    }

    /// The nearest number, ties to even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        Self(crate::nvptx::f16_from_f32(value))
    }
}

#[cfg(target_arch = "nvptx64")]
impl Bf16 {
    /// The nearest number, ties to even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        Self(crate::nvptx::bf16_from_f32(value))
    }
}
