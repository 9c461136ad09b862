//! What runs between a module's call and a launch: tensors of PyTorch looked at, outputs made, kernels run.
//!
//! Tens of nanoseconds each, a few dozen such steps take Python longer than a launch; here they take a fraction of it. PyTorch is an
//! object of Python's like any other: its functions are looked up once, its tensors are read by DLPack's table where it has one.

mod passes;
mod site;

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use passes::Passes;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
pub(crate) use site::Site;

use crate::arguments::Address;
use crate::dlpack::{Exchange, Facts};

/// PyTorch's objects, looked up once.
struct Torch {
    tensor: Py<PyAny>,
    parameter: Py<PyAny>,
    exchange: Option<Exchange>,
    /// Its types that kernels know, with whether they are bfloat16 and their bits.
    dtypes: [(Py<PyAny>, bool, u8); 4],
    empty_like: Py<PyAny>,
    uint8: Py<PyAny>,
    increment_version: Py<PyAny>,
    is_grad_enabled: Py<PyAny>,
    is_autocast_enabled: Py<PyAny>,
    get_num_threads: Py<PyAny>,
    /// The raw stream that a GPU's work goes to; PyTorch without CUDA has no such function.
    current_stream: Option<Py<PyAny>>,
    /// Absent in some version: then what they ask for is not there.
    dispatch_modes: Option<Py<PyAny>>,
    transforms: Option<Py<PyAny>>,
    jit_state: Option<Py<PyAny>>,
    forward_ad: Py<PyAny>,
}

/// Whether tensors are read by their attributes even where there is a table.
static BY_ATTRIBUTES: AtomicBool = AtomicBool::new(false);

/// Reads tensors as with a PyTorch that has no table of DLPack's. For tests.
#[pyfunction]
pub(crate) fn read_by_attributes(on: bool) {
    BY_ATTRIBUTES.store(on, Ordering::Relaxed);
}

impl Torch {
    fn get(py: Python<'_>) -> PyResult<&Torch> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        TORCH.get_or_try_init(py, || Torch::import(py))
    }

    fn import(py: Python<'_>) -> PyResult<Torch> {
        let torch = py.import("torch")?;
        let of = |name: &str| torch.getattr(name).map(Bound::unbind);
        let private = torch.getattr("_C")?;
        let private = |name: &str| private.getattr_opt(name).map(|found| found.map(Bound::unbind));
        let class = torch.getattr("Tensor")?;
        let parameter = torch.getattr("nn")?.getattr("Parameter")?;
        Ok(Torch {
            exchange: Exchange::of(&class),
            tensor: class.unbind(),
            parameter: parameter.unbind(),
            dtypes: [
                (of("float32")?, false, 32),
                (of("bfloat16")?, true, 16),
                (of("float16")?, false, 16),
                (of("float64")?, false, 64),
            ],
            empty_like: of("empty_like")?,
            uint8: of("uint8")?,
            increment_version: py
                .import("torch.autograd.graph")?
                .getattr("increment_version")?
                .unbind(),
            is_grad_enabled: of("is_grad_enabled")?,
            is_autocast_enabled: of("is_autocast_enabled")?,
            get_num_threads: of("get_num_threads")?,
            current_stream: private("_cuda_getCurrentRawStream")?,
            dispatch_modes: private("_len_torch_dispatch_stack")?,
            transforms: private("_are_functorch_transforms_active")?,
            jit_state: private("_get_tracing_state")?,
            forward_ad: py.import("torch.autograd.forward_ad")?.into_any().unbind(),
        })
    }

    /// Whether it is a tensor or a parameter, of no class derived from these.
    fn is_plain(&self, object: &Bound<'_, PyAny>) -> bool {
        let class = object.get_type();
        class.is(&self.tensor) || class.is(&self.parameter)
    }

    /// The address of a tensor's first element, and its facts, if they are such as kernels take.
    fn read(&self, tensor: &Bound<'_, PyAny>) -> PyResult<(Address, Option<Facts>)> {
        let py = tensor.py();
        if !self.is_plain(tensor) && !tensor.is_instance(self.tensor.bind(py))? {
            let text = format!("a {} was given, expected a Tensor", tensor.get_type().name()?);
            return Err(PyTypeError::new_err(text));
        }
        match self.exchange {
            // SAFETY: a tensor, by what was asked just now.
            Some(exchange) if !BY_ATTRIBUTES.load(Ordering::Relaxed) => unsafe { exchange.read(tensor) },
            _ => self.read_attributes(tensor),
        }
    }

    /// As [`read`](Torch::read), by what Python calls them.
    fn read_attributes(&self, tensor: &Bound<'_, PyAny>) -> PyResult<(Address, Option<Facts>)> {
        let py = tensor.py();
        let first = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let known = self.dtypes.iter().find(|(object, ..)| dtype.is(object));
        let device: i32 = tensor.call_method0(intern!(py, "get_device"))?.extract()?;
        let place = if device < 0 {
            intern!(py, "is_cpu")
        } else {
            intern!(py, "is_cuda")
        };
        let (Some((_, is_bfloat, bits)), true) = (known, is_true(tensor, place)?) else {
            return Ok((first, None));
        };
        let shape: Vec<i64> = tensor.getattr(intern!(py, "shape"))?.extract()?;
        let strides: Vec<i64> = tensor.call_method0(intern!(py, "stride"))?.extract()?;
        Ok((first, Facts::new(*is_bfloat, *bits, device, &shape, &strides)))
    }

    /// Whether it is a tensor or a parameter with these facts, and no view that stands for the negative of its memory. What cannot be read
    /// is not: for torch to say something about.
    fn is(&self, object: &Bound<'_, PyAny>, facts: &Facts) -> PyResult<bool> {
        let is_alike = self.is_plain(object) && matches!(self.read(object), Ok((_, Some(found))) if found == *facts);
        Ok(is_alike && !object.call_method0(intern!(object.py(), "is_neg"))?.is_truthy()?)
    }

    /// As [`is`](Torch::is); where there are no facts, it is None.
    fn is_optional(&self, object: &Bound<'_, PyAny>, facts: Option<&Facts>) -> PyResult<bool> {
        match facts {
            Some(facts) => self.is(object, facts),
            None => Ok(object.is_none()),
        }
    }

    /// The address of a tensor's first element.
    fn address(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Address> {
        Ok(self.read(tensor)?.0)
    }

    /// As [`address`](Torch::address), 0 for None.
    fn optional(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Address> {
        if tensor.is_none() { Ok(0) } else { self.address(tensor) }
    }

    /// An uninitialized tensor of the same type, shape, device and order in memory.
    fn empty_like<'py>(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.empty_like.bind(tensor.py()).call1((tensor,))
    }

    /// Whether torch's dispatcher alone sees what is called: no dispatch mode, no transform of torch.func, no forward-mode derivative, no
    /// torch.jit.trace.
    fn is_undisturbed(&self, py: Python<'_>) -> PyResult<bool> {
        let level = self.forward_ad.bind(py).getattr(intern!(py, "_current_level"))?;
        Ok(!answers(py, self.dispatch_modes.as_ref())?
            && !answers(py, self.transforms.as_ref())?
            && level.extract::<i64>()? < 0
            && match &self.jit_state {
                Some(state) => state.bind(py).call0()?.is_none(),
                None => true,
            })
    }
}

/// Whether a function is there and says yes.
fn answers(py: Python<'_>, function: Option<&Py<PyAny>>) -> PyResult<bool> {
    function.map_or(Ok(false), |function| function.bind(py).call0()?.is_truthy())
}

/// An attribute's truth.
fn is_true(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    object.getattr(name)?.is_truthy()
}
