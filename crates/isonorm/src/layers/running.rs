use serde::{Deserialize, Serialize};

use crate::{DType, Shape, Tensor, TensorData};

/// How running statistics follow the batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Momentum {
    /// `running = (1 − m)·running + m·batch`: PyTorch's `momentum=m`. (ONNX and TensorFlow say `1 − m`.)
    Exponential(f64),
    /// The average of all batches so far: PyTorch's `momentum=None`. The counter is raised first, so the first batch
    /// replaces the initial values.
    Cumulative,
}

impl Default for Momentum {
    /// `Exponential(0.1)`, as in PyTorch.
    fn default() -> Momentum {
        Momentum::Exponential(0.1)
    }
}

impl Momentum {
    /// The weight of the batch that makes the counter `batches`.
    pub(super) fn factor(self, batches: u64) -> f64 {
        match self {
            Momentum::Exponential(m) => m,
            Momentum::Cumulative => 1.0 / batches as f64,
        }
    }
}

/// Running mean and unbiased variance of each channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) mean: Tensor,
    pub(super) var: Tensor,
    pub(super) batches: u64,
}

impl Running {
    /// Mean 0 and variance 1.
    pub(super) fn new(shape: Shape, dtype: DType) -> Running {
        Running {
            mean: filled(shape, dtype, 0.0),
            var: filled(shape, dtype, 1.0),
            batches: 0,
        }
    }
}

/// A parameter with the same value everywhere.
///
/// # Panics
/// When memory is exhausted, like every collection.
pub(super) fn filled(shape: Shape, dtype: DType, value: f64) -> Tensor {
    let elements = shape.elements().expect("a parameter must fit in memory");
    of_shape(shape, TensorData::from_f64(dtype, &vec![value; elements]))
}

/// A tensor of as many elements as its shape says.
pub(super) fn of_shape(shape: Shape, data: TensorData) -> Tensor {
    Tensor::new(shape, data).expect("the data were made for the shape")
}

/// The same values in another type.
pub(super) fn converted(tensor: &Tensor, dtype: DType) -> Tensor {
    if tensor.dtype() == dtype {
        return tensor.clone();
    }
    of_shape(tensor.shape(), TensorData::from_f64(dtype, &tensor.data().to_f64()))
}
