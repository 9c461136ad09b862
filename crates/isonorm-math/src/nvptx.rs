//! What only the GPU's own instructions do: `std` is absent there, and `core` has no fused multiply-add.
//!
//! All are instructions of one thread that read and write registers only.

use core::arch::asm;

macro_rules! real {
    ($type:ident, $register:ident, $suffix:literal) => {
        pub(crate) mod $type {
            use core::arch::asm;

            #[inline(always)]
            pub(crate) fn mul_add(x: $type, a: $type, b: $type) -> $type {
                let result: $type;
                // SAFETY: reads and writes the named registers only.
                unsafe {
                    asm!(
                        concat!("fma.rn.", $suffix, " {}, {}, {}, {};"),
                        out($register) result, in($register) x, in($register) a, in($register) b,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                result
            }

            #[inline(always)]
            pub(crate) fn sqrt(x: $type) -> $type {
                let result: $type;
                // SAFETY: reads and writes the named registers only.
                unsafe {
                    asm!(
                        concat!("sqrt.rn.", $suffix, " {}, {};"),
                        out($register) result, in($register) x,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                result
            }
        }
    };
}

real!(f32, reg32, "f32");
real!(f64, reg64, "f64");

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
