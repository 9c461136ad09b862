//! Loads and stores of one thread in global memory, as inline PTX.

use core::arch::asm;

use crate::simt::Word;

/// The same value, of which the compiler no longer knows where it came from: what is computed from it is computed again
/// instead of kept in registers, and a loop that it bounds stays a loop. No instruction.
#[inline(always)]
pub fn opaque<T: Word>(value: T) -> T {
    let mut value = value.to_word();
    // SAFETY: no instruction.
    unsafe { asm!("// {}", inout(reg32) value, options(nomem, nostack, preserves_flags)) };
    T::from_word(value)
}

/// As [`opaque`], for 64 bits.
#[inline(always)]
pub fn opaque_64(value: u64) -> u64 {
    let mut value = value;
    // SAFETY: no instruction.
    unsafe { asm!("// {}", inout(reg64) value, options(nomem, nostack, preserves_flags)) };
    value
}

macro_rules! load {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $class:ident $ptx:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// `place` is global memory that may be read, aligned to the size of what is read.
        #[inline(always)]
        pub unsafe fn $name(place: *const $type) -> $type {
            let value;
            // SAFETY: the caller's.
            unsafe { asm!(concat!($ptx, " {}, [{}];"), out($class) value, in(reg64) place, options(nostack, preserves_flags, readonly)) };
            value
        }
    )*};
}

load! {
    /// 2 bytes, read once.
    load_16(u16) = reg16 "ld.global.L1::no_allocate.u16";
    /// 4 bytes, read once.
    load_32(u32) = reg32 "ld.global.L1::no_allocate.u32";
    /// 2 bytes that other threads read too and nothing writes during the kernel: kept in the cache.
    load_16_keep(u16) = reg16 "ld.global.nc.L1::evict_last.u16";
    /// 4 bytes that other threads read too and nothing writes during the kernel: kept in the cache.
    load_32_keep(u32) = reg32 "ld.global.nc.L1::evict_last.u32";
}

macro_rules! load_64 {
    ($($(#[$doc:meta])* $name:ident = $ptx:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// `place` is 8 bytes of global memory that may be read, aligned to 8 bytes.
        #[inline(always)]
        pub unsafe fn $name(place: *const u32) -> [u32; 2] {
            let (a, b);
            // SAFETY: the caller's.
            unsafe {
                asm!(concat!($ptx, " {{{}, {}}}, [{}];"), out(reg32) a, out(reg32) b, in(reg64) place,
                    options(nostack, preserves_flags, readonly));
            }
            [a, b]
        }
    )*};
}

load_64! {
    /// 8 bytes, read once.
    load_64 = "ld.global.L1::no_allocate.v2.u32";
    /// 8 bytes that other threads read too and nothing writes during the kernel: kept in the cache.
    load_64_keep = "ld.global.nc.L1::evict_last.v2.u32";
}

macro_rules! load_128 {
    ($($(#[$doc:meta])* $name:ident = $ptx:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// `place` is 16 bytes of global memory that may be read, aligned to 16 bytes.
        #[inline(always)]
        pub unsafe fn $name(place: *const u32) -> [u32; 4] {
            let (a, b, c, d);
            // SAFETY: the caller's.
            unsafe {
                asm!(concat!($ptx, " {{{}, {}, {}, {}}}, [{}];"), out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d,
                    in(reg64) place, options(nostack, preserves_flags, readonly));
            }
            [a, b, c, d]
        }
    )*};
}

load_128! {
    /// 16 bytes, read once.
    load_128 = "ld.global.L1::no_allocate.v4.u32";
    /// 16 bytes that other threads read too and nothing writes during the kernel: kept in the cache.
    load_128_keep = "ld.global.nc.L1::evict_last.v4.u32";
}

/// What `createpolicy.fractional` makes of `L2::evict_first` and of `L2::evict_last`, for all of what is accessed, on compute capability 9.0 and
/// later, as CUTLASS has them: the instruction itself, in a branch, became one that an H200 refused.
pub(super) const EVICT_FIRST: u64 = 0x12f0_0000_0000_0000;
pub(super) const EVICT_LAST: u64 = 0x14f0_0000_0000_0000;
/// What CUTLASS calls normal: `L2::evict_normal` for none of what is accessed, and for all of it what that instruction has by default,
/// `L2::evict_unchanged`.
const EVICT_UNCHANGED: u64 = 0x1000_0000_0000_0000;

macro_rules! load_128_marked {
    ($($(#[$doc:meta])* $name:ident = $policy:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As for [`load_128`].
        #[inline(always)]
        pub unsafe fn $name(place: *const u32) -> [u32; 4] {
            let (a, b, c, d);
            // SAFETY: the caller's.
            unsafe {
                asm!("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {{{}, {}, {}, {}}}, [{}], {};",
                    out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) place, const $policy,
                    options(nostack, preserves_flags, readonly));
            }
            [a, b, c, d]
        }
    )*};
}

load_128_marked! {
    /// 16 bytes that nobody will read again soon: the last-level cache gives their place to others first.
    load_128_once = EVICT_FIRST;
    /// 16 bytes that will be read again, once: they come and go in the last-level cache without a change of the order in which it gives places
    /// to others.
    load_128_again = EVICT_UNCHANGED;
}

/// One byte, as a number.
///
/// # Safety
///
/// `place` is global memory that may be read.
#[inline(always)]
pub unsafe fn load_8(place: *const u8) -> u32 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.global.L1::no_allocate.u8 {}, [{}];", out(reg32) value, in(reg64) place, options(nostack, preserves_flags, readonly));
    }
    value
}

