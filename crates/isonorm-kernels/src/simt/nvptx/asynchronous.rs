//! Copies that run beside the thread, and what grids wait for.

use core::arch::asm;

use super::alone::{EVICT_FIRST, EVICT_LAST};
use super::shared::{address, peer_address};
use crate::simt::{Shared, Transfer, Word};

/// Starts a copy of 16 bytes from global to shared memory, part of the thread's next group.
///
/// # Safety
///
/// Both places exist and are aligned to 16 bytes; nothing uses `to` before [`copy_wait`].
#[inline(always)]
pub unsafe fn copy_async<T>(to: Shared<T>, from: *const u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.cg.shared.global [{}], [{}], 16;", in(reg32) address(to), in(reg64) from,
            options(nostack, preserves_flags));
    }
}

/// As [`copy_async`], of what nobody will read again soon: the last-level cache gives its place to others first.
///
/// Where the assembler (of CUDA 13.0) takes a part of the place in shared memory from a register of the warp, an H200 refuses the instruction,
/// and it cannot of what it has to combine, bit by bit, with a number of each thread: here 0, the lanes that come both before and behind this one.
///
/// # Safety
///
/// As for [`copy_async`]; of compute capability 9.0 or later.
#[inline(always)]
pub unsafe fn copy_async_once<T>(to: Shared<T>, from: *const u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{{",
            ".reg .b32 %place, %others;",
            "mov.u32 %place, %lanemask_lt;",
            "mov.u32 %others, %lanemask_gt;",
            "and.b32 %place, %place, %others;",
            "xor.b32 %place, %place, {};",
            "cp.async.cg.shared.global.L2::cache_hint [%place], [{}], 16, {};",
            "}}",
            in(reg32) address(to), in(reg64) from, const EVICT_FIRST, options(nostack, preserves_flags),
        );
    }
}

/// As [`copy_async`], if a condition holds, without a branch.
///
/// # Safety
///
/// As for [`copy_async`], if it holds.
#[inline(always)]
pub unsafe fn copy_async_if<T>(to: Shared<T>, from: *const u32, condition: bool) {
    // SAFETY: the caller's.
    unsafe {
        asm!("{{", ".reg .pred %holds;", "setp.ne.u32 %holds, {2}, 0;",
            "@%holds cp.async.cg.shared.global [{0}], [{1}], 16;", "}}",
            in(reg32) address(to), in(reg64) from, in(reg32) u32::from(condition), options(nostack, preserves_flags));
    }
}

/// As [`copy_async`], of 8 bytes.
///
/// # Safety
///
/// As for [`copy_async`]; aligned to 8 bytes.
#[inline(always)]
pub unsafe fn copy_async_64<T>(to: Shared<T>, from: *const u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.ca.shared.global [{}], [{}], 8;", in(reg32) address(to), in(reg64) from,
            options(nostack, preserves_flags));
    }
}

/// As [`copy_async`], of the first `bytes` of the 16 alone, at most 16; the others become 0.
///
/// # Safety
///
/// As for [`copy_async`], but for what is not read.
#[inline(always)]
pub unsafe fn copy_async_some<T>(to: Shared<T>, from: *const u32, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.cg.shared.global [{}], [{}], 16, {};", in(reg32) address(to), in(reg64) from, in(reg32) bytes,
            options(nostack, preserves_flags));
    }
}

/// Ends the group of the copies that this thread started.
#[inline(always)]
pub fn copy_commit() {
    // SAFETY: no operand.
    unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) };
}

/// Waits until at most `PENDING` of the newest groups of this thread are on their way. Other threads see the data after a
/// barrier.
#[inline(always)]
pub fn copy_wait<const PENDING: u32>() {
    // SAFETY: a constant operand.
    unsafe { asm!("cp.async.wait_group {};", const PENDING, options(nostack, preserves_flags)) };
}

