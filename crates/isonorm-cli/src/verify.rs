//! `isonorm verify`: does this machine compute what is promised?

use std::time::Instant;

use isonorm::Geometry;
use isonorm_check::{Case, CaseReport, CpuEngine, SuiteReport, run_suite, suites};
use serde::Serialize;

use crate::device::DeviceArgs;
use crate::error::{Outcome, Result};
use crate::format::seconds;
use crate::memory;
use crate::screen::{BAD, GOOD, LABEL, STRONG, Screen, progress, styled};
use crate::table::{Align, Columns};

const DETAILS: &str = "\
Every case runs in guarded memory and is compared, element by element, with an oracle in compensated double precision.
Tolerances are derived from the type, the length of the sums and their conditioning; the column `worst` is the largest
error as a share of its tolerance. A case is a problem string, with data= and seed= if the data matters.

Exit code 1: a case failed. Each failure is shown with its worst element and the command that reproduces it.";

/// How many failures are shown; the count is always said.
const FAILURES_SHOWN: usize = 20;
/// Bytes that a case takes for each element: data, guarded copies, and the oracle's double-precision tensors.
const BYTES_PER_ELEMENT: u64 = 200;
/// The name under which the cases of the command line are reported.
const GIVEN: &str = "given";

/// Without --suite and --case: every suite.
#[derive(Debug, clap::Args)]
#[command(after_help = DETAILS)]
pub(crate) struct Args {
    /// A named list of cases; may be repeated
    #[arg(long, value_name = "NAME", value_parser = names())]
    suite: Vec<String>,
    /// One case, such as "layernorm x=8x100 dtype=bf16 pass=backward data=offset:100 seed=7"; may be repeated
    #[arg(long, value_name = "CASE")]
    case: Vec<Case>,
    #[command(flatten)]
    device: DeviceArgs,
}

fn names() -> Vec<&'static str> {
    suites().iter().map(|suite| suite.name).collect()
}

#[derive(Serialize)]
struct Verified {
    passed: bool,
    suites: Vec<Done>,
}

/// A suite that was run.
#[derive(Serialize)]
struct Done {
    suite: &'static str,
    seconds: f64,
    #[serde(flatten)]
    report: SuiteReport,
}

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    let done = run(args)?;
    let passed = done.iter().all(|done| done.report.passed());
    if screen.is_json() {
        screen.json(&Verified { passed, suites: done })?;
    } else {
        show(&done, screen)?;
    }
    Ok(if passed { Outcome::Success } else { Outcome::Failure })
}

/// The suites and cases that were asked for.
fn chosen(args: &Args) -> Vec<(&'static str, Vec<Case>)> {
    let all = args.suite.is_empty() && args.case.is_empty();
    let named = suites()
        .into_iter()
        .filter(|suite| all || args.suite.iter().any(|name| name == suite.name));
    let mut chosen: Vec<_> = named.map(|suite| (suite.name, suite.cases)).collect();
    if !args.case.is_empty() {
        chosen.push((GIVEN, args.case.clone()));
    }
    chosen
}

fn run(args: &Args) -> Result<Vec<Done>> {
    let chosen = chosen(args);
    for case in chosen.iter().flat_map(|(_, cases)| cases) {
        let g = Geometry::of(&case.desc)?;
        let most = g.elements().max(g.groups()).max(g.parameters) as u64;
        memory::check(most.saturating_mul(BYTES_PER_ELEMENT))?;
    }
    args.device.pool()?.install(|| {
        let mut engine = CpuEngine::new(args.device.device()?);
        let bar = progress(chosen.iter().map(|(_, cases)| cases.len() as u64).sum(), "verifying");
        let done = chosen.iter().map(|(suite, cases)| {
            let start = Instant::now();
            let report = run_suite(&mut engine, cases, |_| bar.inc(1));
            Done {
                suite,
                seconds: start.elapsed().as_secs_f64(),
                report,
            }
        });
        let done = done.collect();
        bar.finish_and_clear();
        Ok(done)
    })
}

fn show(done: &[Done], screen: &mut Screen) -> Result<()> {
    let heading = ["suite", "cases", "passed", "elements", "worst", "time"].map(String::from);
    let cells = |d: &Done| {
        let r = &d.report;
        let worst = r.worst.as_ref().map_or(0.0, CaseReport::ratio);
        let (cases, passed) = (r.cases.to_string(), (r.cases - r.failed.len()).to_string());
        [
            d.suite.to_owned(),
            cases,
            passed,
            r.compared.to_string(),
            format!("{worst:.3}"),
            seconds(d.seconds),
        ]
    };
    let rows: Vec<_> = done.iter().map(cells).collect();
    let aligns = [[Align::Left].as_slice(), &[Align::Right; 5]].concat();
    let columns = Columns::fitting(
        &aligns,
        std::iter::once(&heading[..]).chain(rows.iter().map(|r| &r[..])),
    );
    screen.line(styled(STRONG, columns.row(&heading)))?;
    for (done, cells) in done.iter().zip(&rows) {
        let verdict = if done.report.passed() {
            styled(GOOD, "ok")
        } else {
            styled(BAD, "FAILED")
        };
        screen.line(format!("{}  {verdict}", columns.row(cells)))?;
    }
    screen.line("")?;
    failures(done, screen)?;
    worst(done, screen)
}

fn failures(done: &[Done], screen: &mut Screen) -> Result<()> {
    let failed: Vec<_> = done.iter().flat_map(|done| &done.report.failed).collect();
    for report in failed.iter().take(FAILURES_SHOWN) {
        screen.line(styled(BAD, report))?;
        screen.line(format!(
            "{} isonorm verify --case \"{}\"",
            styled(LABEL, "reproduce:"),
            report.case
        ))?;
    }
    match failed.len().saturating_sub(FAILURES_SHOWN) {
        0 => Ok(()),
        more => screen.line(format!("{more} more failed")),
    }
}

/// The element that came nearest to its tolerance, or went farthest beyond.
fn worst(done: &[Done], screen: &mut Screen) -> Result<()> {
    let reports = done.iter().filter_map(|done| done.report.worst.as_ref());
    let Some(report) = reports.max_by(|a, b| a.ratio().total_cmp(&b.ratio())) else {
        return Ok(());
    };
    let Some(element) = &report.worst else { return Ok(()) };
    screen.line(format!("worst element: {element}"))?;
    screen.line(format!("of case: {} on {}", report.case, report.engine))
}
