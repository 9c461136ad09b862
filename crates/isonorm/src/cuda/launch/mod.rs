//! From checked arguments and a plan to kernels with their arguments: once, for the GPU and for the interpreter.

/// Calls a function for the data's type.
///
/// # Safety
/// That of the function, which may take it that the type is the data's.
macro_rules! of_type {
    ($plan:expr, $function:ident($($argument:expr),*)) => {
        match $plan.desc().get_dtype() {
            DType::F32 => $function::<f32>($($argument),*),
            DType::F16 => $function::<F16>($($argument),*),
            DType::Bf16 => $function::<Bf16>($($argument),*),
            DType::F64 => Err($plan.unsupported("there are no kernels of f64")),
        }
    };
}

mod again;
mod ladder;
mod on_stream;
mod rows;
mod scratch;
mod tiles;

pub(super) use again::Calls;
pub(super) use on_stream::{backward_on, forward_on};
pub(super) use scratch::Keeps;
pub use scratch::Workspace;

use std::ptr;

use isonorm_kernels::grid::Messages;

use crate::launch::{
    BackwardArguments, ForwardArguments, Problem, Running, Span, Spanning, Through, check_backward, check_forward,
};
use crate::plan::gpu::rows::VECTOR_BYTES;
use crate::plan::gpu::{GpuSchedule, Schedule, Work};
use crate::{DType, Error, GpuPlan, Kernel, Pass, Result};

/// Who runs kernels.
pub(super) trait Launcher {
    /// Sets memory to zero, before the kernels that are launched after it.
    ///
    /// # Safety
    /// There are so many bytes, which may be written.
    unsafe fn zero(&mut self, address: usize, bytes: usize) -> Result<()>;

    /// Runs the `index`th kernel of the schedule. `interpreted` finds what one of its threads does.
    ///
    /// # Safety
    /// `argument` is what that kernel takes, and points to memory that it may read and write as it does.
    unsafe fn launch<A>(
        &mut self,
        index: usize,
        kernel: &Kernel,
        argument: &A,
        interpreted: impl FnOnce() -> unsafe fn(&A),
    ) -> Result<()>;
}

/// Memory for a call's kernels besides its arguments.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    /// The address of [`Schedule::scratch_bytes`], aligned to 16.
    pub(super) workspace: usize,
    /// Where blocks leave messages for each other; there is room for the schedule's, and the tags have not run out.
    pub(super) messages: Messages,
}

impl Scratch {
    /// For kernels that need none.
    pub(super) const NONE: Scratch = Scratch {
        workspace: 0,
        messages: Messages {
            places: ptr::null_mut(),
            sent: 0,
        },
    };
}

/// What the interpreter runs for a kernel, of those that are listed: family, name and function.
fn interpreted<A>(
    listed: impl Iterator<Item = (&'static str, &'static str, unsafe fn(&A))>,
    kernel: &Kernel,
) -> unsafe fn(&A) {
    let mut named = listed.filter(|(family, name, _)| (*family, *name) == (kernel.family, kernel.entry));
    named.next().expect("plans are made of the same list").2
}

/// The address of an argument; 0 where there is none.
fn address(argument: &Option<impl Spanning>) -> usize {
    argument.as_ref().map_or(0, |a| a.span().address)
}

/// The addresses of what is read and what is written; 0 for the second where nothing is.
fn through<R: Spanning, W: Spanning>(data: &Through<R, W>) -> [usize; 2] {
    match data {
        Through::Separate(x, y) => [x.span().address, y.span().address],
        Through::InPlace(x) => [x.span().address; 2],
        Through::ReadOnly(x) => [x.span().address, 0],
    }
}

/// The addresses of mean and variance, where they are given.
fn given<R: Spanning, W: Spanning>(running: &Option<Running<R, W>>) -> [usize; 2] {
    match running {
        Some(Running::Given { mean, var }) => [mean.span().address, var.span().address],
        _ => [0, 0],
    }
}

/// Running statistics that are updated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Update {
    mean: usize,
    var: usize,
    factor: f64,
}

/// Whether the tensors start on 16 bytes, and the parameters too where kernels read or write so many at once.
fn are_aligned(plan: &GpuPlan, tensors: &[usize], parameters: &[usize]) -> bool {
    let starts = |address: &usize| address.is_multiple_of(VECTOR_BYTES as usize);
    let by_column = plan.aligned().is_some_and(Schedule::reads_parameters_by_column);
    tensors.iter().all(starts) && (!by_column || parameters.iter().all(starts))
}

/// Addresses of a forward pass; 0 where there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardPointers {
    x: usize,
    y: usize,
    residual: usize,
    mask: usize,
    stream: usize,
    weight: usize,
    bias: usize,
    given_mean: usize,
    given_var: usize,
    mean: usize,
    rstd: usize,
    var: usize,
    update: Option<Update>,
}

