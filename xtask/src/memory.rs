//! Tools that watch memory while the tests run. None is part of `cargo xtask test`: each needs something that stable
//! Rust does not come with, or takes long.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::Context;
use crate::process::{cargo, output, run};

/// A few of every kernel on every way through it, small: for tools under which the whole suite would take days.
const TEST: [&str; 5] = ["test", "--package", "isonorm-check", "--test", "memory"];

/// Miri interprets every instruction: the test's own reduced sizes and the plans' (`cfg(miri)`), and the baseline's vectors.
///
/// Pointers are held to Tree Borrows, for what hands tasks to threads does not keep to Stacked Borrows; nor does its pool end
/// its threads before the process does, so that they would be taken for leaks.
pub fn miri(context: &Context) -> Result<()> {
    let available = output(Command::new("cargo").args(["+nightly", "miri", "--version"]));
    if available.is_none() {
        bail!("miri is a component of nightly Rust: rustup toolchain install nightly --component miri,rust-src");
    }
    let mut command = Command::new("cargo");
    command.current_dir(&context.root).args(["+nightly", "miri"]).args(TEST);
    command.arg("--target-dir").arg(context.target.join("miri"));
    command.args(["--", "--nocapture"]);
    let flags = "-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-permissive-provenance";
    run(command.env("MIRIFLAGS", flags))
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
    command.args(TEST).args(["--locked", "--", "--nocapture"]);
    run(command.env(runner, "valgrind --quiet --error-exitcode=1"))
}
