//! From checked arguments and a plan to kernels with their arguments: once, for the GPU and for the interpreter.

mod rows;

use super::driver::{Function, Pool};
use super::view::Place;
use super::{Backward, Forward, Plan, Stream, View, ViewMut};
use crate::launch::{
    BackwardArguments, ForwardArguments, Problem, Running, Span, Spanning, Through, check_backward, check_forward,
};
use crate::plan::gpu::GpuSchedule;
use crate::{DType, Error, GpuPlan, Kernel, Result};

/// Where a call's scratch memory comes from; see [`GpuPlan::workspace_bytes`].
#[derive(Debug, Default)]
pub enum Workspace<'a> {
    /// Allocated from the stream's pool, and given back when the stream has come past the call.
    #[default]
    Pool,
    /// The caller's. Its element type does not matter.
    Given(ViewMut<'a>),
}

/// Who runs kernels.
pub(super) trait Launcher {
    /// Runs the `index`th kernel of the plan. `interpret` is what one of its threads does.
    ///
    /// # Safety
    /// `argument` is what that kernel takes, and points to memory that it may read and write as it does.
    unsafe fn launch<A>(&mut self, index: usize, kernel: &Kernel, argument: &A, interpret: impl Fn(&A)) -> Result<()>;
}

/// Addresses of a forward pass; 0 where there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardPointers {
    x: usize,
    y: usize,
    residual: usize,
    weight: usize,
    bias: usize,
    mean: usize,
    rstd: usize,
}

impl ForwardPointers {
    pub(super) fn of<R: Spanning, W: Spanning>(a: &ForwardArguments<R, W>) -> ForwardPointers {
        let (x, y) = match &a.data {
            Through::Separate(x, y) => (x.span().address, y.span().address),
            Through::InPlace(x) => (x.span().address, x.span().address),
            Through::ReadOnly(x) => (x.span().address, 0),
        };
        fn address(argument: &Option<impl Spanning>) -> usize {
            argument.as_ref().map_or(0, |a| a.span().address)
        }
        ForwardPointers {
            x,
            y,
            residual: address(&a.residual),
            weight: address(&a.weight),
            bias: address(&a.bias),
            mean: address(&a.saved_mean),
            rstd: address(&a.saved_rstd),
        }
    }
}

/// Everything that can be wrong with a forward pass but where its memory is.
pub(super) fn accept_forward<R: Spanning, W: Spanning>(plan: &GpuPlan, a: &ForwardArguments<R, W>) -> Result<()> {
    check_forward(problem(plan), a)?;
    plan.check()?;
    if matches!(a.running, Some(Running::Update { .. })) {
        return Err(plan.unsupported("there are no kernels that update running statistics"));
    }
    let wide = |argument: &Option<W>| argument.as_ref().is_some_and(|a| a.span().dtype == DType::F64);
    if wide(&a.saved_mean) {
        return Err(plan.unsupported("there are no kernels that save the mean in f64"));
    }
    Ok(())
}

/// Everything that can be wrong with a backward pass; as yet its plans accept none.
pub(super) fn accept_backward<R: Spanning, W: Spanning>(plan: &GpuPlan, a: &BackwardArguments<R, W>) -> Result<()> {
    check_backward(problem(plan), a)?;
    plan.check()?;
    Err(plan.unsupported("there are no backward kernels"))
}

fn problem(plan: &GpuPlan) -> Problem<'_> {
    Problem {
        desc: plan.desc(),
        geometry: plan.geometry(),
    }
}

/// Runs the kernels of a forward pass.
///
/// # Safety
/// The arguments were accepted, and lie in memory that the launcher's kernels may work on.
pub(super) unsafe fn forward(plan: &GpuPlan, pointers: &ForwardPointers, launcher: &mut impl Launcher) -> Result<()> {
    match &plan.schedule {
        GpuSchedule::Empty | GpuSchedule::Unsupported => Ok(()),
        // SAFETY: the caller's.
        GpuSchedule::RowsForward(rows) => unsafe { rows::forward(plan, rows, pointers, launcher) },
    }
}

/// Kernels of a plan, loaded, into a stream.
struct OnStream<'p> {
    functions: &'p [Function],
    stream: &'p Stream,
}

impl Launcher for OnStream<'_> {
    unsafe fn launch<A>(&mut self, index: usize, kernel: &Kernel, argument: &A, _: impl Fn(&A)) -> Result<()> {
        // SAFETY: the caller's; the context was made current by `run`.
        unsafe { self.functions[index].launch(kernel, argument, self.stream.raw()) }
    }
}

