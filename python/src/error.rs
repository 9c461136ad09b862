//! Errors of the library as Python's exceptions.

use isonorm::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};

/// The exception that says the same: what is wrong with values is a `ValueError`, with types a `TypeError`, what no kernel does a
/// `NotImplementedError`, too little memory a `MemoryError`, and what a driver or a plan refuses a `RuntimeError`.
pub(crate) fn exception(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::InvalidDescription { .. }
        | Error::InvalidProblem { .. }
        | Error::LengthMismatch { .. }
        | Error::ShapeMismatch { .. }
        | Error::MissingArgument { .. }
        | Error::UnexpectedArgument { .. }
        | Error::Overlap { .. }
        | Error::Misaligned { .. }
        | Error::InPlace { .. } => PyValueError::new_err(text),
        Error::DTypeMismatch { .. } => PyTypeError::new_err(text),
        Error::Unsupported { .. } => PyNotImplementedError::new_err(text),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}
