//! Accepted arguments into a stream: what only a GPU can get wrong is looked at, scratch memory is found, kernels are launched.

use super::{
    BackwardPointers, ForwardPointers, Launcher, Workspace, accept_backward, accept_forward, backward, forward,
};
use crate::cuda::driver::{self, Function, Pool};
use crate::cuda::view::Place;
use crate::cuda::{Backward, Forward, Plan, Stream, View, ViewMut};
use crate::launch::{Running, Spanning, Through};
use crate::plan::gpu::rows::VECTOR_BYTES;
use crate::{Error, GpuPlan, Kernel, Result};

/// Kernels of a plan, loaded, into a stream.
struct OnStream<'p> {
    functions: &'p [Function],
    stream: &'p Stream,
}

impl Launcher for OnStream<'_> {
    unsafe fn zero(&mut self, address: usize, bytes: usize) -> Result<()> {
        let context = self.stream.device().context();
        // SAFETY: the caller's.
        unsafe { driver::set_zero(context, address as u64, bytes, self.stream.raw()) }
    }

    unsafe fn launch<A>(
        &mut self,
        index: usize,
        kernel: &Kernel,
        argument: &A,
        _: impl FnOnce() -> unsafe fn(&A),
    ) -> Result<()> {
        // SAFETY: the caller's; the context was made current by `run`.
        unsafe { self.functions[index].launch(kernel, argument, self.stream.raw()) }
    }
}

pub(in crate::cuda) fn forward_on(
    stream: &Stream,
    plan: &Plan,
    a: &Forward<'_>,
    workspace: Workspace<'_>,
) -> Result<()> {
    let pointers = ForwardPointers::of(a);
    let aligned = pointers.are_aligned(plan);
    accept_forward(plan, a, aligned)?;
    run(
        stream,
        plan,
        aligned,
        &forward_places(a),
        (workspace, pointers.scratch_bytes(plan)),
        |launcher, scratch| {
            // SAFETY: accepted above; `run` saw to it that the memory is this GPU's.
            unsafe { forward(plan, aligned, &pointers, scratch, launcher) }
        },
    )
}

pub(in crate::cuda) fn backward_on(
    stream: &Stream,
    plan: &Plan,
    a: &Backward<'_>,
    workspace: Workspace<'_>,
) -> Result<()> {
    let pointers = BackwardPointers::of(a);
    let aligned = pointers.are_aligned(plan);
    accept_backward(plan, a, aligned)?;
    run(
        stream,
        plan,
        aligned,
        &backward_places(a),
        (workspace, plan.workspace_bytes()),
        |launcher, scratch| {
            // SAFETY: as above.
            unsafe { backward(plan, aligned, &pointers, scratch, launcher) }
        },
    )
}

