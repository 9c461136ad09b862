#![doc = include_str!("lib.md")]

mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod desc;
mod device;
mod error;
pub mod fold;
pub mod geometry;
mod launch;
pub mod layers;
mod plan;
mod tensor;

pub use cpu::Isa;
pub use desc::{
    Affine, DEFAULT_EPS, DType, Layout, MAX_RANK, Norm, NormDesc, Over, Pass, Residual, Shape, parse_activation,
};
pub use device::Device;
pub use error::{Error, Result};
pub use geometry::{AffineIndex, Geometry};
pub use half::{bf16, f16};
pub use isonorm_math::Activation;
pub use launch::{Backward, BackwardArguments, Forward, ForwardArguments, Workspace};
#[cfg(feature = "cuda")]
pub use plan::gpu::{GpuPlan, GpuProperties, Kernel, Rung, Variance};
pub use plan::{Candidate, CpuProperties, Plan, Traffic};
pub use tensor::{Scalar, Tensor, TensorData, View, ViewMut};
