//! The Python package: its wheel, built, installed into a new virtual environment and tested there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::Context;
use crate::process::{output, run, run_reading};
use crate::python::{self, Ready};
use crate::steps::Outcome;

/// What builds and tests the wheel.
const REQUIREMENTS: &str = "python/tests/requirements.txt";

pub fn step(context: &Context) -> Result<Outcome> {
    match python::ready_if_room(context)? {
        Ready::Python(torch) => test(context, &torch),
        Ready::NoRoom(why) => Ok(Outcome::Skipped(why)),
    }
}

fn test(context: &Context, torch: &Path) -> Result<Outcome> {
    let environment = Environment::fresh(context, torch)?;
    let wheel = build(context, &environment)?;
    environment.install(&[&wheel.to_string_lossy()])?;
    let mut last = String::new();
    let mut tests = Command::new(&environment.python);
    // From the folder of the tests, where `isonorm` is the wheel's and not that of the sources.
    tests.current_dir(context.root.join("python/tests")).args([
        "-m",
        "pytest",
        "--quiet",
        "-p",
        "no:cacheprovider",
        ".",
    ]);
    run_reading(&mut tests, |line| last = line.to_string())?;
    Ok(Outcome::Passed(last.trim_matches(['=', ' ']).to_string()))
}

/// The wheel, as the tests of the library are compiled: what is optimized takes longer to build than all tests to run.
fn build(context: &Context, environment: &Environment) -> Result<PathBuf> {
    let wheels = context.target.join("wheels");
    if wheels.is_dir() {
        fs::remove_dir_all(&wheels).with_context(|| format!("cannot remove {}", wheels.display()))?;
    }
    let mut maturin = Command::new(&environment.python);
    maturin
        .current_dir(context.root.join("python"))
        .env("CARGO_TARGET_DIR", &context.target)
        .args([
            "-m",
            "maturin",
            "build",
            "--locked",
            "--profile",
            "dev",
            "--features",
            "interpreter",
            "--compatibility",
            "linux",
            "--out",
        ]);
    run(maturin.arg(&wheels))?;
    let mut built = fs::read_dir(&wheels)?.flatten().map(|entry| entry.path());
    match built.find(|path| path.extension().is_some_and(|e| e == "whl")) {
        Some(wheel) => Ok(wheel),
        None => bail!("no wheel in {}", wheels.display()),
    }
}

/// A virtual environment of its own, which sees the PyTorch of another.
struct Environment {
    python: PathBuf,
}

impl Environment {
    fn fresh(context: &Context, torch: &Path) -> Result<Environment> {
        let folder = context.target.join("python-venv");
        run(Command::new(torch).args(["-m", "venv", "--clear"]).arg(&folder))?;
        let python = folder.join(if cfg!(windows) {
            "Scripts/python.exe"
        } else {
            "bin/python"
        });
        let ask = |python: &Path, what: &str| {
            let answer = output(Command::new(python).args(["-c", what]));
            answer.with_context(|| format!("{} does not answer", python.display()))
        };
        let sees = ask(
            torch,
            "import pathlib, torch; print(pathlib.Path(torch.__file__).parent.parent)",
        )?;
        let site = ask(&python, "import sysconfig; print(sysconfig.get_path('purelib'))")?;
        fs::write(Path::new(&site).join("torch.pth"), sees).context("cannot write into the virtual environment")?;
        let environment = Environment { python };
        environment.install(&["--requirement", &context.root.join(REQUIREMENTS).to_string_lossy()])?;
        Ok(environment)
    }

    fn install(&self, what: &[&str]) -> Result<()> {
        let mut pip = Command::new(&self.python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-cache-dir",
            "--no-deps",
        ]);
        run(pip.args(what))
    }
}
