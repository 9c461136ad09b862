//! `isonorm bench`: problems against the time of copying the same bytes.

mod case;
mod compare;
mod floor;
mod gpu;
mod output;
mod random;
mod report;
mod suite;

use std::path::{Path, PathBuf};
use std::time::Duration;

use isonorm::NormDesc;
use isonorm_report::compare::Comparison;
use isonorm_report::record::{Record, Row, Settings, Skipped};
use serde::Serialize;

use crate::device::{DeviceArgs, Place};
use crate::error::{Error, Outcome, Result};
use crate::screen::{Screen, progress};
use crate::{memory, record};
use output::Outputs;

pub(crate) use case::{MOMENTUM, Timed, bytes, measure_call, measure_loop};
pub(crate) use gpu::measure_plan;
pub(crate) use output::check as check_output;
pub(crate) use random::inputs as random_inputs;

const DETAILS: &str = "\
The floor is the fastest way found to move the same compulsory bytes (each input read once, each output written once)
with the same threads: memory copies, or a loop that reads and writes as many tensors, with ordinary or with streaming
stores. It is timed between the runs of the problem, so that noise meets both.

On a GPU the floor is the driver's copy. Both are replayed as graphs of many calls, which take turns with several sets of
tensors, and timed by the GPU's clock. Cases without a kernel are skipped and listed.

With --ablate, below each case are the times of its kernels without some of their stages: loads and stores of global
memory; exchange, which is what blocks tell each other and wait for; barriers, at which the threads of a block wait for
each other; everything, which leaves the launch and the start of the blocks. What a stage saves when it is left out is
what does not hide behind the others.

Nothing is measured with --record, or with two files for --compare.

Exit code 1: --compare found a case slower than the recorded spreads explain. bench/README.md says how that is decided.";

/// Without --suite and --case: the suite cpu, or with --device cuda the suite gpu.
#[derive(Debug, clap::Args)]
#[command(after_help = DETAILS)]
pub(crate) struct Args {
    /// A named list of problems; may be repeated
    #[arg(long, value_name = "NAME", value_parser = suite::names())]
    suite: Vec<String>,
    /// One problem, such as "layernorm x=4096x1024 dtype=bf16 pass=backward"; may be repeated
    #[arg(long, value_name = "PROBLEM")]
    case: Vec<NormDesc>,
    /// Compare with a record that --save wrote; of two, the second one with the first
    #[arg(long, value_name = "FILE", num_args = 1..=2)]
    compare: Vec<PathBuf>,
    /// Save the results as a record (JSON)
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
    /// Make the page and the pictures of this record; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["suite", "case", "compare", "save", "ablate", "alternatives"])]
    record: Vec<PathBuf>,
    /// Measure each case for at least this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    min_time: Duration,
    /// Measure each case on a GPU without stages of its kernels, too: what its time beyond the floor is made of
    #[arg(long, conflicts_with = "compare")]
    ablate: bool,
    /// Measure every plan that a GPU has for a case, to judge by which one is chosen
    #[arg(long, hide = true, conflicts_with_all = ["compare", "ablate"])]
    alternatives: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// A length of time, as the command line has it.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 3600.0;
    match text.parse::<f64>() {
        Ok(s) if (0.0..=LONGEST).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!("expected seconds from 0 to {LONGEST}")),
    }
}

/// The JSON of a run: its record, and what it was compared with.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    record: &'a Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
}

/// The JSON of a report.
#[derive(Serialize)]
struct Written {
    written: Vec<PathBuf>,
}

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    match &args.compare[..] {
        _ if !args.record.is_empty() => report_on(args, screen),
        [old, new] => compare_two(args, (old, new), screen),
        _ => run(args, screen),
    }
}

/// Measures, and compares with at most one record.
fn run(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    let cases = cases(args)?;
    for (flag, is_given) in [("--alternatives", args.alternatives), ("--ablate", args.ablate)] {
        if is_given && !matches!(args.device.device, Place::Cuda(_)) {
            return Err(Error::usage(format!("{flag} is for kernels of a GPU: --device cuda")));
        }
    }
    // Before the work, so that a bad record and a file that cannot be written are told at once.
    let old = args.compare.first().map(|path| record::load(path)).transpose()?;
    args.save.as_deref().map_or(Ok(()), output::check)?;
    args.outputs.check()?;
    let record = measure(args, &cases, screen)?;
    let comparison = old.map(|old| Comparison::of(&old, &record));
    let outcome = show(&record, comparison.as_ref(), screen)?;
    let written = args.outputs.write(&[record])?;
    if !screen.is_json() {
        tell(&written, screen)?;
    }
    Ok(outcome)
}

/// Compares two records.
fn compare_two(args: &Args, (old, new): (&Path, &Path), screen: &mut Screen) -> Result<Outcome> {
    if !args.suite.is_empty() || !args.case.is_empty() || args.save.is_some() || args.outputs.any() {
        return Err(Error::usage(
            "--compare with two records measures nothing: no --suite, --case, --save, --html or --pictures",
        ));
    }
    let (old, new) = (record::load(old)?, record::load(new)?);
    show(&new, Some(&Comparison::of(&old, &new)), screen)
}

/// The new record as JSON, or how it compares.
fn show(record: &Record, comparison: Option<&Comparison>, screen: &mut Screen) -> Result<Outcome> {
    match screen.is_json() {
        true => screen.json(&Printed { record, comparison })?,
        false => comparison.map_or(Ok(()), |comparison| compare::show(comparison, screen))?,
    }
    let regressed = comparison.is_some_and(|c| c.regressions > 0);
    Ok(if regressed { Outcome::Failure } else { Outcome::Success })
}

