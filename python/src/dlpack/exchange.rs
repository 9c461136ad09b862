//! A library's table of C functions for tensors, `DLPackExchangeAPI`: to read one takes nanoseconds, and no call of Python's.
//!
//! PyTorch has it since version 2.10, as `torch.Tensor.__dlpack_c_exchange_api__`.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;

use super::tensor::{Facts, Tensor};

const NAME: &CStr = c"dlpack_exchange_api";
/// The version of DLPack whose table this is.
const MAJOR: u32 = 1;

#[repr(C)]
struct Header {
    version: [u32; 2],
    previous: *const Header,
}

/// Writes what a tensor is; it is the producer's, and stands as long as the object is as it is. Other than 0: there is an exception.
type Read = unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int;

#[repr(C)]
struct Table {
    header: Header,
    allocate: *const c_void,
    managed_from_object: *const c_void,
    managed_to_object: *const c_void,
    read: Option<Read>,
    current_stream: *const c_void,
}

/// How to read the tensors of one class.
#[derive(Clone, Copy)]
pub(crate) struct Exchange(Read);

impl Exchange {
    /// That of a class of tensors, if it has one that this knows.
    pub(crate) fn of(class: &Bound<'_, PyAny>) -> Option<Exchange> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?;
        // SAFETY: a capsule of this name holds the address of a table, which lives as long as the process; a table of an older version
        // stands behind a newer one.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) == 0 {
                return None;
            }
            let mut header: *const Header = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast();
            while !header.is_null() && (*header).version[0] != MAJOR {
                header = (*header).previous;
            }
            let table = header.cast::<Table>().as_ref()?;
            table.read.map(Exchange)
        }
    }

    /// The address of a tensor's first element, and its facts, if they are such as kernels take. An error for a tensor that has no memory in
    /// the order of its strides.
    ///
    /// # Safety
    /// The object is of the class, or of one derived from it.
    pub(crate) unsafe fn read(self, object: &Bound<'_, PyAny>) -> PyResult<(usize, Option<Facts>)> {
        let mut tensor = MaybeUninit::<Tensor>::uninit();
        // SAFETY: the caller's; where it returns 0, it has written all of the structure.
        let tensor = unsafe {
            if (self.0)(object.as_ptr().cast(), tensor.as_mut_ptr()) != 0 {
                return Err(PyErr::fetch(object.py()));
            }
            tensor.assume_init()
        };
        let first = match tensor.data.is_null() {
            true => 0,
            false => (tensor.data as usize).wrapping_add(tensor.byte_offset as usize),
        };
        Ok((first, Facts::of(&tensor)))
    }
}
