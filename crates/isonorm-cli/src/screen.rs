//! The standard output: text or JSON, with colours only on a terminal.

use std::fmt;
use std::io::{self, Stdout, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::error::Result;

/// Names of things.
pub(crate) const LABEL: Style = Style::new().dimmed();
/// What was taken, passed, or is fast.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What failed or regressed.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Table headings and problems.
pub(crate) const STRONG: Style = Style::new().bold();

/// Where a command writes its results.
pub(crate) struct Screen {
    out: AutoStream<Stdout>,
    json: bool,
    /// The reader has gone away (`isonorm … | head`), which is no error.
    closed: bool,
}

impl Screen {
    pub(crate) fn new(json: bool) -> Screen {
        Screen {
            out: AutoStream::auto(io::stdout()),
            json,
            closed: false,
        }
    }

    /// Whether `--json` was given.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        self.write(format!("{text}\n").as_bytes())
    }

    /// Writes a value as JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
        self.line(text)
    }

    /// Writes bytes, unless nobody reads them any more.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        match self.out.write_all(bytes).and_then(|()| self.out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            result => Ok(result?),
        }
    }
}

/// A progress bar on the standard error, or nothing when that is no terminal.
pub(crate) fn progress(steps: u64, message: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {eta}");
    let bar = ProgressBar::new(steps).with_message(message);
    // The default style serves as well, should the template not parse.
    style.map_or(bar.clone(), |style| bar.with_style(style.progress_chars("=> ")))
}

/// Text in a style; plain where there are no colours.
pub(crate) fn styled(style: Style, text: impl fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Text on one line: control characters, which a file's name may hold, become spaces.
pub(crate) fn on_one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    spaced
        .split(' ')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
