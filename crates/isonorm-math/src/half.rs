//! 16-bit floating-point storage types: [`F16`] (IEEE 754 binary16) and [`Bf16`] (bfloat16).
//!
//! They hold data and do no arithmetic. Conversions are integer arithmetic and selects, so that loops over them
//! vectorize on any processor; on the GPU they are its conversion instructions. Both give the same bits, except in
//! a NaN, where only NaN-ness is promised across devices.

#[cfg(not(target_arch = "nvptx64"))]
mod portable;

#[cfg(target_arch = "nvptx64")]
use crate::nvptx as convert;
#[cfg(not(target_arch = "nvptx64"))]
use portable as convert;

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

impl F16 {
    /// The same number as an `f32`; exact, subnormal numbers included. A NaN becomes quiet.
    ///
    /// ```
    /// use isonorm_math::F16;
    /// assert_eq!(F16(0x3c00).to_f32(), 1.0);
    /// assert_eq!(F16(0x0001).to_f32(), 2f32.powi(-24));
    /// ```
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        convert::f16_to_f32(self.0)
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
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        Self(convert::f16_from_f32(value))
    }

    /// The bits of two numbers as [`from_f32`](F16::from_f32) rounds them, `low` in the lower half: as a little-endian
    /// machine has them in memory; but every NaN is `0x7fff`. One instruction on a GPU.
    ///
    /// ```
    /// use isonorm_math::F16;
    /// assert_eq!(F16::pair_from_f32(1.0, -2.0), 0xc000_3c00);
    /// assert_eq!(F16::pair_from_f32(f32::NAN, -f32::NAN), 0x7fff_7fff);
    /// ```
    #[inline(always)]
    pub fn pair_from_f32(low: f32, high: f32) -> u32 {
        convert::f16_pair_from_f32(low, high)
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
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        Self(convert::bf16_from_f32(value))
    }

    /// The bits of two numbers as [`from_f32`](Bf16::from_f32) rounds them, `low` in the lower half: as a little-endian
    /// machine has them in memory; but every NaN is `0x7fff`. One instruction on a GPU.
    ///
    /// ```
    /// use isonorm_math::Bf16;
    /// assert_eq!(Bf16::pair_from_f32(1.0, -2.0), 0xc000_3f80);
    /// assert_eq!(Bf16::pair_from_f32(f32::NAN, -f32::NAN), 0x7fff_7fff);
    /// ```
    #[inline(always)]
    pub fn pair_from_f32(low: f32, high: f32) -> u32 {
        convert::bf16_pair_from_f32(low, high)
    }
}