impl ForwardPointers {
    pub(super) fn of<R: Spanning, W: Spanning>(a: &ForwardArguments<R, W>) -> ForwardPointers {
        let [x, y] = through(&a.data);
        let [residual, stream] = a.stream.as_ref().map_or([address(&a.residual), 0], through);
        let [given_mean, given_var] = given(&a.running);
        ForwardPointers {
            x,
            y,
            residual,
            mask: address(&a.mask),
            stream,
            weight: address(&a.weight),
            bias: address(&a.bias),
            given_mean,
            given_var,
            mean: address(&a.saved_mean),
            rstd: address(&a.saved_rstd),
            var: address(&a.saved_var),
            update: match &a.running {
                Some(Running::Update { mean, var, factor }) => Some(Update {
                    mean: mean.span().address,
                    var: var.span().address,
                    factor: *factor,
                }),
                _ => None,
            },
        }
    }

    /// Whether running statistics are updated.
    pub(super) fn updates(&self) -> bool {
        self.update.is_some()
    }

    /// Whether the plan's kernels for aligned tensors may run.
    pub(super) fn are_aligned(&self, plan: &GpuPlan) -> bool {
        let tensors = [self.x, self.y, self.residual, self.stream];
        are_aligned(plan, &tensors, &[self.weight, self.bias])
    }
}

/// Addresses of a backward pass; 0 where there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackwardPointers {
    x: usize,
    dy: usize,
    dx: usize,
    residual: usize,
    mask: usize,
    dstream: usize,
    weight: usize,
    bias: usize,
    /// As the forward pass saved it; or, where statistics are given, the mean of g that is told.
    mean: usize,
    /// As the forward pass saved it; or, where statistics are given, the mean of g·x̂ that is told.
    rstd: usize,
    dresidual: usize,
    dweight: usize,
    dbias: usize,
    given_mean: usize,
    given_var: usize,
}

impl BackwardPointers {
    pub(super) fn of<R: Spanning, W: Spanning>(a: &BackwardArguments<R, W>) -> BackwardPointers {
        let [dy, dx] = through(&a.data);
        let [given_mean, given_var] = given(&a.running);
        let [mean, rstd] = match &a.means {
            Some(means) => means.each_ref().map(|mean| mean.span().address),
            None => [address(&a.mean), address(&a.rstd)],
        };
        BackwardPointers {
            x: a.x.span().address,
            dy,
            // Where dx is not wanted and dresidual is, kernels write the one over the other.
            dx: if dx == 0 { address(&a.dresidual) } else { dx },
            // What is added to z, or stands for it.
            residual: address(if a.result.is_some() { &a.result } else { &a.residual }),
            mask: address(&a.mask),
            dstream: address(&a.dstream),
            weight: address(&a.weight),
            bias: address(&a.bias),
            mean,
            rstd,
            dresidual: address(&a.dresidual),
            dweight: address(&a.dweight),
            dbias: address(&a.dbias),
            given_mean,
            given_var,
        }
    }

    /// Whether gradients of parameters are wanted.
    pub(super) fn wants_gradients(&self) -> bool {
        [self.dweight, self.dbias] != [0, 0]
    }

    /// Whether the plan's kernels for aligned tensors may run.
    pub(super) fn are_aligned(&self, plan: &GpuPlan) -> bool {
        let tensors = [self.x, self.dy, self.dx, self.residual, self.dstream, self.dresidual];
        are_aligned(plan, &tensors, &[self.weight, self.bias, self.dweight, self.dbias])
    }
}

/// Everything that can be wrong with a forward pass but where its memory is; what runs for it. `aligned` is what
/// [`are_aligned`](ForwardPointers::are_aligned) says.
pub(super) fn accept_forward<'p, R: Spanning, W: Spanning>(
    plan: &'p GpuPlan,
    a: &ForwardArguments<R, W>,
    aligned: bool,
) -> Result<Option<&'p Schedule>> {
    check_forward(problem(plan), a)?;
    plan.check()?;
    let wide = |argument: &Option<W>| argument.as_ref().is_some_and(|a| a.span().dtype == DType::F64);
    if wide(&a.saved_mean) {
        return Err(plan.unsupported("there are no kernels that save the mean in f64"));
    }
    given_mean(plan, &a.running)?;
    schedule(plan, aligned)
}

/// Everything that can be wrong with a backward pass but where its memory is; what runs for it.
pub(super) fn accept_backward<'p, R: Spanning, W: Spanning>(
    plan: &'p GpuPlan,
    a: &BackwardArguments<R, W>,
    aligned: bool,
) -> Result<Option<&'p Schedule>> {
    check_backward(problem(plan), a)?;
    plan.check()?;
    if a.mean.as_ref().is_some_and(|mean| mean.span().dtype == DType::F64) {
        return Err(plan.unsupported("there are no kernels that take the mean in f64"));
    }
    given_mean(plan, &a.running)?;
    schedule(plan, aligned)
}

/// No kernel takes a mean that is given in `f64`.
fn given_mean<R: Spanning, W>(plan: &GpuPlan, running: &Option<Running<R, W>>) -> Result<()> {
    match running {
        Some(Running::Given { mean, .. }) if mean.span().dtype == DType::F64 => {
            Err(plan.unsupported("there are no kernels that take the mean in f64"))
        }
        _ => Ok(()),
    }
}

