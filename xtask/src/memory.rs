//! Tools that watch memory while the tests run. None is part of `cargo xtask test`: each needs something that stable
//! Rust does not come with, or takes long.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::Context;
use crate::process::{cargo, output, run};

/// Packages with `unsafe` code.
const PACKAGES: [&str; 2] = ["isonorm-math", "isonorm"];

/// Miri interprets every instruction: the tests' own reduced sizes (`cfg(miri)`), one thread.
pub fn miri(context: &Context) -> Result<()> {
    let available = output(Command::new("cargo").args(["+nightly", "miri", "--version"]));
    if available.is_none() {
        bail!("miri is a component of nightly Rust: rustup toolchain install nightly --component miri,rust-src");
    }
    let mut command = Command::new("cargo");
    command
        .current_dir(&context.root)
        .args(["+nightly", "miri", "test", "--lib"]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    command.arg("--target-dir").arg(context.target.join("miri"));
    run(command.env("MIRIFLAGS", "-Zmiri-disable-isolation"))
}

/// The name of this machine's target, as the compiler gives it.
fn host() -> Result<String> {
    let version = output(Command::new("rustc").arg("-vV")).context("cannot run rustc")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_string())
}

/// AddressSanitizer finds reads and writes outside of a buffer. The switch is unstable; `RUSTC_BOOTSTRAP` lets a stable
/// compiler take it. The standard library stays as it is, without checks of its own.
pub fn sanitize(context: &Context) -> Result<()> {
    let mut command = cargo(&context.root);
    command.args(["test", "--locked", "--lib", "--tests", "--target", &host()?]);
    command.args([
        "--package",
        "isonorm",
        "--package",
        "isonorm-math",
        "--package",
        "isonorm-check",
    ]);
    command.arg("--target-dir").arg(context.target.join("sanitize"));
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address");
    run(command.env("ASAN_OPTIONS", "detect_leaks=1"))
}

/// Memcheck also finds reads of memory that was never written. It knows no AVX-512, so the AVX2 kernels run.
pub fn valgrind(context: &Context) -> Result<()> {
    let Some(version) = output(Command::new("valgrind").arg("--version")) else {
        bail!("valgrind is not installed");
    };
    println!("{version}");
    let runner = format!("CARGO_TARGET_{}_RUNNER", host()?.to_uppercase().replace('-', "_"));
    let mut command = cargo(&context.root);
    command.args([
        "test",
        "--locked",
        "--lib",
        "--package",
        "isonorm",
        "--package",
        "isonorm-math",
    ]);
    run(command.env(runner, "valgrind --quiet --error-exitcode=1"))
}
