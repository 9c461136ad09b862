//! Compares isonorm with PyTorch on the cases that `scripts/torch_reference.py` wrote: outputs, gradients and running
//! statistics. `cargo xtask agreement` runs both.
//!
//! A result agrees when every element is as close to the exact value (PyTorch in f64) as its types allow, or as PyTorch
//! itself is in the same types.

mod case;
mod compare;
mod engine;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use isonorm::{Device, Error, cuda};
use isonorm_check::{CpuEngine, CudaEngine, Engine};

use crate::case::File;
use crate::report::Report;

/// How many disagreements are shown.
const SHOWN: usize = 10;

#[derive(Parser)]
#[command(about = "Compares isonorm with PyTorch's results")]
struct Options {
    /// The file that scripts/torch_reference.py wrote
    file: PathBuf,
    /// Where isonorm works: cpu, or cuda for the first GPU
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "cuda"])]
    device: String,
    /// Print the errors of both against f64, op by op
    #[arg(long)]
    report: bool,
}

fn compare_all(options: &Options) -> Result<()> {
    let mut engine: Box<dyn Engine> = match options.device.as_str() {
        "cuda" => Box::new(CudaEngine::new(cuda::Device::first()?)?),
        _ => Box::new(CpuEngine::new(Device::cpu())),
    };
    let bytes = std::fs::read(&options.file).with_context(|| format!("cannot read {}", options.file.display()))?;
    let file = File::parse(&bytes)?;
    println!("isonorm on {}", engine.name());
    let mut report = Report::default();
    for case in file.cases() {
        let case = case?;
        let results = match engine::run(engine.as_mut(), &case) {
            Err(error) if matches!(error.downcast_ref(), Some(Error::Unsupported { .. })) => {
                report.skip();
                continue;
            }
            results => results.with_context(|| case.record.problem.clone())?,
        };
        for (name, result) in &results {
            report.add(&case, compare::compare(&case, name, result)?);
        }
    }
    if options.report {
        report.print_table();
    }
    report.print_disagreements(SHOWN);
    report.print_closest();
    println!("{}", report.summary(file.torch()));
    if report.disagreements() > 0 {
        bail!("isonorm and PyTorch disagree");
    }
    Ok(())
}

fn main() -> ExitCode {
    match compare_all(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
