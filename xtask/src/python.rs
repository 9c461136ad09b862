//! A Python with PyTorch: the one that was named, or a virtual environment made here for it and used again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::Context;
use crate::process::{output, run};

/// What is installed, and why not more.
pub const REQUIREMENTS: &str = "scripts/requirements.txt";

/// The version in [`REQUIREMENTS`].
const TORCH: &str = "2.15.0";

/// What is there beside a torch that links no CUDA; also in [`REQUIREMENTS`].
const BESIDE_TORCH: [&str; 4] = [
    "numpy>=2,<3",
    "typing_extensions>=4.13",
    "sympy>=1.13.3",
    "mpmath>=1.1,<1.4",
];

/// A file in the environment that says what it was made of.
const RECIPE: &str = "recipe.txt";

#[derive(clap::Args, Clone, Default)]
pub struct Options {
    /// Use this Python, which has torch and numpy, and install nothing
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Install PyTorch from this index, such as one that has builds for the CPU alone
    #[arg(long, value_name = "URL", conflicts_with = "python")]
    torch_index: Option<String>,
}

/// Room that making the environment takes on the disk, bytes: what is installed (3.9 GB, measured with torch 2.15.0), and an
/// allowance for the wheel that is being unpacked.
const ROOM: u64 = 4_700_000_000;

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

fn requirements(context: &Context) -> Result<String> {
    let path = context.root.join(REQUIREMENTS);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Whether a line of the requirements is one, and no comment.
fn is_requirement(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

/// What the environment is made of; kept in it once it is complete.
fn recipe(context: &Context) -> Result<String> {
    let requirements = requirements(context)?;
    let index = context.python.torch_index.as_deref().unwrap_or("the default index");
    Ok(format!("# torch from {index}\n{requirements}"))
}

/// The Python to use when nothing has to be installed any more.
pub fn present(context: &Context) -> Result<Option<PathBuf>> {
    if let Some(python) = &context.python.python {
        return Ok(Some(python.clone()));
    }
    let (environment, recipe) = (environment(context), recipe(context)?);
    let complete = fs::read_to_string(environment.join(RECIPE)).is_ok_and(|was| was == recipe);
    let python = interpreter(&environment);
    Ok((complete && torch_version(&python).is_some()).then_some(python))
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

/// Makes the environment, or brings it up to date. When that fails, nothing of it is left on the disk.
fn install(context: &Context) -> Result<PathBuf> {
    fill(context).inspect_err(|_| {
        // What cannot be removed is made again by the next run.
        let _ = fs::remove_dir_all(environment(context));
    })
}

fn fill(context: &Context) -> Result<PathBuf> {
    let environment = environment(context);
    let python = interpreter(&environment);
    if output(Command::new(&python).args(["-m", "pip", "--version"])).is_none() {
        let made = run(Command::new(system_python()?)
            .args(["-m", "venv", "--clear"])
            .arg(&environment));
        made.context("no virtual environment (on Debian and Ubuntu: apt-get install python3-venv)")?;
    }
    let pip = || {
        let mut command = Command::new(&python);
        let quiet = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-cache-dir",
            "--no-deps",
        ];
        command.current_dir(&context.root).args(quiet);
        command
    };
    match &context.python.torch_index {
        // One by one: together, all wheels would lie on the disk beside what is installed.
        None => {
            for requirement in requirements(context)?.lines().filter(|line| is_requirement(line)) {
                run(pip().arg(requirement))?;
            }
        }
        Some(index) => {
            run(pip().args([&format!("torch=={TORCH}"), "--index-url", index]))?;
            run(pip().args(BESIDE_TORCH))?;
        }
    }
    fs::write(environment.join(RECIPE), recipe(context)?).context("cannot mark the environment as complete")?;
    Ok(python)
}

/// Python with torch and numpy, or why the environment for it cannot be made here.
pub enum Ready {
    Python(PathBuf),
    NoRoom(String),
}

/// As [`ready`], unless the disk has no room for the environment.
pub fn ready_if_room(context: &Context) -> Result<Ready> {
    if let Some(why) = no_room(context)? {
        return Ok(Ready::NoRoom(why));
    }
    let error = match ready(context) {
        Ok(python) => return Ok(Ready::Python(python)),
        Err(error) => error,
    };
    // Others may have filled the disk meanwhile.
    let Some(why) = no_room(context)? else {
        return Err(error);
    };
    println!("{error:#}");
    Ok(Ready::NoRoom(why))
}

/// Why the environment cannot be made, if it is not there and the disk has no room for it.
fn no_room(context: &Context) -> Result<Option<String>> {
    if context.python.torch_index.is_some() || present(context)?.is_some() {
        return Ok(None);
    }
    let free = output(Command::new("df").arg("-Pk").arg(&context.target)).and_then(|table| free_bytes(&table));
    Ok(free.filter(|free| *free < ROOM).map(|free| {
        let [free, room] = [free, ROOM].map(|bytes| bytes as f64 / 1e9);
        format!("PyTorch takes {room:.1} GB of disk, and {free:.1} GB are free")
    }))
}

/// The free bytes in what `df -Pk` prints of one file system.
fn free_bytes(table: &str) -> Option<u64> {
    let row = table.lines().nth(1)?;
    let blocks: u64 = row.split_whitespace().nth(3)?.parse().ok()?;
    Some(blocks * 1024)
}

/// A Python that imports torch and numpy; makes the environment when it is not there.
pub fn ready(context: &Context) -> Result<PathBuf> {
    let python = match present(context)? {
        Some(python) => python,
        None => install(context)?,
    };
    let Some(version) = torch_version(&python) else {
        // Once more, where its complaint can be read.
        run(Command::new(&python).args(["-c", "import numpy, torch"]))?;
        bail!("{} imports torch only sometimes", python.display());
    };
    println!("torch {version} in {}", python.display());
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requirements_say_the_same() {
        let requirements = include_str!("../../scripts/requirements.txt");
        let torch = format!("torch=={TORCH}");
        let wanted = BESIDE_TORCH.into_iter().chain([torch.as_str()]);
        wanted.for_each(|line| assert!(requirements.lines().any(|l| l == line), "{line}"));
    }

    #[test]
    fn free_bytes_are_read_from_the_table() {
        let table = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n\
                     /dev/vda         263174212 10485760  83886080      12% /\n";
        assert_eq!(free_bytes(table), Some(83_886_080 * 1024));
        assert_eq!(free_bytes("df: no such file\n"), None);
    }
}
