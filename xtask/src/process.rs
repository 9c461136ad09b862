//! Commands that the steps run, shown before they run.

use std::env::{self, consts::EXE_SUFFIX};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::Context;

/// The cargo that runs this program.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root);
    command
}

/// Builds the workspace's programs as the tests do, so that what they have compiled is used again; where the program of this name is.
pub fn program(context: &Context, name: &str) -> Result<PathBuf> {
    run(cargo(&context.root).args([
        "build",
        "--locked",
        "--quiet",
        "--workspace",
        "--all-features",
        "--bins",
    ]))?;
    Ok(context.target.join("debug").join(format!("{name}{EXE_SUFFIX}")))
}

/// The command as one would type it, without its directory.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={:?} ", name.to_string_lossy(), value?.to_string_lossy())));
    let arguments = command.get_args().map(|a| {
        let a = a.to_string_lossy();
        if a.is_empty() || a.contains([' ', ';', '(', '"']) {
            format!(" {a:?}")
        } else {
            format!(" {a}")
        }
    });
    format!(
        "{}{program}{}",
        variables.collect::<String>(),
        arguments.collect::<String>()
    )
}

/// Runs to the end with its output on the terminal; an error when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// As [`run`], and hands each line of the standard output to `line` after it was printed.
pub fn run_reading(command: &mut Command, mut line: impl FnMut(&str)) -> Result<()> {
    let shown = shown(command);
    println!("$ {shown}");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if let Some(output) = child.stdout.take() {
        for text in BufReader::new(output).lines() {
            let text = text.with_context(|| format!("cannot read the output of `{shown}`"))?;
            writeln!(std::io::stdout(), "{text}")?;
            line(&text);
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Its standard output, when it runs and succeeds; nothing is shown.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
