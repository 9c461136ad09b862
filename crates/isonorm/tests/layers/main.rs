//! The layers: PyTorch's semantics, and the plumbing between them and the engine.

mod errors;
mod gradients;
mod passes;
mod running;
mod state;
mod stream;

use isonorm::layers::{BatchNorm, FrozenBatchNorm, GroupNorm, InstanceNorm, LayerNorm, Normalization, RmsNorm};
use isonorm::{Activation, Affine, DType, Shape, Tensor, TensorData};

/// Reproducible numbers in -1..1 (xorshift64*).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        bits as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub(crate) fn tensor(&mut self, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        let shape = shape.into();
        let values: Vec<f64> = (0..shape.elements().unwrap()).map(|_| self.next()).collect();
        Tensor::new(shape, TensorData::from_f64(dtype, &values)).unwrap()
    }
}

/// The values of a tensor, whatever its type.
pub(crate) fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.data().to_f64()
}

/// Every kind of layer for `N, 4` and `N, 4, spatial` input (the spatial part `5` for those that normalize the last dimension),
/// with this type of parameters.
pub(crate) fn every_layer(param_dtype: DType, activation: Activation) -> Vec<Box<dyn Normalization>> {
    fn boxed(layer: impl Normalization + 'static) -> Box<dyn Normalization> {
        Box::new(layer)
    }
    let (p, a) = (param_dtype, activation);
    vec![
        boxed(BatchNorm::new(4).param_dtype(p).activation(a)),
        boxed(
            BatchNorm::new(4)
                .affine(Affine::None)
                .track_running_stats(false)
                .param_dtype(p)
                .activation(a),
        ),
        boxed(FrozenBatchNorm::new(4).param_dtype(p).activation(a)),
        boxed(LayerNorm::new([5]).param_dtype(p).activation(a)),
        boxed(
            LayerNorm::new([4, 5])
                .affine(Affine::Weight)
                .param_dtype(p)
                .activation(a),
        ),
        boxed(LayerNorm::over_channels(4).param_dtype(p).activation(a)),
        boxed(RmsNorm::new([5]).param_dtype(p).activation(a)),
        boxed(
            RmsNorm::over_channels(4)
                .affine(Affine::Full)
                .param_dtype(p)
                .activation(a),
        ),
        boxed(GroupNorm::new(2, 4).param_dtype(p).activation(a)),
        boxed(InstanceNorm::new(4).param_dtype(p).activation(a)),
        boxed(
            InstanceNorm::new(4)
                .affine(Affine::Full)
                .track_running_stats(true)
                .param_dtype(p)
                .activation(a),
        ),
    ]
}

/// Gives every parameter a random value near its initial one.
pub(crate) fn perturb(layer: &mut dyn Normalization, numbers: &mut Numbers) {
    for (_, parameter) in layer.parameters_mut() {
        let near: Vec<f64> = values(parameter).iter().map(|v| v + 0.5 * numbers.next()).collect();
        *parameter.data_mut() = TensorData::from_f64(parameter.dtype(), &near);
    }
}
