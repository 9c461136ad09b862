//! An owned, contiguous tensor: what the layers take and return.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::{Scalar, View, ViewMut};
use crate::{DType, Error, Layout, Result, Shape};

/// The elements of a [`Tensor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TensorData {
    /// binary16 elements.
    F16(Vec<f16>),
    /// bfloat16 elements.
    Bf16(Vec<bf16>),
    /// binary32 elements.
    F32(Vec<f32>),
    /// binary64 elements.
    F64(Vec<f64>),
}

/// Runs `$body` with `$v` bound to the vector inside.
macro_rules! each {
    ($data:expr, $v:ident => $body:expr) => {
        match $data {
            TensorData::F16($v) => $body,
            TensorData::Bf16($v) => $body,
            TensorData::F32($v) => $body,
            TensorData::F64($v) => $body,
        }
    };
}

macro_rules! data_from_vec {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<Vec<$type>> for TensorData {
            fn from(v: Vec<$type>) -> TensorData {
                TensorData::$variant(v)
            }
        }
    )*};
}

data_from_vec!(f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64);

impl TensorData {
    /// `len` zeros of this type.
    pub fn zeros(dtype: DType, len: usize) -> TensorData {
        match dtype {
            DType::F16 => vec![f16::ZERO; len].into(),
            DType::Bf16 => vec![bf16::ZERO; len].into(),
            DType::F32 => vec![0f32; len].into(),
            DType::F64 => vec![0f64; len].into(),
        }
    }

    /// These values, each rounded to the nearest of this type.
    pub fn from_f64(dtype: DType, values: &[f64]) -> TensorData {
        fn convert<T: Scalar>(values: &[f64]) -> Vec<T> {
            values.iter().map(|&v| T::from_f64(v)).collect()
        }
        match dtype {
            DType::F16 => convert::<f16>(values).into(),
            DType::Bf16 => convert::<bf16>(values).into(),
            DType::F32 => convert::<f32>(values).into(),
            DType::F64 => convert::<f64>(values).into(),
        }
    }

    /// The values as `f64`, exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        each!(self, v => v.iter().map(|x| x.to_f64()).collect())
    }

    /// The elements' type.
    pub fn dtype(&self) -> DType {
        match self {
            TensorData::F16(_) => DType::F16,
            TensorData::Bf16(_) => DType::Bf16,
            TensorData::F32(_) => DType::F32,
            TensorData::F64(_) => DType::F64,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, shared.
    pub fn view(&self) -> View<'_> {
        each!(self, v => v.into())
    }

    /// The elements, exclusive.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        each!(self, v => v.into())
    }

    /// The elements as a slice, when they are of type `T`.
    pub fn as_slice<T: Scalar>(&self) -> Option<&[T]> {
        each!(self, v => (v as &dyn std::any::Any).downcast_ref::<Vec<T>>().map(Vec::as_slice))
    }

    /// The elements as a mutable slice, when they are of type `T`.
    pub fn as_mut_slice<T: Scalar>(&mut self) -> Option<&mut [T]> {
        each!(self, v => (v as &mut dyn std::any::Any).downcast_mut::<Vec<T>>().map(Vec::as_mut_slice))
    }
}

impl<'a> From<&'a TensorData> for View<'a> {
    fn from(data: &'a TensorData) -> View<'a> {
        data.view()
    }
}

impl<'a> From<&'a mut TensorData> for ViewMut<'a> {
    fn from(data: &'a mut TensorData) -> ViewMut<'a> {
        data.view_mut()
    }
}

/// A shape, a memory order and the elements. The shape is `N, C, spatial` (or rows of any rank) whatever the layout.
///
/// ```
/// use isonorm::Tensor;
///
/// let t = Tensor::new([2, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(t.shape().dims(), [2, 3]);
/// assert_eq!(t.as_slice::<f32>().unwrap()[4], 5.0);
/// # Ok::<(), isonorm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Tensor {
    shape: Shape,
    layout: Layout,
    data: TensorData,
}

/// What is stored; the number of elements has to be compared with the shape.
#[derive(Serialize, Deserialize)]
struct Unchecked {
    shape: Shape,
    #[serde(default)]
    layout: Layout,
    data: TensorData,
}

impl TryFrom<Unchecked> for Tensor {
    type Error = Error;

    fn try_from(u: Unchecked) -> Result<Tensor> {
        Ok(Tensor::new(u.shape, u.data)?.with_layout(u.layout))
    }
}

impl From<Tensor> for Unchecked {
    fn from(t: Tensor) -> Unchecked {
        Unchecked {
            shape: t.shape,
            layout: t.layout,
            data: t.data,
        }
    }
}

impl Tensor {
    /// A channels-first (row-major) tensor of these elements.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when their number is not the shape's.
    pub fn new(shape: impl Into<Shape>, data: impl Into<TensorData>) -> Result<Tensor> {
        let (shape, data) = (shape.into(), data.into());
        let expected = Tensor::elements_of(shape)?;
        if data.len() != expected {
            let why = format!("the shape is {shape}");
            return Err(Error::LengthMismatch {
                op: "tensor",
                tensor: "data",
                expected,
                got: data.len(),
                why,
            });
        }
        Ok(Tensor {
            shape,
            layout: Layout::ChannelsFirst,
            data,
        })
    }

    /// A channels-first tensor of zeros.
    ///
    /// # Errors
    /// [`Error::InvalidDescription`] when the shape has more elements than memory can hold.
    pub fn zeros(shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        let shape = shape.into();
        let data = TensorData::zeros(dtype, Tensor::elements_of(shape)?);
        Ok(Tensor {
            shape,
            layout: Layout::ChannelsFirst,
            data,
        })
    }

    fn elements_of(shape: Shape) -> Result<usize> {
        shape.elements().ok_or_else(|| Error::InvalidDescription {
            op: "tensor",
            reason: format!("a shape of {shape} has more elements than this machine can address"),
        })
    }

    /// The same elements, read as being in this memory order (nothing is moved).
    pub fn with_layout(self, layout: Layout) -> Tensor {
        Tensor { layout, ..self }
    }

    /// The sizes, in the order `N, C, spatial`.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The order of the elements in memory.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The elements' type.
    pub fn dtype(&self) -> DType {
        self.data.dtype()
    }

    /// The elements in memory order.
    pub fn data(&self) -> &TensorData {
        &self.data
    }

    /// The elements in memory order.
    pub fn data_mut(&mut self) -> &mut TensorData {
        &mut self.data
    }

    /// The elements in memory order.
    pub fn into_data(self) -> TensorData {
        self.data
    }

    /// The elements in memory order, when they are of type `T`.
    pub fn as_slice<T: Scalar>(&self) -> Option<&[T]> {
        self.data.as_slice()
    }

    /// The elements in memory order, when they are of type `T`.
    pub fn as_mut_slice<T: Scalar>(&mut self) -> Option<&mut [T]> {
        self.data.as_mut_slice()
    }

    /// The elements, shared.
    pub fn view(&self) -> View<'_> {
        self.data.view()
    }

    /// The elements, exclusive.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        self.data.view_mut()
    }
}
