//! A plan that runs on addresses.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use isonorm::{Backward, DType, Error, Forward, Geometry, GpuPlan, GpuProperties, NormDesc, View, ViewMut};
use isonorm::{Workspace, cuda};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::engine;
use crate::error::exception;

/// With fewer elements than this, a call takes less time than other threads of Python need to take over from it.
const FEW_ELEMENTS: usize = 4096;

/// How a problem is carried out on a device. Any thread may use it.
#[pyclass(frozen, module = "isonorm._core")]
pub(crate) struct Plan {
    place: Place,
    desc: NormDesc,
    /// The numbers of elements of each kind of argument, and the type of a saved mean.
    elements: usize,
    #[pyo3(get)]
    groups: usize,
    parameters: usize,
    channels: usize,
    #[pyo3(get)]
    mask_elements: usize,
    mean_dtype: DType,
    running_mean_dtype: DType,
}

enum Place {
    Cpu {
        threads: usize,
        plan: isonorm::Plan,
        /// Scratch memory that no call uses.
        idle: Mutex<Vec<Workspace>>,
    },
    Cuda(cuda::Plan),
}

/// Of an argument: 0 is none.
type Address = usize;

/// What both kinds of views are made from.
trait Memory {
    type View<'a>;
    type ViewMut<'a>;

    /// # Safety
    /// That of the views.
    unsafe fn view<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<Self::View<'a>>;

    /// # Safety
    /// That of the views.
    unsafe fn view_mut<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<Self::ViewMut<'a>>;
}

/// Memory of the host.
struct Host;

impl Memory for Host {
    type View<'a> = View<'a>;
    type ViewMut<'a> = ViewMut<'a>;

    unsafe fn view<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<View<'a>> {
        // SAFETY: the caller's.
        NonNull::new(address as *mut u8).map(|first| unsafe { View::from_raw(first, len, dtype) })
    }

    unsafe fn view_mut<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<ViewMut<'a>> {
        // SAFETY: the caller's.
        NonNull::new(address as *mut u8).map(|first| unsafe { ViewMut::from_raw(first, len, dtype) })
    }
}

impl Memory for cuda::Device {
    type View<'a> = cuda::View<'a>;
    type ViewMut<'a> = cuda::ViewMut<'a>;

    unsafe fn view<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<cuda::View<'a>> {
        // SAFETY: the caller's.
        (address != 0).then(|| unsafe { cuda::View::from_raw_of(*self, address as u64, len, dtype) })
    }

    unsafe fn view_mut<'a>(&self, address: Address, len: usize, dtype: DType) -> Option<cuda::ViewMut<'a>> {
        // SAFETY: the caller's.
        (address != 0).then(|| unsafe { cuda::ViewMut::from_raw_of(*self, address as u64, len, dtype) })
    }
}

/// Addresses of a forward pass.
struct ForwardAddresses {
    x: Address,
    y: Address,
    weight: Address,
    bias: Address,
    residual: Address,
    mask: Address,
    stream: Address,
    running_mean: Address,
    running_var: Address,
    factor: f64,
    mean: Address,
    rstd: Address,
}

/// Addresses of a backward pass.
struct BackwardAddresses {
    x: Address,
    dy: Address,
    dx: Address,
    weight: Address,
    bias: Address,
    residual: Address,
    mask: Address,
    dstream: Address,
    running_mean: Address,
    running_var: Address,
    mean: Address,
    rstd: Address,
    means: [Address; 2],
    dweight: Address,
    dbias: Address,
    dresidual: Address,
}

/// The arguments behind the addresses, for the memory of a host or a GPU: the same lines, with other types of views.
macro_rules! forward_arguments {
    ($plan:expr, $memory:expr, $a:expr, $forward:ty) => {{
        let (plan, memory, a) = ($plan, $memory, $a);
        let (data, params, stats) = (
            plan.desc.get_dtype(),
            plan.desc.get_param_dtype(),
            plan.desc.get_statistics_dtype(),
        );
        let missing = || PyValueError::new_err(format!("{}: x or y is missing", plan.desc.op()));
        // SAFETY: whoever calls `Plan.forward` vouches for the addresses.
        unsafe {
            let x = memory.view(a.x, plan.elements, data).ok_or_else(missing)?;
            let y = memory.view_mut(a.y, plan.elements, data).ok_or_else(missing)?;
            let mut arguments = <$forward>::new(x, y);
            if let Some(weight) = memory.view(a.weight, plan.parameters, params) {
                arguments = arguments.weight(weight);
            }
            if let Some(bias) = memory.view(a.bias, plan.parameters, params) {
                arguments = arguments.bias(bias);
            }
            if let Some(mask) = memory.view_mut(a.mask, plan.mask_elements, data) {
                arguments = arguments.save_mask(mask);
            }
            if let Some(residual) = memory.view(a.residual, plan.elements, data) {
                arguments = match memory.view_mut(a.stream, plan.elements, data) {
                    Some(stream) => arguments.stream(residual, stream),
                    None => arguments.residual(residual),
                };
            }
            if plan.desc.uses_running_statistics() {
                let mean = memory.view(a.running_mean, plan.channels, plan.running_mean_dtype);
                if let (Some(mean), Some(var)) = (mean, memory.view(a.running_var, plan.channels, params)) {
                    arguments = arguments.running(mean, var);
                }
            } else if let (Some(mean), Some(var)) = (
                memory.view_mut(a.running_mean, plan.channels, params),
                memory.view_mut(a.running_var, plan.channels, params),
            ) {
                arguments = arguments.update_running(mean, var, a.factor);
            }
            let rstd = memory.view_mut(a.rstd, plan.groups, stats);
            match (memory.view_mut(a.mean, plan.groups, plan.mean_dtype), rstd) {
                (Some(mean), Some(rstd)) => arguments.save(mean, rstd),
                (None, Some(rstd)) => arguments.save_rstd(rstd),
                _ => arguments,
            }
        }
    }};
}

