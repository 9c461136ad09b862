//! What a module found out about its last call, so that a next one like it need not look at everything again.
//!
//! What a plan depends on is compared with what it was; anything else than that, whatever it is, takes the long way, `normalize` in
//! `_normalize.py`.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::passes::ForwardTensors;
use super::{Passes, Torch, is_true};
use crate::dlpack::Facts;

/// The last call of a module. A copy of the module begins with one of its own.
#[pyclass(frozen, module = "isonorm._core")]
#[derive(Default)]
pub(crate) struct Site {
    last: Mutex<Option<Arc<Call>>>,
}

/// A call that ran as it was given: nothing was copied or converted.
struct Call {
    /// What was asked for, apart from tensors; equal to that of a call that asks for the same.
    config: Py<PyAny>,
    x: Facts,
    weight: Option<Facts>,
    bias: Option<Facts>,
    residual: Option<Facts>,
    running: Option<Facts>,
    /// Of the CPU; none for a GPU.
    threads: Option<usize>,
    how: How,
    passes: Py<Passes>,
    /// `Normalize.apply`, and what it is given besides tensors: the plans, running statistics and their factor.
    apply: Py<PyAny>,
    plans: Py<PyAny>,
}

/// How a call is carried out.
#[derive(Clone, Copy, FromPyObject)]
struct How {
    /// A backward pass may follow.
    keeps: bool,
    /// Autocast would convert its arguments.
    casts: bool,
    /// Running statistics are written.
    updates: bool,
}

#[pymethods]
impl Site {
    #[new]
    fn new() -> Site {
        Site::default()
    }

    /// A copy of a module begins with a site of its own.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, Bound<'py, PyTuple>) {
        (py.get_type::<Site>(), PyTuple::empty(py))
    }

    #[expect(unused_variables, reason = "what Python gives")]
    fn __deepcopy__(&self, memo: &Bound<'_, PyAny>) -> Site {
        Site::default()
    }

    /// Keeps a call that ran as it was given. `how` is an object with the attributes `keeps`, `casts` and `updates`.
    #[expect(clippy::too_many_arguments, reason = "what a call is")]
    fn remember(
        &self,
        config: Py<PyAny>,
        x: &Bound<'_, PyAny>,
        weight: &Bound<'_, PyAny>,
        bias: &Bound<'_, PyAny>,
        residual: &Bound<'_, PyAny>,
        running_mean: &Bound<'_, PyAny>,
        how: How,
        passes: Py<Passes>,
        plans: Py<PyAny>,
        apply: Py<PyAny>,
    ) -> PyResult<()> {
        let py = x.py();
        let torch = Torch::get(py)?;
        let facts = |tensor: &Bound<'_, PyAny>| match tensor.is_none() {
            true => Ok(None),
            false => torch.read(tensor).map(|(_, facts)| facts),
        };
        let call = match facts(x)? {
            Some(x) => Some(Arc::new(Call {
                threads: match x.gpu() {
                    Some(_) => None,
                    None => Some(torch.get_num_threads.bind(py).call0()?.extract()?),
                },
                x,
                weight: facts(weight)?,
                bias: facts(bias)?,
                residual: facts(residual)?,
                running: facts(running_mean)?,
                config,
                how,
                passes,
                apply,
                plans,
            })),
            None => None,
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, call);
        // What goes with the call before may run Python's code, and that wait for other threads.
        drop(last);
        drop(before);
        Ok(())
    }

    /// The result, if this call is like the last one; None if it is not known to be. Torch must not be compiling.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call from Python, in which a tuple or a class would cost as much as the call"
    )]
    fn again<'py>(
        &self,
        config: &Bound<'py, PyAny>,
        x: &Bound<'py, PyAny>,
        weight: &Bound<'py, PyAny>,
        bias: &Bound<'py, PyAny>,
        residual: &Bound<'py, PyAny>,
        running_mean: &Bound<'py, PyAny>,
        running_var: &Bound<'py, PyAny>,
        factor: f64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(call) = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            return Ok(None);
        };
        let tensors = ForwardTensors {
            x,
            weight,
            bias,
            residual,
            running: [running_mean, running_var],
            factor,
        };
        let torch = Torch::get(x.py())?;
        if !config.eq(&call.config)? || !call.is_like(torch, tensors)? {
            return Ok(None);
        }
        call.run(torch, tensors).map(Some)
    }
}

impl Call {
    /// Whether a call with these tensors is carried out as this one was.
    fn is_like(&self, torch: &Torch, tensors: ForwardTensors<'_, '_>) -> PyResult<bool> {
        let ForwardTensors {
            x,
            weight,
            bias,
            residual,
            running,
            ..
        } = tensors;
        let py = x.py();
        let [mean, var] = running;
        let as_before = torch.is(x, &self.x)?
            && torch.is_optional(weight, self.weight.as_ref())?
            && torch.is_optional(bias, self.bias.as_ref())?
            && torch.is_optional(residual, self.residual.as_ref())?
            && torch.is_optional(mean, self.running.as_ref())?
            && torch.is_optional(var, self.running.as_ref())?
            && !(self.running.is_some() && (requires_grad(mean)? || requires_grad(var)?))
            && self.threads_are(torch, py)?
            && torch.is_undisturbed(py)?
            && !(self.how.casts && torch.is_autocast_enabled.bind(py).call0()?.is_truthy()?);
        Ok(as_before && self.how.keeps == keeps(torch, [x, weight, bias, residual])?)
    }

    fn threads_are(&self, torch: &Torch, py: Python<'_>) -> PyResult<bool> {
        Ok(match self.threads {
            Some(threads) => torch.get_num_threads.bind(py).call0()?.extract::<usize>()? == threads,
            None => true,
        })
    }

    /// The same with other tensors.
    fn run<'py>(&self, torch: &Torch, tensors: ForwardTensors<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let ForwardTensors {
            x,
            weight,
            bias,
            residual,
            running: [mean, var],
            factor,
        } = tensors;
        let py = x.py();
        if self.how.updates {
            for statistic in [mean, var] {
                torch.increment_version.bind(py).call1((statistic,))?;
            }
        }
        if self.how.keeps {
            let launch = (&self.plans, mean, var, factor);
            return self.apply.bind(py).call1((x, weight, bias, residual, launch));
        }
        let (y, stream, _) = self.passes.get().run_forward(tensors, false, false)?;
        match stream {
            Some(stream) => Ok((y, stream).into_pyobject(py)?.into_any()),
            None => Ok(y),
        }
    }
}

/// Whether a backward pass may follow.
fn keeps(torch: &Torch, tensors: [&Bound<'_, PyAny>; 4]) -> PyResult<bool> {
    let py = tensors[0].py();
    for tensor in tensors {
        if !tensor.is_none() && requires_grad(tensor)? {
            return torch.is_grad_enabled.bind(py).call0()?.is_truthy();
        }
    }
    Ok(false)
}

fn requires_grad(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    is_true(tensor, intern!(tensor.py(), "requires_grad"))
}
