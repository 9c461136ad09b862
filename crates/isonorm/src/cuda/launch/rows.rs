//! Rows: what these kernels are told. Everything about launches that depends on their arguments is in this file.

use std::marker::PhantomData;
use std::ptr;

use isonorm_kernels::rows::key::{self, backward_kernels, kernels, sweep_kernels};
use isonorm_kernels::rows::parameters::{Affine, Sharing};
use isonorm_kernels::rows::running::Running as OfRows;
use isonorm_kernels::rows::{Data, backward as gradients, forward as values, gather, running, two_sweeps};
use isonorm_math::{Bf16, F16};

use super::{BackwardPointers, ForwardPointers, Launcher, Scratch, interpreted};
use crate::plan::gpu::rows::{Backward, Forward, Parameters, Sweeps, gather_warps, gather_width};
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
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe { of_type!(plan, forward_of(plan, rows, kernels, pointers, scratch, launcher)) }
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
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe { of_type!(plan, backward_of(plan, rows, kernels, pointers, scratch, launcher)) }
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
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe { of_type!(plan, sweeps_of(plan, rows, kernels, pointers, scratch, launcher)) }
}

/// Kernels of the list as [`interpreted`] looks for one.
fn named<A>(listed: Vec<key::Kernel<A>>) -> impl Iterator<Item = (&'static str, &'static str, unsafe fn(&A))> {
    listed
        .into_iter()
        .map(|kernel| (kernel.family, kernel.name, kernel.run))
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

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn forward_of<T: Data>(
    plan: &GpuPlan,
    rows: &Forward,
    planned: &[Kernel],
    p: &ForwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let stride = rows.stride;
    let (mut moments, mut arrived) = (ptr::null_mut(), ptr::null_mut());
    if let Some(exchange) = rows.exchange {
        arrived = scratch.workspace as *mut u32;
        moments = (scratch.workspace + exchange.moments_offset) as *mut f32;
        // SAFETY: the workspace starts with the counters.
        unsafe { launcher.zero(scratch.workspace, exchange.arrived_bytes)? };
    }
    let update = rows.running.zip(p.update);
    // The mean goes to the caller, where there is a place for it.
    let [mean, variance] = match update {
        Some((running, _)) => {
            let [mean, variance] = running.statistics.map(|offset| scratch.workspace + offset);
            [if p.mean == 0 { mean } else { p.mean }, variance]
        }
        None => [p.mean, 0],
    };
    // Of rows in segments the kernel itself updates them.
    let own = p.update.filter(|_| rows.parameters.sharing == Sharing::Segmented);
    let unbias = rows.columns as f64 / (rows.columns as f64 - 1.0);
    let args = values::Args::<T> {
        x: p.x as *const T,
        residual: p.residual as *const T,
        stream: p.stream as *mut T,
        y: p.y as *mut T,
        affine: affine(&rows.parameters, p.weight, p.bias),
        given_mean: p.given_mean as *const u8,
        given_variance: p.given_var as *const u8,
        mean: mean as *mut f32,
        rstd: p.rstd as *mut f32,
        variance: variance as *mut f32,
        rows: rows.rows,
        columns: rows.columns,
        x_stride: stride,
        residual_stride: stride,
        stream_stride: stride,
        y_stride: stride,
        eps: plan.desc().get_eps() as f32,
        activation: plan.desc().get_activation().into(),
        kept: rows.kept,
        moments,
        arrived,
        blocks: rows.blocks,
        messages: scratch.messages.places,
        sent: scratch.messages.sent,
        segments: rows.segments,
        running: own.map_or(OfRows::NONE, |update| OfRows {
            mean: update.mean as *mut u8,
            variance: update.var as *mut u8,
            factor: update.factor,
            unbias,
        }),
        mask: p.mask as *mut u8,
    };
    let kernel = &planned[0];
    // SAFETY: the plan's kernel is of this type.
    unsafe { launcher.launch(0, kernel, &args, || interpreted(named(kernels::<T>()), kernel))? };
    let Some((running, update)) = update else {
        return Ok(());
    };
    let args = running::Args::<T> {
        mean: args.mean,
        variance: args.variance,
        running_mean: update.mean as *mut u8,
        running_variance: update.var as *mut u8,
        instances: running.instances,
        channels: running.channels,
        factor: update.factor,
        unbias,
        as_data: rows.parameters.as_data.into(),
        of: PhantomData,
    };
    // SAFETY: as above; the first kernel leaves the statistics.
    unsafe { launcher.launch(1, &planned[1], &args, || running::running::<T>) }
}

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn backward_of<T: Data>(
    plan: &GpuPlan,
    rows: &Backward,
    planned: &[Kernel],
    p: &BackwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let stride = rows.stride;
    let sums = |gradient: usize, offset: usize| match gradient {
        0 => ptr::null_mut(),
        gradient if rows.are_gradients => gradient as *mut f32,
        _ => (scratch.workspace + offset) as *mut f32,
    };
    let (of_weight, of_bias) = (sums(p.dweight, 0), sums(p.dbias, rows.sums_bytes));
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
        messages: scratch.messages.places,
        sent: scratch.messages.sent,
        segments: rows.segments,
        column_blocks: rows.apart.map_or(0, |columns| columns.blocks),
        column_lanes: rows.apart.map_or(1, |columns| columns.lanes),
    };
    let first = &planned[0];
    // SAFETY: the plan's kernel is of this type.
    unsafe { launcher.launch(0, first, &args, || interpreted(named(backward_kernels::<T>()), first))? };
    if rows.are_gradients {
        return Ok(());
    }
    let sums = Sums {
        from: [of_weight, of_bias],
        parts: rows.parts,
        columns: rows.gradients,
        to: [p.dweight, p.dbias],
        as_data: rows.parameters.as_data,
    };
    // SAFETY: the caller's; these sums have been left by the first kernel.
    unsafe { add_up::<T>(planned, 1, sums, launcher) }
}