/// Prepares a barrier for `arrivals` threads a phase. Called by one thread; a block barrier has to follow.
///
/// # Safety
///
/// `transfer` lies in the shared memory of the launch, aligned to 8 bytes.
#[inline(always)]
pub unsafe fn transfer_init(transfer: Transfer, arrivals: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("mbarrier.init.shared::cta.b64 [{}], {};", "fence.mbarrier_init.release.cluster;", in(reg32) address(transfer),
            in(reg32) arrivals, options(nostack, preserves_flags));
    }
}

/// Arrives, and adds `bytes` to what the phase waits for.
///
/// # Safety
///
/// `transfer` was prepared.
#[inline(always)]
pub unsafe fn transfer_expect(transfer: Transfer, bytes: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};", in(reg32) address(transfer), in(reg32) bytes,
            options(nostack, preserves_flags));
    }
}

/// Starts a copy of `bytes` from global to shared memory, whose bytes count on `transfer`.
///
/// # Safety
///
/// Both places exist and are aligned to 16 bytes, and `bytes` is a multiple of 16; nothing uses `to` before
/// [`transfer_wait`].
#[inline(always)]
pub unsafe fn transfer_copy<T>(to: Shared<T>, from: *const u32, bytes: u32, transfer: Transfer) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}], {}, [{}];",
            in(reg32) address(to), in(reg64) from, in(reg32) bytes, in(reg32) address(transfer),
            options(nostack, preserves_flags));
    }
}

/// Sends two values to the shared memory of block `rank` of the cluster; their 8 bytes count on that block's `transfer` (compute
/// capability 9.0). Nothing that this thread did before is seen earlier for it.
///
/// # Safety
///
/// Both places exist, aligned to 8 bytes, and `transfer` was prepared there before a barrier of the cluster; nothing uses `to`
/// before [`transfer_wait`], until which that block runs.
#[inline(always)]
pub unsafe fn peer_send<T: Word>(to: Shared<T>, rank: u32, values: [T; 2], transfer: Transfer) {
    let [first, second] = values;
    // SAFETY: the caller's.
    unsafe {
        asm!("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [{}], {{{}, {}}}, [{}];",
            in(reg32) peer_address(to, rank), in(reg32) first.to_word(), in(reg32) second.to_word(),
            in(reg32) peer_address(transfer, rank), options(nostack, preserves_flags));
    }
}

/// Waits for the end of the phase whose number is even (`parity` 0) or odd (1).
///
/// # Safety
///
/// `transfer` was prepared.
#[inline(always)]
pub unsafe fn transfer_wait(transfer: Transfer, parity: u32) {
    loop {
        let done: u32;
        // SAFETY: the caller's.
        unsafe {
            asm!("{{", ".reg .pred p;", "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [{1}], {2};",
                "selp.u32 {0}, 1, 0, p;", "}}", out(reg32) done, in(reg32) address(transfer), in(reg32) parity,
                options(nostack, preserves_flags));
        }
        if done != 0 {
            break;
        }
    }
}

/// Adds to a counter in global memory; what this thread wrote before is seen by whoever waits for the sum. A block
/// barrier before it makes that what the block wrote.
///
/// # Safety
///
/// `counter` is global memory that may be written, aligned to 4 bytes, and used by counter functions only.
#[inline(always)]
pub unsafe fn counter_add(counter: *mut u32, value: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("red.release.gpu.global.add.u32 [{}], {};", in(reg64) counter, in(reg32) value, options(nostack, preserves_flags))
    };
}

/// Waits until a counter is at least `value`. All blocks that add to it must be running: more than fit the device hang.
///
/// # Safety
///
/// As for [`counter_add`].
#[inline(always)]
pub unsafe fn counter_wait(counter: *const u32, value: u32) {
    loop {
        let seen: u32;
        // SAFETY: the caller's.
        unsafe {
            asm!("ld.acquire.gpu.global.u32 {}, [{}];", out(reg32) seen, in(reg64) counter, options(nostack, preserves_flags))
        };
        if seen >= value {
            break;
        }
    }
}

