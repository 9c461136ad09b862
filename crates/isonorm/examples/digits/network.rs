//! The network: blocks of convolution, perhaps normalization, and ReLU, then a linear layer.

use std::time::{Duration, Instant};

use fastrand::Rng;
use isonorm::fold::{WeightLayout, batch_norm_into_previous};
use isonorm::layers::{BatchNorm, Saved};
use isonorm::{Activation, Tensor};

use crate::conv::{self, Conv};
use crate::data::{CLASSES, SIDE};
use crate::linear::Linear;

/// Channels and stride of each block.
pub const BLOCKS: [(usize, usize); 4] = [(16, 1), (16, 1), (32, 2), (32, 1)];

/// A convolution, then BatchNorm and ReLU in one pass over memory; or ReLU alone.
#[derive(Clone)]
struct Block {
    conv: Conv,
    norm: Option<BatchNorm>,
}

/// What a block keeps for its backward pass.
struct BlockTape {
    conv: conv::Tape,
    /// The convolution's output.
    z: Tensor,
    saved: Option<Saved>,
}

/// What a training pass keeps.
pub struct Tape {
    blocks: Vec<BlockTape>,
    features: Tensor,
}

#[derive(Clone)]
pub struct Network {
    blocks: Vec<Block>,
    head: Linear,
    /// The time spent in isonorm so far.
    pub normalizing: Duration,
}

/// Zeroes the elements of `gradient` where the ReLU's input was not positive.
fn relu_backward(z: &Tensor, gradient: &mut Tensor) {
    for (g, z) in elements_mut(gradient)
        .iter_mut()
        .zip(z.as_slice::<f32>().into_iter().flatten())
    {
        if *z <= 0.0 {
            *g = 0.0;
        }
    }
}

fn relu(mut z: Tensor) -> Tensor {
    elements_mut(&mut z).iter_mut().for_each(|v| *v = v.max(0.0));
    z
}

fn elements_mut(tensor: &mut Tensor) -> &mut [f32] {
    tensor.as_mut_slice().expect("this example is all f32")
}

/// Runs `work` and adds the time it takes.
fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}

impl Network {
    /// The weights depend on the seed alone: with and without normalization the same.
    pub fn new(normalized: bool, seed: u64) -> isonorm::Result<Network> {
        let mut rng = Rng::with_seed(seed);
        let (mut blocks, mut inputs, mut side) = (Vec::new(), 1, SIDE);
        for (outputs, stride) in BLOCKS {
            // The norm's bias does what the convolution's would.
            let conv = Conv::new(inputs, outputs, stride, !normalized, &mut rng)?;
            let norm = normalized.then(|| BatchNorm::new(outputs).activation(Activation::Relu));
            blocks.push(Block { conv, norm });
            (inputs, side) = (outputs, side / stride);
        }
        let head = Linear::new(inputs * side * side, CLASSES, &mut rng)?;
        Ok(Network {
            blocks,
            head,
            normalizing: Duration::ZERO,
        })
    }

    /// Inference: the logits.
    pub fn forward(&mut self, x: &Tensor) -> isonorm::Result<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            let (z, _) = block.conv.forward(&x)?;
            x = match &block.norm {
                Some(norm) => timed(&mut self.normalizing, || norm.forward(&z))?,
                None => relu(z),
            };
        }
        self.head.forward(&x)
    }

    /// Training: the logits, and what the backward pass needs.
    pub fn forward_train(&mut self, x: &Tensor) -> isonorm::Result<(Tensor, Tape)> {
        let (mut x, mut blocks) = (x.clone(), Vec::new());
        for block in &mut self.blocks {
            let (z, conv) = block.conv.forward(&x)?;
            let saved;
            (x, saved) = match &mut block.norm {
                Some(norm) => {
                    let (y, saved) = timed(&mut self.normalizing, || norm.forward_train(&z))?;
                    (y, Some(saved))
                }
                None => (relu(z.clone()), None),
            };
            blocks.push(BlockTape { conv, z, saved });
        }
        Ok((self.head.forward(&x)?, Tape { blocks, features: x }))
    }

    /// The gradients of all parameters, in the order of [`parameters_mut`](Network::parameters_mut).
    pub fn backward(&mut self, tape: &Tape, dlogits: &Tensor) -> isonorm::Result<Vec<Tensor>> {
        let (head, mut dy) = self.head.backward(&tape.features, dlogits)?;
        let mut of_blocks = Vec::new();
        for (i, (block, tape)) in self.blocks.iter().zip(&tape.blocks).enumerate().rev() {
            let mut of_norm = [None, None];
            match (&block.norm, &tape.saved) {
                (Some(norm), Some(saved)) => {
                    let g = timed(&mut self.normalizing, || norm.backward(&tape.z, &dy, saved))?;
                    (dy, of_norm) = (g.input, [g.weight, g.bias]);
                }
                _ => relu_backward(&tape.z, &mut dy),
            }
            let (mut gradients, dx) = block.conv.backward(&tape.conv, &dy, i > 0)?;
            gradients.extend(of_norm.into_iter().flatten());
            of_blocks.push(gradients);
            dy = dx.unwrap_or(dy);
        }
        Ok(of_blocks.into_iter().rev().flatten().chain(head).collect())
    }

    /// All that is trained.
    pub fn parameters_mut(&mut self) -> Vec<&mut [f32]> {
        let mut all = Vec::new();
        for Block { conv, norm } in &mut self.blocks {
            all.push(&mut conv.weight);
            all.extend(&mut conv.bias);
            all.extend(norm.iter_mut().flat_map(BatchNorm::parameters_mut).map(|(_, p)| p));
        }
        all.extend([&mut self.head.weight, &mut self.head.bias]);
        all.into_iter().map(elements_mut).collect()
    }

    /// The same function without normalization: every BatchNorm folded into the convolution before it.
    pub fn folded(&self) -> isonorm::Result<Network> {
        let mut network = Network {
            normalizing: Duration::ZERO,
            ..self.clone()
        };
        for Block { conv, norm } in &mut network.blocks {
            if let Some(parameters) = norm.as_ref().and_then(BatchNorm::fold_parameters) {
                batch_norm_into_previous(WeightLayout::Conv, &mut conv.weight, &mut conv.bias, &parameters)?;
            }
            *norm = None;
        }
        Ok(network)
    }
}
