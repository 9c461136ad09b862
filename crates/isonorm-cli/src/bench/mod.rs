//! `isonorm bench`: problems against the time of copying the same bytes.

mod case;
mod compare;
mod floor;
mod gpu;
mod random;
mod record;
mod report;
mod suite;

use std::path::{Path, PathBuf};
use std::time::Duration;

use isonorm::NormDesc;
use serde::Serialize;

use crate::device::{DeviceArgs, Place};
use crate::error::{Error, Outcome, Result};
use crate::memory;
use crate::screen::{Screen, progress};
use compare::Comparison;
use record::{Gpu, Record, Row, Settings, Skipped};

const DETAILS: &str = "\
The floor is the fastest way found to move the same compulsory bytes (each input read once, each output written once)
with the same threads: memory copies, or a loop that reads and writes as many tensors, with ordinary or with streaming
stores. It is timed between the runs of the problem, so that noise meets both.

On a GPU the floor is the driver's copy. Both are replayed as graphs of many calls, which take turns with several sets of
tensors, and timed by the GPU's clock. Cases without a kernel are skipped and listed.

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
    /// Compare with a record that --save wrote
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Save the results as a record (JSON)
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Measure each case for at least this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    min_time: Duration,
    /// Measure every plan that a GPU has for a case, to judge by which one is chosen
    #[arg(long, hide = true, conflicts_with = "compare")]
    alternatives: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

fn seconds(text: &str) -> Result<Duration, String> {
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

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    let cases = cases(args)?;
    if args.alternatives && !matches!(args.device.device, Place::Cuda(_)) {
        return Err(Error::usage("--alternatives are those of a GPU: --device cuda"));
    }
    // Before the work, so that a bad record is told at once.
    let old = args.compare.as_deref().map(Record::load).transpose()?;
    let record = measure(args, &cases, screen)?;
    let comparison = old.map(|old| Comparison::of(&old, &record));
    match screen.is_json() {
        true => screen.json(&Printed {
            record: &record,
            comparison: comparison.as_ref(),
        })?,
        false => comparison.iter().try_for_each(|c| c.show(screen))?,
    }
    let regressed = comparison.is_some_and(|c| c.regressions > 0);
    Ok(if regressed { Outcome::Failure } else { Outcome::Success })
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
            isa: args.device.isa(),
            min_time_s: args.min_time.as_secs_f64(),
        };
        let mut record = Record::now(settings);
        let save = args.save.as_deref();
        match gpu {
            None => each(cases, (&mut record, save), screen, |desc, _| {
                Ok(vec![case::measure(desc, &device, args.min_time)?])
            })?,
            Some(gpu) => {
                record.gpu = Some(Gpu::of(&gpu)?);
                let stream = gpu.stream()?;
                each(cases, (&mut record, save), screen, |desc, skipped| {
                    let measured = match args.alternatives {
                        true => gpu::alternatives(desc, &stream, &device, args.min_time),
                        false => gpu::measure(desc, &stream, &device, args.min_time).map(|row| vec![row]),
                    };
                    match measured {
                        Err(Error::Isonorm(isonorm::Error::Unsupported { reason, .. })) => {
                            skipped.push(Skipped { case: *desc, reason });
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
            record.save(path)?;
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
            isa: "scalar".into(),
            min_time_s: 0.0,
        };
        let mut record = Record::now(settings);
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
        let saved = Record::load(&path).unwrap();
        assert_eq!(saved.rows.iter().map(|row| row.case).collect::<Vec<_>>(), cases[..1]);
    }
}
