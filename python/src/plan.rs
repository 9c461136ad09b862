//! A plan that runs on addresses.

use std::sync::{Mutex, PoisonError};

use isonorm::{DType, Device, Error, GpuPlan, GpuProperties, NormDesc, Workspace, cuda};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arguments::{Address, BackwardAddresses, ForwardAddresses, Host, Sizes};
use crate::engine;
use crate::error::exception;

/// With fewer elements than this, a call takes less time than other threads of Python need to take over from it.
const FEW_ELEMENTS: usize = 4096;

/// How a problem is carried out on a device. Any thread may use it.
#[pyclass(frozen, module = "isonorm._core")]
pub(crate) struct Plan {
    place: Place,
    sizes: Sizes,
}

enum Place {
    Cpu(Box<OnCpu>),
    Cuda(cuda::Plan),
}

/// A plan of the CPU's.
struct OnCpu {
    threads: usize,
    plan: isonorm::Plan,
    /// Scratch memory that no call uses.
    idle: Mutex<Vec<Workspace>>,
}

#[pymethods]
impl Plan {
    /// A plan for a problem string. `device` is a GPU's number, or -1 for the CPU with `threads` threads. `synchronized`: the running mean
    /// that is given is of the type of a saved one, for it is several ranks'.
    #[new]
    #[pyo3(signature = (problem, device, threads, synchronized = false))]
    pub(crate) fn new(problem: &str, device: i64, threads: usize, synchronized: bool) -> PyResult<Plan> {
        let desc: NormDesc = problem.parse().map_err(exception)?;
        Plan::of(desc, device, threads, synchronized).map_err(exception)
    }

    /// The problem string, defaults said aloud.
    #[getter]
    fn problem(&self) -> String {
        self.sizes.desc.to_string()
    }

    /// The plan, each candidate taken or declined with its reason.
    fn explain(&self) -> String {
        match &self.place {
            Place::Cpu(cpu) => cpu.plan.explain().to_string(),
            Place::Cuda(plan) => plan.explain().to_string(),
        }
    }

    /// Loads the kernels: a stream that is captured cannot do that.
    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        match &self.place {
            Place::Cpu(_) => Ok(()),
            Place::Cuda(plan) => py.detach(|| plan.prepare()).map_err(exception),
        }
    }

    /// Runs a forward pass: `stream` is a GPU's, the others are addresses, 0 for none.
    ///
    /// The addresses are of contiguous memory of this device, as long and of such types as the problem says, which stays
    /// until the stream has come past the call.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call from Python, in which a tuple or a class would cost more than the call"
    )]
    fn forward(
        &self,
        py: Python<'_>,
        stream: usize,
        x: Address,
        y: Address,
        weight: Address,
        bias: Address,
        residual: Address,
        stream_out: Address,
        running_mean: Address,
        running_var: Address,
        factor: f64,
        mean: Address,
        rstd: Address,
    ) -> PyResult<()> {
        let a = ForwardAddresses {
            x,
            y,
            weight,
            bias,
            residual,
            stream: stream_out,
            running_mean,
            running_var,
            factor,
            mean,
            rstd,
        };
        self.run_forward(py, stream, &a)
    }

    /// Takes the mean and the biased variance of each channel (a plan of pass=moments); arguments as in `forward`.
    fn moments(&self, py: Python<'_>, stream: usize, x: Address, mean: Address, var: Address) -> PyResult<()> {
        match &self.place {
            Place::Cpu(cpu) => cpu.run(py, self.sizes.elements, |device, plan, workspace| {
                // SAFETY: whoever calls this from Python vouches for the addresses.
                let arguments = unsafe { self.sizes.moments(&Host, [x, mean, var])? };
                device.forward(plan, arguments, workspace).map_err(exception)
            }),
            Place::Cuda(plan) => on_gpu(py, plan, || {
                let device = plan.device();
                // SAFETY: whoever calls this from Python vouches for the addresses.
                let arguments = unsafe { self.sizes.moments(&device, [x, mean, var])? };
                // SAFETY: the caller's stream.
                let stream = unsafe { engine::stream(device, stream) }.map_err(exception)?;
                stream
                    .forward(plan, arguments, cuda::Workspace::Pool)
                    .map_err(exception)
            }),
        }
    }

    /// Runs a backward pass; arguments as in `forward`. `mean_g` and `mean_gx` are those over several ranks, of which the statistics are.
    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn backward(
        &self,
        py: Python<'_>,
        stream: usize,
        x: Address,
        dy: Address,
        dx: Address,
        weight: Address,
        bias: Address,
        residual: Address,
        dstream: Address,
        running_mean: Address,
        running_var: Address,
        mean: Address,
        rstd: Address,
        mean_g: Address,
        mean_gx: Address,
        dweight: Address,
        dbias: Address,
        dresidual: Address,
    ) -> PyResult<()> {
        let a = BackwardAddresses {
            x,
            dy,
            dx,
            weight,
            bias,
            residual,
            dstream,
            running_mean,
            running_var,
            mean,
            rstd,
            means: [mean_g, mean_gx],
            dweight,
            dbias,
            dresidual,
        };
        self.run_backward(py, stream, &a)
    }

    fn __repr__(&self) -> String {
        format!("Plan({:?})", self.sizes.desc.to_string())
    }
}

