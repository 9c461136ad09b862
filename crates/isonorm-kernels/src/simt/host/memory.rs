//! Loads and stores of one thread, checked against the launch. Documented beside the instructions.
//!
//! The functions are unsafe as their counterparts on a GPU are; here, every misuse is a fault.
#![allow(clippy::missing_safety_doc)]

use std::panic::Location;

use crate::interpreter::current;
use crate::simt::{Shared, Word, shuffle_index};

#[track_caller]
fn global_read<const BYTES: usize>(address: usize) -> [u8; BYTES] {
    let running = current();
    let mut bytes = [0; BYTES];
    let result = running.world().global_read(address, &mut bytes);
    running.expect(result, Location::caller());
    bytes
}

#[track_caller]
fn global_write(address: usize, bytes: &[u8]) {
    let running = current();
    let result = running.world().global_write(address, bytes);
    running.expect(result, Location::caller());
}

/// `BYTES` is four times `N`.
fn words<const BYTES: usize, const N: usize>(bytes: [u8; BYTES]) -> [u32; N] {
    const { assert!(BYTES == 4 * N) };
    std::array::from_fn(|i| u32::from_ne_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]))
}

/// `BYTES` is four times `N`.
fn bytes<const BYTES: usize, const N: usize>(words: [u32; N]) -> [u8; BYTES] {
    const { assert!(BYTES == 4 * N) };
    let mut bytes = [0; BYTES];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// 2 bytes, read once.
#[track_caller]
pub unsafe fn load_16(place: *const u16) -> u16 {
    u16::from_ne_bytes(global_read(place.addr()))
}

/// One byte, as a number.
#[track_caller]
pub unsafe fn load_8(place: *const u8) -> u32 {
    let [byte] = global_read(place.addr());
    byte.into()
}

/// One byte, as a number, of which neighbours will be read.
#[track_caller]
pub unsafe fn load_8_again(place: *const u8) -> u32 {
    let [byte] = global_read(place.addr());
    byte.into()
}

/// One byte: the lowest of a number. Neighbours will be written.
#[track_caller]
pub unsafe fn store_8_again(place: *mut u8, value: u32) {
    global_write(place.addr(), &[value as u8]);
}

/// The same value, of which the compiler no longer knows where it came from.
pub fn opaque<T: Word>(value: T) -> T {
    std::hint::black_box(value)
}

/// As [`opaque`], for 64 bits.
pub fn opaque_64(value: u64) -> u64 {
    std::hint::black_box(value)
}

/// 2 bytes that other threads read too and nothing writes during the kernel.
#[track_caller]
pub unsafe fn load_16_keep(place: *const u16) -> u16 {
    u16::from_ne_bytes(global_read(place.addr()))
}

/// 4 bytes, read once.
#[track_caller]
pub unsafe fn load_32(place: *const u32) -> u32 {
    u32::from_ne_bytes(global_read(place.addr()))
}

/// 4 bytes that other threads read too and nothing writes during the kernel.
#[track_caller]
pub unsafe fn load_32_keep(place: *const u32) -> u32 {
    u32::from_ne_bytes(global_read(place.addr()))
}

/// 8 bytes, read once.
#[track_caller]
pub unsafe fn load_64(place: *const u32) -> [u32; 2] {
    words(global_read::<8>(place.addr()))
}

/// 8 bytes that other threads read too and nothing writes during the kernel.
#[track_caller]
pub unsafe fn load_64_keep(place: *const u32) -> [u32; 2] {
    words(global_read::<8>(place.addr()))
}

/// 16 bytes, read once.
#[track_caller]
pub unsafe fn load_128(place: *const u32) -> [u32; 4] {
    words(global_read::<16>(place.addr()))
}

/// 16 bytes that other threads read too and nothing writes during the kernel.
#[track_caller]
pub unsafe fn load_128_keep(place: *const u32) -> [u32; 4] {
    words(global_read::<16>(place.addr()))
}

/// 16 bytes that nobody will read again soon.
#[track_caller]
pub unsafe fn load_128_once(place: *const u32) -> [u32; 4] {
    words(global_read::<16>(place.addr()))
}

/// 16 bytes that will be read again.
#[track_caller]
pub unsafe fn load_128_again(place: *const u32) -> [u32; 4] {
    words(global_read::<16>(place.addr()))
}

/// 16 bytes that nobody will read soon.
#[track_caller]
pub unsafe fn store_128_once(place: *mut u32, value: [u32; 4]) {
    global_write(place.addr(), &bytes::<16, 4>(value));
}

/// One byte: the lowest of a number.
#[track_caller]
pub unsafe fn store_8(place: *mut u8, value: u32) {
    global_write(place.addr(), &[value as u8]);
}

/// 2 bytes.
#[track_caller]
pub unsafe fn store_16(place: *mut u16, value: u16) {
    global_write(place.addr(), &value.to_ne_bytes());
}

/// 4 bytes.
#[track_caller]
pub unsafe fn store_32(place: *mut u32, value: u32) {
    global_write(place.addr(), &value.to_ne_bytes());
}

/// 8 bytes.
#[track_caller]
pub unsafe fn store_64(place: *mut u32, value: [u32; 2]) {
    global_write(place.addr(), &bytes::<8, 2>(value));
}

/// 16 bytes.
#[track_caller]
pub unsafe fn store_128(place: *mut u32, value: [u32; 4]) {
    global_write(place.addr(), &bytes::<16, 4>(value));
}

/// Those of the four values whose bit is set, the first lowest.
#[track_caller]
pub unsafe fn store_32_some(place: *mut u32, values: [u32; 4], bits: u32) {
    for (lane, value) in values.into_iter().enumerate() {
        if bits >> lane & 1 != 0 {
            global_write(place.wrapping_add(lane).addr(), &value.to_ne_bytes());
        }
    }
}

/// Those of the eight halves of these values whose bit is set, the first lowest, and of a value the lower half first.
#[track_caller]
pub unsafe fn store_16_some(place: *mut u16, values: [u32; 4], bits: u32) {
    for (lane, half) in values
        .into_iter()
        .flat_map(|value| [value as u16, (value >> 16) as u16])
        .enumerate()
    {
        if bits >> lane & 1 != 0 {
            global_write(place.wrapping_add(lane).addr(), &half.to_ne_bytes());
        }
    }
}

/// Reads the shared memory of the own block, or of block `rank` of the cluster.
#[track_caller]
fn read<const BYTES: usize>(offset: u32, rank: Option<u32>) -> [u8; BYTES] {
    let (running, place) = (current(), Location::caller());
    let (world, block) = (running.world(), running.block);
    let owner = rank.map_or(Ok(block), |rank| world.peer(block, rank));
    let owner = running.expect(owner, place);
    let mut bytes = [0; BYTES];
    running.expect(
        world.shared_read(owner, block, running.thread, offset, &mut bytes),
        place,
    );
    bytes
}

/// Writes the shared memory of the own block, or of block `rank` of the cluster.
#[track_caller]
fn write(offset: u32, rank: Option<u32>, bytes: &[u8]) {
    let (running, place) = (current(), Location::caller());
    let (world, block) = (running.world(), running.block);
    let owner = rank.map_or(Ok(block), |rank| world.peer(block, rank));
    let owner = running.expect(owner, place);
    running.expect(world.shared_write(owner, block, running.thread, offset, bytes), place);
}

/// The same place, if it is the same in all lanes: as on a GPU, that of lane 0.
#[track_caller]
pub fn settled<T>(place: Shared<T>) -> Shared<T> {
    Shared::at(shuffle_index(place.byte_offset(), 0))
}

/// A value of the block's shared memory.
#[track_caller]
pub unsafe fn shared_load<T: Word>(place: Shared<T>) -> T {
    T::from_word(u32::from_ne_bytes(read(place.byte_offset(), None)))
}

/// Writes a value to the block's shared memory.
#[track_caller]
pub unsafe fn shared_store<T: Word>(place: Shared<T>, value: T) {
    write(place.byte_offset(), None, &value.to_word().to_ne_bytes());
}

/// Two values of the block's shared memory.
#[track_caller]
pub unsafe fn shared_load_64<T: Word>(place: Shared<T>) -> [T; 2] {
    words(read::<8>(place.byte_offset(), None)).map(T::from_word)
}

/// Writes two values to the block's shared memory.
#[track_caller]
pub unsafe fn shared_store_64<T: Word>(place: Shared<T>, value: [T; 2]) {
    write(place.byte_offset(), None, &bytes::<8, 2>(value.map(T::to_word)));
}

/// Four values of the block's shared memory.
#[track_caller]
pub unsafe fn shared_load_128<T: Word>(place: Shared<T>) -> [T; 4] {
    words(read::<16>(place.byte_offset(), None)).map(T::from_word)
}

/// Writes four values to the block's shared memory.
#[track_caller]
pub unsafe fn shared_store_128<T: Word>(place: Shared<T>, value: [T; 4]) {
    write(place.byte_offset(), None, &bytes::<16, 4>(value.map(T::to_word)));
}

/// A value of the shared memory of block `rank` of the cluster.
#[track_caller]
pub unsafe fn peer_load<T: Word>(place: Shared<T>, rank: u32) -> T {
    T::from_word(u32::from_ne_bytes(read(place.byte_offset(), Some(rank))))
}

/// Writes a value to the shared memory of block `rank` of the cluster.
#[track_caller]
pub unsafe fn peer_store<T: Word>(place: Shared<T>, rank: u32, value: T) {
    write(place.byte_offset(), Some(rank), &value.to_word().to_ne_bytes());
}
