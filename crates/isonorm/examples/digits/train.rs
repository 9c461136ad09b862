//! Stochastic gradient descent.

use std::time::{Duration, Instant};

use fastrand::Rng;
use indicatif::ProgressBar;
use isonorm::Tensor;

use crate::data::Images;
use crate::linear::{cross_entropy, predictions};
use crate::network::Network;

pub const BATCH: usize = 64;
pub const MOMENTUM: f32 = 0.9;

/// What is the same for both networks.
#[derive(Clone, Copy)]
pub struct Settings {
    pub epochs: usize,
    pub seed: u64,
    pub learning_rate: f32,
}

/// How training went.
#[derive(Default)]
pub struct History {
    /// The mean loss of each epoch's batches.
    pub loss: Vec<f64>,
    /// The share of the test images recognized after each epoch.
    pub accuracy: Vec<f64>,
    pub time: Duration,
    /// The part of `time` spent in isonorm.
    pub normalizing: Duration,
}

/// The share of `expected` that is predicted.
pub fn accuracy(logits: &Tensor, expected: &[usize]) -> f64 {
    let right = predictions(logits).iter().zip(expected).filter(|(a, b)| a == b).count();
    right as f64 / expected.len() as f64
}

/// `velocity = MOMENTUM·velocity + gradient; parameter -= rate·velocity`, PyTorch's `SGD`.
struct Sgd {
    rate: f32,
    velocities: Vec<Vec<f32>>,
}

impl Sgd {
    fn step(&mut self, parameters: Vec<&mut [f32]>, gradients: &[Tensor]) {
        self.velocities.resize_with(parameters.len(), Vec::new);
        for ((parameter, gradient), velocity) in parameters.into_iter().zip(gradients).zip(&mut self.velocities) {
            velocity.resize(parameter.len(), 0.0);
            let gradient = gradient.as_slice::<f32>().expect("this example is all f32");
            for ((p, g), v) in parameter.iter_mut().zip(gradient).zip(velocity) {
                *v = MOMENTUM * *v + g;
                *p -= self.rate * *v;
            }
        }
    }
}

/// Trains `network`; the order of the images depends on the seed alone.
pub fn train(
    network: &mut Network,
    (images, test): (&Images, &Images),
    settings: Settings,
    bar: &ProgressBar,
) -> isonorm::Result<History> {
    let mut history = History::default();
    let mut rng = Rng::with_seed(settings.seed.wrapping_add(1));
    let mut order: Vec<usize> = (0..images.len()).collect();
    let mut sgd = Sgd {
        rate: settings.learning_rate,
        velocities: Vec::new(),
    };
    let (start, tested) = (Instant::now(), test.all()?);
    for _ in 0..settings.epochs {
        rng.shuffle(&mut order);
        let mut total = 0.0;
        for batch in order.chunks(BATCH) {
            let (x, labels) = images.batch(batch)?;
            let (logits, tape) = network.forward_train(&x)?;
            let (loss, dlogits) = cross_entropy(&logits, &labels)?;
            let gradients = network.backward(&tape, &dlogits)?;
            sgd.step(network.parameters_mut(), &gradients);
            total += loss * batch.len() as f64;
            bar.inc(1);
        }
        history.loss.push(total / images.len() as f64);
        history
            .accuracy
            .push(accuracy(&network.forward(&tested)?, test.labels()));
        bar.set_message(format!(
            "test accuracy {:.1} %",
            100.0 * history.accuracy.last().unwrap_or(&0.0)
        ));
    }
    (history.time, history.normalizing) = (start.elapsed(), network.normalizing);
    Ok(history)
}

/// The number of batches in all epochs.
pub fn steps(images: &Images, settings: Settings) -> u64 {
    (images.len().div_ceil(BATCH) * settings.epochs) as u64
}
