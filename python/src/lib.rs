//! What the Python package `isonorm` is in Rust: plans that run on memory which Python holds, by its address, and DLPack.
//!
//! Everything here is private to the package. Its Python half looks at types, shapes and devices, makes outputs, and keeps
//! tensors alive; this half plans, launches, and turns errors into exceptions.

mod arguments;
mod dlpack;
mod engine;
mod error;
mod plan;
mod torch;

use pyo3::prelude::*;

/// The engine of the package isonorm. Not an interface: use `isonorm` and `isonorm.torch`.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::dlpack::{Array, Imported};
    #[pymodule_export]
    use crate::plan::{Plan, cuda_devices, explain};
    #[pymodule_export]
    use crate::torch::{Passes, Site, read_by_attributes};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
