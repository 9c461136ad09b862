//! Rows: what these kernels are told. Everything about launches that depends on their arguments is in this file.

use isonorm_kernels::rows::Data;
use isonorm_kernels::rows::forward::Args;
use isonorm_math::activation::Identity;
use isonorm_math::{Bf16, F16};

use super::{ForwardPointers, Launcher};
use crate::plan::gpu::rows::RowsForward;
use crate::{DType, GpuPlan, Result};

/// Runs the kernel for the data's type.
///
/// # Safety
/// As [`forward`](super::forward).
pub(super) unsafe fn forward(
    plan: &GpuPlan,
    rows: &RowsForward,
    pointers: &ForwardPointers,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe {
        match plan.desc().get_dtype() {
            DType::F32 => typed::<f32>(plan, rows, pointers, launcher),
            DType::F16 => typed::<F16>(plan, rows, pointers, launcher),
            DType::Bf16 => typed::<Bf16>(plan, rows, pointers, launcher),
            DType::F64 => Err(plan.unsupported("there are no kernels of f64")),
        }
    }
}

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn typed<T: Data>(
    plan: &GpuPlan,
    rows: &RowsForward,
    p: &ForwardPointers,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let stride = u64::from(rows.columns);
    let args = Args::<T> {
        x: p.x as *const T,
        residual: p.residual as *const T,
        weight: p.weight as *const f32,
        bias: p.bias as *const f32,
        y: p.y as *mut T,
        mean: p.mean as *mut f32,
        rstd: p.rstd as *mut f32,
        rows: rows.rows,
        x_stride: stride,
        residual_stride: stride,
        y_stride: stride,
        columns: rows.columns,
        eps: plan.desc().get_eps() as f32,
        slope: 0.0,
    };
    // SAFETY: the plan's kernel is the one of this key and this type.
    unsafe {
        launcher.launch(0, &rows.kernel, &args, |args| {
            // SAFETY: the interpreter checks every access.
            rows.key.interpret::<T, Identity>(args)
        })
    }
}
