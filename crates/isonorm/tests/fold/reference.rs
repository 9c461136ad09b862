//! A convolution by its definition, in `f64`: one output element at a time. Slow and plain.

use isonorm::fold::WeightLayout;

/// A layer with one to three kernel dimensions, or a linear layer applied to `N, C` (no kernel dimension).
#[derive(Clone, Debug)]
pub struct Layer {
    pub layout: WeightLayout,
    pub inputs: usize,
    pub outputs: usize,
    pub groups: usize,
    pub kernel: Vec<usize>,
    pub stride: usize,
    pub padding: usize,
    pub dilation: usize,
}

impl Layer {
    pub fn weight_shape(&self) -> Vec<usize> {
        let (first, second) = match self.layout {
            WeightLayout::Linear => (self.outputs, self.inputs),
            WeightLayout::LinearTransposed => (self.inputs, self.outputs),
            WeightLayout::ConvTranspose { .. } => (self.inputs, self.outputs / self.groups),
            _ => (self.outputs, self.inputs / self.groups),
        };
        [&[first, second], &self.kernel[..]].concat()
    }

    /// The weight's element that takes input channel `i` at `tap` to output channel `o`; `None` across groups.
    fn weight_index(&self, o: usize, i: usize, tap: usize) -> Option<usize> {
        let (out_width, in_width) = (self.outputs / self.groups, self.inputs / self.groups);
        if o / out_width != i / in_width {
            return None;
        }
        let taps: usize = self.kernel.iter().product();
        Some(match self.layout {
            WeightLayout::Linear => o * self.inputs + i,
            WeightLayout::LinearTransposed => i * self.outputs + o,
            WeightLayout::ConvTranspose { .. } => (i * out_width + o % out_width) * taps + tap,
            _ => (o * in_width + i % in_width) * taps + tap,
        })
    }

    fn output_size(&self, input: usize, kernel: usize) -> usize {
        let span = self.dilation * (kernel - 1) + 1;
        match self.layout {
            WeightLayout::ConvTranspose { .. } => (input - 1) * self.stride + span - 2 * self.padding,
            _ => (input + 2 * self.padding - span) / self.stride + 1,
        }
    }

    /// The input position that output position `p` reads through kernel position `k`, in one dimension.
    fn source(&self, p: usize, k: usize, size: usize) -> Option<usize> {
        let q = match self.layout {
            WeightLayout::ConvTranspose { .. } => {
                let scaled = (p + self.padding).checked_sub(k * self.dilation)?;
                scaled.is_multiple_of(self.stride).then_some(scaled / self.stride)?
            }
            _ => (p * self.stride + k * self.dilation).checked_sub(self.padding)?,
        };
        (q < size).then_some(q)
    }

    /// `[outputs, positions]` for one sample `x` of `[inputs, size, size, …]`.
    pub fn forward(&self, x: &[f64], size: usize, weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let output: Vec<usize> = self.kernel.iter().map(|&k| self.output_size(size, k)).collect();
        let positions = coordinates(&output);
        let taps = coordinates(&self.kernel);
        let mut y = Vec::new();
        for (o, bias) in bias.iter().enumerate() {
            for p in &positions {
                let sources = taps.iter().map(|k| self.source_index(p, k, size));
                y.push(bias + self.sum_at(o, sources, x, size, weight));
            }
        }
        y
    }

    fn source_index(&self, p: &[usize], k: &[usize], size: usize) -> Option<usize> {
        p.iter()
            .zip(k)
            .try_fold(0, |index, (&p, &k)| Some(index * size + self.source(p, k, size)?))
    }

    fn sum_at(
        &self,
        o: usize,
        sources: impl Iterator<Item = Option<usize>>,
        x: &[f64],
        size: usize,
        weight: &[f64],
    ) -> f64 {
        let positions = size.pow(self.kernel.len() as u32);
        let mut sum = 0.0;
        for (tap, at) in sources.enumerate() {
            let Some(at) = at else { continue };
            for i in 0..self.inputs {
                if let Some(w) = self.weight_index(o, i, tap) {
                    sum += weight[w] * x[i * positions + at];
                }
            }
        }
        sum
    }
}

/// Every coordinate of these sizes, row-major.
fn coordinates(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![vec![]], |all, &n| {
        let longer = |c: &Vec<usize>| (0..n).map(|i| [&c[..], &[i]].concat()).collect::<Vec<_>>();
        all.iter().flat_map(longer).collect()
    })
}
