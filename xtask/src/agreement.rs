//! The agreement with PyTorch: a script runs the installed PyTorch on random cases and writes them to a file, the
//! `agreement` program runs isonorm on them and compares.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::Context;
use crate::process::{self, run_reading};
use crate::python::{self, Ready};
use crate::steps::Outcome;

#[derive(clap::Args, Clone)]
pub struct Options {
    /// How many random cases
    #[arg(long, default_value_t = 600)]
    cases: usize,
    /// What the cases are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compare this problem alone
    #[arg(long, value_name = "PROBLEM")]
    case: Option<String>,
    /// Where both work: cpu, or cuda for the first GPU
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "cuda"])]
    device: String,
    /// Print the errors of both against f64, op by op
    #[arg(long)]
    report: bool,
    #[command(flatten)]
    pub python: python::Options,
}

/// Compares, and returns the program's last line.
pub fn run(context: &Context, options: &Options) -> Result<String> {
    compare(context, options, &python::ready(context)?)
}

fn compare(context: &Context, options: &Options, python: &Path) -> Result<String> {
    let folder = context.target.join("agreement");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let cases = folder.join("cases.safetensors");

    let mut reference = Command::new(python);
    reference
        .current_dir(&context.root)
        .arg("scripts/torch_reference.py")
        .arg(&cases);
    match &options.case {
        Some(problem) => reference.args(["--case", problem]),
        None => reference.args(["--cases", &options.cases.to_string()]),
    };
    reference.args(["--seed", &options.seed.to_string()]);
    process::run(reference.args(["--device", &options.device]))?;

    let mut compare = Command::new(process::program(context, "agreement")?);
    compare.current_dir(&context.root).arg(&cases);
    compare.args(["--device", &options.device]);
    if options.report {
        compare.arg("--report");
    }
    let mut last = String::new();
    run_reading(&mut compare, |line| last = line.to_string())?;
    fs::remove_file(&cases).with_context(|| format!("cannot remove {}", cases.display()))?;
    Ok(last)
}

pub fn step(context: &Context) -> Result<Outcome> {
    let options = Options {
        cases: 600,
        seed: 1,
        case: None,
        device: "cpu".into(),
        report: false,
        python: context.python.clone(),
    };
    match python::ready_if_room(context)? {
        Ready::Python(python) => compare(context, &options, &python).map(Outcome::Passed),
        Ready::NoRoom(why) => Ok(Outcome::Skipped(why)),
    }
}

/// Folds random PyTorch layers with the command line program, and compares what PyTorch computes before and after.
pub fn fold(context: &Context) -> Result<Outcome> {
    let python = match python::ready_if_room(context)? {
        Ready::Python(python) => python,
        Ready::NoRoom(why) => return Ok(Outcome::Skipped(why)),
    };
    let program = process::program(context, "isonorm")?;
    let mut last = String::new();
    let mut script = Command::new(python);
    script
        .current_dir(&context.root)
        .arg("scripts/torch_fold.py")
        .arg(program);
    run_reading(&mut script, |line| last = line.to_string())?;
    Ok(Outcome::Passed(last))
}