fn problem(plan: &GpuPlan) -> Problem<'_> {
    Problem {
        desc: plan.desc(),
        geometry: plan.geometry(),
    }
}

/// What runs for such tensors; nothing where there are no elements.
fn schedule(plan: &GpuPlan, aligned: bool) -> Result<Option<&Schedule>> {
    if plan.schedule == GpuSchedule::Empty {
        return Ok(None);
    }
    match if aligned { plan.aligned() } else { plan.misaligned() } {
        None => Err(plan.unsupported("there are no kernels for tensors that do not start on 16 bytes")),
        found => Ok(found),
    }
}

/// Runs the kernels of a forward pass.
///
/// # Safety
/// The arguments were accepted for this schedule; they and the scratch memory lie where the launcher's kernels may work on them.
pub(super) unsafe fn forward(
    plan: &GpuPlan,
    schedule: Option<&Schedule>,
    pointers: &ForwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    match schedule.map(|s| (&s.work, &s.kernels[..])) {
        // SAFETY: the caller's.
        Some((Work::Forward(rows), kernels)) => unsafe {
            rows::forward(plan, rows, kernels, pointers, scratch, launcher)
        },
        // SAFETY: as above.
        Some((Work::Tiles(tiles), kernels)) => unsafe {
            tiles::forward(plan, tiles, kernels, pointers, scratch, launcher)
        },
        // SAFETY: as above.
        Some((Work::Rung(rung), kernels)) => unsafe {
            ladder::forward(plan, *rung, kernels, pointers, scratch, launcher)
        },
        // SAFETY: as above.
        _ => unsafe { nothing_measured(plan, pointers, launcher) },
    }
}

/// The moments of no elements, where they are all that is wanted.
///
/// # Safety
/// As [`forward`].
unsafe fn nothing_measured(plan: &GpuPlan, p: &ForwardPointers, launcher: &mut impl Launcher) -> Result<()> {
    let bytes = plan.geometry().groups() * plan.desc().get_statistics_dtype().bytes();
    if plan.desc().get_pass() == Pass::Moments && bytes > 0 {
        for statistic in [p.mean, p.var].into_iter().filter(|address| *address != 0) {
            // SAFETY: the caller's: statistics of this size.
            unsafe { launcher.zero(statistic, bytes)? };
        }
    }
    Ok(())
}

/// Runs the kernels of a backward pass, as [`forward`].
///
/// # Safety
/// As [`forward`].
pub(super) unsafe fn backward(
    plan: &GpuPlan,
    schedule: Option<&Schedule>,
    pointers: &BackwardPointers,
    scratch: Scratch,
    launcher: &mut impl Launcher,
) -> Result<()> {
    match schedule.map(|s| (&s.work, &s.kernels[..])) {
        // SAFETY: the caller's.
        Some((Work::Backward(rows), kernels)) => unsafe {
            rows::backward(plan, rows, kernels, pointers, scratch, launcher)
        },
        // SAFETY: as above.
        Some((Work::Sweeps(rows), kernels)) => unsafe {
            rows::sweeps(plan, rows, kernels, pointers, scratch, launcher)
        },
        // SAFETY: as above.
        Some((Work::Tiles(tiles), kernels)) => unsafe {
            tiles::backward(plan, tiles, kernels, pointers, scratch, launcher)
        },
        // SAFETY: as above.
        Some((Work::Rung(_), kernels)) => unsafe { ladder::backward(plan, kernels, pointers, launcher) },
        // SAFETY: as above.
        _ => unsafe { nothing_added_up(plan, pointers, launcher) },
    }
}

/// The gradients of weight and bias where there are no elements to sum over.
///
/// # Safety
/// As [`forward`].
unsafe fn nothing_added_up(plan: &GpuPlan, p: &BackwardPointers, launcher: &mut impl Launcher) -> Result<()> {
    let bytes = plan.geometry().parameters * plan.desc().get_param_dtype().bytes();
    for gradient in [p.dweight, p.dbias] {
        if gradient != 0 && bytes > 0 {
            // SAFETY: the caller's: a gradient of this size.
            unsafe { launcher.zero(gradient, bytes)? };
        }
    }
    Ok(())
}

/// What can be wrong with a copy.
pub(super) fn check_copy(from: Span, to: Span) -> Result<()> {
    let (op, tensor) = ("copy", "the target");
    if from.dtype != to.dtype {
        return Err(Error::DTypeMismatch {
            op,
            tensor,
            expected: from.dtype,
            got: to.dtype,
        });
    }
    if from.len != to.len {
        return Err(Error::LengthMismatch {
            op,
            tensor,
            expected: from.len,
            got: to.len,
            why: "the source has as many".into(),
        });
    }
    if from.overlaps(to) {
        return Err(Error::Overlap {
            op,
            written: tensor,
            other: "the source",
            hint: "",
        });
    }
    Ok(())
}