/// What a kernel adds up: of each of two parameters `parts` sums, one behind the other, for so many `columns`.
pub(super) struct Sums {
    pub(super) from: [*mut f32; 2],
    pub(super) parts: u64,
    pub(super) columns: u64,
    /// Where the results go, in the data's type or in `f32`; 0: nowhere.
    pub(super) to: [usize; 2],
    pub(super) as_data: bool,
}

/// Runs the `index`th kernel, which adds up.
///
/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
pub(super) unsafe fn add_up<T: Data>(
    planned: &[Kernel],
    index: usize,
    sums: Sums,
    launcher: &mut impl Launcher,
) -> Result<()> {
    if sums.to == [0, 0] {
        return Ok(());
    }
    let args = gather::Args::<T> {
        parts_of_weight: sums.from[0],
        parts_of_bias: sums.from[1],
        dweight: sums.to[0] as *mut u8,
        dbias: sums.to[1] as *mut u8,
        parts: sums.parts,
        columns: sums.columns,
        warps: gather_warps(sums.parts),
        width: gather_width(sums.columns),
        as_data: sums.as_data.into(),
        of: PhantomData,
    };
    // SAFETY: the caller's.
    unsafe { launcher.launch(index, &planned[index], &args, || gather::gather::<T>) }
}

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn sweeps_of<T: Data>(
    plan: &GpuPlan,
    rows: &Sweeps,
    planned: &[Kernel],
    p: &BackwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let at = |wanted: bool, offset: usize| match wanted {
        true => (scratch.workspace + offset) as *mut f32,
        false => ptr::null_mut(),
    };
    let (by_column, places) = (rows.parameters.sharing == Sharing::ByColumn, &rows.workspace);
    let wanted = [p.dweight != 0, p.dbias != 0];
    // With given statistics sums are of no use but for the gradients.
    let needed = p.given_var == 0 || wanted.contains(&true);
    let sums = places.sums.map(|offset| at(needed, offset));
    let gradients = match rows.are_gradients {
        true => [p.dweight, p.dbias].map(|gradient| gradient as *mut f32),
        false => [0, 1].map(|k| at(by_column && wanted[k], places.gradients[k])),
    };
    if places.arrived_bytes > 0 {
        // SAFETY: the workspace starts with the counters.
        unsafe { launcher.zero(scratch.workspace, places.arrived_bytes)? };
    }
    let mut args = two_sweeps::Args::<T> {
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
        dweight: ptr::null_mut(),
        dbias: ptr::null_mut(),
        arrived: scratch.workspace as *mut u32,
        rows: rows.rows,
        columns: rows.columns,
        run: rows.run,
        part: 0,
        parts: 0,
        sum_parts: rows.shares[0].parts,
        runs_at_once: 0,
        rows_at_once: 0,
        warps: 0,
        kept: 0,
        sweeps: two_sweeps::BOTH,
        eps: plan.desc().get_eps() as f32,
        activation: plan.desc().get_activation().into(),
    };
    let sweeps: &[u32] = match rows.shares.len() {
        1 => &[two_sweeps::BOTH],
        _ => &[two_sweeps::FIRST, two_sweeps::SECOND],
    };
    let mut index = 0;
    for (&sweeps, share) in sweeps.iter().zip(&rows.shares) {
        args = two_sweeps::Args {
            part: share.part,
            parts: share.parts,
            runs_at_once: share.runs_at_once,
            rows_at_once: share.rows_at_once,
            warps: share.warps,
            kept: share.kept,
            sweeps,
            ..args
        };
        // Alone, the first sweep adds nothing up by column.
        [args.dweight, args.dbias] = match sweeps {
            two_sweeps::FIRST => [ptr::null_mut(); 2],
            _ => gradients,
        };
        let kernel = &planned[index];
        // SAFETY: the plan's kernel is of this type.
        unsafe {
            launcher.launch(index, kernel, &args, || {
                interpreted(named(sweep_kernels::<T>()), kernel)
            })?
        };
        index += 1;
        if let (two_sweeps::FIRST, Some(totals)) = (sweeps, rows.totals) {
            let of_rows = Sums {
                from: sums,
                parts: share.parts.into(),
                columns: rows.rows,
                to: totals.map(|offset| scratch.workspace + offset),
                as_data: false,
            };
            [args.sums_gx, args.sums_g] = of_rows.to.map(|total| total as *mut f32);
            args.sum_parts = 1;
            // SAFETY: the caller's; these sums have been left by the first sweep.
            unsafe { add_up::<T>(planned, index, of_rows, launcher)? };
            index += 1;
        }
    }
    if rows.are_gradients {
        return Ok(());
    }
    let sums = Sums {
        from: if by_column { gradients } else { sums },
        parts: rows.gathered,
        columns: rows.parameters_in_all,
        to: [p.dweight, p.dbias],
        as_data: rows.parameters.as_data,
    };
    // SAFETY: as above.
    unsafe { add_up::<T>(planned, index, sums, launcher) }
}