/// Makes the page and the pictures of records that there are.
fn report_on(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    if !args.outputs.any() {
        return Err(Error::usage(
            "--record is what a report is made of: add --html FILE or --pictures FOLDER",
        ));
    }
    let records = args
        .record
        .iter()
        .map(|path| record::load(path))
        .collect::<Result<Vec<_>>>()?;
    args.outputs.check()?;
    let written = args.outputs.write(&records)?;
    match screen.is_json() {
        true => screen.json(&Written { written })?,
        false => tell(&written, screen)?,
    }
    Ok(Outcome::Success)
}

fn tell(written: &[PathBuf], screen: &mut Screen) -> Result<()> {
    let mut written = written.iter();
    written.try_for_each(|path| screen.line(format!("wrote {}", path.display())))
}

/// The problems that were asked for, each once.
fn cases(args: &Args) -> Result<Vec<NormDesc>> {
    let default = (args.suite.is_empty() && args.case.is_empty()).then(|| match args.device.device {
        Place::Cuda(_) => suite::DEFAULT_GPU.to_owned(),
        _ => suite::DEFAULT.to_owned(),
    });
    let mut cases: Vec<NormDesc> = Vec::new();
    for name in args.suite.iter().chain(&default) {
        cases.extend(suite::parse(name)?);
    }
    cases.extend(&args.case);
    for case in &cases {
        if case.get_shape().elements() == Some(0) {
            return Err(Error::usage(format!("{case}: there are no elements to measure")));
        }
        // A GPU's tensors are in its memory.
        if args.device.device == Place::Cpu {
            memory::check(case::bytes(case))?;
        }
    }
    let mut seen = Vec::new();
    cases.retain(|case| {
        let new = !seen.contains(case);
        seen.push(*case);
        new
    });
    Ok(cases)
}

fn measure(args: &Args, cases: &[NormDesc], screen: &mut Screen) -> Result<Record> {
    args.device.pool()?.install(|| {
        let device = args.device.device()?;
        let gpu = args.device.gpu()?;
        let settings = Settings {
            threads: device.threads(),
            isa: Some(args.device.isa()),
            min_time_s: args.min_time.as_secs_f64(),
            rounds: None,
        };
        let mut record = record::now(settings);
        let save = args.save.as_deref();
        match gpu {
            None => each(cases, (&mut record, save), screen, |desc, _| {
                Ok(vec![case::measure(desc, &device, args.min_time)?])
            })?,
            Some(gpu) => {
                record.gpu = Some(record::gpu(&gpu)?);
                let stream = gpu.stream()?;
                each(cases, (&mut record, save), screen, |desc, skipped| {
                    let one = if args.ablate { gpu::ablations } else { gpu::measure };
                    let measured = match args.alternatives {
                        true => gpu::alternatives(desc, &stream, &device, args.min_time),
                        false => one(desc, &stream, &device, args.min_time).map(|row| vec![row]),
                    };
                    match measured {
                        Err(Error::Isonorm(isonorm::Error::Unsupported { reason, .. })) => {
                            skipped.push(Skipped {
                                case: desc.to_string(),
                                reason,
                            });
                            Ok(Vec::new())
                        }
                        measured => measured,
                    }
                })?;
            }
        }
        if !screen.is_json() {
            report::summary(&record.rows, screen)?;
            report::skipped(&record.skipped, screen)?;
        }
        Ok(record)
    })
}

/// Measures each case and shows what was measured of it, if anything was. The record is saved behind each: what has been measured is
/// not lost, whatever happens to the next case.
fn each(
    cases: &[NormDesc],
    (record, save): (&mut Record, Option<&Path>),
    screen: &mut Screen,
    mut measure: impl FnMut(&NormDesc, &mut Vec<Skipped>) -> Result<Vec<Row>>,
) -> Result<()> {
    let table = report::Table::of(cases);
    let bar = progress(cases.len() as u64, "measuring");
    if !screen.is_json() {
        bar.suspend(|| table.heading(screen))?;
    }
    for desc in cases {
        for row in measure(desc, &mut record.skipped)? {
            if !screen.is_json() {
                bar.suspend(|| table.row(&row, screen))?;
            }
            record.rows.push(row);
        }
        if let Some(path) = save {
            record::save(record, path)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use isonorm::Device;

    use super::*;

    #[test]
    fn what_was_measured_is_saved_though_the_next_case_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        let cases = ["layernorm x=2x3", "layernorm x=2x4"].map(|case| case.parse().unwrap());
        let settings = Settings {
            threads: 1,
            isa: None,
            min_time_s: 0.0,
            rounds: None,
        };
        let mut record = record::now(settings);
        let device = Device::cpu();
        let ended = each(
            &cases,
            (&mut record, Some(&path)),
            &mut Screen::new(true),
            |desc, _| match desc == &cases[0] {
                true => Ok(vec![case::measure(desc, &device, Duration::ZERO)?]),
                false => Err(Error::usage("the second one")),
            },
        );
        assert!(ended.is_err());
        let saved = record::load(&path).unwrap();
        let saved: Vec<_> = saved.rows.iter().map(|row| row.case.clone()).collect();
        assert_eq!(saved, [cases[0].to_string()]);
    }
}
