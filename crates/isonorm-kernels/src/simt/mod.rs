//! What a GPU thread can do: one set of functions, two implementations.
//!
//! | group | functions |
//! |---|---|
//! | identity | [`thread_index`], [`lane`], [`warp_index`], [`block_threads`], [`block_index`], [`grid_blocks`], [`cluster_rank`], [`cluster_blocks`] |
//! | warp | [`shuffle_xor`], [`shuffle_down`], [`shuffle_index`], [`ballot`], [`any`], [`all`], [`warp_barrier`] |
//! | block | [`block_barrier`], [`shared_load`], [`shared_store`], [`shared_load_64`], [`shared_store_64`], [`shared_load_128`], [`shared_store_128`] |
//! | cluster | [`cluster_barrier`], [`cluster_arrive`], [`cluster_wait`], [`peer_load`], [`peer_store`] |
//! | global memory | [`load_128`], [`load_128_keep`], [`load_128_once`], [`load_128_again`], [`load_64`], [`load_64_keep`], [`load_32`], [`load_32_keep`], [`load_16`], [`load_16_keep`], [`load_8`], [`load_8_again`], [`store_128`], [`store_128_once`], [`store_64`], [`store_32`], [`store_16`], [`store_8`], [`store_8_again`], [`store_32_some`], [`store_16_some`] |
//! | asynchronous | [`copy_async`], [`copy_async_if`], [`copy_async_once`], [`copy_async_64`], [`copy_async_some`], [`copy_commit`], [`copy_wait`], [`transfer_init`], [`transfer_expect`], [`transfer_copy`], [`transfer_wait`], [`peer_send`] |
//! | compiler | [`opaque`], [`opaque_64`], [`zero`], [`settled`] |
//! | grid | [`counter_add`], [`counter_wait`], [`message_send`], [`message_wait`], [`message_send_kept`], [`messages_wait_kept`], [`dependents_launch`], [`dependency_wait`] |
//!
//! # Together and alone
//!
//! What threads do *together* (shuffles, votes, barriers) must be called by every thread of the group, at the same
//! place: all 32 lanes of the warp, all threads of the block, of the cluster. On the GPU these are intrinsics that
//! the compiler knows as convergent, so that it never moves them into a branch. What a thread does *alone* is inline
//! PTX. A block has a multiple of 32 threads, in one dimension.

#[cfg(not(target_arch = "nvptx64"))]
mod host;
#[cfg(target_arch = "nvptx64")]
mod nvptx;

#[cfg(not(target_arch = "nvptx64"))]
pub use host::*;
#[cfg(target_arch = "nvptx64")]
pub use nvptx::*;

use core::marker::PhantomData;
use core::num::NonZero;

/// Threads of a warp.
pub const WARP: u32 = 32;

/// A value of 32 bits, as registers, shuffles and shared memory have it.
pub trait Word: Copy {
    /// Its bits.
    fn to_word(self) -> u32;
    /// The value that has these bits.
    fn from_word(bits: u32) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn to_word(self) -> u32 {
        self
    }

    #[inline(always)]
    fn from_word(bits: u32) -> Self {
        bits
    }
}

impl Word for f32 {
    #[inline(always)]
    fn to_word(self) -> u32 {
        self.to_bits()
    }

    #[inline(always)]
    fn from_word(bits: u32) -> Self {
        f32::from_bits(bits)
    }
}

/// 0, of which the assembler does not know that it is the same in all threads of a block: what is loaded from an address that it is
/// added to goes to the threads' own registers. What is loaded from one that all have in common may go to a uniform register, and
/// for that a thread waits at once, however much later it is needed.
#[inline(always)]
pub fn zero() -> u32 {
    NonZero::new(block_threads()).map_or(0, |threads| thread_index() / threads)
}

/// A place in the block's dynamic shared memory, where values of type `T` lie one behind the other.
///
/// Its size is what the launch gives; nothing in a kernel's code depends on it.
#[derive(Debug)]
pub struct Shared<T> {
    bytes: u32,
    of: PhantomData<T>,
}

impl<T> Clone for Shared<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

impl<T> Shared<T> {
    /// The place `bytes` behind the start of the block's dynamic shared memory, which is aligned to 128 bytes.
    #[inline(always)]
    pub const fn at(bytes: u32) -> Self {
        Self { bytes, of: PhantomData }
    }

    /// The place `count` values further on.
    #[inline(always)]
    #[must_use]
    pub const fn offset(self, count: u32) -> Self {
        Self::at(self.bytes + count * size_of::<T>() as u32)
    }

    /// How many bytes it lies behind the start.
    #[inline(always)]
    pub const fn byte_offset(self) -> u32 {
        self.bytes
    }
}

/// An `mbarrier` in shared memory, 8 bytes: counts arrivals and the bytes of bulk copies.
pub type Transfer = Shared<u64>;
