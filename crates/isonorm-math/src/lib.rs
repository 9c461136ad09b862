//! The arithmetic of normalization layers, written once and compiled for the CPU and for the GPU.
//!
//! | module | what it holds |
//! |---|---|
//! | [`real`] | [`Real`]: `f32` and `f64` with named fused multiply-add, `exp`, `tanh`, `erf`, Φ |
//! | [`brief`] | [`Brief`]: an `f32` whose functions are short, for GPUs |
//! | [`half`] | [`F16`] and [`Bf16`]: storage types and their conversions |
//! | [`element`] | [`Element`]: what a tensor stores, and the type it is accumulated in |
//! | [`moments`] | [`Moments`]: count, mean and sum of squared distances, and their merge |
//! | [`normalize`] | centring, scale and shift, the gradient of the input |
//! | [`activation`] | [`Activation`]: the functions fused behind a normalization, and their derivatives |
//!
//! # The same bits everywhere
//!
//! Every function is a fixed sequence of IEEE 754 operations: additions, multiplications, divisions, square roots
//! and *named* fused multiply-adds, with selects instead of branches. Nothing depends on the compiler contracting
//! `a * b + c`, on a library's `exp`, or on the width of the vector, so a processor with AVX2, one with AVX-512, one
//! with NEON and a GPU agree in every bit (the payload of a NaN excepted). The default rounding mode is assumed, and
//! subnormal numbers must not be flushed to zero. The one exception is [`Brief`], for GPUs.
//!
//! # Vectorization
//!
//! Every function is `#[inline(always)]` and free of data-dependent branches, table look-ups and panics. A plain
//! loop inside a function with `#[target_feature(enable = "avx2,fma")]` therefore becomes vector code:
//!
//! ```
//! use isonorm_math::Activation;
//!
//! let mut z = [-1.0f32, 0.0, 1.0, 2.0];
//! Activation::Silu.apply_slice(&mut z);
//! assert!((z[3] - 1.761_594).abs() < 1e-6);
//! ```
//!
//! Without the `fma` feature the results are the same, but every fused multiply-add is a library call.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, core_float_math))]
#![warn(missing_docs)]

pub mod activation;
pub mod brief;
mod coefficients;
pub mod element;
mod elementary;
pub mod half;
pub mod moments;
pub mod normalize;
#[cfg(target_arch = "nvptx64")]
mod nvptx;
pub mod real;

pub use activation::{Activation, Pointwise};
pub use brief::Brief;
pub use element::Element;
pub use half::{Bf16, F16};
pub use moments::Moments;
pub use normalize::{BackwardCoefficients, Normalizer};
pub use real::Real;
