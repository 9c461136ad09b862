//! Project tasks: `cargo xtask test` runs everything that has to hold before a change is merged.

mod agreement;
mod announce;
mod checks;
mod licences;
mod memory;
mod package;
mod process;
mod ptx;
mod python;
mod sources;
mod steps;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};

use crate::steps::Steps;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project tasks", version)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Format, lints, tests, docs, licences, agreement with PyTorch, a short benchmark
    Test(TestOptions),
    /// Compare outputs, gradients and running statistics with the installed PyTorch
    Agreement(agreement::Options),
    /// Compile the GPU's kernels to PTX and check what came out
    Ptx(ptx::Options),
    /// Run the tests of the code that has `unsafe` under Miri (needs a nightly toolchain with miri)
    Miri,
    /// Run the tests under AddressSanitizer
    Sanitize,
    /// Run the tests under Valgrind's memcheck (needs valgrind)
    Valgrind,
}

#[derive(Args)]
struct TestOptions {
    /// Leave out what needs Python: the agreement with PyTorch, and its download
    #[arg(long)]
    rust_only: bool,
    /// Run this step only; may be given again
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// List the steps and run none
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    python: python::Options,
}

/// What every step may need to know.
struct Context {
    /// The root of the repository.
    root: PathBuf,
    /// Where cargo builds.
    target: PathBuf,
    python: python::Options,
}

impl Context {
    fn new(python: python::Options) -> Result<Context> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask has no parent directory")?
            .to_path_buf();
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Context { root, target, python })
    }
}

fn test(options: TestOptions) -> Result<()> {
    let steps = Steps::all().without_python(options.rust_only).only(&options.only)?;
    if options.list {
        steps.list();
        return Ok(());
    }
    let context = Context::new(options.python)?;
    announce::downloads(&context, &steps)?;
    steps.run(&context)
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Test(options) => test(options),
        Task::Agreement(options) => agreement::run(&Context::new(options.python.clone())?, &options).map(drop),
        Task::Ptx(options) => ptx::run(&Context::new(python::Options::default())?, &options).map(drop),
        Task::Miri => memory::miri(&Context::new(python::Options::default())?),
        Task::Sanitize => memory::sanitize(&Context::new(python::Options::default())?),
        Task::Valgrind => memory::valgrind(&Context::new(python::Options::default())?),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
