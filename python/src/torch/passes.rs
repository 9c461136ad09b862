//! A forward and a backward pass on tensors.

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::Torch;
use crate::arguments::{Address, BackwardAddresses, ForwardAddresses};
use crate::plan::Plan;

/// Some kernels want the first element of a tensor there.
const ALIGNMENT: usize = 16;

/// How a normalization is carried out, forward and backward, on tensors that are like those it was made for: their types, shapes, device
/// and order in memory are not looked at.
#[pyclass(frozen, module = "isonorm._core")]
pub(crate) struct Passes {
    forward: Plan,
    backward: PyOnceLock<Plan>,
    backward_problem: String,
    device: i64,
    threads: usize,
    kept: Kept,
    kind: Kind,
    /// No bytes, on the device: more of them are had from it quicker than by naming a type and a device.
    bytes: PyOnceLock<Py<PyAny>>,
}

/// Where in the bytes that a forward pass keeps for its backward pass rstd begins, behind the mean, and how many there are in all.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct Kept {
    rstd: usize,
    bytes: usize,
    /// Whether there are bytes between the parts.
    gaps: bool,
}

/// What the passes read and write besides the input, its parameters and the result.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct Kind {
    /// The residual is a stream: it is added before the normalization, and the sum is a result.
    stream: bool,
    /// Statistics are given.
    given: bool,
    /// The backward pass is that of an activation, too.
    activates: bool,
}

/// Tensors of a forward pass; None for what there is not.
#[derive(Clone, Copy)]
pub(super) struct ForwardTensors<'a, 'py> {
    pub(super) x: &'a Bound<'py, PyAny>,
    pub(super) weight: &'a Bound<'py, PyAny>,
    pub(super) bias: &'a Bound<'py, PyAny>,
    pub(super) residual: &'a Bound<'py, PyAny>,
    pub(super) running: [&'a Bound<'py, PyAny>; 2],
    pub(super) factor: f64,
}

/// Tensors of a backward pass; None for what there is not.
#[derive(Clone, Copy)]
struct BackwardTensors<'a, 'py> {
    dy: &'a Bound<'py, PyAny>,
    dstream: &'a Bound<'py, PyAny>,
    x: &'a Bound<'py, PyAny>,
    weight: &'a Bound<'py, PyAny>,
    bias: &'a Bound<'py, PyAny>,
    residual: &'a Bound<'py, PyAny>,
    running: [&'a Bound<'py, PyAny>; 2],
    saved: &'a Bound<'py, PyAny>,
}

/// The result, the residual stream, and the bytes that are kept.
pub(super) type Results<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// The gradients of x, weight, bias and residual.
type Gradients<'py> = [Option<Bound<'py, PyAny>>; 4];

#[pymethods]
impl Passes {
    /// Of two problem strings, of which the second is planned when it is first run. `device` and `threads` as for a `Plan`; `kept` and
    /// `kind` are objects with these attributes.
    #[new]
    fn new(forward: &str, backward: String, device: i64, threads: usize, kept: Kept, kind: Kind) -> PyResult<Passes> {
        Ok(Passes {
            forward: Plan::new(forward, device, threads, false)?,
            backward: PyOnceLock::new(),
            backward_problem: backward,
            device,
            threads,
            kept,
            kind,
            bytes: PyOnceLock::new(),
        })
    }

