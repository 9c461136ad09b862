//! A convolution or linear layer by its definition, in `f64`, on a small random input: stride 1, no padding, no dilation,
//! which folding does not depend on. The input is just large enough that every kernel element meets a value and each
//! spatial dimension has two positions.

use isonorm::fold::WeightLayout;
use isonorm::{Scalar, Tensor, TensorData};
use rayon::prelude::*;

/// An output element, and the sum of the magnitudes of all that was added up for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub value: f64,
    pub magnitude: f64,
}

/// An input element, and the sum of the magnitudes of what it was computed from.
pub(super) type Input = Sum;

/// The sizes of a layer's input, output and kernel.
#[derive(Debug)]
pub(super) struct Probe {
    layout: WeightLayout,
    /// Input channels that an output channel reads.
    width: usize,
    /// All input channels.
    pub inputs: usize,
    /// All output channels.
    pub outputs: usize,
    taps: usize,
    /// Input positions of a channel.
    pub input_positions: usize,
    /// For each output position, the kernel elements and the input positions that they meet.
    meetings: Vec<Vec<(usize, usize)>>,
}

impl Probe {
    /// For a weight of this shape, which fits the layout. An ordinary convolution is taken to have one group: each of its
    /// output channels reads as many inputs either way.
    pub fn new(layout: WeightLayout, shape: &[usize]) -> Probe {
        let mut kernel = [1; 3];
        let spatial = shape.len().saturating_sub(2).min(3);
        kernel[..spatial].copy_from_slice(&shape[2..2 + spatial]);
        let (mut input, mut output) = ([1; 3], [1; 3]);
        let transposed = matches!(layout, WeightLayout::ConvTranspose { .. });
        // A linear layer sees two rows as two positions.
        for d in 0..spatial.max(1) {
            let (narrow, wide) = (2, kernel[d] + 1);
            (input[d], output[d]) = if transposed { (narrow, wide) } else { (wide, narrow) };
        }
        let (width, inputs, outputs) = match layout {
            WeightLayout::LinearTransposed => (shape[0], shape[0], shape[1]),
            WeightLayout::ConvTranspose { groups } => (shape[0] / groups.max(1), shape[0], shape[1] * groups),
            _ => (shape[1], shape[1], shape[0]),
        };
        Probe {
            layout,
            width,
            inputs,
            outputs,
            taps: kernel.iter().product(),
            input_positions: input.iter().product(),
            meetings: coordinates(output)
                .map(|p| meetings(p, kernel, input, transposed))
                .collect(),
        }
    }

    /// Output positions of a channel.
    pub fn output_positions(&self) -> usize {
        self.meetings.len()
    }

    /// The most products that an output element adds up.
    pub fn terms(&self) -> usize {
        self.width * self.taps
    }

    /// `[outputs, positions]` for an input of `[inputs, positions]`.
    pub fn forward(&self, weight: &Tensor, bias: Option<&Tensor>, x: &[Input]) -> Vec<Sum> {
        let bias = bias.map(|b| b.data().to_f64());
        match weight.data() {
            TensorData::F16(w) => self.sums(w, bias.as_deref(), x),
            TensorData::Bf16(w) => self.sums(w, bias.as_deref(), x),
            TensorData::F32(w) => self.sums(w, bias.as_deref(), x),
            TensorData::F64(w) => self.sums(w, bias.as_deref(), x),
        }
    }

    fn sums<T: Scalar>(&self, weight: &[T], bias: Option<&[f64]>, x: &[Input]) -> Vec<Sum> {
        let elements = (0..self.outputs * self.output_positions()).into_par_iter();
        elements
            .map(|i| {
                let (o, position) = (i / self.output_positions(), i % self.output_positions());
                let b = bias.map_or(0.0, |bias| bias[o]);
                let mut sum = Sum {
                    value: b,
                    magnitude: b.abs(),
                };
                for c in 0..self.width {
                    let (first, channel) = self.kernel_of(o, c);
                    let x = &x[channel * self.input_positions..][..self.input_positions];
                    for &(tap, at) in &self.meetings[position] {
                        let w = weight[first + tap].to_f64();
                        sum.value += w * x[at].value;
                        sum.magnitude += w.abs() * x[at].magnitude;
                    }
                }
                sum
            })
            .collect()
    }

    /// The first element of the kernel from the `c`-th input channel that output `o` reads, and which channel that is.
    fn kernel_of(&self, o: usize, c: usize) -> (usize, usize) {
        match self.layout {
            WeightLayout::LinearTransposed => (c * self.outputs + o, c),
            WeightLayout::ConvTranspose { groups } => {
                let per_group = self.outputs / groups.max(1);
                let channel = o / per_group * self.width + c;
                ((channel * per_group + o % per_group) * self.taps, channel)
            }
            _ => ((o * self.width + c) * self.taps, c),
        }
    }
}

/// Every coordinate of these sizes, row-major.
fn coordinates(sizes: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [a, b, c] = sizes;
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k])))
}

/// The kernel elements that meet the input at output position `p`, each with the input position.
fn meetings(p: [usize; 3], kernel: [usize; 3], input: [usize; 3], transposed: bool) -> Vec<(usize, usize)> {
    let at = |k: [usize; 3]| {
        (0..3).try_fold(0, |index, d| {
            let q = if transposed {
                p[d].checked_sub(k[d])?
            } else {
                p[d] + k[d]
            };
            (q < input[d]).then_some(index * input[d] + q)
        })
    };
    coordinates(kernel)
        .enumerate()
        .filter_map(|(tap, k)| Some((tap, at(k)?)))
        .collect()
}