/// As [`forward_arguments`].
macro_rules! moments_arguments {
    ($plan:expr, $memory:expr, $addresses:expr, $forward:ty) => {{
        let (plan, memory, [x, mean, var]) = ($plan, $memory, $addresses);
        let missing = || PyValueError::new_err("batchnorm: x, mean or var is missing");
        // SAFETY: whoever calls `Plan.moments` vouches for the addresses.
        unsafe {
            let x = memory
                .view(x, plan.elements, plan.desc.get_dtype())
                .ok_or_else(missing)?;
            let mean = memory
                .view_mut(mean, plan.groups, plan.mean_dtype)
                .ok_or_else(missing)?;
            let var = memory
                .view_mut(var, plan.groups, plan.desc.get_statistics_dtype())
                .ok_or_else(missing)?;
            <$forward>::without_y(x).save_variance(mean, var)
        }
    }};
}

/// As [`forward_arguments`].
macro_rules! backward_arguments {
    ($plan:expr, $memory:expr, $a:expr, $backward:ty) => {{
        let (plan, memory, a) = ($plan, $memory, $a);
        let (data, params, stats) = (
            plan.desc.get_dtype(),
            plan.desc.get_param_dtype(),
            plan.desc.get_statistics_dtype(),
        );
        let missing = || PyValueError::new_err(format!("{}: x or dy is missing", plan.desc.op()));
        // SAFETY: whoever calls `Plan.backward` vouches for the addresses.
        unsafe {
            let x = memory.view(a.x, plan.elements, data).ok_or_else(missing)?;
            let dy = memory.view(a.dy, plan.elements, data).ok_or_else(missing)?;
            let mut arguments = match memory.view_mut(a.dx, plan.elements, data) {
                Some(dx) => <$backward>::new(x, dy, dx),
                None => <$backward>::without_dx(x, dy),
            };
            if let Some(weight) = memory.view(a.weight, plan.parameters, params) {
                arguments = arguments.weight(weight);
            }
            if let Some(bias) = memory.view(a.bias, plan.parameters, params) {
                arguments = arguments.bias(bias);
            }
            if let Some(residual) = memory.view(a.residual, plan.elements, data) {
                arguments = arguments.residual(residual);
            }
            if let Some(mask) = memory.view(a.mask, plan.mask_elements, data) {
                arguments = arguments.mask(mask);
            }
            if let Some(dstream) = memory.view(a.dstream, plan.elements, data) {
                arguments = arguments.dstream(dstream);
            }
            let running = memory.view(a.running_mean, plan.channels, plan.running_mean_dtype);
            if let (Some(mean), Some(var)) = (running, memory.view(a.running_var, plan.channels, params)) {
                arguments = arguments.running(mean, var);
            }
            let rstd = memory.view(a.rstd, plan.groups, stats);
            arguments = match (memory.view(a.mean, plan.groups, plan.mean_dtype), rstd) {
                (Some(mean), Some(rstd)) => arguments.saved(mean, rstd),
                (None, Some(rstd)) => arguments.saved_rstd(rstd),
                _ => arguments,
            };
            let [mean_g, mean_gx] = a.means.map(|mean| memory.view(mean, plan.channels, stats));
            if let (Some(mean_g), Some(mean_gx)) = (mean_g, mean_gx) {
                arguments = arguments.means(mean_g, mean_gx);
            }
            if let Some(dweight) = memory.view_mut(a.dweight, plan.parameters, params) {
                arguments = arguments.dweight(dweight);
            }
            if let Some(dbias) = memory.view_mut(a.dbias, plan.parameters, params) {
                arguments = arguments.dbias(dbias);
            }
            if let Some(dresidual) = memory.view_mut(a.dresidual, plan.elements, data) {
                arguments = arguments.dresidual(dresidual);
            }
            arguments
        }
    }};
}

#[pymethods]
impl Plan {
    /// A plan for a problem string. `device` is a GPU's number, or -1 for the CPU with `threads` threads. `synchronized`: the running mean
    /// that is given is of the type of a saved one, for it is several ranks'.
    #[new]
    #[pyo3(signature = (problem, device, threads, synchronized = false))]
    fn new(problem: &str, device: i64, threads: usize, synchronized: bool) -> PyResult<Plan> {
        let desc: NormDesc = problem.parse().map_err(exception)?;
        Plan::of(desc, device, threads, synchronized).map_err(exception)
    }

