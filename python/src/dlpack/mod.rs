//! Arrays of other libraries, and ours for them: DLPack (the C structures of its version 1, and those of before).
//!
//! <https://dmlc.github.io/dlpack/latest/>

mod exchange;
mod tensor;

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use isonorm::{DType, Shape};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, ffi};

pub(crate) use self::exchange::Exchange;
pub(crate) use self::tensor::Facts;
use self::tensor::{BFLOAT, CPU, Element, FLOAT, Tensor};

const READ_ONLY: u64 = 1;

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What both structures are to a capsule.
trait InCapsule: Sized {
    const NAME: &'static CStr;
    const USED: &'static CStr;

    fn tensor(&self) -> &Tensor;

    fn is_read_only(&self) -> bool;

    /// # Safety
    /// It is not used any more.
    unsafe fn delete(this: NonNull<Self>);
}

impl InCapsule for Managed {
    const NAME: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";

    fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    fn is_read_only(&self) -> bool {
        false
    }

    unsafe fn delete(this: NonNull<Self>) {
        // SAFETY: the structure is whole until its deleter is called, which is done once.
        unsafe {
            if let Some(deleter) = this.as_ref().deleter {
                deleter(this.as_ptr());
            }
        }
    }
}

impl InCapsule for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";

    fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    fn is_read_only(&self) -> bool {
        self.flags & READ_ONLY != 0
    }

    unsafe fn delete(this: NonNull<Self>) {
        // SAFETY: as above.
        unsafe {
            if let Some(deleter) = this.as_ref().deleter {
                deleter(this.as_ptr());
            }
        }
    }
}

/// The structure in a capsule of that name; it is the caller's from then on.
fn take<T: InCapsule>(capsule: &Bound<'_, PyAny>) -> Option<NonNull<T>> {
    // SAFETY: a capsule of this name holds such a structure; renaming it says that it was taken, and nobody else does so
    // meanwhile, for this thread is attached to Python.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), T::NAME.as_ptr()) == 0 {
            return None;
        }
        let held = NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), T::NAME.as_ptr()).cast())?;
        (ffi::PyCapsule_SetName(capsule.as_ptr(), T::USED.as_ptr()) == 0).then_some(held)
    }
}

/// An array of another library, in the memory of the host; given back when this is dropped.
#[pyclass(frozen, module = "isonorm._core")]
pub(crate) struct Imported {
    #[expect(dead_code, reason = "held until the array is let go")]
    held: Held,
    /// The address of its first element.
    #[pyo3(get)]
    address: usize,
    #[pyo3(get)]
    shape: Vec<i64>,
    /// In elements.
    #[pyo3(get)]
    strides: Vec<i64>,
    /// `f16`, `bf16`, `f32` or `f64`.
    #[pyo3(get)]
    dtype: &'static str,
    #[pyo3(get)]
    read_only: bool,
}

enum Held {
    Managed(NonNull<Managed>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: the producer lets go of it on any thread; it is only looked at otherwise.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: taken once, deleted once.
        unsafe {
            match self {
                Held::Managed(held) => InCapsule::delete(*held),
                Held::Versioned(held) => InCapsule::delete(*held),
            }
        }
    }
}

#[pymethods]
impl Imported {
    /// Takes what a capsule from `__dlpack__` holds.
    #[new]
    fn new(capsule: &Bound<'_, PyAny>) -> PyResult<Imported> {
        if let Some(held) = take::<Versioned>(capsule) {
            // SAFETY: just taken.
            return Imported::of(unsafe { held.as_ref() }, Held::Versioned(held));
        }
        let held = take::<Managed>(capsule).ok_or_else(|| {
            PyTypeError::new_err("__dlpack__ gave no capsule of a tensor, or one that was used before")
        })?;
        // SAFETY: just taken.
        Imported::of(unsafe { held.as_ref() }, Held::Managed(held))
    }
}

impl Imported {
    fn of(held: &impl InCapsule, owner: Held) -> PyResult<Imported> {
        let tensor = held.tensor();
        if tensor.device_type != CPU {
            let text = format!(
                "an array of DLPack's device type {} was given; isonorm's functions for arrays work in the memory of the host (1)",
                tensor.device_type
            );
            return Err(PyBufferError::new_err(text));
        }
        let dtype = match (tensor.element.code, tensor.element.bits, tensor.element.lanes) {
            (FLOAT, 16, 1) => DType::F16,
            (BFLOAT, 16, 1) => DType::Bf16,
            (FLOAT, 32, 1) => DType::F32,
            (FLOAT, 64, 1) => DType::F64,
            (code, bits, lanes) => {
                let text = format!(
                    "elements of DLPack's type {code} with {bits} bits and {lanes} lanes; expected f16, bf16, f32 or f64"
                );
                return Err(PyTypeError::new_err(text));
            }
        };
        let ndim =
            usize::try_from(tensor.ndim).map_err(|_| PyValueError::new_err("a negative number of dimensions"))?;
        let sizes = |of: *const i64| match ndim {
            0 => Vec::new(),
            // SAFETY: both have `ndim` entries.
            _ => unsafe { std::slice::from_raw_parts(of, ndim).to_vec() },
        };
        let shape = sizes(tensor.shape);
        let strides = match tensor.strides.is_null() {
            true => row_major(&shape),
            false => sizes(tensor.strides),
        };
        Ok(Imported {
            address: (tensor.data as usize).wrapping_add(tensor.byte_offset as usize),
            shape,
            strides,
            dtype: dtype.name(),
            read_only: held.is_read_only(),
            held: owner,
        })
    }
}

fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}

/// Elements on whole cache lines.
type Lines = Arc<[Line]>;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "memory is handed out by its address")] [u64; 8]);

/// A result, for libraries that take DLPack.
#[pyclass(frozen, module = "isonorm._core")]
pub(crate) struct Array {
    memory: Lines,
    #[pyo3(get)]
    shape: Vec<i64>,
    /// In elements.
    #[pyo3(get)]
    strides: Vec<i64>,
    dtype: DType,
}

/// What a capsule's consumer keeps alive.
struct Export<T> {
    managed: T,
    #[expect(dead_code, reason = "what the structure points to")]
    sizes: [Vec<i64>; 2],
    #[expect(dead_code, reason = "held until the consumer lets go")]
    memory: Lines,
}

/// Frees what [`Array::export`] made.
unsafe extern "C" fn drop_managed(managed: *mut Managed) {
    // SAFETY: the context is the box that this structure is in, and a deleter is called once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Export<Managed>>()) });
}

/// As [`drop_managed`].
unsafe extern "C" fn drop_versioned(managed: *mut Versioned) {
    // SAFETY: as above.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Export<Versioned>>()) });
}

/// Called when a capsule goes: if nobody took what is in it, it goes, too.
unsafe extern "C" fn drop_capsule<T: InCapsule>(capsule: *mut ffi::PyObject) {
    // SAFETY: the name says what is in it, and that it was not taken.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, T::NAME.as_ptr()) != 0
            && let Some(held) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast::<T>())
        {
            T::delete(held);
        }
    }
}

#[pymethods]
impl Array {
    /// Zeros of a type (`f16`, `bf16`, `f32`, `f64`), with strides in elements that reach every element of the memory once.
    #[new]
    fn new(shape: Vec<i64>, strides: Vec<i64>, dtype: &str) -> PyResult<Array> {
        let dtype: DType = dtype.parse().map_err(PyValueError::new_err)?;
        let sizes: Option<Vec<usize>> = shape.iter().map(|&size| size.try_into().ok()).collect();
        let elements = sizes
            .and_then(|sizes| Shape::try_from(sizes).ok())
            .and_then(|shape| shape.elements());
        let elements = elements.ok_or_else(|| PyValueError::new_err(format!("an array of shape {shape:?}")))?;
        if shape.len() != strides.len() {
            return Err(PyValueError::new_err(format!(
                "shape {shape:?} with strides {strides:?}"
            )));
        }
        let lines = (elements * dtype.bytes()).div_ceil(size_of::<Line>());
        Ok(Array {
            memory: std::iter::repeat_n(Line([0; 8]), lines).collect(),
            shape,
            strides,
            dtype,
        })
    }

    /// The address of its first element.
    #[getter]
    fn address(&self) -> usize {
        self.memory.as_ptr() as usize
    }

    /// `f16`, `bf16`, `f32` or `f64`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// A capsule of this memory.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() || dl_device.is_some_and(|device| device != (CPU, 0)) || copy == Some(true) {
            return Err(PyBufferError::new_err(
                "this array is in the memory of the host, and gives no copies",
            ));
        }
        match max_version {
            Some((major, _)) if major >= 1 => {
                let make = |tensor, context| Versioned {
                    version: [1, 0],
                    context,
                    deleter: Some(drop_versioned),
                    flags: 0,
                    tensor,
                };
                self.export(py, make)
            }
            _ => {
                let make = |tensor, context| Managed {
                    tensor,
                    context,
                    deleter: Some(drop_managed),
                };
                self.export(py, make)
            }
        }
    }

    /// The CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }
}

impl Array {
    fn export<'py, T: InCapsule>(
        &self,
        py: Python<'py>,
        make: impl FnOnce(Tensor, *mut c_void) -> T,
    ) -> PyResult<Bound<'py, PyAny>> {
        let code = if self.dtype == DType::Bf16 { BFLOAT } else { FLOAT };
        let mut tensor = Tensor {
            data: self.memory.as_ptr() as *mut c_void,
            device_type: CPU,
            device_id: 0,
            ndim: self.shape.len() as i32,
            element: Element {
                code,
                bits: 8 * self.dtype.bytes() as u8,
                lanes: 1,
            },
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let export = Box::into_raw(Box::<Export<T>>::new_uninit());
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        (tensor.shape, tensor.strides) = (shape.as_mut_ptr(), strides.as_mut_ptr());
        let whole = Export {
            managed: make(tensor, export.cast()),
            sizes: [shape, strides],
            memory: self.memory.clone(),
        };
        // SAFETY: just allocated for it; the capsule then has a structure of its name, which its consumer or its destructor deletes.
        unsafe {
            (*export).write(whole);
            let export = export.cast::<Export<T>>();
            let managed = ptr::addr_of_mut!((*export).managed);
            let capsule = ffi::PyCapsule_New(managed.cast(), T::NAME.as_ptr(), Some(drop_capsule::<T>));
            match Bound::from_owned_ptr_or_err(py, capsule) {
                Ok(capsule) => capsule.into_bound_py_any(py),
                Err(error) => {
                    drop(Box::from_raw(export));
                    Err(error)
                }
            }
        }
    }
}