pub(super) fn forward_on(stream: &Stream, plan: &Plan, a: &Forward<'_>, workspace: Workspace<'_>) -> Result<()> {
    accept_forward(plan, a)?;
    let places = forward_places(a);
    let pointers = ForwardPointers::of(a);
    run(stream, plan, &places, workspace, |launcher| {
        // SAFETY: accepted above; `run` saw to it that the memory is this GPU's.
        unsafe { forward(plan, &pointers, launcher) }
    })
}

pub(super) fn backward_on(_: &Stream, plan: &Plan, a: &Backward<'_>, _: Workspace<'_>) -> Result<()> {
    accept_backward(plan, a)
}

/// Looks at everything that only a GPU can get wrong, then runs kernels.
fn run(
    stream: &Stream,
    plan: &Plan,
    places: &[Option<(&'static str, Place<'_>)>],
    workspace: Workspace<'_>,
    kernels: impl FnOnce(&mut OnStream<'_>) -> Result<()>,
) -> Result<()> {
    let (device, op) = (stream.device(), plan.desc().op());
    if plan.device() != device {
        let reason = format!("the plan is for {}, the stream of {device}", plan.device());
        return Err(Error::PlanMismatch { op, reason });
    }
    if !plan.is_prepared() && stream.is_capturing()? {
        let reason = "kernels cannot be loaded then; prepare the plan before".into();
        return Err(Error::Capturing { reason });
    }
    let functions = plan.functions()?;
    let _bound = device.context().bind()?;
    let scratch = Scratch::new(stream, plan, &workspace)?;
    stream.work_on(op, places, || {
        let _scratch = scratch;
        kernels(&mut OnStream { functions, stream })
    })
}

/// The scratch memory of one call.
struct Scratch<'s> {
    /// What has to be given back.
    pooled: Option<(&'s Stream, u64)>,
}

impl<'s> Scratch<'s> {
    fn new(stream: &'s Stream, plan: &GpuPlan, workspace: &Workspace<'_>) -> Result<Scratch<'s>> {
        let (needs, op) = (plan.workspace_bytes(), plan.desc().op());
        match workspace {
            _ if needs == 0 => Ok(Scratch { pooled: None }),
            Workspace::Pool => {
                let address = Pool::allocate(stream.device().context(), needs, stream.raw())?;
                Ok(Scratch {
                    pooled: Some((stream, address)),
                })
            }
            Workspace::Given(view) => {
                view.place().check(op, "the workspace", stream.device())?;
                let has = view.span().len * view.span().dtype.bytes();
                if has < needs {
                    let reason = format!("the workspace has {has} bytes, the plan needs {needs}");
                    return Err(Error::PlanMismatch { op, reason });
                }
                Ok(Scratch { pooled: None })
            }
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Some((stream, address)) = self.pooled {
            // SAFETY: allocated in `new` for this call, whose kernels are in the stream. While the stream is captured, both
            // become part of the graph.
            let _ = unsafe { Pool::free(stream.device().context(), address, stream.raw()) };
        }
    }
}

/// Every argument under its name.
fn forward_places<'a>(a: &Forward<'a>) -> [Option<(&'static str, Place<'a>)>; 9] {
    let read = |name, argument: &Option<View<'a>>| argument.as_ref().map(|v| (name, v.place()));
    let written = |name, argument: &Option<ViewMut<'a>>| argument.as_ref().map(|v| (name, v.place()));
    let (x, y) = match &a.data {
        Through::Separate(x, y) => (x.place(), Some(("y", y.place()))),
        Through::InPlace(x) => (x.place(), None),
        Through::ReadOnly(x) => (x.place(), None),
    };
    let [mean, var] = match &a.running {
        None => [None, None],
        Some(Running::Given { mean, var }) => [Some(mean.place()), Some(var.place())],
        Some(Running::Update { mean, var, .. }) => [Some(mean.place()), Some(var.place())],
    };
    [
        Some(("x", x)),
        y,
        read("weight", &a.weight),
        read("bias", &a.bias),
        read("residual", &a.residual),
        mean.map(|m| ("running_mean", m)),
        var.map(|v| ("running_var", v)),
        written("mean", &a.saved_mean),
        written("rstd", &a.saved_rstd),
    ]
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