    /// The result, the residual stream or None, and what the backward pass needs (bytes) or None; `zeros`: with no byte left as it was.
    #[pyo3(signature = (x, weight, bias, residual, running_mean, running_var, factor, keep, zeros = false))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one call from Python, in which a tuple or a class would cost as much as the call"
    )]
    fn forward<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        weight: &Bound<'py, PyAny>,
        bias: &Bound<'py, PyAny>,
        residual: &Bound<'py, PyAny>,
        running_mean: &Bound<'py, PyAny>,
        running_var: &Bound<'py, PyAny>,
        factor: f64,
        keep: bool,
        zeros: bool,
    ) -> PyResult<Results<'py>> {
        let tensors = ForwardTensors {
            x,
            weight,
            bias,
            residual,
            running: [running_mean, running_var],
            factor,
        };
        self.run_forward(tensors, keep, zeros)
    }

    /// Whether gradients are such as `backward` takes, those of the result and of the stream (or None): they lie in memory as `x` does, and
    /// nobody but autograd has to see them.
    fn takes(&self, x: &Bound<'_, PyAny>, dy: &Bound<'_, PyAny>, dstream: &Bound<'_, PyAny>) -> PyResult<bool> {
        let torch = Torch::get(x.py())?;
        let (_, Some(facts)) = torch.read(x)? else {
            return Ok(false);
        };
        Ok(torch.is(dy, &facts)?
            && (dstream.is_none() || torch.is(dstream, &facts)?)
            && torch.is_undisturbed(x.py())?)
    }

    /// The gradients of x, weight, bias and residual, as far as they are needed, else None. `x` is the stream where there is one; the
    /// residual is only read where there is an activation.
    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn backward<'py>(
        &self,
        dy: &Bound<'py, PyAny>,
        dstream: &Bound<'py, PyAny>,
        x: &Bound<'py, PyAny>,
        weight: &Bound<'py, PyAny>,
        bias: &Bound<'py, PyAny>,
        residual: &Bound<'py, PyAny>,
        running_mean: &Bound<'py, PyAny>,
        running_var: &Bound<'py, PyAny>,
        saved: &Bound<'py, PyAny>,
        needs: [bool; 4],
    ) -> PyResult<Gradients<'py>> {
        let running = [running_mean, running_var];
        let tensors = BackwardTensors {
            dy,
            dstream,
            x,
            weight,
            bias,
            residual,
            running,
            saved,
        };
        self.run_backward(tensors, needs)
    }
}

