//! Copies that run beside the thread, and what grids wait for. Documented beside the instructions.
#![allow(clippy::missing_safety_doc)]

use std::panic::Location;

use crate::interpreter::world::{Copy, Message, Source};
use crate::interpreter::{Request, current};
use crate::simt::{Shared, Transfer, Word};

#[track_caller]
fn start(from: Source, to: u32, bytes: u32) {
    let running = current();
    let copy = Copy { from, to, bytes };
    let result = running.world().copy_async(running.block, running.thread, copy);
    running.expect(result, Location::caller());
}

/// Starts a copy of 16 bytes from global to shared memory, part of the thread's next group.
#[track_caller]
pub unsafe fn copy_async<T>(to: Shared<T>, from: *const u32) {
    start(Source::Global(from.addr()), to.byte_offset(), 16);
}

/// As [`copy_async`], of what nobody will read again soon.
#[track_caller]
pub unsafe fn copy_async_once<T>(to: Shared<T>, from: *const u32) {
    start(Source::Global(from.addr()), to.byte_offset(), 16);
}

/// As [`copy_async`], if a condition holds, without a branch.
#[track_caller]
pub unsafe fn copy_async_if<T>(to: Shared<T>, from: *const u32, condition: bool) {
    if condition {
        start(Source::Global(from.addr()), to.byte_offset(), 16);
    }
}

/// As [`copy_async`], of 8 bytes.
#[track_caller]
pub unsafe fn copy_async_64<T>(to: Shared<T>, from: *const u32) {
    start(Source::Global(from.addr()), to.byte_offset(), 8);
}

/// As [`copy_async`], of the first `bytes` of the 16 alone, at most 16; the others become 0.
#[track_caller]
pub unsafe fn copy_async_some<T>(to: Shared<T>, from: *const u32, bytes: u32) {
    start(Source::GlobalSome(from.addr(), bytes), to.byte_offset(), 16);
}

/// Ends the group of the copies that this thread started.
pub fn copy_commit() {
    let running = current();
    running.world().copy_commit(running.block, running.thread);
}

/// Waits until at most `PENDING` of the newest groups of this thread are on their way. Other threads see the data after a
/// barrier.
#[track_caller]
pub fn copy_wait<const PENDING: u32>() {
    let running = current();
    let result = running.world().copy_wait(running.block, running.thread, PENDING);
    running.expect(result, Location::caller());
}

/// Prepares a barrier for `arrivals` threads a phase. Called by one thread; a block barrier has to follow.
#[track_caller]
pub unsafe fn transfer_init(transfer: Transfer, arrivals: u32) {
    let (running, offset) = (current(), transfer.byte_offset());
    let result = running
        .world()
        .transfer_init(running.block, running.thread, offset, arrivals);
    running.expect(result, Location::caller());
}

/// Arrives, and adds `bytes` to what the phase waits for.
#[track_caller]
pub unsafe fn transfer_expect(transfer: Transfer, bytes: u32) {
    let (running, offset) = (current(), transfer.byte_offset());
    let result = running
        .world()
        .transfer_expect(running.block, running.thread, offset, bytes);
    running.expect(result, Location::caller());
}

/// Starts a copy of `bytes` from global to shared memory, whose bytes count on `transfer`.
#[track_caller]
pub unsafe fn transfer_copy<T>(to: Shared<T>, from: *const u32, bytes: u32, transfer: Transfer) {
    let (running, offset) = (current(), transfer.byte_offset());
    let copy = Copy {
        from: Source::Global(from.addr()),
        to: to.byte_offset(),
        bytes,
    };
    let result = running
        .world()
        .transfer_copy(running.block, running.thread, offset, copy);
    running.expect(result, Location::caller());
}

/// Sends two values to the shared memory of block `rank` of the cluster; their 8 bytes count on that block's `transfer`.
#[track_caller]
pub unsafe fn peer_send<T: Word>(to: Shared<T>, rank: u32, values: [T; 2], transfer: Transfer) {
    let (running, place) = (current(), Location::caller());
    let owner = running.expect(running.world().peer(running.block, rank), place);
    let [first, second] = values.map(|value| value.to_word().to_ne_bytes());
    let mut data = [0; 8];
    data[..4].copy_from_slice(&first);
    data[4..].copy_from_slice(&second);
    let sender = (running.block, running.thread);
    let result = running
        .world()
        .transfer_send(owner, sender, transfer.byte_offset(), to.byte_offset(), data);
    running.expect(result, place);
}

/// Waits for the end of the phase whose number is even (`parity` 0) or odd (1).
#[track_caller]
pub unsafe fn transfer_wait(transfer: Transfer, parity: u32) {
    let (running, offset, place) = (current(), transfer.byte_offset(), Location::caller());
    let passed = running
        .world()
        .transfer_passed(running.block, running.thread, offset, parity);
    if !running.expect(passed, place) {
        running.suspend(Request::Transfer { offset, parity, place });
    }
}

/// Adds to a counter in global memory; what this thread wrote before is seen by whoever waits for the sum.
#[track_caller]
pub unsafe fn counter_add(counter: *mut u32, value: u32) {
    let running = current();
    running.expect(running.world().counter_add(counter.addr(), value), Location::caller());
}

/// Waits until a counter is at least `value`. All blocks that add to it must be running.
#[track_caller]
pub unsafe fn counter_wait(counter: *const u32, value: u32) {
    let (running, place) = (current(), Location::caller());
    let (address, at_least) = (counter.addr(), value);
    if !running.expect(running.world().counter_reached(address, at_least), place) {
        running.suspend(Request::Counter {
            address,
            at_least,
            place,
        });
    }
}

/// Leaves two values in global memory for all who wait for them by the tag.
#[track_caller]
pub unsafe fn message_send<T: Word>(place: *mut u32, values: [T; 2], tag: u32) {
    let running = current();
    let message = Message {
        values: values.map(T::to_word),
        tag,
    };
    running.expect(running.world().message_send(place.addr(), message), Location::caller());
}

/// The same, as there is no cache here.
#[track_caller]
pub unsafe fn message_send_kept<T: Word>(place: *mut u32, values: [T; 2], tag: u32) {
    // SAFETY: the caller's.
    unsafe { message_send(place, values, tag) };
}

/// Waits for the values that are left with this tag.
#[track_caller]
pub unsafe fn message_wait<T: Word>(place: *const u32, tag: u32) -> [T; 2] {
    let (running, at, address) = (current(), Location::caller(), place.addr());
    let mut message = running.expect(running.world().message(address, tag), at);
    if message.is_none() {
        running.suspend(Request::Message {
            address,
            tag,
            place: at,
        });
        message = running.expect(running.world().message(address, tag), at);
    }
    message.expect("a thread that is woken has a message").map(T::from_word)
}

/// Waits for the values that are left at several places with this tag.
#[track_caller]
pub unsafe fn messages_wait_kept<T: Word, const N: usize>(places: [*const u32; N], tag: u32) -> [[T; 2]; N] {
    // SAFETY: the caller's.
    places.map(|place| unsafe { message_wait(place, tag) })
}

/// Lets the next kernel of the stream start; nothing to do where kernels run one after the other.
pub fn dependents_launch() {}

/// Waits until the kernel before has ended; it has.
pub fn dependency_wait() {}