impl Plan {
    /// As [`forward`](Plan::forward).
    pub(crate) fn run_forward(&self, py: Python<'_>, stream: usize, a: &ForwardAddresses) -> PyResult<()> {
        match &self.place {
            Place::Cpu(cpu) => cpu.run(py, self.sizes.elements, |device, plan, workspace| {
                // SAFETY: whoever calls this from Python vouches for the addresses.
                let arguments = unsafe { self.sizes.forward(&Host, a)? };
                device.forward(plan, arguments, workspace).map_err(exception)
            }),
            Place::Cuda(plan) => on_gpu(py, plan, || {
                let device = plan.device();
                // SAFETY: whoever calls this from Python vouches for the addresses.
                let arguments = unsafe { self.sizes.forward(&device, a)? };
                // SAFETY: the caller's stream.
                let stream = unsafe { engine::stream(device, stream) }.map_err(exception)?;
                stream
                    .forward(plan, arguments, cuda::Workspace::Pool)
                    .map_err(exception)
            }),
        }
    }

    /// As [`backward`](Plan::backward).
    pub(crate) fn run_backward(&self, py: Python<'_>, stream: usize, a: &BackwardAddresses) -> PyResult<()> {
        match &self.place {
            Place::Cpu(cpu) => cpu.run(py, self.sizes.elements, |device, plan, workspace| {
                // SAFETY: whoever calls this from Python vouches for the addresses.
                let arguments = unsafe { self.sizes.backward(&Host, a)? };
                device.backward(plan, arguments, workspace).map_err(exception)
            }),
            Place::Cuda(plan) => on_gpu(py, plan, || {
                let device = plan.device();
                // SAFETY: whoever calls this from Python vouches for the addresses.
                let arguments = unsafe { self.sizes.backward(&device, a)? };
                // SAFETY: the caller's stream.
                let stream = unsafe { engine::stream(device, stream) }.map_err(exception)?;
                stream
                    .backward(plan, arguments, cuda::Workspace::Pool)
                    .map_err(exception)
            }),
        }
    }

    fn of(desc: NormDesc, device: i64, threads: usize, synchronized: bool) -> Result<Plan, Error> {
        let place = match u32::try_from(device) {
            Ok(ordinal) => Place::Cuda(cuda::Device::get(ordinal)?.plan(&desc)?),
            Err(_) => Place::Cpu(Box::new(OnCpu {
                threads,
                plan: engine::cpu(threads).plan(&desc)?,
                idle: Mutex::default(),
            })),
        };
        // As precise as the device's backward pass can use it.
        let mean_dtype = match place {
            Place::Cpu(_) => DType::F64,
            Place::Cuda(_) => desc.get_statistics_dtype(),
        };
        let sizes = Sizes::of(desc, mean_dtype, synchronized)?;
        Ok(Plan { place, sizes })
    }
}

impl OnCpu {
    /// Runs with scratch memory that no other thread uses meanwhile; without Python's lock, if that pays.
    fn run(
        &self,
        py: Python<'_>,
        elements: usize,
        run: impl FnOnce(&Device, &isonorm::Plan, &mut Workspace) -> PyResult<()> + Send,
    ) -> PyResult<()> {
        let device = engine::cpu(self.threads);
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut workspace = taken.unwrap_or_else(|| Workspace::new(&self.plan));
        let result = match elements < FEW_ELEMENTS {
            true => run(&device, &self.plan, &mut workspace),
            false => py.detach(|| run(&device, &self.plan, &mut workspace)),
        };
        idle().push(workspace);
        result
    }
}

/// Launches, which takes microseconds: less than to get Python's lock back. The first time, kernels are loaded: without it.
fn on_gpu(py: Python<'_>, plan: &cuda::Plan, launch: impl FnOnce() -> PyResult<()> + Send) -> PyResult<()> {
    match plan.is_prepared() {
        true => launch(),
        false => py.detach(launch),
    }
}

/// How many GPUs there are that isonorm can work on; 0 without a driver.
#[pyfunction]
pub(crate) fn cuda_devices() -> u32 {
    cuda::Device::count().unwrap_or(0)
}

/// How a problem is carried out, and why so. `device` is `cpu`, `cuda`, `cuda:N`, or a GPU that need not be there, such as `h200`.
#[pyfunction]
pub(crate) fn explain(problem: &str, device: &str) -> PyResult<String> {
    let desc: NormDesc = problem.parse().map_err(exception)?;
    if device == "cpu" {
        let plan = engine::cpu(0).plan(&desc).map_err(exception)?;
        return Ok(plan.explain().to_string());
    }
    let there = device
        .strip_prefix("cuda")
        .map(|rest| rest.strip_prefix(':').unwrap_or("0").parse());
    let properties = match (GpuProperties::known(device), there) {
        (Some(properties), _) => properties,
        (None, Some(Ok(ordinal))) => cuda::Device::get(ordinal).map_err(exception)?.properties().clone(),
        _ => {
            let known = GpuProperties::KNOWN.map(|(name, _)| name).join(", ");
            let text = format!("unknown device {device:?}; expected cpu, cuda, cuda:N, or one of {known}");
            return Err(PyValueError::new_err(text));
        }
    };
    let plan = GpuPlan::new(&desc, &properties.into()).map_err(exception)?;
    Ok(plan.explain().to_string())
}
