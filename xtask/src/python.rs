//! A Python with PyTorch: the one that was named, or a virtual environment made here for it and used again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::Context;
use crate::process::{output, run};

/// What is installed, and why not more.
pub const REQUIREMENTS: &str = "scripts/requirements.txt";

/// The version in [`REQUIREMENTS`].
const TORCH: &str = "2.15.0";

#[derive(clap::Args, Clone, Default)]
pub struct Options {
    /// Use this Python, which has torch and numpy, and install nothing
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Install PyTorch from this index, such as one that has builds for the CPU alone
    #[arg(long, value_name = "URL", conflicts_with = "python")]
    torch_index: Option<String>,
}

/// What making the environment downloads, and takes on the disk. Measured with torch 2.15.0.
pub fn download_size(options: &Options) -> &'static str {
    if options.torch_index.is_some() {
        return "as much as that index's build has, and 20 MB";
    }
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "2.4 GB, 3.9 GB on the disk (the CUDA build: the index has no other for Linux)",
        ("linux", _) => "2.6 GB (the CUDA build: the index has no other for Linux)",
        _ => "150 MB",
    }
}

fn environment(context: &Context) -> PathBuf {
    context.target.join("torch-venv")
}

fn interpreter(environment: &Path) -> PathBuf {
    if cfg!(windows) {
        environment.join("Scripts/python.exe")
    } else {
        environment.join("bin/python")
    }
}

/// The version of the torch that this Python imports together with numpy.
fn torch_version(python: &Path) -> Option<String> {
    output(Command::new(python).args(["-c", "import numpy, torch; print(torch.__version__)"]))
}

/// Whether the version is the wanted one; `2.15.0+cpu` is.
fn is_wanted(version: &str) -> bool {
    version.split('+').next() == Some(TORCH)
}

/// The Python to use when nothing has to be installed any more.
pub fn present(context: &Context) -> Option<PathBuf> {
    if let Some(python) = &context.python.python {
        return Some(python.clone());
    }
    let python = interpreter(&environment(context));
    torch_version(&python)
        .is_some_and(|version| is_wanted(&version))
        .then_some(python)
}

/// A Python 3 to make the environment with.
fn system_python() -> Result<&'static str> {
    const RECENT: &str = "import sys; sys.exit(sys.version_info < (3, 10))";
    ["python3", "python"]
        .into_iter()
        .find(|python| output(Command::new(python).args(["-c", RECENT])).is_some())
        .context(
            "Python 3.10 or later is needed to run PyTorch, and there is none on the path; --rust-only leaves it out",
        )
}

fn install(context: &Context) -> Result<()> {
    let environment = environment(context);
    let made = run(Command::new(system_python()?)
        .args(["-m", "venv", "--clear"])
        .arg(&environment));
    made.context("no virtual environment (on Debian and Ubuntu: apt-get install python3-venv)")?;
    let pip = || {
        let mut command = Command::new(interpreter(&environment));
        let quiet = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ];
        command.current_dir(&context.root).args(quiet);
        command
    };
    match &context.python.torch_index {
        None => run(pip().args(["--requirement", REQUIREMENTS])),
        Some(index) => {
            run(pip().args([&format!("torch=={TORCH}"), "--index-url", index]))?;
            run(pip().args(["numpy>=2,<3", "typing_extensions>=4.13"]))
        }
    }
}

/// A Python that imports torch and numpy; makes the environment when it is not there.
pub fn ready(context: &Context) -> Result<PathBuf> {
    let python = match present(context) {
        Some(python) => python,
        None => {
            install(context)?;
            interpreter(&environment(context))
        }
    };
    match torch_version(&python) {
        Some(version) => println!("torch {version} in {}", python.display()),
        None => {
            let why = run(Command::new(&python).args(["-c", "import numpy, torch"]));
            bail!(
                "{} cannot import torch and numpy: {:#}",
                python.display(),
                why.err().unwrap_or_else(|| anyhow::anyhow!("it could just now"))
            );
        }
    }
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_the_same_version_will_do() {
        assert!(is_wanted(TORCH) && is_wanted("2.15.0+cpu"));
        assert!(!is_wanted("2.15.1"));
    }

    #[test]
    fn the_requirements_say_the_same_version() {
        assert!(include_str!("../../scripts/requirements.txt").contains(&format!("torch=={TORCH}\n")));
    }
}
