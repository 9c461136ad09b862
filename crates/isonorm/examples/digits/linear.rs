//! The last layer and the loss.

use fastrand::Rng;
use isonorm::{DType, Tensor};
use ndarray::Axis;
use ndarray::linalg::general_mat_mul;

use crate::conv::{he_uniform, matrix, matrix_mut};

/// `y = x·Wᵀ + b` over everything but the first dimension.
#[derive(Clone)]
pub struct Linear {
    pub weight: Tensor,
    pub bias: Tensor,
}

impl Linear {
    pub fn new(inputs: usize, outputs: usize, rng: &mut Rng) -> isonorm::Result<Linear> {
        let weight = Tensor::new([outputs, inputs], he_uniform(outputs * inputs, inputs, rng))?;
        Ok(Linear {
            weight,
            bias: Tensor::zeros([outputs], DType::F32)?,
        })
    }

    fn outputs(&self) -> usize {
        self.weight.shape().dims()[0]
    }

    pub fn forward(&self, x: &Tensor) -> isonorm::Result<Tensor> {
        let n = x.shape().dims()[0];
        let mut y = Tensor::zeros([n, self.outputs()], DType::F32)?;
        let mut out = matrix_mut(&mut y, n);
        out.assign(&matrix(&self.bias, 1).row(0));
        general_mat_mul(
            1.0,
            &matrix(x, n),
            &matrix(&self.weight, self.outputs()).t(),
            1.0,
            &mut out,
        );
        Ok(y)
    }

    /// The gradients of weight and bias, and that of the input.
    pub fn backward(&self, x: &Tensor, dy: &Tensor) -> isonorm::Result<(Vec<Tensor>, Tensor)> {
        let n = x.shape().dims()[0];
        let (dy, outputs) = (matrix(dy, n), self.outputs());
        let mut dweight = Tensor::zeros(self.weight.shape(), DType::F32)?;
        general_mat_mul(1.0, &dy.t(), &matrix(x, n), 0.0, &mut matrix_mut(&mut dweight, outputs));
        let dbias = Tensor::new([outputs], dy.sum_axis(Axis(0)).to_vec())?;
        let mut dx = Tensor::zeros(x.shape(), DType::F32)?.with_layout(x.layout());
        general_mat_mul(
            1.0,
            &dy,
            &matrix(&self.weight, outputs),
            0.0,
            &mut matrix_mut(&mut dx, n),
        );
        Ok((vec![dweight, dbias], dx))
    }
}

/// The mean cross-entropy of these logits, `N, classes`, and its gradient.
pub fn cross_entropy(logits: &Tensor, labels: &[usize]) -> isonorm::Result<(f64, Tensor)> {
    let mut gradient = logits.clone();
    let mut loss = 0.0;
    for (mut row, &label) in matrix_mut(&mut gradient, labels.len())
        .rows_mut()
        .into_iter()
        .zip(labels)
    {
        let largest = row.fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let of_label = row[label] - largest;
        row.mapv_inplace(|v| (v - largest).exp());
        let sum = row.sum();
        loss += f64::from(sum).ln() - f64::from(of_label);
        row /= sum;
        row[label] -= 1.0;
        row /= labels.len() as f32;
    }
    Ok((loss / labels.len() as f64, gradient))
}

/// The most likely class of each image.
pub fn predictions(logits: &Tensor) -> Vec<usize> {
    let best = |row: ndarray::ArrayView1<'_, f32>| {
        row.iter()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(b.1))
            .map_or(0, |(class, _)| class)
    };
    matrix(logits, logits.shape().dims()[0])
        .rows()
        .into_iter()
        .map(best)
        .collect()
}
