//! `isonorm verify`: does this machine compute what is promised?

use std::collections::BTreeMap;

use isonorm::{Geometry, GpuProperties};
use isonorm_check::{Case, CaseReport, CpuEngine, CudaEngine, Engine, Start, SuiteReport, run_suite_ahead, suites};
use serde::Serialize;

use crate::device::{DeviceArgs, Place};
use crate::error::{Error, Outcome, Result};
use crate::format::seconds;
use crate::memory;
use crate::screen::{BAD, GOOD, LABEL, STRONG, Screen, progress, styled};
use crate::table::{Align, Columns};

const DETAILS: &str = "\
Every case runs in guarded memory and is compared, element by element, with an oracle in compensated double precision.
Tolerances are derived from the type, the length of the sums and their conditioning; the column `worst` is the largest
error as a share of its tolerance. What a device has no kernel for is skipped, and counted with the reason. While the
device works, --threads threads compute what the next cases read, and what should come of them. A case is a problem
string, with data= and seed= if the data matters.

Exit code 1: a case failed, or none was run. Each failure is shown with its worst element and the command that reproduces it.";

/// How many failures are shown; the count is always said.
const FAILURES_SHOWN: usize = 20;
/// Bytes that a case takes for each element: data, guarded copies, and the oracle's double-precision tensors.
const BYTES_PER_ELEMENT: u64 = 200;
/// The name under which the cases of the command line are reported.
const GIVEN: &str = "given";
/// What the name of a suite is followed by where tensors do not begin where vectors would like to.
const MISALIGNED: &str = ", misaligned";
/// Where tensors begin for a GPU, which has other kernels for each.
const STARTS: [(&str, Start); 2] = [("", Start::Aligned), (MISALIGNED, Start::Misaligned)];

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
    suite: String,
    #[serde(flatten)]
    report: SuiteReport,
}

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    let done = run(args)?;
    // Where nothing ran, nothing was verified.
    let ran = done.iter().any(|done| done.report.right() > 0);
    let passed = ran && done.iter().all(|done| done.report.passed());
    if screen.is_json() {
        screen.json(&Verified { passed, suites: done })?;
    } else {
        show(&done, &args.device.device, screen)?;
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
    let largest = |cases: &[Case]| {
        let mut sizes = cases.iter().map(bytes);
        sizes.try_fold(0, |most: u64, size| Ok::<_, Error>(most.max(size?)))
    };
    let sizes: Vec<u64> = chosen.iter().map(|(_, cases)| largest(cases)).collect::<Result<_>>()?;
    memory::check(sizes.iter().copied().max().unwrap_or(0))?;
    args.device.pool()?.install(|| {
        let mut engines = engines(&args.device)?;
        let cases: usize = chosen.iter().map(|(_, cases)| cases.len()).sum();
        let bar = progress((cases * engines.len()) as u64, "verifying");
        let mut done = Vec::new();
        for ((suite, cases), &largest) in chosen.iter().zip(&sizes) {
            // As many cases at a time as there is memory for; one of them is the engine's.
            let ahead = memory::times(largest)
                .saturating_sub(1)
                .min(rayon::current_num_threads());
            let mut each: Vec<&mut dyn Engine> = engines.iter_mut().map(|(_, engine)| &mut **engine as _).collect();
            let reports = run_suite_ahead(&mut each, cases, ahead, |_| bar.inc(1));
            done.extend(engines.iter().zip(reports).map(|((kind, _), report)| Done {
                suite: format!("{suite}{kind}"),
                report,
            }));
        }
        bar.finish_and_clear();
        Ok(done)
    })
}

/// Memory that a case takes, about.
fn bytes(case: &Case) -> Result<u64> {
    let g = Geometry::of(&case.desc)?;
    let most = g.elements().max(g.groups()).max(g.parameters) as u64;
    Ok(most.saturating_mul(BYTES_PER_ELEMENT))
}