/// One byte, as a number, of which neighbours will be read: the last-level cache gives their place to others last.
///
/// # Safety
///
/// As for [`load_8`].
#[inline(always)]
pub unsafe fn load_8_again(place: *const u8) -> u32 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.global.L1::no_allocate.L2::cache_hint.u8 {}, [{}], {};", out(reg32) value, in(reg64) place, const EVICT_LAST,
            options(nostack, preserves_flags, readonly));
    }
    value
}

/// One byte: the lowest of a number. Neighbours will be written: the last-level cache gives their place to others last.
///
/// # Safety
///
/// As for [`store_8`].
#[inline(always)]
pub unsafe fn store_8_again(place: *mut u8, value: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("st.global.L2::cache_hint.u8 [{}], {}, {};", in(reg64) place, in(reg32) value, const EVICT_LAST,
            options(nostack, preserves_flags));
    }
}

/// 16 bytes that nobody will read soon: the last-level cache gives their place to others first.
///
/// # Safety
///
/// As for [`store_128`].
#[inline(always)]
pub unsafe fn store_128_once(place: *mut u32, value: [u32; 4]) {
    let [a, b, c, d] = value;
    // SAFETY: the caller's.
    unsafe {
        asm!("st.global.L1::no_allocate.L2::cache_hint.v4.u32 [{}], {{{}, {}, {}, {}}}, {};", in(reg64) place, in(reg32) a,
            in(reg32) b, in(reg32) c, in(reg32) d, const EVICT_FIRST, options(nostack, preserves_flags));
    }
}

macro_rules! store {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $class:ident $ptx:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// `place` is global memory that may be written, aligned to the size of what is written.
        #[inline(always)]
        pub unsafe fn $name(place: *mut $type, value: $type) {
            // SAFETY: the caller's.
            unsafe { asm!(concat!($ptx, " [{}], {};"), in(reg64) place, in($class) value, options(nostack, preserves_flags)) };
        }
    )*};
}

store! {
    /// 2 bytes.
    store_16(u16) = reg16 "st.global.u16";
    /// 4 bytes.
    store_32(u32) = reg32 "st.global.u32";
}

/// One byte: the lowest of a number.
///
/// # Safety
///
/// `place` is global memory that may be written.
#[inline(always)]
pub unsafe fn store_8(place: *mut u8, value: u32) {
    // SAFETY: the caller's.
    unsafe { asm!("st.global.u8 [{}], {};", in(reg64) place, in(reg32) value, options(nostack, preserves_flags)) };
}

