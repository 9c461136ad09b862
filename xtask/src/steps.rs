//! The steps of `cargo xtask test`: run in order, timed, summed up in a table.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{Context, agreement, checks, licences, package, ptx, sources};

/// How a step that did not fail ended.
pub enum Outcome {
    /// It ran; what there is to say about it.
    Passed(String),
    /// It could not run here, and why.
    Skipped(String),
}

impl Outcome {
    /// A pass with nothing to say.
    pub fn passed() -> Outcome {
        Outcome::Passed(String::new())
    }
}

struct Step {
    name: &'static str,
    what: &'static str,
    needs_python: bool,
    run: fn(&Context) -> Result<Outcome>,
}

/// The steps to run, in order: the quick ones first.
pub struct Steps(Vec<Step>);

impl Steps {
    /// Every step.
    pub fn all() -> Steps {
        let step = |name, what, run| Step {
            name,
            what,
            needs_python: false,
            run,
        };
        Steps(vec![
            step("format", "the sources are formatted", checks::format),
            step("sources", "no unfinished code, small files", sources::check),
            step("licences", "every dependency's licence is on the list", licences::check),
            step("clippy", "no warning from the compiler or clippy", checks::clippy),
            step(
                "msrv",
                "it compiles with the oldest Rust that is promised",
                checks::msrv,
            ),
            step("ptx", "the generated PTX is that of the sources", ptx::step),
            step("tests", "unit and integration tests", checks::tests),
            step("doc-tests", "the examples in the documentation", checks::doc_tests),
            step("docs", "the documentation builds without a warning", checks::docs),
            Step {
                needs_python: true,
                ..step("torch", "agreement with PyTorch on random cases", agreement::step)
            },
            Step {
                needs_python: true,
                ..step(
                    "fold",
                    "PyTorch agrees that folded layers are the same",
                    agreement::fold,
                )
            },
            Step {
                needs_python: true,
                ..step("python", "the Python package's wheel and its tests", package::step)
            },
            step("bench", "a short run of the benchmark, unoptimized", checks::bench),
        ])
    }

    /// Without those that need Python, if `rust_only`.
    pub fn without_python(mut self, rust_only: bool) -> Steps {
        self.0.retain(|step| !(rust_only && step.needs_python));
        self
    }

    /// Only the named ones, or all when none is named.
    pub fn only(mut self, names: &[String]) -> Result<Steps> {
        if let Some(unknown) = names.iter().find(|name| !self.0.iter().any(|step| step.name == **name)) {
            let known: Vec<_> = self.0.iter().map(|step| step.name).collect();
            bail!("there is no step {unknown:?}; expected one of {}", known.join(", "));
        }
        self.0
            .retain(|step| names.is_empty() || names.iter().any(|name| name == step.name));
        Ok(self)
    }

    /// Whether one of them needs Python.
    pub fn need_python(&self) -> bool {
        self.0.iter().any(|step| step.needs_python)
    }

    /// Prints their names.
    pub fn list(&self) {
        for step in &self.0 {
            println!("{:<10} {}", step.name, step.what);
        }
    }

    /// Runs them until one fails, then prints the table.
    pub fn run(&self, context: &Context) -> Result<()> {
        let start = Instant::now();
        let mut rows = Vec::new();
        let mut failure = None;
        for (i, step) in self.0.iter().enumerate() {
            println!("\n=== {}/{} {}: {}", i + 1, self.0.len(), step.name, step.what);
            let begun = Instant::now();
            let (result, note) = match (step.run)(context) {
                Ok(Outcome::Passed(note)) => ("ok", note),
                Ok(Outcome::Skipped(why)) => {
                    println!("skipped: {why}");
                    ("skipped", why)
                }
                Err(error) => {
                    println!("error: {error:#}");
                    failure = Some(step.name);
                    ("FAILED", String::new())
                }
            };
            rows.push((step.name, result, begun.elapsed(), note));
            if failure.is_some() {
                break;
            }
        }
        print_table(&rows, start.elapsed());
        match failure {
            Some(name) => bail!("step {name} failed; to run it again: cargo xtask test --only {name}"),
            None => Ok(()),
        }
    }
}

fn print_table(rows: &[(&str, &str, Duration, String)], total: Duration) {
    println!("\n{:<10} {:<8} {:>8}", "step", "result", "time");
    for (name, result, time, note) in rows {
        println!(
            "{}",
            format!("{name:<10} {result:<8} {:>6.1} s  {note}", time.as_secs_f64()).trim_end()
        );
    }
    println!("{:<10} {:<8} {:>6.1} s", "total", "", total.as_secs_f64());
}
