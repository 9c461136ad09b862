//! Accepted arguments into a stream: what only a GPU can get wrong is looked at, scratch memory is found, kernels are launched.

use super::again::{Given, Kind};
use super::scratch::{Needs, Workspace, lease};
use super::{BackwardPointers, ForwardPointers, Launcher, Scratch, accept_backward, accept_forward, backward, forward};
use crate::cuda::driver::{self, Function};
use crate::cuda::view::Place;
use crate::cuda::{Backward, Forward, Plan, Stream, View, ViewMut};
use crate::launch::{Running, Through};
use crate::{Error, Kernel, Result};

/// Kernels of a plan, loaded, into a stream: one by one, or into a graph.
struct OnStream<'p> {
    functions: &'p [Function],
    stream: &'p Stream,
    given: Option<Given<'p>>,
}

impl Launcher for OnStream<'_> {
    unsafe fn zero(&mut self, address: usize, bytes: usize) -> Result<()> {
        if let Some(given) = &mut self.given {
            given.other();
            return Ok(());
        }
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
        let function = self.functions[index];
        if let Some(given) = &mut self.given {
            // SAFETY: the caller's; the kernels of a graph are always those of one plan.
            unsafe { given.kernel(function, kernel, argument) };
            return Ok(());
        }
        // SAFETY: the caller's; the context was made current by `run`.
        unsafe { function.launch(kernel, argument, self.stream.raw()) }
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
    let schedule = accept_forward(plan, a, aligned)?;
    let all = pointers.updates();
    let needs = Needs::of(schedule, all);
    run(
        stream,
        plan,
        Kind { aligned, all },
        &forward_places(a),
        (workspace, needs),
        |launcher, scratch| {
            // SAFETY: accepted above; `run` saw to it that the memory is this GPU's.
            unsafe { forward(plan, schedule, &pointers, scratch, launcher) }
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
    let schedule = accept_backward(plan, a, aligned)?;
    let all = pointers.wants_gradients();
    run(
        stream,
        plan,
        Kind { aligned, all },
        &backward_places(a),
        (workspace, Needs::of(schedule, true)),
        |launcher, scratch| {
            // SAFETY: as above.
            unsafe { backward(plan, schedule, &pointers, scratch, launcher) }
        },
    )
}

/// Looks at everything that only a GPU can get wrong, then runs kernels with the scratch memory that they need.
fn run(
    stream: &Stream,
    plan: &Plan,
    kind: Kind,
    places: &[Option<(&'static str, Place<'_>)>],
    (workspace, needs): (Workspace<'_>, Needs),
    kernels: impl Fn(&mut OnStream<'_>, Scratch) -> Result<()>,
) -> Result<()> {
    let (device, op) = (stream.device(), plan.desc().op());
    if plan.device() != device {
        let reason = format!("the plan is for {}, the stream of {device}", plan.device());
        return Err(Error::PlanMismatch { op, reason });
    }
    let bound = device.context().bind()?;
    let captured = stream.raw().is_capturing(&bound)?;
    if captured && !plan.is_loaded(kind.aligned) {
        let reason = "kernels cannot be loaded then; prepare the plan before".into();
        return Err(Error::Capturing { reason });
    }
    let functions = plan.functions(kind.aligned)?;
    let (scratch, lease) = lease(stream, op, &workspace, (needs, captured))?;
    stream.work_on(op, places, || {
        let _lease = lease;
        if let Some(mut calls) = stream.calls(captured)
            && let Some(graph) = calls.graph(stream, plan, kind)
        {
            let mut into_graph = OnStream {
                functions,
                stream,
                given: Some(Given::to(graph)),
            };
            kernels(&mut into_graph, scratch)?;
            if let Some(graph) = into_graph.given.and_then(Given::whole) {
                // SAFETY: each kernel was given this call's argument.
                return unsafe { graph.launch(stream.raw(), &bound) };
            }
            calls.give_up(plan, kind);
        }
        let mut one_by_one = OnStream {
            functions,
            stream,
            given: None,
        };
        kernels(&mut one_by_one, scratch)
    })
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
fn forward_places<'a>(a: &Forward<'a>) -> [Named<'a>; 13] {
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
        written("var", &a.saved_var),
    ]
}

/// Every argument under its name.
fn backward_places<'a>(a: &Backward<'a>) -> [Named<'a>; 18] {
    let [dy, dx] = through(["dy", "dx"], &a.data);
    let [running_mean, running_var] = statistics(&a.running);
    let means = a.means.as_ref().map(|means| means.each_ref().map(View::place));
    [
        Some(("x", a.x.place())),
        dy,
        dx,
        read("weight", &a.weight),
        read("bias", &a.bias),
        read("residual", &a.residual),
        read("mask", &a.mask),
        read("y", &a.result),
        read("dstream", &a.dstream),
        running_mean,
        running_var,
        means.map(|[mean_g, _]| ("mean_g", mean_g)),
        means.map(|[_, mean_gx]| ("mean_gx", mean_gx)),
        read("mean", &a.mean),
        read("rstd", &a.rstd),
        written("dweight", &a.dweight),
        written("dbias", &a.dbias),
        written("dresidual", &a.dresidual),
    ]
}
