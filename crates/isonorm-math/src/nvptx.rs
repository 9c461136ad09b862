//! What the GPU has instructions for; each is one instruction of one thread, on registers only.

use core::arch::asm;

/// About 1/x; 0 where that is a subnormal number.
#[inline(always)]
pub(crate) fn about_reciprocal(x: f32) -> f32 {
    let result: f32;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("rcp.approx.ftz.f32 {}, {};", out(reg32) result, in(reg32) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}

/// About 2ˣ; 0 where that is a subnormal number.
#[inline(always)]
pub(crate) fn about_power_of_two(x: f32) -> f32 {
    let result: f32;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("ex2.approx.ftz.f32 {}, {};", out(reg32) result, in(reg32) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}

/// The greater of two numbers; a NaN where either is.
#[inline(always)]
pub(crate) fn greater(a: f32, b: f32) -> f32 {
    let result: f32;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("max.NaN.f32 {}, {}, {};", out(reg32) result, in(reg32) a, in(reg32) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}

/// The lesser of two numbers; a NaN where either is.
#[inline(always)]
pub(crate) fn lesser(a: f32, b: f32) -> f32 {
    let result: f32;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("min.NaN.f32 {}, {}, {};", out(reg32) result, in(reg32) a, in(reg32) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}

#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let result: f32;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("cvt.f32.f16 {}, {};", out(reg32) result, in(reg16) bits,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}

#[inline(always)]
pub(crate) fn f16_from_f32(value: f32) -> u16 {
    let result: u16;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("cvt.rn.f16.f32 {}, {};", out(reg16) result, in(reg32) value,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}

#[inline(always)]
pub(crate) fn bf16_from_f32(value: f32) -> u16 {
    let result: u16;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("cvt.rn.bf16.f32 {}, {};", out(reg16) result, in(reg32) value,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}

/// Two numbers rounded at once; `low` goes to the lower half.
#[inline(always)]
pub(crate) fn f16_pair_from_f32(low: f32, high: f32) -> u32 {
    let result: u32;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("cvt.rn.f16x2.f32 {}, {}, {};", out(reg32) result, in(reg32) high, in(reg32) low,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}

/// As [`f16_pair_from_f32`].
#[inline(always)]
pub(crate) fn bf16_pair_from_f32(low: f32, high: f32) -> u32 {
    let result: u32;
    // SAFETY: reads and writes the named registers only.
    unsafe {
        asm!("cvt.rn.bf16x2.f32 {}, {}, {};", out(reg32) result, in(reg32) high, in(reg32) low,
            options(pure, nomem, nostack, preserves_flags));
    }
    result
}
