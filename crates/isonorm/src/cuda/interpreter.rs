use std::fmt;
use std::sync::Arc;

use isonorm_kernels::grid::Messages;
use isonorm_kernels::interpreter::{Buffers, Launch, Report};

use super::launch::{self, BackwardPointers, ForwardPointers, Launcher, Scratch};
use crate::launch::{Running, Through};
use crate::plan::gpu::Schedule;
use crate::{Backward, Error, Forward, GpuPlan, GpuProperties, Kernel, NormDesc, Result, Rung, View, ViewMut};

/// Multiprocessors that the host plays, at most.
const MOST_SMS: u32 = 24;

/// A GPU that the host plays: the kernels that would be launched, in the shapes that they would be launched with, run by a
/// strict interpreter that finds overruns, races, and missing barriers. For tests: it takes microseconds for an element.
#[derive(Clone, Debug)]
pub struct Interpreter {
    properties: Arc<GpuProperties>,
    seed: u64,
}

impl Interpreter {
    /// One that is planned for as if it were this GPU, but for the number of multiprocessors: each thread of the blocks that run at the
    /// same time has a stack on the host, and a large GPU would have more of them than a process may.
    pub fn new(properties: GpuProperties) -> Interpreter {
        let properties = GpuProperties {
            sms: properties.sms.min(MOST_SMS),
            cluster_sms: properties.cluster_sms.min(MOST_SMS),
            ..properties
        };
        Interpreter {
            properties: properties.into(),
            seed: 0,
        }
    }

    /// The same with another order of threads.
    pub fn seed(self, seed: u64) -> Interpreter {
        Interpreter { seed, ..self }
    }

    /// Every way in which the GPU would carry a description out, that of [`plan`](Interpreter::plan) first: see
    /// [`GpuPlan::alternatives`].
    ///
    /// # Errors
    /// As [`plan`](Interpreter::plan).
    #[doc(hidden)]
    pub fn alternatives(&self, desc: &NormDesc) -> Result<Vec<GpuPlan>> {
        let plans = GpuPlan::alternatives(desc, &self.properties)?;
        plans[0].check()?;
        Ok(plans)
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

    /// A rung of the ladder: see [`GpuPlan::rung`].
    ///
    /// # Errors
    /// As [`GpuPlan::rung`].
    pub fn rung(&self, rung: Rung, desc: &NormDesc) -> Result<GpuPlan> {
        GpuPlan::rung(rung, desc, &self.properties)
    }

    /// Runs a forward pass on host memory. Returns what its kernels moved, argument by argument.
    ///
    /// # Errors
    /// As [`Stream::forward`](super::Stream::forward); [`Error::Kernel`] for a mistake of a kernel.
    pub fn forward(&self, plan: &GpuPlan, arguments: Forward<'_>) -> Result<Vec<Moved>> {
        let pointers = ForwardPointers::of(&arguments);
        let aligned = pointers.are_aligned(plan);
        let schedule = launch::accept_forward(plan, &arguments, aligned)?;
        let mut workspace = Workspace::of(schedule);
        let scratch = workspace.scratch();
        let mut on_host = OnHost {
            buffers: forward_buffers(arguments, &mut workspace),
            seed: self.seed,
        };
        // SAFETY: the interpreter checks every access.
        unsafe { launch::forward(plan, schedule, &pointers, scratch, &mut on_host)? };
        let moved = on_host.moved();
        workspace.check(plan)?;
        Ok(moved)
    }

    /// Runs a backward pass on host memory. Returns what its kernels moved, argument by argument.
    ///
    /// # Errors
    /// As [`forward`](Interpreter::forward).
    pub fn backward(&self, plan: &GpuPlan, arguments: Backward<'_>) -> Result<Vec<Moved>> {
        let pointers = BackwardPointers::of(&arguments);
        let aligned = pointers.are_aligned(plan);
        let schedule = launch::accept_backward(plan, &arguments, aligned)?;
        let mut workspace = Workspace::of(schedule);
        let scratch = workspace.scratch();
        let mut on_host = OnHost {
            buffers: backward_buffers(arguments, &mut workspace),
            seed: self.seed,
        };
        // SAFETY: the interpreter checks every access.
        unsafe { launch::backward(plan, schedule, &pointers, scratch, &mut on_host)? };
        let moved = on_host.moved();
        workspace.check(plan)?;
        Ok(moved)
    }
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interpreter of {}", self.properties.name)
    }
}

/// What the kernels of a call read and wrote of an argument, each byte as often as threads asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The argument's name, such as `x`; `workspace` for what kernels leave each other.
    pub argument: String,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

/// The scratch memory of a call, aligned to 16 bytes; at first it holds no number, and messages of calls before.
struct Workspace {
    memory: Vec<u128>,
    /// Bytes in front of the messages.
    bytes: usize,
    /// Tags that the call may use.
    tags: u64,
}

/// The tag of the messages that calls before have left.
const SENT: u32 = 1_000_003;

impl Workspace {
    fn of(schedule: Option<&Schedule>) -> Workspace {
        let (bytes, messages) = schedule.map_or_else(Default::default, |s| (s.scratch_bytes(true), s.messages));
        let words = |bytes: usize| bytes.div_ceil(size_of::<u128>());
        let mut memory = vec![u128::MAX; words(bytes)];
        memory.resize(
            words(bytes + messages.bytes),
            u128::from(SENT) << 96 | u128::from(SENT) << 32,
        );
        Workspace {
            memory,
            bytes,
            tags: messages.tags,
        }
    }

