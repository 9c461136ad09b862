//! The structure of a tensor, and what a plan depends on of it.

use std::ffi::c_void;

pub(super) const CPU: i32 = 1;
pub(super) const CUDA: i32 = 2;
pub(super) const FLOAT: u8 = 2;
pub(super) const BFLOAT: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Element {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
pub(super) struct Tensor {
    pub(super) data: *mut c_void,
    pub(super) device_type: i32,
    pub(super) device_id: i32,
    pub(super) ndim: i32,
    pub(super) element: Element,
    pub(super) shape: *mut i64,
    /// In elements; null for the order of the shape.
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

/// More dimensions than this no kernel takes.
const MOST_DIMENSIONS: usize = 8;

/// A tensor's type, device, shape and strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    element: Element,
    device_type: i32,
    device_id: i32,
    ndim: usize,
    shape: [i64; MOST_DIMENSIONS],
    strides: [i64; MOST_DIMENSIONS],
}

impl Facts {
    /// None of what no kernel takes: other types than floating ones, other devices than CPUs and NVIDIA's GPUs, more than eight dimensions.
    pub(super) fn of(tensor: &Tensor) -> Option<Facts> {
        let ndim = usize::try_from(tensor.ndim).ok()?;
        let is_float = tensor.element.lanes == 1 && [FLOAT, BFLOAT].contains(&tensor.element.code);
        if !is_float || ![CPU, CUDA].contains(&tensor.device_type) || ndim > MOST_DIMENSIONS || tensor.strides.is_null()
        {
            return None;
        }
        let sizes = |of: *const i64| {
            let mut sizes = [0; MOST_DIMENSIONS];
            if ndim > 0 {
                // SAFETY: both have `ndim` entries.
                sizes[..ndim].copy_from_slice(unsafe { std::slice::from_raw_parts(of, ndim) });
            }
            sizes
        };
        Some(Facts {
            element: tensor.element,
            device_type: tensor.device_type,
            device_id: tensor.device_id,
            ndim,
            shape: sizes(tensor.shape),
            strides: sizes(tensor.strides),
        })
    }

    /// Of a tensor that has no such structure: its type by its name and bits, `device` a GPU's number, or -1 for the CPU.
    pub(crate) fn new(is_bfloat: bool, bits: u8, device: i32, shape: &[i64], strides: &[i64]) -> Option<Facts> {
        let mut whole = [[0; MOST_DIMENSIONS]; 2];
        for (whole, part) in whole.iter_mut().zip([shape, strides]) {
            whole.get_mut(..part.len())?.copy_from_slice(part);
        }
        let [shape_, strides] = whole;
        Some(Facts {
            element: Element {
                code: if is_bfloat { BFLOAT } else { FLOAT },
                bits,
                lanes: 1,
            },
            device_type: if device < 0 { CPU } else { CUDA },
            device_id: device.max(0),
            ndim: shape.len(),
            shape: shape_,
            strides,
        })
    }

    /// A GPU's number, if it lies on one.
    pub(crate) fn gpu(&self) -> Option<i32> {
        (self.device_type == CUDA).then_some(self.device_id)
    }
}
