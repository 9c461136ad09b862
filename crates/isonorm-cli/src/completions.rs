//! `isonorm completions`: a script for a shell.

use clap::CommandFactory;
use clap_complete::Shell;
use serde::Serialize;

use crate::cli::Cli;
use crate::error::{Outcome, Result};
use crate::screen::Screen;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

#[derive(Serialize)]
struct Script {
    shell: String,
    script: String,
}

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "isonorm", &mut script);
    if screen.is_json() {
        let script = String::from_utf8_lossy(&script).into_owned();
        screen.json(&Script {
            shell: args.shell.to_string(),
            script,
        })?;
    } else {
        screen.write(&script)?;
    }
    Ok(Outcome::Success)
}