    /// The problem string, defaults said aloud.
    #[getter]
    fn problem(&self) -> String {
        self.desc.to_string()
    }

    /// Whether the saved mean is `float64` whatever the data.
    #[getter]
    fn mean_is_f64(&self) -> bool {
        self.mean_dtype == DType::F64
    }

    /// The plan, each candidate taken or declined with its reason.
    fn explain(&self) -> String {
        match &self.place {
            Place::Cpu { plan, .. } => plan.explain().to_string(),
            Place::Cuda(plan) => plan.explain().to_string(),
        }
    }

    /// Loads the kernels: a stream that is captured cannot do that.
    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        match &self.place {
            Place::Cpu { .. } => Ok(()),
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
        mask: Address,
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
            mask,
            stream: stream_out,
            running_mean,
            running_var,
            factor,
            mean,
            rstd,
        };
        match &self.place {
            Place::Cpu { threads, plan, idle } => self.on_cpu(py, idle, plan, |workspace| {
                let arguments = forward_arguments!(self, Host, &a, Forward<'_>);
                engine::cpu(*threads)
                    .forward(plan, arguments, workspace)
                    .map_err(exception)
            }),
            Place::Cuda(plan) => on_gpu(py, plan, || {
                let device = plan.device();
                let arguments = forward_arguments!(self, device, &a, cuda::Forward<'_>);
                // SAFETY: the caller's stream.
                let stream = unsafe { engine::stream(device, stream) }.map_err(exception)?;
                stream
                    .forward(plan, arguments, cuda::Workspace::Pool)
                    .map_err(exception)
            }),
        }
    }

    /// Takes the mean and the biased variance of each channel (a plan of pass=moments); arguments as in `forward`.
    fn moments(&self, py: Python<'_>, stream: usize, x: Address, mean: Address, var: Address) -> PyResult<()> {
        match &self.place {
            Place::Cpu { threads, plan, idle } => self.on_cpu(py, idle, plan, |workspace| {
                let arguments = moments_arguments!(self, Host, [x, mean, var], Forward<'_>);
                engine::cpu(*threads)
                    .forward(plan, arguments, workspace)
                    .map_err(exception)
            }),
            Place::Cuda(plan) => on_gpu(py, plan, || {
                let device = plan.device();
                let arguments = moments_arguments!(self, device, [x, mean, var], cuda::Forward<'_>);
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
        mask: Address,
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
            mask,
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
        match &self.place {
            Place::Cpu { threads, plan, idle } => self.on_cpu(py, idle, plan, |workspace| {
                let arguments = backward_arguments!(self, Host, &a, Backward<'_>);
                engine::cpu(*threads)
                    .backward(plan, arguments, workspace)
                    .map_err(exception)
            }),
            Place::Cuda(plan) => on_gpu(py, plan, || {
                let device = plan.device();
                let arguments = backward_arguments!(self, device, &a, cuda::Backward<'_>);
                // SAFETY: the caller's stream.
                let stream = unsafe { engine::stream(device, stream) }.map_err(exception)?;
                stream
                    .backward(plan, arguments, cuda::Workspace::Pool)
                    .map_err(exception)
            }),
        }
    }

    fn __repr__(&self) -> String {
        format!("Plan({:?})", self.desc.to_string())
    }
}

impl Plan {
    fn of(desc: NormDesc, device: i64, threads: usize, synchronized: bool) -> Result<Plan, Error> {
        let place = match u32::try_from(device) {
            Ok(ordinal) => Place::Cuda(cuda::Device::get(ordinal)?.plan(&desc)?),
            Err(_) => Place::Cpu {
                threads,
                plan: engine::cpu(threads).plan(&desc)?,
                idle: Mutex::default(),
            },
        };
        let geometry = Geometry::of(&desc)?;
        // As precise as the device's backward pass can use it.
        let mean_dtype = match place {
            Place::Cpu { .. } => DType::F64,
            Place::Cuda(_) => desc.get_statistics_dtype(),
        };
        Ok(Plan {
            elements: geometry.elements(),
            groups: geometry.groups(),
            parameters: geometry.parameters,
            channels: geometry.channels,
            mask_elements: desc.mask_elements(),
            mean_dtype,
            running_mean_dtype: if synchronized {
                mean_dtype
            } else {
                desc.get_param_dtype()
            },
            desc,
            place,
        })
    }

    /// Runs with scratch memory that no other thread uses meanwhile; without Python's lock, if that pays.
    fn on_cpu(
        &self,
        py: Python<'_>,
        idle: &Mutex<Vec<Workspace>>,
        plan: &isonorm::Plan,
        run: impl FnOnce(&mut Workspace) -> PyResult<()> + Send,
    ) -> PyResult<()> {
        let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut workspace = taken.unwrap_or_else(|| Workspace::new(plan));
        let result = match self.elements < FEW_ELEMENTS {
            true => run(&mut workspace),
            false => py.detach(|| run(&mut workspace)),
        };
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(workspace);
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
