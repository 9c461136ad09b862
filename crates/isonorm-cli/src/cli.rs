//! Arguments in, exit code out.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::error::{Outcome, Result};
use crate::screen::{Screen, on_one_line};
use crate::{bench, completions, explain, fold, ladder, run, verify};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  a verification failed, a benchmark regressed, a rung of the ladder was wrong, or there was nothing to fold
  2  bad usage or bad input; one line on the standard error says what

Colours are used on a terminal only; NO_COLOR turns them off.";

/// Normalization layers: run, explain, verify, measure and fold them.
#[derive(Debug, Parser)]
#[command(name = "isonorm", version, after_help = EXIT_CODES, propagate_version = true, arg_required_else_help = false)]
pub(crate) struct Cli {
    /// Print JSON instead of text
    #[arg(long, global = true, display_order = 1000)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Normalize a tensor in a file
    Run(Box<run::Args>),
    /// Show how a problem would be carried out, and why
    Explain(explain::Args),
    /// Check results against a double-precision oracle
    Verify(verify::Args),
    /// Measure problems against the time of copying the same bytes
    Bench(bench::Args),
    /// Climb from the naive kernel to the limit: published kernels beside isonorm's, timed and checked
    Ladder(ladder::Args),
    /// Remove normalizations from a state dict by folding them into the layers beside them
    Fold(Box<fold::Args>),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

impl Command {
    fn execute(self, screen: &mut Screen) -> Result<Outcome> {
        match self {
            Command::Run(args) => run::execute(&args, screen),
            Command::Explain(args) => explain::execute(&args, screen),
            Command::Verify(args) => verify::execute(&args, screen),
            Command::Bench(args) => bench::execute(&args, screen),
            Command::Ladder(args) => ladder::execute(&args, screen),
            Command::Fold(args) => fold::execute(&args, screen),
            Command::Completions(args) => completions::execute(&args, screen),
        }
    }
}

/// Bad usage or bad input.
const REFUSED: u8 = 2;

/// Runs the command line and returns the process's exit code. Never panics on any input.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => return explain_usage(&e),
    };
    match cli.command.execute(&mut Screen::new(cli.json)) {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::Failure) => ExitCode::FAILURE,
        Err(e) => refuse(&e.to_string()),
    }
}

/// Help and version go to the standard output as they are; every other complaint of the parser becomes one line.
fn explain_usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader that has gone away is no error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let rendered = error.render().to_string();
    let told = rendered
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let text = told
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
        .replace(" tip: ", "; ");
    refuse(text.strip_prefix("error: ").unwrap_or(&text))
}

fn refuse(message: &str) -> ExitCode {
    const ERROR: Style = AnsiColor::Red.on_default().bold();
    // With the standard error closed there is nobody to tell.
    let _ = writeln!(anstream::stderr(), "{ERROR}error:{ERROR:#} {}", on_one_line(message));
    ExitCode::from(REFUSED)
}
