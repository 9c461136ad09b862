//! `isonorm ladder`: published kernels and isonorm's own, on the same data, each with its time, the bytes that it moves, and its error.

#[cfg(feature = "interpreter")]
mod count;
mod cpu;
mod gpu;
mod judge;
mod numerics;
mod problem;
mod published;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use isonorm::{Error as Refusal, NormDesc, Shape};
use isonorm_report::record::{LadderProblem, Record, Settings};

use crate::device::{DeviceArgs, Place};
use crate::error::{Error, Outcome, Result};
use crate::screen::{Screen, progress};
use crate::{bench, memory, record};
use problem::Problem;

const DETAILS: &str = "\
Without --op and --shape: the set-ups that the kernels were published with. BatchNorm of 5000x512; of layers of a ResNet-50,
64x256x56x56 and 64x256x14x14; LayerNorm of 1024x1024, whose input is 1, 2, 3, and so on, row by row.

time      one call: on a GPU of graphs of many, timed by its clock
of floor  the time of a copy of the compulsory bytes, as a share of it
reads     how often the kernels ask for the input (and dy): counted by the interpreter, which runs them on a small case, if
          the program was built with it (--features interpreter); of isonorm itself, what its plan says
moved     bytes, computed from that for the shape
error     the largest |y - y64|, y64 computed in double precision; of large tensors over whole channels or rows, from the
          first to the last, of four million elements in all
bound     what the error may be, derived for the kernel's own arithmetic; none: it promises no digit

Without a GPU the CPU's own ladder is shown: a scalar loop, the cache, vectors, threads.

Last come the errors as the mean of the data grows, in standard deviations.

Exit code 1: a result lies outside of its bound.";

/// The op of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Op {
    Batchnorm,
    Layernorm,
}

/// From the naive kernel to the limit of the chip.
#[derive(Debug, clap::Args)]
#[command(after_help = DETAILS)]
pub(crate) struct Args {
    /// The kernels of one op only
    #[arg(long, value_name = "OP")]
    op: Option<Op>,
    /// Sizes of the input, such as 64x256x56x56: N,C,... for BatchNorm, rows of the last dimension for LayerNorm
    #[arg(long, value_name = "SIZES", requires = "op", value_parser = shape)]
    shape: Option<Shape>,
    /// Where to work: cuda (the first GPU), cuda:N, or cpu; unless said, the first GPU, or the CPU where there is none
    #[arg(long, value_name = "DEVICE")]
    device: Option<Place>,
    /// Threads of the CPU to work with; 0: as many as there are cores
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Save the results as a record (JSON)
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Measure each kernel for at least this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.3", value_parser = bench::seconds)]
    min_time: Duration,
}

fn shape(text: &str) -> Result<Shape, String> {
    let dims: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    dims.ok()
        .and_then(|dims| Shape::new(&dims))
        .ok_or_else(|| "expected sizes such as 64x256x56x56".into())
}

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    let problems = problem::asked_for(args.op, args.shape)?;
    args.save.as_deref().map_or(Ok(()), bench::check_output)?;
    let (device, without) = place(args)?;
    if device.device == Place::Cpu {
        let most = problems.iter().map(Problem::bytes).max().unwrap_or(0);
        memory::check(most)?;
    }
    if let (Some(reason), false) = (&without, screen.is_json()) {
        screen.line(format!("{reason}: this is the CPU's own ladder"))?;
    }
    let record = device.pool()?.install(|| measure(args, &device, &problems, screen))?;
    if let Some(path) = &args.save {
        record::save(&record, path)?;
    }
    if screen.is_json() {
        screen.json(&record)?;
    }
    let wrong = record
        .ladder
        .iter()
        .flat_map(|problem| &problem.rungs)
        .any(|rung| !rung.is_right());
    Ok(if wrong { Outcome::Failure } else { Outcome::Success })
}

/// Where to work, and why not on a GPU, where that was not asked for.
fn place(args: &Args) -> Result<(DeviceArgs, Option<String>)> {
    let at = |place| DeviceArgs::at(place, args.threads);
    if let Some(place) = &args.device {
        let device = at(place.clone());
        // Says what does not fit here.
        device.gpu()?;
        return Ok((device, None));
    }
    match at(Place::Cuda(0)).gpu() {
        Ok(_) => Ok((at(Place::Cuda(0)), None)),
        Err(Error::Isonorm(error @ Refusal::NoGpu { .. })) => Ok((at(Place::Cpu), Some(error.to_string()))),
        Err(error) => Err(error),
    }
}

fn measure(args: &Args, device: &DeviceArgs, problems: &[Problem], screen: &mut Screen) -> Result<Record> {
    let host = device.device()?;
    let mut record = record::now(Settings {
        threads: host.threads(),
        isa: Some(device.isa()),
        min_time_s: args.min_time.as_secs_f64(),
        rounds: None,
    });
    let gpu = device.gpu()?;
    record.gpu = gpu.as_ref().map(record::gpu).transpose()?;
    let bar = progress(problems.len() as u64, "climbing");
    for problem in problems {
        let rungs = match &gpu {
            Some(gpu) => gpu::climb(problem, &gpu.stream()?, &host, args.min_time)?,
            // The CPU's ladder is that of training.
            None if !problem.is_training() => continue,
            None => cpu::climb(problem, &host, args.min_time)?,
        };
        let climbed = LadderProblem {
            case: problem.desc.to_string(),
            input: problem.input.name().into(),
            rungs,
        };
        if !screen.is_json() {
            bar.suspend(|| table::show(&climbed, screen))?;
        }
        record.ladder.push(climbed);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let stream = gpu.as_ref().map(|gpu| gpu.stream()).transpose()?;
    let asked_for = |desc: &NormDesc| {
        problems
            .iter()
            .any(|problem| problem.desc.get_norm() == desc.get_norm())
    };
    record.numerics = numerics::measure(stream.as_ref(), &host, asked_for)?;
    if !screen.is_json() {
        table::show_numerics(&record.numerics, screen)?;
    }
    Ok(record)
}