impl Passes {
    pub(super) fn run_forward<'py>(
        &self,
        tensors: ForwardTensors<'_, 'py>,
        keep: bool,
        zeros: bool,
    ) -> PyResult<Results<'py>> {
        match self.launch_forward(tensors, keep, zeros) {
            Err(error) if error.is_instance_of::<PyNotImplementedError>(tensors.x.py()) => {
                let torch = Torch::get(tensors.x.py())?;
                let [x, residual] = aligned(torch, [tensors.x, tensors.residual])?;
                let tensors = ForwardTensors {
                    x: &x,
                    residual: &residual,
                    ..tensors
                };
                self.launch_forward(tensors, keep, zeros)
            }
            result => result,
        }
    }

    fn launch_forward<'py>(&self, tensors: ForwardTensors<'_, 'py>, keep: bool, zeros: bool) -> PyResult<Results<'py>> {
        let py = tensors.x.py();
        let torch = Torch::get(py)?;
        let y = torch.empty_like(tensors.x)?;
        let stream = self.kind.stream.then(|| torch.empty_like(tensors.x)).transpose()?;
        let saved = match keep && !self.kind.given {
            true => Some(self.empty_kept(torch, tensors.x, zeros)?),
            false => None,
        };
        let [mean, rstd] = self.parts(torch, saved.as_ref())?;
        let addresses = ForwardAddresses {
            x: torch.address(tensors.x)?,
            y: torch.address(&y)?,
            weight: torch.optional(tensors.weight)?,
            bias: torch.optional(tensors.bias)?,
            residual: torch.optional(tensors.residual)?,
            stream: stream.as_ref().map_or(Ok(0), |stream| torch.address(stream))?,
            running_mean: torch.optional(tensors.running[0])?,
            running_var: torch.optional(tensors.running[1])?,
            factor: tensors.factor,
            mean,
            rstd,
        };
        self.forward
            .run_forward(py, self.current_stream(py, torch)?, &addresses)?;
        Ok((y, stream, saved))
    }

    fn run_backward<'py>(&self, tensors: BackwardTensors<'_, 'py>, needs: [bool; 4]) -> PyResult<Gradients<'py>> {
        match self.launch_backward(tensors, needs) {
            Err(error) if error.is_instance_of::<PyNotImplementedError>(tensors.x.py()) => {
                let torch = Torch::get(tensors.x.py())?;
                let [dy, dstream, x, residual] =
                    aligned(torch, [tensors.dy, tensors.dstream, tensors.x, tensors.residual])?;
                let tensors = BackwardTensors {
                    dy: &dy,
                    dstream: &dstream,
                    x: &x,
                    residual: &residual,
                    ..tensors
                };
                self.launch_backward(tensors, needs)
            }
            result => result,
        }
    }

    fn launch_backward<'py>(
        &self,
        tensors: BackwardTensors<'_, 'py>,
        [needs_x, needs_weight, needs_bias, needs_residual]: [bool; 4],
    ) -> PyResult<Gradients<'py>> {
        let BackwardTensors {
            dy,
            dstream,
            x,
            weight,
            bias,
            residual,
            running,
            saved,
        } = tensors;
        let py = x.py();
        let torch = Torch::get(py)?;
        let Kind {
            stream,
            given,
            activates,
        } = self.kind;
        let like = |tensor, needed: bool| needed.then(|| torch.empty_like(tensor)).transpose();
        let address =
            |tensor: &Option<Bound<'py, PyAny>>| tensor.as_ref().map_or(Ok(0), |tensor| torch.address(tensor));
        let input = |tensor, needed: bool| if needed { torch.optional(tensor) } else { Ok(0) };
        let dx = like(x, needs_x || stream && needs_residual)?;
        let dweight = like(weight, needs_weight)?;
        let dbias = like(bias, needs_bias)?;
        // Without an activation the residual's gradient is that of the result; a stream's is that of x.
        let dresidual = like(x, needs_residual && !stream && activates)?;
        let [mean, rstd] = match given {
            true => [0; 2],
            false => self.parts(torch, Some(saved))?,
        };
        let addresses = BackwardAddresses {
            x: torch.address(x)?,
            dy: torch.address(dy)?,
            dx: address(&dx)?,
            weight: torch.optional(weight)?,
            // What an activation's derivative depends on.
            bias: input(bias, activates)?,
            residual: input(residual, activates && !stream)?,
            dstream: torch.optional(dstream)?,
            running_mean: input(running[0], given)?,
            running_var: input(running[1], given)?,
            mean,
            rstd,
            means: [0; 2],
            dweight: address(&dweight)?,
            dbias: address(&dbias)?,
            dresidual: address(&dresidual)?,
        };
        let plan = self.backward.get_or_try_init(py, || {
            Plan::new(&self.backward_problem, self.device, self.threads, false)
        })?;
        plan.run_backward(py, self.current_stream(py, torch)?, &addresses)?;
        let dresidual = match dresidual {
            None if needs_residual && stream => dx.clone(),
            None if needs_residual => Some(dy.clone()),
            dresidual => dresidual,
        };
        Ok([dx.filter(|_| needs_x), dweight, dbias, dresidual])
    }

    /// Memory for what is kept, on the tensor's device.
    fn empty_kept<'py>(&self, torch: &Torch, x: &Bound<'py, PyAny>, zeros: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        let bytes = self.bytes.get_or_try_init(py, || {
            let options = PyDict::new(py);
            options.set_item(intern!(py, "dtype"), &torch.uint8)?;
            let none = x.call_method(intern!(py, "new_empty"), (0,), Some(&options))?;
            Ok::<_, PyErr>(none.unbind())
        })?;
        let make = match zeros && self.kept.gaps {
            true => intern!(py, "new_zeros"),
            false => intern!(py, "new_empty"),
        };
        bytes.bind(py).call_method1(make, (self.kept.bytes,))
    }

    /// The addresses of mean and rstd in what is kept, 0 for those that there are not.
    fn parts(&self, torch: &Torch, saved: Option<&Bound<'_, PyAny>>) -> PyResult<[Address; 2]> {
        let Some(saved) = saved else {
            return Ok([0; 2]);
        };
        let (first, rstd) = (torch.address(saved)?, self.kept.rstd);
        Ok([if rstd > 0 { first } else { 0 }, first + rstd])
    }

    /// torch's current stream of the GPU; 0 on a CPU.
    fn current_stream(&self, py: Python<'_>, torch: &Torch) -> PyResult<usize> {
        if self.device < 0 {
            return Ok(0);
        }
        let function = torch.current_stream.as_ref();
        let function = function.ok_or_else(|| PyRuntimeError::new_err("this PyTorch was built without CUDA"))?;
        function.bind(py).call1((self.device,))?.extract()
    }
}

/// The same tensors, each copied if it does not start where kernels want it to; None stays None.
fn aligned<'py, const N: usize>(torch: &Torch, tensors: [&Bound<'py, PyAny>; N]) -> PyResult<[Bound<'py, PyAny>; N]> {
    let mut result = tensors.map(Bound::clone);
    for tensor in &mut result {
        if torch.optional(tensor)? % ALIGNMENT != 0 {
            *tensor = tensor.call_method0(intern!(tensor.py(), "clone"))?;
        }
    }
    Ok(result)
}
