//! Loads and stores of one thread in shared memory, its block's and another's of the cluster, as inline PTX.

use core::arch::{asm, global_asm};

use super::together::shuffle_index;
use crate::simt::{Shared, Word};

global_asm!(".extern .shared .align 128 .b8 isonorm_shared[];");

/// Where a place lies in the window of shared memory.
#[inline(always)]
pub(super) fn address<T>(place: Shared<T>) -> u32 {
    let base: u32;
    // SAFETY: reads the address of a symbol.
    unsafe { asm!("mov.u32 {}, isonorm_shared;", out(reg32) base, options(pure, nomem, nostack, preserves_flags)) };
    base.wrapping_add(place.byte_offset())
}

/// The same place, whose address the assembler keeps in a register, as it does not see where it comes from: otherwise it reads a special
/// register and computes it again wherever something lies behind it, and whatever is there waits for that. For a warp whose lanes all have this place.
#[inline(always)]
pub fn settled<T>(place: Shared<T>) -> Shared<T> {
    let address = shuffle_index(address(place), 0);
    Shared::at(address.wrapping_sub(self::address(Shared::<T>::at(0))))
}

/// The address of `place` in the shared memory of block `rank` of the cluster.
#[inline(always)]
pub(super) fn peer_address<T>(place: Shared<T>, rank: u32) -> u32 {
    let mapped: u32;
    // SAFETY: computes an address.
    unsafe {
        asm!("mapa.shared::cluster.u32 {}, {}, {};", out(reg32) mapped, in(reg32) address(place), in(reg32) rank,
            options(pure, nomem, nostack, preserves_flags));
    }
    mapped
}

/// A value of the block's shared memory.
///
/// # Safety
///
/// `place` was written, and a barrier lies between.
#[inline(always)]
pub unsafe fn shared_load<T: Word>(place: Shared<T>) -> T {
    let bits: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.shared.u32 {}, [{}];", out(reg32) bits, in(reg32) address(place), options(nostack, preserves_flags))
    };
    T::from_word(bits)
}

/// Writes a value to the block's shared memory.
///
/// # Safety
///
/// `place` lies in the shared memory of the launch, and no other thread uses it before the next barrier.
#[inline(always)]
pub unsafe fn shared_store<T: Word>(place: Shared<T>, value: T) {
    // SAFETY: the caller's.
    unsafe {
        asm!("st.shared.u32 [{}], {};", in(reg32) address(place), in(reg32) value.to_word(), options(nostack, preserves_flags))
    };
}

/// Two values of the block's shared memory.
///
/// # Safety
///
/// As for [`shared_load`]; aligned to 8 bytes.
#[inline(always)]
pub unsafe fn shared_load_64<T: Word>(place: Shared<T>) -> [T; 2] {
    let (a, b): (u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.shared.v2.u32 {{{}, {}}}, [{}];", out(reg32) a, out(reg32) b, in(reg32) address(place),
            options(nostack, preserves_flags));
    }
    [T::from_word(a), T::from_word(b)]
}

/// Writes two values to the block's shared memory.
///
/// # Safety
///
/// As for [`shared_store`]; aligned to 8 bytes.
#[inline(always)]
pub unsafe fn shared_store_64<T: Word>(place: Shared<T>, [a, b]: [T; 2]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("st.shared.v2.u32 [{}], {{{}, {}}};", in(reg32) address(place), in(reg32) a.to_word(),
            in(reg32) b.to_word(), options(nostack, preserves_flags));
    }
}

/// Four values of the block's shared memory.
///
/// # Safety
///
/// As for [`shared_load`]; aligned to 16 bytes.
#[inline(always)]
pub unsafe fn shared_load_128<T: Word>(place: Shared<T>) -> [T; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.shared.v4.u32 {{{}, {}, {}, {}}}, [{}];", out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d,
            in(reg32) address(place), options(nostack, preserves_flags));
    }
    [T::from_word(a), T::from_word(b), T::from_word(c), T::from_word(d)]
}

/// Writes four values to the block's shared memory.
///
/// # Safety
///
/// As for [`shared_store`]; aligned to 16 bytes.
#[inline(always)]
pub unsafe fn shared_store_128<T: Word>(place: Shared<T>, value: [T; 4]) {
    let [a, b, c, d] = value;
    // SAFETY: the caller's.
    unsafe {
        asm!("st.shared.v4.u32 [{}], {{{}, {}, {}, {}}};", in(reg32) address(place), in(reg32) a.to_word(),
            in(reg32) b.to_word(), in(reg32) c.to_word(), in(reg32) d.to_word(), options(nostack, preserves_flags));
    }
}

/// A value of the shared memory of block `rank` of the cluster (compute capability 9.0).
///
/// # Safety
///
/// As for [`shared_load`], with a barrier of the cluster; that block is still running.
#[inline(always)]
pub unsafe fn peer_load<T: Word>(place: Shared<T>, rank: u32) -> T {
    let bits: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.shared::cluster.u32 {}, [{}];", out(reg32) bits, in(reg32) peer_address(place, rank),
            options(nostack, preserves_flags));
    }
    T::from_word(bits)
}

/// Writes a value to the shared memory of block `rank` of the cluster (compute capability 9.0).
///
/// # Safety
///
/// As for [`shared_store`], with a barrier of the cluster; that block is already, and still, running.
#[inline(always)]
pub unsafe fn peer_store<T: Word>(place: Shared<T>, rank: u32, value: T) {
    // SAFETY: the caller's.
    unsafe {
        asm!("st.shared::cluster.u32 [{}], {};", in(reg32) peer_address(place, rank), in(reg32) value.to_word(),
            options(nostack, preserves_flags));
    }
}
