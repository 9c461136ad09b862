use std::fmt;
use std::sync::Arc;

use isonorm_kernels::interpreter::{Buffers, Launch};

use super::launch::{self, ForwardPointers, Launcher};
use crate::launch::{Running, Through};
use crate::{Backward, Error, Forward, GpuPlan, GpuProperties, Kernel, NormDesc, Result, View, ViewMut};

/// A GPU that the host plays: the kernels that would be launched, in the shapes that they would be launched with, run by a
/// strict interpreter that finds overruns, races, and missing barriers. For tests: it takes microseconds for an element.
#[derive(Clone, Debug)]
pub struct Interpreter {
    properties: Arc<GpuProperties>,
    seed: u64,
}

impl Interpreter {
    /// One that is planned for as if it were this GPU.
    pub fn new(properties: GpuProperties) -> Interpreter {
        Interpreter {
            properties: properties.into(),
            seed: 0,
        }
    }

    /// The same with another order of threads.
    pub fn seed(self, seed: u64) -> Interpreter {
        Interpreter { seed, ..self }
    }

    /// The plan that the GPU would have.
    ///
    /// # Errors
    /// As [`Device::plan`](super::Device::plan).
    pub fn plan(&self, desc: &NormDesc) -> Result<GpuPlan> {
        let plan = GpuPlan::new(desc, &self.properties)?;
        plan.check()?;
        Ok(plan)
    }

    /// Runs a forward pass on host memory.
    ///
    /// # Errors
    /// As [`Stream::forward`](super::Stream::forward); [`Error::Kernel`] for a mistake of a kernel.
    pub fn forward(&self, plan: &GpuPlan, arguments: Forward<'_>) -> Result<()> {
        launch::accept_forward(plan, &arguments)?;
        let pointers = ForwardPointers::of(&arguments);
        let mut on_host = OnHost {
            buffers: forward_buffers(arguments),
            seed: self.seed,
        };
        // SAFETY: the interpreter checks every access.
        unsafe { launch::forward(plan, &pointers, &mut on_host) }
    }

    /// Runs a backward pass on host memory.
    ///
    /// # Errors
    /// As [`forward`](Interpreter::forward).
    pub fn backward(&self, plan: &GpuPlan, arguments: Backward<'_>) -> Result<()> {
        launch::accept_backward(plan, &arguments)
    }
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interpreter of {}", self.properties.name)
    }
}

/// Kernels into the interpreter.
struct OnHost<'a> {
    buffers: Buffers<'a>,
    seed: u64,
}

impl Launcher for OnHost<'_> {
    unsafe fn launch<A>(&mut self, _: usize, kernel: &Kernel, argument: &A, interpret: impl Fn(&A)) -> Result<()> {
        let launch = Launch::new(kernel.grid, kernel.block)
            .cluster(kernel.cluster)
            .shared_bytes(kernel.shared_bytes)
            .seed(self.seed);
        let report = launch.run(&self.buffers, || interpret(argument));
        report.map(drop).map_err(|fault| Error::Kernel {
            kernel: kernel.entry.clone(),
            fault: fault.to_string(),
        })
    }
}

/// The memory that kernels of a forward pass may touch.
fn forward_buffers(arguments: Forward<'_>) -> Buffers<'_> {
    let mut buffers = Buffers::new();
    match arguments.data {
        Through::Separate(x, y) => {
            read(&mut buffers, "x", Some(x));
            write(&mut buffers, "y", Some(y));
        }
        Through::InPlace(x) => write(&mut buffers, "x", Some(x)),
        Through::ReadOnly(x) => read(&mut buffers, "x", Some(x)),
    }
    read(&mut buffers, "weight", arguments.weight);
    read(&mut buffers, "bias", arguments.bias);
    read(&mut buffers, "residual", arguments.residual);
    match arguments.running {
        None => {}
        Some(Running::Given { mean, var }) => {
            read(&mut buffers, "running_mean", Some(mean));
            read(&mut buffers, "running_var", Some(var));
        }
        Some(Running::Update { mean, var, .. }) => {
            write(&mut buffers, "running_mean", Some(mean));
            write(&mut buffers, "running_var", Some(var));
        }
    }
    write(&mut buffers, "mean", arguments.saved_mean);
    write(&mut buffers, "rstd", arguments.saved_rstd);
    buffers
}

fn read<'a>(buffers: &mut Buffers<'a>, name: &str, view: Option<View<'a>>) {
    let Some(view) = view else { return };
    let bytes = view.len() * view.dtype().bytes();
    // SAFETY: a view is so many bytes, borrowed for 'a.
    buffers.read_only(name, unsafe { std::slice::from_raw_parts(view.as_ptr(), bytes) });
}

fn write<'a>(buffers: &mut Buffers<'a>, name: &str, view: Option<ViewMut<'a>>) {
    let Some(view) = view else { return };
    let bytes = view.len() * view.dtype().bytes();
    // SAFETY: a view is so many bytes, borrowed exclusively for 'a; any bytes are numbers.
    buffers.writable(name, unsafe { std::slice::from_raw_parts_mut(view.as_ptr(), bytes) });
}
