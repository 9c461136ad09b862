//! Identity, and what threads do together: LLVM's intrinsics, which it knows as convergent.

use core::arch::nvptx as arch;

use crate::simt::{WARP, Word};

const FULL: u32 = u32::MAX;
/// Shuffles over the whole warp: the highest lane, and no segments.
const CLAMP: u32 = 31;

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_bfly(mask: u32, value: u32, lanes: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn shfl_down(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn vote_all(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp(mask: u32);
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.aligned"]
    fn barrier_cluster_arrive();
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned"]
    fn barrier_cluster_arrive_relaxed();
    #[link_name = "llvm.nvvm.barrier.cluster.wait.aligned"]
    fn barrier_cluster_wait();
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.ctarank"]
    fn sreg_cluster_rank() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.nctarank"]
    fn sreg_cluster_blocks() -> u32;
}

macro_rules! identity {
    ($($(#[$doc:meta])* $name:ident = $read:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: reads a special register.
            unsafe { $read as u32 }
        }
    )*};
}

identity! {
    /// The thread's index in its block.
    thread_index = arch::_thread_idx_x();
    /// Threads of a block.
    block_threads = arch::_block_dim_x();
    /// The block's index in the grid.
    block_index = arch::_block_idx_x();
    /// Blocks of the grid.
    grid_blocks = arch::_grid_dim_x();
    /// The block's index in its cluster (compute capability 9.0).
    cluster_rank = sreg_cluster_rank();
    /// Blocks of a cluster (compute capability 9.0).
    cluster_blocks = sreg_cluster_blocks();
}

/// The thread's index in its warp.
#[inline(always)]
pub fn lane() -> u32 {
    thread_index() % WARP
}

/// The warp's index in its block.
#[inline(always)]
pub fn warp_index() -> u32 {
    thread_index() / WARP
}

/// The value of the lane whose index differs by `lanes` (exclusive or). Called by a whole warp.
#[inline(always)]
pub fn shuffle_xor<T: Word>(value: T, lanes: u32) -> T {
    // SAFETY: registers only; the contract is that all lanes of the warp are here.
    T::from_word(unsafe { shfl_bfly(FULL, value.to_word(), lanes, CLAMP) })
}

/// The value of the lane `delta` further on, or the own value where there is none. Called by a whole warp.
#[inline(always)]
pub fn shuffle_down<T: Word>(value: T, delta: u32) -> T {
    // SAFETY: as in `shuffle_xor`.
    T::from_word(unsafe { shfl_down(FULL, value.to_word(), delta, CLAMP) })
}

/// The value of lane `lane`, below 32. Called by a whole warp.
#[inline(always)]
pub fn shuffle_index<T: Word>(value: T, lane: u32) -> T {
    // SAFETY: as in `shuffle_xor`.
    T::from_word(unsafe { shfl_idx(FULL, value.to_word(), lane, CLAMP) })
}

/// One bit a lane: whose `predicate` holds. Called by a whole warp.
#[inline(always)]
pub fn ballot(predicate: bool) -> u32 {
    // SAFETY: as in `shuffle_xor`.
    unsafe { vote_ballot(FULL, predicate) }
}

/// Whether `predicate` holds in any lane. Called by a whole warp.
#[inline(always)]
pub fn any(predicate: bool) -> bool {
    // SAFETY: as in `shuffle_xor`.
    unsafe { vote_any(FULL, predicate) }
}

/// Whether `predicate` holds in all lanes. Called by a whole warp.
#[inline(always)]
pub fn all(predicate: bool) -> bool {
    // SAFETY: as in `shuffle_xor`.
    unsafe { vote_all(FULL, predicate) }
}

/// Waits for the warp, and orders its accesses to memory. Called by a whole warp.
#[inline(always)]
pub fn warp_barrier() {
    // SAFETY: the contract is that all lanes of the warp are here.
    unsafe { bar_warp(FULL) }
}

/// Waits for the block, and orders its accesses to memory. Called by a whole block.
#[inline(always)]
pub fn block_barrier() {
    // SAFETY: the contract is that all threads of the block are here.
    unsafe { arch::_syncthreads() }
}

/// Waits for the cluster, and orders its accesses to memory. Called by all blocks of a cluster (compute capability 9.0).
#[inline(always)]
pub fn cluster_barrier() {
    // SAFETY: the contract is that all threads of the cluster are here.
    unsafe {
        barrier_cluster_arrive();
        barrier_cluster_wait();
    }
}

/// Tells the cluster that this thread has come so far: transfers that it has prepared are there for who waits, and what it has loaded is
/// loaded. Orders no other accesses to memory, and so does not wait for them. Called by all blocks of a cluster, which do not arrive again
/// before they have waited (compute capability 9.0).
#[inline(always)]
pub fn cluster_arrive() {
    // SAFETY: the contract is that all threads of the cluster come here.
    unsafe { barrier_cluster_arrive_relaxed() }
}

/// Waits until all of the cluster have arrived. Called by all blocks of a cluster, which have arrived (compute capability 9.0).
#[inline(always)]
pub fn cluster_wait() {
    // SAFETY: the contract is that all threads of the cluster have arrived, and are here.
    unsafe { barrier_cluster_wait() }
}