    fn scratch(&mut self) -> Scratch {
        let workspace = self.memory.as_mut_ptr() as usize;
        Scratch {
            workspace,
            messages: Messages {
                places: (workspace + self.bytes) as *mut u32,
                sent: SENT,
            },
        }
    }

    /// Whether the kernels have used the tags that were planned for, and no others.
    fn check(&self, plan: &GpuPlan) -> Result<()> {
        let places = &self.memory[self.bytes / size_of::<u128>()..];
        let last = places.iter().map(|place| (place >> 32) as u32).max().unwrap_or(SENT);
        let used = u64::from(last.wrapping_sub(SENT));
        if used > self.tags {
            return Err(Error::Kernel {
                kernel: plan.kernels()[0].entry.into(),
                fault: format!("messages have {used} tags, the plan has {}", self.tags),
            });
        }
        Ok(())
    }
}

/// Kernels into the interpreter.
struct OnHost<'a> {
    buffers: Buffers<'a>,
    seed: u64,
}

impl OnHost<'_> {
    fn moved(&self) -> Vec<Moved> {
        let one = |(argument, report): (&str, Report)| Moved {
            argument: argument.into(),
            read_bytes: report.bytes_read,
            written_bytes: report.bytes_written,
        };
        self.buffers.moved().map(one).collect()
    }
}

impl Launcher for OnHost<'_> {
    unsafe fn zero(&mut self, address: usize, bytes: usize) -> Result<()> {
        // SAFETY: the caller's; the buffers keep it borrowed, and no kernel runs.
        unsafe { (address as *mut u8).write_bytes(0, bytes) };
        Ok(())
    }

    unsafe fn launch<A>(
        &mut self,
        _: usize,
        kernel: &Kernel,
        argument: &A,
        interpreted: impl FnOnce() -> unsafe fn(&A),
    ) -> Result<()> {
        let mut launch = Launch::new(kernel.grid, kernel.block)
            .cluster(kernel.cluster)
            .shared_bytes(kernel.shared_bytes)
            .seed(self.seed);
        if kernel.resident {
            launch = launch.resident();
        }
        let run = interpreted();
        // SAFETY: the interpreter checks every access.
        let report = launch.run(&self.buffers, || unsafe { run(argument) });
        report.map(drop).map_err(|fault| Error::Kernel {
            kernel: format!("{} of {}_{}", kernel.entry, kernel.family, kernel.dtype),
            fault: fault.to_string(),
        })
    }
}

/// What goes through a pass: one tensor, or two.
fn through<'a>(buffers: &mut Buffers<'a>, names: [&str; 2], data: Through<View<'a>, ViewMut<'a>>) {
    let [from, to] = names;
    match data {
        Through::Separate(x, y) => {
            read(buffers, from, Some(x));
            write(buffers, to, Some(y));
        }
        Through::InPlace(x) => write(buffers, from, Some(x)),
        Through::ReadOnly(x) => read(buffers, from, Some(x)),
    }
}

fn statistics<'a>(buffers: &mut Buffers<'a>, running: Option<Running<View<'a>, ViewMut<'a>>>) {
    match running {
        None => {}
        Some(Running::Given { mean, var }) => {
            read(buffers, "running_mean", Some(mean));
            read(buffers, "running_var", Some(var));
        }
        Some(Running::Update { mean, var, .. }) => {
            write(buffers, "running_mean", Some(mean));
            write(buffers, "running_var", Some(var));
        }
    }
}

/// The memory that kernels of a forward pass may touch.
fn forward_buffers<'a>(arguments: Forward<'a>, workspace: &'a mut Workspace) -> Buffers<'a> {
    let mut buffers = Buffers::new();
    buffers.writable("workspace", &mut workspace.memory);
    through(&mut buffers, ["x", "y"], arguments.data);
    read(&mut buffers, "weight", arguments.weight);
    read(&mut buffers, "bias", arguments.bias);
    read(&mut buffers, "residual", arguments.residual);
    write(&mut buffers, "mask", arguments.mask);
    if let Some(stream) = arguments.stream {
        through(&mut buffers, ["residual", "stream"], stream);
    }
    statistics(&mut buffers, arguments.running);
    write(&mut buffers, "mean", arguments.saved_mean);
    write(&mut buffers, "rstd", arguments.saved_rstd);
    write(&mut buffers, "var", arguments.saved_var);
    buffers
}

/// The memory that kernels of a backward pass may touch.
fn backward_buffers<'a>(arguments: Backward<'a>, workspace: &'a mut Workspace) -> Buffers<'a> {
    let mut buffers = Buffers::new();
    buffers.writable("workspace", &mut workspace.memory);
    read(&mut buffers, "x", Some(arguments.x));
    through(&mut buffers, ["dy", "dx"], arguments.data);
    read(&mut buffers, "weight", arguments.weight);
    read(&mut buffers, "bias", arguments.bias);
    read(&mut buffers, "residual", arguments.residual);
    read(&mut buffers, "mask", arguments.mask);
    read(&mut buffers, "y", arguments.result);
    read(&mut buffers, "dstream", arguments.dstream);
    statistics(&mut buffers, arguments.running);
    for (name, mean) in ["mean_g", "mean_gx"]
        .into_iter()
        .zip(arguments.means.into_iter().flatten())
    {
        read(&mut buffers, name, Some(mean));
    }
    read(&mut buffers, "mean", arguments.mean);
    read(&mut buffers, "rstd", arguments.rstd);
    write(&mut buffers, "dweight", arguments.dweight);
    write(&mut buffers, "dbias", arguments.dbias);
    write(&mut buffers, "dresidual", arguments.dresidual);
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
