//! Identity, and what threads do together. Documented beside the instructions.
use std::panic::Location;

use crate::interpreter::{Operation, Request, Scope, current};
use crate::simt::{WARP, Word};

/// The thread's index in its block.
pub fn thread_index() -> u32 {
    current().thread
}

/// Threads of a block.
pub fn block_threads() -> u32 {
    current().world().launch.threads
}

/// The block's index in the grid.
pub fn block_index() -> u32 {
    let running = current();
    running.world().block_index(running.block)
}

/// Blocks of the grid.
pub fn grid_blocks() -> u32 {
    current().world().launch.blocks
}

/// The block's index in its cluster.
pub fn cluster_rank() -> u32 {
    let running = current();
    running.block % running.world().launch.cluster
}

/// Blocks of a cluster.
pub fn cluster_blocks() -> u32 {
    current().world().launch.cluster
}

/// The thread's index in its warp.
pub fn lane() -> u32 {
    thread_index() % WARP
}

/// The warp's index in its block.
pub fn warp_index() -> u32 {
    thread_index() / WARP
}

#[track_caller]
fn together(operation: Operation, value: u32, operand: u32) -> u32 {
    let place = Location::caller();
    current().suspend(Request::Warp {
        operation,
        value,
        operand,
        place,
    })
}

/// The value of the lane whose index differs by `lanes` (exclusive or). Called by a whole warp.
#[track_caller]
pub fn shuffle_xor<T: Word>(value: T, lanes: u32) -> T {
    T::from_word(together(Operation::ShuffleXor, value.to_word(), lanes))
}

/// The value of the lane `delta` further on, or the own value where there is none. Called by a whole warp.
#[track_caller]
pub fn shuffle_down<T: Word>(value: T, delta: u32) -> T {
    T::from_word(together(Operation::ShuffleDown, value.to_word(), delta))
}

/// The value of lane `lane`, below 32. Called by a whole warp.
#[track_caller]
pub fn shuffle_index<T: Word>(value: T, lane: u32) -> T {
    T::from_word(together(Operation::ShuffleIndex, value.to_word(), lane))
}

/// One bit a lane: whose `predicate` holds. Called by a whole warp.
#[track_caller]
pub fn ballot(predicate: bool) -> u32 {
    together(Operation::Ballot, u32::from(predicate), 0)
}

/// Whether `predicate` holds in any lane. Called by a whole warp.
#[track_caller]
pub fn any(predicate: bool) -> bool {
    ballot(predicate) != 0
}

/// Whether `predicate` holds in all lanes. Called by a whole warp.
#[track_caller]
pub fn all(predicate: bool) -> bool {
    ballot(predicate) == u32::MAX
}

/// Waits for the warp, and orders its accesses to memory. Called by a whole warp.
#[track_caller]
pub fn warp_barrier() {
    together(Operation::Barrier, 0, 0);
}

#[track_caller]
fn barrier(scope: Scope) {
    let place = Location::caller();
    current().suspend(Request::Barrier { scope, place });
}

/// Waits for the block, and orders its accesses to memory. Called by a whole block.
#[track_caller]
pub fn block_barrier() {
    barrier(Scope::Block);
}

/// Waits for the cluster, and orders its accesses to memory. Called by all blocks of a cluster.
#[track_caller]
pub fn cluster_barrier() {
    let running = current();
    let free = running.world().cluster_free(running.block, running.thread);
    running.expect(free, Location::caller());
    barrier(Scope::Cluster);
}

/// Tells the cluster that this thread has come so far: transfers that it has prepared are there for who waits, and what it has loaded is
/// loaded. Orders no other accesses to memory. Called by all blocks of a cluster, which do not arrive again before they have waited.
#[track_caller]
pub fn cluster_arrive() {
    let running = current();
    let arrival = running.world().cluster_arrive(running.block, running.thread);
    running.expect(arrival, Location::caller());
}

/// Waits until all of the cluster have arrived. Called by all blocks of a cluster, which have arrived.
#[track_caller]
pub fn cluster_wait() {
    let (running, place) = (current(), Location::caller());
    let (world, block, thread) = (running.world(), running.block, running.thread);
    running.expect(world.cluster_wait(block, thread), place);
    if !world.cluster_arrived(block, thread) {
        running.suspend(Request::Cluster { place });
    }
}
