//! Rows: what these kernels are told. Everything about launches that depends on their arguments is in this file.

use std::marker::PhantomData;
use std::ptr;

use isonorm_kernels::rows::key::{self, backward_kernels, kernels, sweep_kernels};
use isonorm_kernels::rows::parameters::{Affine, Sharing};
use isonorm_kernels::rows::{Data, backward as gradients, forward as values, gather, two_sweeps};
use isonorm_math::{Bf16, F16};

use super::{BackwardPointers, ForwardPointers, Launcher};
use crate::plan::gpu::rows::{Backward, Forward, Parameters, Sweeps, gather_warps};
use crate::{DType, GpuPlan, Kernel, Result};

/// Runs the kernel for the data's type.
///
/// # Safety
/// As [`forward`](super::forward).
pub(super) unsafe fn forward(
    plan: &GpuPlan,
    rows: &Forward,
    kernels: &[Kernel],
    pointers: &ForwardPointers,
    workspace: usize,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe {
        match plan.desc().get_dtype() {
            DType::F32 => forward_of::<f32>(plan, rows, kernels, pointers, workspace, launcher),
            DType::F16 => forward_of::<F16>(plan, rows, kernels, pointers, workspace, launcher),
            DType::Bf16 => forward_of::<Bf16>(plan, rows, kernels, pointers, workspace, launcher),
            DType::F64 => Err(plan.unsupported("there are no kernels of f64")),
        }
    }
}

/// Runs the kernels for the data's type.
///
/// # Safety
/// As [`forward`](super::forward).
pub(super) unsafe fn backward(
    plan: &GpuPlan,
    rows: &Backward,
    kernels: &[Kernel],
    pointers: &BackwardPointers,
    workspace: usize,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe {
        match plan.desc().get_dtype() {
            DType::F32 => backward_of::<f32>(plan, rows, kernels, pointers, workspace, launcher),
            DType::F16 => backward_of::<F16>(plan, rows, kernels, pointers, workspace, launcher),
            DType::Bf16 => backward_of::<Bf16>(plan, rows, kernels, pointers, workspace, launcher),
            DType::F64 => Err(plan.unsupported("there are no kernels of f64")),
        }
    }
}

/// Runs the kernels for the data's type.
///
/// # Safety
/// As [`forward`](super::forward).
pub(super) unsafe fn sweeps(
    plan: &GpuPlan,
    rows: &Sweeps,
    kernels: &[Kernel],
    pointers: &BackwardPointers,
    workspace: usize,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe {
        match plan.desc().get_dtype() {
            DType::F32 => sweeps_of::<f32>(plan, rows, kernels, pointers, workspace, launcher),
            DType::F16 => sweeps_of::<F16>(plan, rows, kernels, pointers, workspace, launcher),
            DType::Bf16 => sweeps_of::<Bf16>(plan, rows, kernels, pointers, workspace, launcher),
            DType::F64 => Err(plan.unsupported("there are no kernels of f64")),
        }
    }
}

/// Weight and bias of rows.
fn affine(parameters: &Parameters, weight: usize, bias: usize) -> Affine {
    Affine {
        weight: weight as *const u8,
        bias: bias as *const u8,
        run: parameters.run,
        sets: parameters.sets,
        runs: parameters.runs,
        as_data: parameters.as_data.into(),
    }
}

/// What the interpreter runs for a kernel.
fn interpreted<A>(listed: Vec<key::Kernel<A>>, kernel: &Kernel) -> unsafe fn(&A) {
    let same = |other: &key::Kernel<A>| (other.family, other.name) == (kernel.family, kernel.entry);
    let found = listed.into_iter().find(same);
    found.expect("plans are made of the same list").run
}

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn forward_of<T: Data>(
    plan: &GpuPlan,
    rows: &Forward,
    planned: &[Kernel],
    p: &ForwardPointers,
    workspace: usize,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let stride = rows.columns;
    let (mut moments, mut arrived) = (ptr::null_mut(), ptr::null_mut());
    if let Some(exchange) = rows.exchange {
        arrived = workspace as *mut u32;
        moments = (workspace + exchange.moments_offset) as *mut f32;
        // SAFETY: the workspace starts with the counters.
        unsafe { launcher.zero(workspace, exchange.arrived_bytes)? };
    }
    let messages = match rows.messages_bytes {
        0 => ptr::null_mut(),
        bytes => {
            // SAFETY: the workspace is these messages.
            unsafe { launcher.zero(workspace, bytes)? };
            workspace as *mut u32
        }
    };
    let args = values::Args::<T> {
        x: p.x as *const T,
        residual: p.residual as *const T,
        stream: p.stream as *mut T,
        y: p.y as *mut T,
        affine: affine(&rows.parameters, p.weight, p.bias),
        given_mean: p.given_mean as *const u8,
        given_variance: p.given_var as *const u8,
        mean: p.mean as *mut f32,
        rstd: p.rstd as *mut f32,
        rows: rows.rows,
        columns: rows.columns,
        x_stride: stride,
        residual_stride: stride,
        stream_stride: stride,
        y_stride: stride,
        eps: plan.desc().get_eps() as f32,
        activation: plan.desc().get_activation().into(),
        blocks: rows.blocks,
        kept: rows.kept,
        moments,
        arrived,
        messages,
    };
    let [kernel] = planned else {
        unreachable!("a forward pass is one kernel")
    };
    // SAFETY: the plan's kernel is of this type.
    unsafe { launcher.launch(0, kernel, &args, || interpreted(kernels::<T>(), kernel)) }
}

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn backward_of<T: Data>(
    plan: &GpuPlan,
    rows: &Backward,
    planned: &[Kernel],
    p: &BackwardPointers,
    workspace: usize,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let stride = rows.columns;
    let sums = |gradient: usize, offset: usize| match gradient {
        0 => ptr::null_mut(),
        _ => (workspace + offset) as *mut f32,
    };
    let (of_weight, of_bias) = (sums(p.dweight, 0), sums(p.dbias, rows.sums_bytes));
    let messages = match rows.messages_bytes {
        0 => ptr::null_mut(),
        bytes => {
            let place = workspace + 2 * rows.sums_bytes;
            // SAFETY: the workspace ends with these messages.
            unsafe { launcher.zero(place, bytes)? };
            place as *mut u32
        }
    };
    let args = gradients::Args::<T> {
        x: p.x as *const T,
        dy: p.dy as *const T,
        residual: p.residual as *const T,
        dstream: p.dstream as *const T,
        dx: p.dx as *mut T,
        dresidual: p.dresidual as *mut T,
        affine: affine(&rows.parameters, p.weight, p.bias),
        mean: p.mean as *const f32,
        rstd: p.rstd as *const f32,
        dweight: of_weight,
        dbias: of_bias,
        rows: rows.rows,
        columns: rows.columns,
        x_stride: stride,
        dy_stride: stride,
        residual_stride: stride,
        dstream_stride: stride,
        dx_stride: stride,
        dresidual_stride: stride,
        activation: plan.desc().get_activation().into(),
        slots: rows.slots,
        blocks: rows.blocks,
        messages,
    };
    let first = &planned[0];
    // SAFETY: the plan's kernel is of this type.
    unsafe { launcher.launch(0, first, &args, || interpreted(backward_kernels::<T>(), first))? };
    let parts = [of_weight, of_bias];
    // SAFETY: the caller's; these sums have been left by the first kernel.
    unsafe {
        gather_of::<T>(
            planned,
            p,
            (parts, rows.parts, rows.gradients),
            rows.parameters.as_data,
            launcher,
        )
    }
}

