//! Two small networks learn to read handwritten digits: one with BatchNorm and ReLU in isonorm's fused forward and backward
//! passes, the other without normalization; then the BatchNorms are folded away.
//!
//! ```text
//! cargo run --release -p isonorm --example digits
//! ```
//!
//! `data.rs` reads the images, `conv.rs` and `linear.rs` are the other layers, `network.rs` is where isonorm is used,
//! `train.rs` is gradient descent, `report.rs` and `chart.rs` print.

mod chart;
mod conv;
mod data;
mod linear;
mod network;
mod report;
mod train;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use isonorm::{Device, Tensor};

use data::Images;
use linear::predictions;
use network::{BLOCKS, Network};
use train::{BATCH, History, MOMENTUM, Settings, train};

/// Train a small network on handwritten digits with and without BatchNorm, then fold the BatchNorms away.
#[derive(Parser)]
#[command(name = "digits")]
struct Arguments {
    /// How often each network sees every training image.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..))]
    epochs: u16,

    /// Decides the initial weights and the order of the images, and so every result but the times.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The step size of both networks.
    #[arg(long, default_value_t = 0.05)]
    learning_rate: f32,

    /// Write both learning curves to this file.
    #[arg(long, value_name = "FILE")]
    save_csv: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let settings = Settings {
        epochs: arguments.epochs.into(),
        seed: arguments.seed,
        learning_rate: arguments.learning_rate,
    };
    let (images, test) = data::load()?;
    writeln!(out, "{}\n", introduction(&images, &test, settings)?)?;

    let (mut network, with) = learn(true, &images, &test, settings)?;
    let (_, without) = learn(false, &images, &test, settings)?;
    let histories = [&with, &without];
    writeln!(out, "{}", report::learning_curves(histories))?;
    writeln!(out, "{}", report::table(histories))?;
    if let Some(path) = &arguments.save_csv {
        report::save_csv(path, histories).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    writeln!(out, "{}", fold(&mut network, &test)?)?;
    Ok(())
}

fn introduction(images: &Images, test: &Images, settings: Settings) -> isonorm::Result<String> {
    let layers: Vec<String> = BLOCKS
        .iter()
        .map(|(c, s)| format!("conv3x3({c}{})", ["", ", stride 2"][s - 1]))
        .collect();
    let parameters: usize = Network::new(true, 0)?.parameters_mut().iter().map(|p| p.len()).sum();
    Ok(format!(
        "data      UCI handwritten digits, 8x8 pixels: {} images to learn from, {} to test with\n\
         network   {}, linear; ReLU after each convolution; {parameters} parameters\n\
         training  both networks alike: seed {}, epochs {}, batches of {BATCH}, SGD with momentum {MOMENTUM}, learning rate {}\n\
         device    {}",
        images.len(),
        test.len(),
        layers.join(", "),
        settings.seed,
        settings.epochs,
        settings.learning_rate,
        Device::best()
    ))
}

/// A trained network, and how it went. The bar appears on terminals only.
fn learn(
    normalized: bool,
    images: &Images,
    test: &Images,
    settings: Settings,
) -> Result<(Network, History), Box<dyn Error>> {
    let bar = ProgressBar::new(train::steps(images, settings))
        .with_style(ProgressStyle::with_template(
            "{prefix:<21} {bar:22} {percent:>3} %  {elapsed}  {msg}",
        )?)
        .with_prefix(report::NAMES[usize::from(!normalized)]);
    let mut network = Network::new(normalized, settings.seed)?;
    let history = train(&mut network, (images, test), settings, &bar)?;
    bar.finish();
    Ok((network, history))
}

/// Folds the BatchNorms away and compares what the network says before and after.
fn fold(network: &mut Network, test: &Images) -> isonorm::Result<String> {
    let mut folded = network.folded()?;
    let x = test.all()?;
    let (before, time_before) = infer(network, &x)?;
    let (after, time_after) = infer(&mut folded, &x)?;

    let logits = |t: &Tensor| t.data().to_f64();
    let (a, b) = (logits(&before), logits(&after));
    let largest = a.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    let difference = a.iter().zip(&b).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
    let agree = predictions(&before)
        .iter()
        .zip(predictions(&after))
        .filter(|(a, b)| **a == *b)
        .count();
    Ok(format!(
        "folded    {} BatchNorms into the convolutions before them\n\
         agree     {agree} of {} predictions; logits of up to {largest:.1} differ by at most {difference:.1e}\n\
         time      inference of the test images: {time_before:.1} ms before, {time_after:.1} ms after",
        BLOCKS.len(),
        test.len(),
    ))
}

/// The logits, and the milliseconds of the fastest of a few runs.
fn infer(network: &mut Network, x: &Tensor) -> isonorm::Result<(Tensor, f64)> {
    const RUNS: usize = 10;
    let mut fastest = f64::INFINITY;
    let mut logits = network.forward(x)?;
    for _ in 0..RUNS {
        let start = Instant::now();
        logits = network.forward(x)?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    Ok((logits, 1e3 * fastest))
}