/// Leaves two values in global memory for all who wait for them. Each is written at once with the tag, by which it is known: nothing
/// else has to be ordered for that, and nothing waits for what was stored before.
///
/// # Safety
///
/// `place` is 16 bytes of global memory that may be written, aligned to 16 bytes, and used by message functions only. Whoever waits
/// for what was left there before has received it.
#[inline(always)]
pub unsafe fn message_send<T: Word>(place: *mut u32, values: [T; 2], tag: u32) {
    let [first, second] = values.map(|value| u64::from(tag) << 32 | u64::from(value.to_word()));
    // SAFETY: the caller's.
    unsafe {
        asm!("st.relaxed.gpu.global.v2.u64 [{}], {{{}, {}}};", in(reg64) place, in(reg64) first, in(reg64) second,
            options(nostack, preserves_flags));
    }
}

/// The same (compute capability 9.0), of a place that stays in the last-level cache, whatever tensors go through it: else the cache
/// would ask memory for what lies around the message, and whoever looks for it would wait for that.
///
/// # Safety
///
/// As for [`message_send`].
#[inline(always)]
pub unsafe fn message_send_kept<T: Word>(place: *mut u32, values: [T; 2], tag: u32) {
    let [first, second] = values.map(|value| u64::from(tag) << 32 | u64::from(value.to_word()));
    // SAFETY: the caller's.
    unsafe {
        asm!("st.relaxed.gpu.global.L2::cache_hint.v2.u64 [{}], {{{}, {}}}, {};", in(reg64) place, in(reg64) first,
            in(reg64) second, const EVICT_LAST, options(nostack, preserves_flags));
    }
}

/// Waits for the values that are left with this tag, which no others have had there. The sender must be running: more blocks than
/// fit the device hang.
///
/// # Safety
///
/// As for [`message_send`]; memory that nobody has sent to does not have the tag.
#[inline(always)]
pub unsafe fn message_wait<T: Word>(place: *const u32, tag: u32) -> [T; 2] {
    loop {
        let (first, second): (u64, u64);
        // SAFETY: the caller's.
        unsafe {
            asm!("ld.relaxed.gpu.global.v2.u64 {{{}, {}}}, [{}];", out(reg64) first, out(reg64) second, in(reg64) place,
                options(nostack, preserves_flags));
        }
        if (first >> 32) as u32 == tag && (second >> 32) as u32 == tag {
            return [T::from_word(first as u32), T::from_word(second as u32)];
        }
    }
}

/// Waits for the values that are left at several places with this tag, all of which are looked at together, and stay in the last-level
/// cache (compute capability 9.0).
///
/// # Safety
///
/// As for [`message_wait`].
#[inline(always)]
pub unsafe fn messages_wait_kept<T: Word, const N: usize>(places: [*const u32; N], tag: u32) -> [[T; 2]; N] {
    loop {
        let seen = places.map(|place| {
            let (first, second): (u64, u64);
            // SAFETY: the caller's.
            unsafe {
                asm!("ld.relaxed.gpu.global.L2::cache_hint.v2.u64 {{{}, {}}}, [{}], {};", out(reg64) first, out(reg64) second,
                    in(reg64) place, const EVICT_LAST, options(nostack, preserves_flags));
            }
            [first, second]
        });
        let of_other_tags = seen.map(|[first, second]| ((first >> 32) as u32 ^ tag) | ((second >> 32) as u32 ^ tag));
        if of_other_tags.into_iter().fold(0, |all, other| all | other) == 0 {
            return seen.map(|values| values.map(|value| T::from_word(value as u32)));
        }
    }
}

/// Lets the next kernel of the stream start, if it was launched for that (compute capability 9.0).
#[inline(always)]
pub fn dependents_launch() {
    // SAFETY: no operand.
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack, preserves_flags)) };
}

/// Waits until the kernel before has ended and its results are visible (compute capability 9.0).
#[inline(always)]
pub fn dependency_wait() {
    // SAFETY: no operand.
    unsafe { asm!("griddepcontrol.wait;", options(nostack, preserves_flags)) };
}
