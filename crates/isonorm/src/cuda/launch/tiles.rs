//! Tiles: what these kernels are told. Everything about launches that depends on their arguments is in this file.

use std::marker::PhantomData;

use isonorm_kernels::rows::parameters::Affine;
use isonorm_kernels::rows::{Data, running};
use isonorm_kernels::tiles::key::{self, backward_kernels, kernels};
use isonorm_kernels::tiles::{backward as gradients, forward as values};
use isonorm_math::{Bf16, F16};

use super::rows::{Sums, add_up};
use super::{BackwardPointers, ForwardPointers, Launcher, Scratch, interpreted};
use crate::plan::gpu::tiles::{Shares, Tiles};
use crate::{DType, GpuPlan, Kernel, Result};

/// Runs the kernel for the data's type.
///
/// # Safety
/// As [`forward`](super::forward).
pub(super) unsafe fn forward(
    plan: &GpuPlan,
    tiles: &Tiles,
    kernels: &[Kernel],
    pointers: &ForwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe { of_type!(plan, forward_of(plan, tiles, kernels, pointers, scratch, launcher)) }
}

/// Runs the kernels for the data's type.
///
/// # Safety
/// As [`forward`](super::forward).
pub(super) unsafe fn backward(
    plan: &GpuPlan,
    tiles: &Tiles,
    kernels: &[Kernel],
    pointers: &BackwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // SAFETY: the caller's; the type is the data's.
    unsafe { of_type!(plan, backward_of(plan, tiles, kernels, pointers, scratch, launcher)) }
}

/// Kernels of the list as [`interpreted`] looks for one.
fn named<A>(listed: Vec<key::Kernel<A>>) -> impl Iterator<Item = (&'static str, &'static str, unsafe fn(&A))> {
    listed
        .into_iter()
        .map(|kernel| (kernel.family, kernel.name, kernel.run))
}

/// Weight and bias, and statistics that are given: one of each for each unit, or for each row.
fn affine(tiles: &Tiles, weight: usize, bias: usize) -> Affine {
    Affine {
        weight: weight as *const u8,
        bias: bias as *const u8,
        as_data: tiles.as_data.into(),
        ..Affine::NONE
    }
}

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn forward_of<T: Data>(
    plan: &GpuPlan,
    tiles: &Tiles,
    planned: &[Kernel],
    p: &ForwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    // Of a batch of one the kernel itself updates them; else another, and the mean goes to the caller, where there is a place for it.
    let averaged = tiles.running.zip(p.update);
    let [mean, variance] = match averaged {
        Some((running, _)) => {
            let [mean, variance] = running.statistics.map(|offset| scratch.workspace + offset);
            [if p.mean == 0 { mean } else { p.mean }, variance]
        }
        None => [p.mean, p.var],
    };
    let elements = tiles.group as f64;
    let own = p.update.filter(|_| averaged.is_none());
    let args = values::Args::<T> {
        x: p.x as *const T,
        residual: p.residual as *const T,
        y: p.y as *mut T,
        mask: p.mask as *mut u8,
        tiling: tiles.tiling,
        affine: affine(tiles, p.weight, p.bias),
        centred: tiles.centred.into(),
        given_mean: p.given_mean as *const u8,
        given_variance: p.given_var as *const u8,
        mean: mean as *mut f32,
        rstd: p.rstd as *mut f32,
        variance: variance as *mut f32,
        running_mean: own.map_or(0, |update| update.mean) as *mut u8,
        running_variance: own.map_or(0, |update| update.var) as *mut u8,
        factor: own.map_or(0.0, |update| update.factor),
        reciprocal: 1.0 / elements,
        unbias: elements / (elements - 1.0),
        eps: plan.desc().get_eps() as f32,
        activation: plan.desc().get_activation().into(),
        messages: scratch.messages,
    };
    let kernel = &planned[0];
    // SAFETY: the plan's kernel is of this type.
    unsafe { launcher.launch(0, kernel, &args, || interpreted(named(kernels::<T>()), kernel))? };
    let Some((running, update)) = averaged else {
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
        unbias: elements / (elements - 1.0),
        as_data: tiles.as_data.into(),
        of: PhantomData,
    };
    // SAFETY: as above; the first kernel leaves the statistics.
    unsafe { launcher.launch(1, &planned[1], &args, || running::running::<T>) }
}

/// # Safety
/// As [`forward`](super::forward), and `T` is the data's type.
unsafe fn backward_of<T: Data>(
    plan: &GpuPlan,
    tiles: &Tiles,
    planned: &[Kernel],
    p: &BackwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let wanted = [p.dweight, p.dbias];
    let sums = match tiles.shares {
        None => wanted,
        Some(Shares { offsets, .. }) => [0, 1].map(|k| {
            if wanted[k] == 0 {
                0
            } else {
                scratch.workspace + offsets[k]
            }
        }),
    };
    let args = gradients::Args::<T> {
        x: p.x as *const T,
        dy: p.dy as *const T,
        residual: p.residual as *const T,
        mask: p.mask as *const u8,
        signs: tiles.signs.map_or(0, |offset| scratch.workspace + offset) as *mut u8,
        dx: p.dx as *mut T,
        dresidual: p.dresidual as *mut T,
        tiling: tiles.tiling,
        affine: affine(tiles, p.weight, p.bias),
        centred: tiles.centred.into(),
        of_z: if plan.desc().reads_result() { 0 } else { !0 },
        given_mean: p.given_mean as *const u8,
        given_variance: p.given_var as *const u8,
        mean: p.mean as *const f32,
        rstd: p.rstd as *const f32,
        dweight: sums[0] as *mut u8,
        dbias: sums[1] as *mut u8,
        as_data: (tiles.as_data && tiles.shares.is_none()).into(),
        activation: plan.desc().get_activation().into(),
        eps: plan.desc().get_eps() as f32,
        messages: scratch.messages,
    };
    let first = &planned[0];
    // SAFETY: the plan's kernel is of this type.
    unsafe { launcher.launch(0, first, &args, || interpreted(named(backward_kernels::<T>()), first))? };
    let Some(Shares { parts, .. }) = tiles.shares else {
        return Ok(());
    };
    let sums = Sums {
        from: sums.map(|place| place as *mut f32),
        parts,
        columns: tiles.parameters,
        to: wanted,
        as_data: tiles.as_data,
    };
    // SAFETY: the caller's; these sums have been left by the first kernel.
    unsafe { add_up::<T>(planned, 1, sums, launcher) }
}