/// Adds up `count` sums of each of so many parameters.
///
/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn gather_of<T: Data>(
    planned: &[Kernel],
    p: &BackwardPointers,
    ([parts_of_weight, parts_of_bias], parts, columns): ([*mut f32; 2], u64, u64),
    as_data: bool,
    launcher: &mut impl Launcher,
) -> Result<()> {
    if p.dweight == 0 && p.dbias == 0 {
        return Ok(());
    }
    let args = gather::Args::<T> {
        parts_of_weight,
        parts_of_bias,
        dweight: p.dweight as *mut u8,
        dbias: p.dbias as *mut u8,
        parts,
        columns,
        warps: gather_warps(parts),
        as_data: as_data.into(),
        of: PhantomData,
    };
    // A plan with parameters has this kernel.
    let last = planned.len() - 1;
    // SAFETY: the caller's.
    unsafe { launcher.launch(last, &planned[last], &args, || gather::gather::<T>) }
}

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn sweeps_of<T: Data>(
    plan: &GpuPlan,
    rows: &Sweeps,
    planned: &[Kernel],
    p: &BackwardPointers,
    workspace: usize,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let at = |wanted: bool, offset: usize| match wanted {
        true => (workspace + offset) as *mut f32,
        false => ptr::null_mut(),
    };
    let (by_column, places) = (rows.parameters.sharing == Sharing::ByColumn, &rows.workspace);
    let wanted = [p.dweight != 0, p.dbias != 0];
    // With given statistics sums are of no use but for the gradients.
    let needed = p.given_var == 0 || wanted.contains(&true);
    let sums = places.sums.map(|offset| at(needed, offset));
    let gradients = [0, 1].map(|k| at(by_column && wanted[k], places.gradients[k]));
    if places.arrived_bytes > 0 {
        // SAFETY: the workspace starts with the counters.
        unsafe { launcher.zero(workspace, places.arrived_bytes)? };
    }
    let args = two_sweeps::Args::<T> {
        x: p.x as *const T,
        dy: p.dy as *const T,
        residual: p.residual as *const T,
        dstream: p.dstream as *const T,
        dx: p.dx as *mut T,
        dresidual: p.dresidual as *mut T,
        affine: affine(&rows.parameters, p.weight, p.bias),
        given_mean: p.given_mean as *const u8,
        given_variance: p.given_var as *const u8,
        mean: p.mean as *const f32,
        rstd: p.rstd as *const f32,
        sums_gx: sums[0],
        sums_g: sums[1],
        dweight: gradients[0],
        dbias: gradients[1],
        arrived: workspace as *mut u32,
        rows: rows.rows,
        columns: rows.columns,
        run: rows.run,
        part: rows.part,
        parts: rows.parts,
        runs_at_once: rows.runs_at_once,
        rows_at_once: rows.rows_at_once,
        warps: rows.warps,
        kept: rows.kept,
        sweeps: two_sweeps::BOTH,
        eps: plan.desc().get_eps() as f32,
        activation: plan.desc().get_activation().into(),
    };
    let all: &[u32] = match rows.apart {
        true => &[two_sweeps::FIRST, two_sweeps::SECOND],
        false => &[two_sweeps::BOTH],
    };
    for (i, (&sweeps, kernel)) in all.iter().zip(planned).enumerate() {
        let args = two_sweeps::Args { sweeps, ..args };
        // SAFETY: the plan's kernel is of this type.
        unsafe { launcher.launch(i, kernel, &args, || interpreted(sweep_kernels::<T>(), kernel))? };
    }
    let parts = if by_column { gradients } else { sums };
    // SAFETY: as above; these sums have been left by the first kernel.
    unsafe {
        gather_of::<T>(
            planned,
            p,
            (parts, rows.gathered, rows.parameters_in_all),
            rows.parameters.as_data,
            launcher,
        )
    }
}
