//! Steps that are a call of cargo, or of what it builds.

use std::process::Command;

use anyhow::Result;

use crate::Context;
use crate::process::{cargo, output, program, run, run_reading};
use crate::steps::Outcome;

/// The promised oldest compiler, from the workspace's manifest.
const MSRV: &str = env!("CARGO_PKG_RUST_VERSION");

pub fn format(context: &Context) -> Result<Outcome> {
    run(cargo(&context.root).args(["fmt", "--all", "--check"]))?;
    Ok(Outcome::passed())
}

pub fn clippy(context: &Context) -> Result<Outcome> {
    let everything: &[_] = &["clippy", "--locked", "--workspace", "--all-targets", "--all-features"];
    let as_others_build_it: &[_] = &["clippy", "--locked", "--workspace"];
    for what in [everything, as_others_build_it] {
        run(cargo(&context.root).args(what).args(["--", "-D", "warnings"]))?;
    }
    Ok(Outcome::passed())
}

/// Compiles with the oldest promised compiler where `rustup` has it; nothing is installed for it.
pub fn msrv(context: &Context) -> Result<Outcome> {
    let toolchain = format!("+{MSRV}");
    let missing = || {
        Outcome::Skipped(format!(
            "Rust {MSRV} is not installed (rustup toolchain install {MSRV}); clippy has compared the standard library's \
             items with it"
        ))
    };
    // A cargo that was started by rustup's proxy is a toolchain's own, which knows no `+toolchain`.
    let mut command = std::process::Command::new("rustup");
    if output(command.args(["run", MSRV, "cargo", "--version"])).is_none() {
        return Ok(missing());
    }
    let mut command = std::process::Command::new("cargo");
    command.current_dir(&context.root).arg(toolchain);
    // Its own directory: switching compilers in one directory would rebuild everything twice.
    run(command
        .args(["check", "--locked", "--workspace", "--target-dir"])
        .arg(context.target.join("msrv")))?;
    Ok(Outcome::Passed(format!("Rust {MSRV}")))
}

/// The sums over the lines `test result: ok. 12 passed; 0 failed; 1 ignored; …`.
#[derive(Default)]
struct Tally {
    passed: usize,
    ignored: usize,
}

impl Tally {
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        let count = |what: &str| {
            let before = counts.split(what).next().filter(|before| before.len() < counts.len());
            before
                .and_then(|b| b.split([' ', ';', '.']).rfind(|w| !w.is_empty())?.parse().ok())
                .unwrap_or(0usize)
        };
        self.passed += count(" passed");
        self.ignored += count(" ignored");
    }

    fn outcome(self) -> Outcome {
        let ignored = if self.ignored > 0 {
            format!(", {} ignored", self.ignored)
        } else {
            String::new()
        };
        Outcome::Passed(format!("{} passed{ignored}", self.passed))
    }
}

fn test_command(context: &Context, what: &[&str]) -> Result<Outcome> {
    let mut tally = Tally::default();
    let mut command = cargo(&context.root);
    command
        .args(["test", "--locked", "--workspace", "--all-features"])
        .args(what);
    run_reading(&mut command, |line| tally.add(line))?;
    Ok(tally.outcome())
}

pub fn tests(context: &Context) -> Result<Outcome> {
    test_command(context, &["--lib", "--bins", "--tests", "--examples"])
}

pub fn doc_tests(context: &Context) -> Result<Outcome> {
    test_command(context, &["--doc"])
}

pub fn docs(context: &Context) -> Result<Outcome> {
    let mut command = cargo(&context.root);
    command.args([
        "doc",
        "--locked",
        "--workspace",
        "--all-features",
        "--no-deps",
        "--document-private-items",
    ]);
    run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::passed())
}

/// That it measures, not how fast: an optimized build for that would take longer than all tests.
pub fn bench(context: &Context) -> Result<Outcome> {
    run(Command::new(program(context, "isonorm")?).args(["bench", "--suite", "smoke"]))?;
    Ok(Outcome::passed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_sums_the_result_lines() {
        let mut tally = Tally::default();
        tally.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s");
        tally.add("running 3 tests, 5 passed");
        tally.add("test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s");
        assert_eq!((tally.passed, tally.ignored), (42, 1));
    }
}