/// Looks at everything that only a GPU can get wrong, then runs kernels with the address of their scratch memory, of which they need
/// so many bytes.
fn run(
    stream: &Stream,
    plan: &Plan,
    aligned: bool,
    places: &[Option<(&'static str, Place<'_>)>],
    (workspace, needs): (Workspace<'_>, usize),
    kernels: impl FnOnce(&mut OnStream<'_>, usize) -> Result<()>,
) -> Result<()> {
    let (device, op) = (stream.device(), plan.desc().op());
    if plan.device() != device {
        let reason = format!("the plan is for {}, the stream of {device}", plan.device());
        return Err(Error::PlanMismatch { op, reason });
    }
    if !plan.is_loaded(aligned) && stream.is_capturing()? {
        let reason = "kernels cannot be loaded then; prepare the plan before".into();
        return Err(Error::Capturing { reason });
    }
    let functions = plan.functions(aligned)?;
    let _bound = device.context().bind()?;
    let scratch = Scratch::new(stream, plan, &workspace, needs)?;
    stream.work_on(op, places, || {
        let address = scratch.address;
        let _scratch = scratch;
        kernels(&mut OnStream { functions, stream }, address)
    })
}

/// The scratch memory of one call.
struct Scratch<'s> {
    address: usize,
    /// Where it has to be given back.
    pool_of: Option<&'s Stream>,
}

impl<'s> Scratch<'s> {
    fn new(stream: &'s Stream, plan: &GpuPlan, workspace: &Workspace<'_>, needs: usize) -> Result<Scratch<'s>> {
        let op = plan.desc().op();
        match workspace {
            _ if needs == 0 => Ok(Scratch {
                address: 0,
                pool_of: None,
            }),
            Workspace::Pool => Ok(Scratch {
                address: Pool::allocate(stream.device().context(), needs, stream.raw())? as usize,
                pool_of: Some(stream),
            }),
            Workspace::Given(view) => {
                let tensor = "the workspace";
                view.place().check(op, tensor, stream.device())?;
                let (address, has) = (view.span().address, view.span().len * view.span().dtype.bytes());
                if has < needs {
                    let reason = format!("the workspace has {has} bytes, the plan needs {needs}");
                    return Err(Error::PlanMismatch { op, reason });
                }
                let expected = VECTOR_BYTES as usize;
                if !address.is_multiple_of(expected) {
                    let got = address;
                    return Err(Error::Misaligned {
                        op,
                        tensor,
                        expected,
                        got,
                    });
                }
                Ok(Scratch { address, pool_of: None })
            }
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.pool_of {
            // SAFETY: allocated in `new` for this call, whose kernels are in the stream. While the stream is captured, both
            // become part of the graph.
            let _ = unsafe { Pool::free(stream.device().context(), self.address as u64, stream.raw()) };
        }
    }
}

/// An argument under its name.
type Named<'a> = Option<(&'static str, Place<'a>)>;

fn read<'a>(name: &'static str, argument: &Option<View<'a>>) -> Named<'a> {
    argument.as_ref().map(|v| (name, v.place()))
}

fn written<'a>(name: &'static str, argument: &Option<ViewMut<'a>>) -> Named<'a> {
    argument.as_ref().map(|v| (name, v.place()))
}

/// What goes through a pass: one tensor, or two.
fn through<'a>(names: [&'static str; 2], data: &Through<View<'a>, ViewMut<'a>>) -> [Named<'a>; 2] {
    let [from, to] = names;
    match data {
        Through::Separate(x, y) => [Some((from, x.place())), Some((to, y.place()))],
        Through::InPlace(x) => [Some((from, x.place())), None],
        Through::ReadOnly(x) => [Some((from, x.place())), None],
    }
}

fn statistics<'a>(running: &Option<Running<View<'a>, ViewMut<'a>>>) -> [Named<'a>; 2] {
    let [mean, var] = match running {
        None => return [None, None],
        Some(Running::Given { mean, var }) => [mean.place(), var.place()],
        Some(Running::Update { mean, var, .. }) => [mean.place(), var.place()],
    };
    [Some(("running_mean", mean)), Some(("running_var", var))]
}

/// Every argument under its name.
fn forward_places<'a>(a: &Forward<'a>) -> [Named<'a>; 12] {
    let [x, y] = through(["x", "y"], &a.data);
    let [added, stream] = match &a.stream {
        Some(stream) => through(["residual", "stream"], stream),
        None => [None, None],
    };
    let [running_mean, running_var] = statistics(&a.running);
    [
        x,
        y,
        read("weight", &a.weight),
        read("bias", &a.bias),
        read("residual", &a.residual),
        written("mask", &a.mask),
        added,
        stream,
        running_mean,
        running_var,
        written("mean", &a.saved_mean),
        written("rstd", &a.saved_rstd),
    ]
}

/// Every argument under its name.
fn backward_places<'a>(a: &Backward<'a>) -> [Named<'a>; 15] {
    let [dy, dx] = through(["dy", "dx"], &a.data);
    let [running_mean, running_var] = statistics(&a.running);
    [
        Some(("x", a.x.place())),
        dy,
        dx,
        read("weight", &a.weight),
        read("bias", &a.bias),
        read("residual", &a.residual),
        read("mask", &a.mask),
        read("dstream", &a.dstream),
        running_mean,
        running_var,
        read("mean", &a.mean),
        read("rstd", &a.rstd),
        written("dweight", &a.dweight),
        written("dbias", &a.dbias),
        written("dresidual", &a.dresidual),
    ]
}
