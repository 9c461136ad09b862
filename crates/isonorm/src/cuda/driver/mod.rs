//! The only place that calls the CUDA driver.
//!
//! | file | what it holds |
//! |---|---|
//! | `table.rs` | the driver's functions |
//! | `context.rs` | a GPU's context, and whose turn it is on this thread |
//! | `attribute.rs` | what a GPU says about itself |
//! | `kernel.rs` | modules, functions, launches |
//! | `memory.rs` | the pool, copies, what a pointer points to |
//! | `stream.rs` | streams and events: handles that are destroyed when dropped |
//! | `graph.rs` | executable graphs: of what a stream recorded, and of kernels that are launched again |

mod attribute;
mod context;
mod graph;
mod kernel;
mod memory;
mod stream;
mod table;

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use cudarc::driver::sys;

pub(super) use attribute::properties;
pub(super) use context::{Bound, Context};
pub(super) use graph::{KernelGraph, RawGraph};
pub(super) use kernel::{Function, LoadedModule};
pub(super) use memory::{Location, Pool, copy_from_host, copy_to_host, copy_within, locate, set_zero};
pub(super) use stream::{RawEvent, RawStream};
use table::Table;

use crate::{Error, Result};

/// The driver, initialized; or why there is none.
fn driver() -> Result<&'static Table> {
    static DRIVER: OnceLock<Result<Table>> = OnceLock::new();
    DRIVER.get_or_init(initialize).as_ref().map_err(Clone::clone)
}

fn initialize() -> Result<Table> {
    let missing = |reason: String| Err(Error::NoGpu { reason });
    // SAFETY: loading the driver's library runs its initializers, as every CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        return missing("the CUDA driver (libcuda.so.1, nvcuda.dll) is not installed".into());
    }
    // SAFETY: the library is there.
    let table = match unsafe { Table::load() } {
        Ok(table) => table,
        Err(function) => {
            return missing(format!(
                "the CUDA driver has no {function}; one for CUDA 12.1 or newer is needed"
            ));
        }
    };
    // SAFETY: the first call, with the only flags there are.
    match unsafe { (table.cuInit)(0) } {
        0 => Ok(table),
        code => {
            let (name, reason) = table.describe(code);
            missing(format!("the CUDA driver says: {reason} ({name}, {code})"))
        }
    }
}

/// The newest CUDA version that the driver supports, as 12080 for 12.8.
pub(super) fn version() -> Result<u32> {
    let driver = driver()?;
    let mut version = 0;
    // SAFETY: it writes one number.
    driver.check("cuDriverGetVersion", unsafe {
        (driver.cuDriverGetVersion)(&mut version)
    })?;
    Ok(version as u32)
}

/// How many GPUs there are.
pub(super) fn device_count() -> Result<u32> {
    let driver = driver()?;
    let mut count = 0;
    // SAFETY: it writes one number.
    driver.check("cuDeviceGetCount", unsafe { (driver.cuDeviceGetCount)(&mut count) })?;
    Ok(count as u32)
}

impl Table {
    /// An error's name and the driver's words for it.
    fn describe(&self, code: c_int) -> (String, String) {
        let said = |ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            // SAFETY: it writes one pointer, to a string that lives as long as the library, or null.
            let code = unsafe { ask(code, &mut text) };
            // SAFETY: as above.
            (code == 0 && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let unknown = || "an error that it has no words for".into();
        (
            said(self.cuGetErrorName).unwrap_or_else(|| "unknown".into()),
            said(self.cuGetErrorString).unwrap_or_else(unknown),
        )
    }

    /// What a call returned, as a result.
    fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let (name, reason) = self.describe(code);
        Err(Error::Driver {
            call,
            code,
            name,
            reason,
        })
    }
}
