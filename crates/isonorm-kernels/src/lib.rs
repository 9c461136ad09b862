//! The GPU kernels of normalization layers, in Rust.
//!
//! A kernel is a plain function that runs on either side: rustc compiles it to PTX, and on the host each GPU thread is
//! a coroutine of a strict interpreter. Kernel code calls [`simt`], never `asm!`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`simt`] | what a GPU thread can do, implemented twice: instructions, and the interpreter's calls |
//! | [`warp`], [`block`], [`cluster`], [`grid`] | helpers, named by the group of threads that cooperates |
//! | [`rows`] | kernels for groups that are contiguous in memory |
//! | [`tiles`] | kernels for groups that are not: those of channels |
//! | [`ladder`] | published kernels, to compare with; no plan takes them |
//! | `interpreter` | (host only) runs kernels and finds their races, overruns and deadlocks |
//! | `modules` | (host only) the generated PTX |
//! | `ablation` | (host only) the same without stages, to find out what they cost |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(abi_ptx, abi_unadjusted, asm_experimental_arch, link_llvm_intrinsics, stdarch_nvptx)
)]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
#![warn(missing_docs)]

#[cfg(not(target_arch = "nvptx64"))]
pub mod ablation;
pub mod block;
pub mod cluster;
#[cfg(target_arch = "nvptx64")]
mod entry;
pub mod grid;
// Only where generics are shared between crates: optimized builds would compile them twice.
#[cfg(all(feature = "instances", debug_assertions, not(any(target_arch = "nvptx64", test))))]
#[doc(hidden)]
pub mod instances;
#[cfg(not(target_arch = "nvptx64"))]
pub mod interpreter;
pub mod ladder;
#[cfg(not(target_arch = "nvptx64"))]
pub mod modules;
pub mod rows;
pub mod simt;
pub mod tiles;
pub mod warp;
