//! The ladder: what its kernels are told.

use isonorm_kernels::ladder::{BatchNorm, LayerNorm, list};

use super::{BackwardPointers, ForwardPointers, Launcher, Scratch, interpreted};
use crate::plan::gpu::ladder::{BATCH_NORM, LAYER_NORM, Rung};
use crate::{GpuPlan, Kernel, Pass, Result};

/// Runs a rung of a forward pass.
///
/// # Safety
/// As [`forward`](super::forward).
pub(super) unsafe fn forward(
    plan: &GpuPlan,
    rung: Rung,
    kernels: &[Kernel],
    p: &ForwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    if p.update.is_some() && !rung.updates_running() {
        return Err(plan.unsupported(format!("{rung} does not update running statistics")));
    }
    if rung.is_layer_norm() {
        if p.mean != 0 || p.rstd != 0 {
            return Err(plan.unsupported(format!("{rung} does not save statistics")));
        }
        // SAFETY: the caller's.
        return unsafe { layer_norm(plan, kernels, p, launcher) };
    }
    let [running_mean, running_variance] = p.update.map_or([p.given_mean, p.given_var], |u| [u.mean, u.var]);
    let args = BatchNorm {
        x: p.x as *const f32,
        y: p.y as *mut f32,
        weight: p.weight as *const f32,
        bias: p.bias as *const f32,
        mean: p.mean as *mut f32,
        rstd: p.rstd as *mut f32,
        running_mean: running_mean as *mut f32,
        running_variance: running_variance as *mut f32,
        between: scratch.workspace as *mut f32,
        factor: p.update.map_or(0.0, |u| u.factor as f32),
        ..of_plan(plan)
    };
    // Samples of one channel lie side by side, as positions of an image do; this rung knows no positions.
    let args = match rung {
        Rung::BnTileNc => BatchNorm {
            batch: args.batch * args.spatial,
            spatial: 1,
            ..args
        },
        _ => args,
    };
    // SAFETY: the caller's.
    unsafe { batch_norm(kernels, &args, launcher) }
}

/// Runs a rung of a backward pass.
///
/// # Safety
/// As [`backward`](super::backward).
pub(super) unsafe fn backward(
    plan: &GpuPlan,
    kernels: &[Kernel],
    p: &BackwardPointers,
    launcher: &mut impl Launcher,
) -> Result<()> {
    if p.dx == 0 {
        return Err(plan.unsupported("the ladder's backward pass writes dx"));
    }
    let args = BatchNorm {
        x: p.x as *const f32,
        weight: p.weight as *const f32,
        bias: p.bias as *const f32,
        mean: p.mean as *mut f32,
        rstd: p.rstd as *mut f32,
        dy: p.dy as *const f32,
        dx: p.dx as *mut f32,
        dweight: p.dweight as *mut f32,
        dbias: p.dbias as *mut f32,
        ..of_plan(plan)
    };
    // SAFETY: the caller's.
    unsafe { batch_norm(kernels, &args, launcher) }
}

/// The sizes, and no tensor.
fn of_plan(plan: &GpuPlan) -> BatchNorm {
    let g = plan.geometry();
    BatchNorm {
        x: std::ptr::null(),
        y: std::ptr::null_mut(),
        weight: std::ptr::null(),
        bias: std::ptr::null(),
        mean: std::ptr::null_mut(),
        rstd: std::ptr::null_mut(),
        running_mean: std::ptr::null_mut(),
        running_variance: std::ptr::null_mut(),
        between: std::ptr::null_mut(),
        dy: std::ptr::null(),
        dx: std::ptr::null_mut(),
        dweight: std::ptr::null_mut(),
        dbias: std::ptr::null_mut(),
        batch: g.outer as u32,
        channels: g.kept as u32,
        spatial: g.inner as u32,
        training: u32::from(plan.desc().get_pass() != Pass::Eval),
        factor: 0.0,
        eps: plan.desc().get_eps() as f32,
    }
}

/// # Safety
/// As [`forward`].
unsafe fn batch_norm(kernels: &[Kernel], args: &BatchNorm, launcher: &mut impl Launcher) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { launch(kernels, args, (BATCH_NORM, list::batch_norm()), launcher) }
}

/// # Safety
/// As [`forward`].
unsafe fn layer_norm(
    plan: &GpuPlan,
    kernels: &[Kernel],
    p: &ForwardPointers,
    launcher: &mut impl Launcher,
) -> Result<()> {
    let g = plan.geometry();
    let args = LayerNorm {
        x: p.x as *const f32,
        y: p.y as *mut f32,
        rows: g.kept as u32,
        columns: g.inner as u32,
        eps: plan.desc().get_eps() as f32,
    };
    // SAFETY: the caller's.
    unsafe { launch(kernels, &args, (LAYER_NORM, list::layer_norm()), launcher) }
}

/// Launches the kernels of a rung, which all take the same; they are listed under this family.
///
/// # Safety
/// As [`forward`].
unsafe fn launch<A, const N: usize>(
    kernels: &[Kernel],
    args: &A,
    (family, listed): (&'static str, [list::Listed<A>; N]),
    launcher: &mut impl Launcher,
) -> Result<()> {
    let named = || listed.iter().map(|&(name, run)| (family, name, run));
    for (i, kernel) in kernels.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { launcher.launch(i, kernel, args, || interpreted(named(), kernel))? };
    }
    Ok(())
}