/// What is added to a suite's name, and what runs it.
type Kind = (&'static str, Box<dyn Engine>);

/// What is verified: a GPU with aligned tensors and with others, for which it has other kernels.
fn engines(device: &DeviceArgs) -> Result<Vec<Kind>> {
    if device.device == Place::Interpreter
        && let Some(properties) = device.gpu_properties()?
    {
        return interpreted(properties);
    }
    let Some(gpu) = device.gpu()? else {
        return Ok(vec![("", Box::new(CpuEngine::new(device.device()?)))]);
    };
    let engine = CudaEngine::new(gpu)?;
    let starting = |(kind, start)| (kind, Box::new(engine.clone().starting(start)) as Box<dyn Engine>);
    Ok(STARTS.map(starting).into())
}

/// The kernels of a GPU like this one, on the host.
#[cfg(feature = "interpreter")]
fn interpreted(properties: GpuProperties) -> Result<Vec<Kind>> {
    let engine = isonorm_check::InterpreterEngine::new(isonorm::cuda::Interpreter::new(properties));
    let starting = |(kind, start)| (kind, Box::new(engine.clone().starting(start)) as Box<dyn Engine>);
    Ok(STARTS.map(starting).into())
}

#[cfg(not(feature = "interpreter"))]
fn interpreted(_: GpuProperties) -> Result<Vec<Kind>> {
    Err(Error::usage(
        "this isonorm was built without the interpreter; build it with: cargo build --release -p isonorm-cli --features interpreter",
    ))
}

fn show(done: &[Done], place: &Place, screen: &mut Screen) -> Result<()> {
    let heading = ["suite", "cases", "passed", "skipped", "elements", "worst", "time"].map(String::from);
    let cells = |d: &Done| {
        let r = &d.report;
        let worst = r.worst.as_ref().map_or(0.0, CaseReport::ratio);
        [
            d.suite.clone(),
            r.cases.to_string(),
            r.right().to_string(),
            r.skipped().to_string(),
            r.compared.to_string(),
            format!("{worst:.3}"),
            seconds(r.seconds),
        ]
    };
    let rows: Vec<_> = done.iter().map(cells).collect();
    let aligns = [[Align::Left].as_slice(), &[Align::Right; 6]].concat();
    let columns = Columns::fitting(
        &aligns,
        std::iter::once(&heading[..]).chain(rows.iter().map(|r| &r[..])),
    );
    screen.line(styled(STRONG, columns.row(&heading)))?;
    for (done, cells) in done.iter().zip(&rows) {
        let verdict = match (done.report.passed(), done.report.right()) {
            (true, 1..) => styled(GOOD, "ok"),
            (true, 0) => "nothing was run".into(),
            (false, _) => styled(BAD, "FAILED"),
        };
        screen.line(format!("{}  {verdict}", columns.row(cells)))?;
    }
    screen.line("")?;
    skipped(done, screen)?;
    failures(done, place, screen)?;
    worst(done, screen)
}

/// Why cases were not run, the most frequent reason first.
fn skipped(done: &[Done], screen: &mut Screen) -> Result<()> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, cases) in done.iter().flat_map(|done| &done.report.skipped) {
        *reasons.entry(reason).or_default() += cases;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, cases)| std::cmp::Reverse(*cases));
    let mut each = reasons.iter();
    each.try_for_each(|(reason, cases)| screen.line(format!("{} {cases}: {reason}", styled(LABEL, "skipped"))))
}

fn failures(done: &[Done], place: &Place, screen: &mut Screen) -> Result<()> {
    let failed: Vec<_> = done.iter().flat_map(|done| &done.report.failed).collect();
    for report in failed.iter().take(FAILURES_SHOWN) {
        screen.line(styled(BAD, report))?;
        screen.line(format!(
            "{} isonorm verify{} --case \"{}\"",
            styled(LABEL, "reproduce:"),
            place.flag(),
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
