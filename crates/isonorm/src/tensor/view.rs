//! Borrowed memory with an element type: what a framework hands over.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use half::{bf16, f16};
use isonorm_math::{Bf16, F16};

use crate::DType;

mod sealed {
    pub trait Sealed {}
}

/// An element type that a tensor can have: `f32`, `f64`, [`half::f16`], [`half::bf16`].
pub trait Scalar: sealed::Sealed + Copy + Default + PartialEq + Send + Sync + fmt::Debug + 'static {
    /// The same, as a value.
    const DTYPE: DType;

    /// The nearest value of this type, ties to even.
    fn from_f64(value: f64) -> Self;

    /// The value as `f64`, exactly.
    fn to_f64(self) -> f64;
}

macro_rules! scalar {
    ($type:ty, $dtype:expr, $from:expr, $to:expr) => {
        impl sealed::Sealed for $type {}
        impl Scalar for $type {
            const DTYPE: DType = $dtype;

            fn from_f64(value: f64) -> Self {
                $from(value)
            }

            fn to_f64(self) -> f64 {
                $to(self)
            }
        }
    };
}

scalar!(f16, DType::F16, |v| f16::from_f32(to_odd(v)), f16::to_f64);
scalar!(bf16, DType::Bf16, |v| bf16::from_f32(to_odd(v)), bf16::to_f64);
scalar!(f32, DType::F32, |v| v as f32, f64::from);
scalar!(f64, DType::F64, |v| v, |v| v);

/// `v` in `f32`, its last bit set where something was cut off: rounding that to 16 bits is rounding `v` once (rounding to the
/// nearest `f32` first would round twice, and half a unit in the last place is sometimes the wrong half).
fn to_odd(v: f64) -> f32 {
    let nearest = v as f32;
    if f64::from(nearest) == v || !nearest.is_finite() {
        return nearest;
    }
    let outward = f64::from(nearest).abs() > v.abs();
    f32::from_bits((nearest.to_bits() - u32::from(outward)) | 1)
}

/// Shared, contiguous elements of a type known at run time.
#[derive(Clone, Copy)]
pub struct View<'a> {
    ptr: NonNull<u8>,
    len: usize,
    dtype: DType,
    lifetime: PhantomData<&'a [u8]>,
}

/// Exclusive, contiguous elements of a type known at run time.
pub struct ViewMut<'a> {
    ptr: NonNull<u8>,
    len: usize,
    dtype: DType,
    lifetime: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `View` is a shared slice of plain numbers.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}
// SAFETY: a `ViewMut` is an exclusive slice of plain numbers.
unsafe impl Send for ViewMut<'_> {}
// SAFETY: `&ViewMut` gives no access to the elements.
unsafe impl Sync for ViewMut<'_> {}

impl<'a> View<'a> {
    /// `len` elements of type `dtype` at `ptr`.
    ///
    /// # Safety
    /// The elements are initialized and stay readable, and unwritten by others, for `'a`. `ptr` need not be aligned: that
    /// is checked, with a clear error, before any element is read.
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize, dtype: DType) -> View<'a> {
        View {
            ptr,
            len,
            dtype,
            lifetime: PhantomData,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements' type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The values as `f64`, exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        fn values<T: Scalar>(view: &View<'_>) -> Vec<f64> {
            let first = view.ptr.cast::<T>();
            (0..view.len)
                // SAFETY: a view is `len` initialized, readable elements of its type, possibly misaligned.
                .map(|i| unsafe { first.add(i).read_unaligned() }.to_f64())
                .collect()
        }
        match self.dtype {
            DType::F16 => values::<f16>(self),
            DType::Bf16 => values::<bf16>(self),
            DType::F32 => values::<f32>(self),
            DType::F64 => values::<f64>(self),
        }
    }

    /// The address of the first element.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }
}

impl<'a> ViewMut<'a> {
    /// `len` elements of type `dtype` at `ptr`.
    ///
    /// # Safety
    /// The elements are initialized and nobody else reads or writes them for `'a`, except that an overlap with another
    /// argument of the same call is allowed here and refused there. `ptr` need not be aligned: that is checked, with a clear
    /// error, before any element is touched.
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize, dtype: DType) -> ViewMut<'a> {
        ViewMut {
            ptr,
            len,
            dtype,
            lifetime: PhantomData,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements' type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The address of the first element.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// The same elements, exclusively, for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut {
            ptr: self.ptr,
            len: self.len,
            dtype: self.dtype,
            lifetime: PhantomData,
        }
    }

    /// The same elements, shared, for as long as this view is borrowed.
    pub fn as_view(&self) -> View<'_> {
        View {
            ptr: self.ptr,
            len: self.len,
            dtype: self.dtype,
            lifetime: PhantomData,
        }
    }
}

impl<'a, T: Scalar> From<&'a [T]> for View<'a> {
    fn from(slice: &'a [T]) -> View<'a> {
        View {
            ptr: NonNull::from(slice).cast(),
            len: slice.len(),
            dtype: T::DTYPE,
            lifetime: PhantomData,
        }
    }
}

impl<'a, T: Scalar> From<&'a Vec<T>> for View<'a> {
    fn from(vec: &'a Vec<T>) -> View<'a> {
        View::from(vec.as_slice())
    }
}

impl<'a, T: Scalar> From<&'a mut [T]> for ViewMut<'a> {
    fn from(slice: &'a mut [T]) -> ViewMut<'a> {
        ViewMut {
            len: slice.len(),
            ptr: NonNull::from(slice).cast(),
            dtype: T::DTYPE,
            lifetime: PhantomData,
        }
    }
}

impl<'a, T: Scalar> From<&'a mut Vec<T>> for ViewMut<'a> {
    fn from(vec: &'a mut Vec<T>) -> ViewMut<'a> {
        ViewMut::from(vec.as_mut_slice())
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} x {})", self.len, self.dtype)
    }
}

impl fmt::Debug for ViewMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewMut({} x {})", self.len, self.dtype)
    }
}

// `Element`s of isonorm-math and the `half` crate's types are the same 16 bits.
const _: () = assert!(size_of::<F16>() == size_of::<f16>() && size_of::<Bf16>() == size_of::<bf16>());
