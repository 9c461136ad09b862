//! A 3×3 convolution with padding 1, channels-last: one matrix product over the neighbourhoods of all pixels.

use fastrand::Rng;
use isonorm::{DType, Layout, Tensor};
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use rayon::prelude::*;

const KERNEL: usize = 3;
const NEIGHBOURS: usize = KERNEL * KERNEL;

/// What a convolution keeps for its backward pass.
pub struct Tape {
    input: [usize; 4],
    /// A row for each output pixel: the inputs under the kernel, `9·in` of them.
    columns: Array2<f32>,
}

#[derive(Clone)]
pub struct Conv {
    /// `out, in, 3, 3`; in memory `out, 3, 3, in`, the order of a row of the columns.
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    stride: usize,
}

/// The elements of an `f32` tensor as a matrix.
pub fn matrix(tensor: &Tensor, rows: usize) -> ArrayView2<'_, f32> {
    let v = tensor.as_slice::<f32>().expect("this example is all f32");
    ArrayView2::from_shape((rows, v.len() / rows.max(1)), v).expect("rows divide the elements")
}

/// As [`matrix`], to be written.
pub fn matrix_mut(tensor: &mut Tensor, rows: usize) -> ArrayViewMut2<'_, f32> {
    let v = tensor.as_mut_slice::<f32>().expect("this example is all f32");
    let columns = v.len() / rows.max(1);
    ArrayViewMut2::from_shape((rows, columns), v).expect("rows divide the elements")
}

/// Uniform numbers with the variance 2/inputs, which keeps the size of activations through a ReLU (He et al., 2015).
pub fn he_uniform(elements: usize, inputs: usize, rng: &mut Rng) -> Vec<f32> {
    let limit = (6.0 / inputs as f32).sqrt();
    (0..elements).map(|_| (2.0 * rng.f32() - 1.0) * limit).collect()
}

impl Conv {
    pub fn new(inputs: usize, outputs: usize, stride: usize, bias: bool, rng: &mut Rng) -> isonorm::Result<Conv> {
        let weight = he_uniform(outputs * inputs * NEIGHBOURS, inputs * NEIGHBOURS, rng);
        let weight = Tensor::new([outputs, inputs, KERNEL, KERNEL], weight)?.with_layout(Layout::ChannelsLast);
        let bias = bias.then(|| Tensor::zeros([outputs], DType::F32)).transpose()?;
        Ok(Conv { weight, bias, stride })
    }

    fn outputs(&self) -> usize {
        self.weight.shape().dims()[0]
    }

    pub fn forward(&self, x: &Tensor) -> isonorm::Result<(Tensor, Tape)> {
        let tape = self.gather(x);
        let [n, _, h, w] = tape.input;
        let shape = [n, self.outputs(), h.div_ceil(self.stride), w.div_ceil(self.stride)];
        let mut y = Tensor::zeros(shape, DType::F32)?.with_layout(Layout::ChannelsLast);
        let mut out = matrix_mut(&mut y, tape.columns.nrows());
        if let Some(bias) = &self.bias {
            out.assign(&matrix(bias, 1).row(0));
        }
        general_mat_mul(
            1.0,
            &tape.columns,
            &matrix(&self.weight, self.outputs()).t(),
            1.0,
            &mut out,
        );
        Ok((y, tape))
    }

    /// The gradients of the weight, of the bias, and of the input if it is wanted.
    pub fn backward(&self, tape: &Tape, dy: &Tensor, wants_dx: bool) -> isonorm::Result<(Vec<Tensor>, Option<Tensor>)> {
        let outputs = self.outputs();
        let dy = matrix(dy, tape.columns.nrows());
        let mut dweight = Tensor::zeros(self.weight.shape(), DType::F32)?;
        general_mat_mul(1.0, &dy.t(), &tape.columns, 0.0, &mut matrix_mut(&mut dweight, outputs));
        let mut parameters = vec![dweight];
        if self.bias.is_some() {
            parameters.push(Tensor::new([outputs], dy.sum_axis(ndarray::Axis(0)).to_vec())?);
        }
        let dx = wants_dx
            .then(|| self.scatter(tape, &dy.dot(&matrix(&self.weight, outputs))))
            .transpose()?;
        Ok((parameters, dx))
    }

    /// The input's rows `(neighbour, y, x)` under the kernel at the output pixel `(oy, ox)`, where they are inside.
    fn neighbours(&self, oy: usize, ox: usize, h: usize, w: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let stride = self.stride;
        (0..NEIGHBOURS).filter_map(move |k| {
            let y = (oy * stride + k / KERNEL).checked_sub(1)?;
            let x = (ox * stride + k % KERNEL).checked_sub(1)?;
            (y < h && x < w).then_some((k, y, x))
        })
    }

    fn gather(&self, x: &Tensor) -> Tape {
        let input: [usize; 4] = x.shape().dims().try_into().expect("images are N, C, H, W");
        let [n, c, h, w] = input;
        let (oh, ow) = (h.div_ceil(self.stride), w.div_ceil(self.stride));
        let row = NEIGHBOURS * c;
        let mut columns = vec![0f32; n * oh * ow * row];
        let images = x
            .as_slice::<f32>()
            .expect("this example is all f32")
            .par_chunks(h * w * c);
        columns
            .par_chunks_mut(oh * ow * row)
            .zip(images)
            .for_each(|(columns, image)| {
                for (pixel, columns) in columns.chunks_mut(row).enumerate() {
                    for (k, y, x) in self.neighbours(pixel / ow, pixel % ow, h, w) {
                        let from = (y * w + x) * c;
                        columns[k * c..][..c].copy_from_slice(&image[from..][..c]);
                    }
                }
            });
        let columns = Array2::from_shape_vec((n * oh * ow, row), columns).expect("made with this shape");
        Tape { input, columns }
    }

    /// The transpose of `gather`: each input gets the sum over the neighbourhoods it is in.
    fn scatter(&self, tape: &Tape, dcolumns: &Array2<f32>) -> isonorm::Result<Tensor> {
        let [_, c, h, w] = tape.input;
        let (oh, ow) = (h.div_ceil(self.stride), w.div_ceil(self.stride));
        let row = NEIGHBOURS * c;
        let mut dx = Tensor::zeros(tape.input, DType::F32)?.with_layout(Layout::ChannelsLast);
        let images = dx
            .as_mut_slice::<f32>()
            .expect("this example is all f32")
            .par_chunks_mut(h * w * c);
        let columns = dcolumns
            .as_slice()
            .expect("a product is contiguous")
            .par_chunks(oh * ow * row);
        images.zip(columns).for_each(|(image, columns)| {
            for (pixel, columns) in columns.chunks(row).enumerate() {
                for (k, y, x) in self.neighbours(pixel / ow, pixel % ow, h, w) {
                    let to = &mut image[(y * w + x) * c..][..c];
                    to.iter_mut().zip(&columns[k * c..]).for_each(|(to, from)| *to += from);
                }
            }
        });
        Ok(dx)
    }
}