/// 16 bytes.
///
/// # Safety
///
/// `place` is 16 bytes of global memory that may be written, aligned to 16 bytes.
#[inline(always)]
pub unsafe fn store_128(place: *mut u32, value: [u32; 4]) {
    let [a, b, c, d] = value;
    // SAFETY: the caller's.
    unsafe {
        asm!("st.global.L1::no_allocate.v4.u32 [{}], {{{}, {}, {}, {}}};", in(reg64) place, in(reg32) a, in(reg32) b,
            in(reg32) c, in(reg32) d, options(nostack, preserves_flags));
    }
}

/// 8 bytes.
///
/// # Safety
///
/// `place` is 8 bytes of global memory that may be written, aligned to 8 bytes.
#[inline(always)]
pub unsafe fn store_64(place: *mut u32, [a, b]: [u32; 2]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("st.global.L1::no_allocate.v2.u32 [{}], {{{}, {}}};", in(reg64) place, in(reg32) a, in(reg32) b,
            options(nostack, preserves_flags));
    }
}

/// Those of the four values whose bit is set, the first lowest.
///
/// # Safety
///
/// `place` is global memory that may be written there, aligned to 4 bytes.
#[inline(always)]
pub unsafe fn store_32_some(place: *mut u32, values: [u32; 4], bits: u32) {
    let [a, b, c, d] = values;
    // SAFETY: the caller's.
    unsafe {
        asm!("{{", ".reg .pred p<4>;", ".reg .b32 bit<4>;",
            "and.b32 bit0, {1}, 1;", "and.b32 bit1, {1}, 2;", "and.b32 bit2, {1}, 4;", "and.b32 bit3, {1}, 8;",
            "setp.ne.u32 p0, bit0, 0;", "setp.ne.u32 p1, bit1, 0;", "setp.ne.u32 p2, bit2, 0;", "setp.ne.u32 p3, bit3, 0;",
            "@p0 st.global.u32 [{0}], {2};", "@p1 st.global.u32 [{0}+4], {3};",
            "@p2 st.global.u32 [{0}+8], {4};", "@p3 st.global.u32 [{0}+12], {5};", "}}",
            in(reg64) place, in(reg32) bits, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
            options(nostack, preserves_flags));
    }
}

/// Those of the eight halves of these values whose bit is set, the first lowest, and of a value the lower half first.
///
/// # Safety
///
/// `place` is global memory that may be written there, aligned to 2 bytes.
#[inline(always)]
pub unsafe fn store_16_some(place: *mut u16, values: [u32; 4], bits: u32) {
    let [a, b, c, d] = values;
    // SAFETY: the caller's.
    unsafe {
        asm!("{{", ".reg .pred p<8>;", ".reg .b32 bit<8>;", ".reg .b16 half<8>;",
            "mov.b32 {{half0, half1}}, {2};", "mov.b32 {{half2, half3}}, {3};",
            "mov.b32 {{half4, half5}}, {4};", "mov.b32 {{half6, half7}}, {5};",
            "and.b32 bit0, {1}, 1;", "and.b32 bit1, {1}, 2;", "and.b32 bit2, {1}, 4;", "and.b32 bit3, {1}, 8;",
            "and.b32 bit4, {1}, 16;", "and.b32 bit5, {1}, 32;", "and.b32 bit6, {1}, 64;", "and.b32 bit7, {1}, 128;",
            "setp.ne.u32 p0, bit0, 0;", "setp.ne.u32 p1, bit1, 0;", "setp.ne.u32 p2, bit2, 0;", "setp.ne.u32 p3, bit3, 0;",
            "setp.ne.u32 p4, bit4, 0;", "setp.ne.u32 p5, bit5, 0;", "setp.ne.u32 p6, bit6, 0;", "setp.ne.u32 p7, bit7, 0;",
            "@p0 st.global.b16 [{0}], half0;", "@p1 st.global.b16 [{0}+2], half1;",
            "@p2 st.global.b16 [{0}+4], half2;", "@p3 st.global.b16 [{0}+6], half3;",
            "@p4 st.global.b16 [{0}+8], half4;", "@p5 st.global.b16 [{0}+10], half5;",
            "@p6 st.global.b16 [{0}+12], half6;", "@p7 st.global.b16 [{0}+14], half7;", "}}",
            in(reg64) place, in(reg32) bits, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d,
            options(nostack, preserves_flags));
    }
}
