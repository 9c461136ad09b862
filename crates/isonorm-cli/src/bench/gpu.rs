//! One problem on a GPU and its floor, in turns: graphs of many calls, timed by the GPU's clock between two events. Calls
//! take turns with several sets of tensors, so that none finds its own in the second-level cache.
//!
//! The floor is the driver's copy of `x` to `y`, in whole pages, scaled to the compulsory bytes.

use std::time::{Duration, Instant};

use isonorm::cuda::{Graph, Plan, Stream};
use isonorm::{Device, NormDesc};
use isonorm_report::record::{Ablated, Alternative, GpuRow, Row};

use super::case::{MOMENTUM, TURNS, Timed, saved, take_turn};
use super::random;
use crate::call::{GpuCall, Inputs, Outputs, Save};
use crate::error::{Error, Result};
use crate::measure::median;

/// The sets of tensors together are so many times the second-level cache.
const CACHES: u64 = 3;
/// Sets, at most; small problems stay in the cache whatever is done.
const MOST_SETS: u64 = 256;
/// The share of the free memory that the sets may take.
const MEMORY_SHARE: u64 = 2;
/// A graph lasts about so long, so that its own launch does not count.
const GRAPH_SECONDS: f64 = 1e-3;
/// No call takes less.
const SHORTEST_CALL: f64 = 2e-6;
/// Calls that the host makes in a row to be timed: fewer than fill the queue of a stream, which would make it wait.
const HOST_CALLS: u32 = 100;
/// Samples of so many calls, however long they take, and however short.
const LEAST_HOST_SAMPLES: usize = 5;
const MOST_HOST_SAMPLES: usize = 15;
/// What the driver copies is a multiple of so many bytes, where there are as many: on an H200 others take half as long again.
const COPY_BYTES: usize = 8192;

/// Measures a problem and its floor for at least this time.
pub(super) fn measure(desc: &NormDesc, stream: &Stream, host: &Device, min_time: Duration) -> Result<Row> {
    Ok(measure_as(&stream.device().plan(desc)?, stream, host, min_time)?.0)
}

/// The same, and as long each what is left of the problem without stages of its kernels.
pub(super) fn ablations(desc: &NormDesc, stream: &Stream, host: &Device, min_time: Duration) -> Result<Row> {
    let plan = stream.device().plan(desc)?;
    let (mut row, mut calls) = measure_as(&plan, stream, host, min_time)?;
    let ablated = plan.ablations().map(|ablation| {
        Ok(Ablated {
            without: ablation.to_string(),
            median_s: without(&plan.without(ablation), &mut calls, stream, min_time)?,
        })
    });
    let ablated = ablated.collect::<Result<_>>()?;
    if let Some(gpu) = &mut row.gpu {
        gpu.ablations = ablated;
    }
    Ok(row)
}

/// Seconds of one call whose plan leaves stages out.
fn without(plan: &Plan, calls: &mut [GpuCall], stream: &Stream, min_time: Duration) -> Result<f64> {
    calls.iter_mut().for_each(|call| call.set_plan(plan.clone()));
    // The first call loads the kernels, of which it needs those for aligned tensors alone.
    let once = once(stream, &mut calls[0])?;
    let rounds = rounds(once, calls.len());
    let left = Recorded::new(stream, calls, rounds, GpuCall::run)?;
    let mut times = Vec::new();
    take_turn(min_time / 2, &mut times, || left.seconds(stream))?;
    Ok(median(&times))
}

/// Measures every way of carrying a problem out, all with the same tensors; those that the GPU has no room for are left out.
pub(super) fn alternatives(desc: &NormDesc, stream: &Stream, host: &Device, min_time: Duration) -> Result<Vec<Row>> {
    let plans = stream.device().alternatives(desc)?;
    let Some(planned) = plans.first() else {
        return Ok(Vec::new());
    };
    let mut calls = random_calls(planned, stream, host)?;
    let mut rows = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        calls.iter_mut().for_each(|call| call.set_plan(plan.clone()));
        let mut row = match measured(&mut calls, stream, min_time) {
            Err(Error::Isonorm(isonorm::Error::Unsupported { .. })) if number > 0 => continue,
            measured => measured?,
        };
        let taken = plan.candidates().iter().find(|candidate| candidate.declined.is_none());
        if let (Some(gpu), Some(taken)) = (&mut row.gpu, taken) {
            gpu.alternative = Some(Alternative {
                number,
                shape: taken.shape.clone(),
                estimate_s: taken.estimate,
            });
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Measures a problem as it is planned, and its floor; returns the calls, too.
fn measure_as(plan: &Plan, stream: &Stream, host: &Device, min_time: Duration) -> Result<(Row, Vec<GpuCall>)> {
    let mut calls = random_calls(plan, stream, host)?;
    Ok((measured(&mut calls, stream, min_time)?, calls))
}

/// Calls of a plan on random inputs.
fn random_calls(plan: &Plan, stream: &Stream, host: &Device) -> Result<Vec<GpuCall>> {
    let (desc, g) = (plan.desc(), plan.geometry());
    let inputs = random::inputs(desc, g.elements(), g.parameters, host)?;
    sets_of_calls(plan, &inputs, saved(desc), stream)
}

/// The row of calls of one plan.
fn measured(calls: &mut [GpuCall], stream: &Stream, min_time: Duration) -> Result<Row> {
    let timed = time(calls, stream, min_time)?;
    let host_s = host_seconds(stream, &mut calls[0], min_time)?;
    let plan = calls[0].plan();
    Ok(Row {
        floor: Some("driver".into()),
        gpu: Some(GpuRow {
            sets: calls.len(),
            host_s,
            alternative: None,
            ablations: Vec::new(),
        }),
        ..timed.row(plan.desc(), plan.name(), plan.traffic().compulsory_bytes)
    })
}

/// Measures a plan on these inputs, and its floor; returns what it wrote, too.
pub(crate) fn measure_plan(
    plan: &Plan,
    inputs: &Inputs,
    save: Save,
    stream: &Stream,
    min_time: Duration,
) -> Result<(Timed, Outputs)> {
    let mut calls = sets_of_calls(plan, inputs, save, stream)?;
    let timed = time(&mut calls, stream, min_time)?;
    let mut call = calls.swap_remove(0);
    drop(calls);
    call.prepare()?;
    call.run()?;
    Ok((timed, call.into_outputs()?))
}

/// Calls that take turns with several sets of tensors.
fn sets_of_calls(plan: &Plan, inputs: &Inputs, save: Save, stream: &Stream) -> Result<Vec<GpuCall>> {
    let gpu = stream.device();
    let bytes = plan.traffic().compulsory_bytes;
    let sets = sets(bytes, gpu.properties().l2_bytes as u64, gpu.memory()?.0 as u64);
    let call = || GpuCall::new(plan.clone(), stream, inputs, save, MOMENTUM);
    (0..sets).map(|_| call()).collect()
}

/// Measures calls of one plan, and their floor.
fn time(calls: &mut [GpuCall], stream: &Stream, min_time: Duration) -> Result<Timed> {
    let plan = calls[0].plan().clone();
    plan.prepare()?;
    let (elements, bytes) = (plan.geometry().elements(), plan.desc().get_dtype().bytes());
    let once = plan.copy_seconds().max(once(stream, &mut calls[0])?);
    let rounds = rounds(once, calls.len());
    // The graphs are dropped before the tensors that they work on.
    let problem = Recorded::new(stream, calls, rounds, GpuCall::run)?;
    let of_copy = copy_elements(elements, bytes);
    let copy = Recorded::new(stream, calls, rounds, |call| call.copy(of_copy))?;
    let scale = plan.traffic().compulsory_bytes as f64 / (2 * of_copy * bytes) as f64;

    let (mut times, mut floors) = (Vec::new(), Vec::new());
    let turn = min_time / (2 * TURNS);
    for _ in 0..TURNS {
        take_turn(turn, &mut times, || problem.seconds(stream))?;
        take_turn(turn, &mut floors, || Ok(copy.seconds(stream)? * scale))?;
    }
    Ok(Timed::of(&times, &floors))
}

/// Seconds of one call, roughly: how long a graph of many will be.
fn once(stream: &Stream, call: &mut GpuCall) -> Result<f64> {
    call.run()?;
    let start = stream.record()?;
    call.run()?;
    let seconds = stream.record()?.seconds_since(&start)?;
    call.prepare()?;
    Ok(seconds)
}

/// How often a graph has so many calls of so many seconds.
fn rounds(once: f64, calls: usize) -> usize {
    (GRAPH_SECONDS / once.max(SHORTEST_CALL) / calls as f64).ceil() as usize
}

/// How many elements of so many bytes the driver copies.
fn copy_elements(elements: usize, bytes: usize) -> usize {
    let page = COPY_BYTES / bytes;
    if elements < page {
        elements
    } else {
        elements / page * page
    }
}

/// How many sets of tensors there are.
fn sets(set_bytes: u64, l2_bytes: u64, free_bytes: u64) -> u64 {
    let set_bytes = set_bytes.max(1);
    let fit = (free_bytes / MEMORY_SHARE / set_bytes).max(1);
    (CACHES * l2_bytes).div_ceil(set_bytes).clamp(1, MOST_SETS).min(fit)
}

/// Many calls, in a graph.
struct Recorded {
    graph: Graph,
    calls: usize,
}

impl Recorded {
    fn new(
        stream: &Stream,
        sets: &mut [GpuCall],
        rounds: usize,
        call: impl Fn(&mut GpuCall) -> isonorm::Result<()>,
    ) -> Result<Recorded> {
        let graph = stream.capture(|_| (0..rounds).try_for_each(|_| sets.iter_mut().try_for_each(&call)))?;
        let calls = rounds * sets.len();
        Ok(Recorded { graph, calls })
    }

    /// Seconds of one call.
    fn seconds(&self, stream: &Stream) -> Result<f64> {
        let start = stream.record()?;
        // SAFETY: `measure` drops the tensors after the graphs, and waits below.
        unsafe { self.graph.launch(stream)? };
        let seconds = stream.record()?.seconds_since(&start)?;
        Ok(seconds / self.calls as f64)
    }
}

/// Seconds that the host takes for one call whose plan and kernels are there: of a few samples at least, and more while there is time.
fn host_seconds(stream: &Stream, call: &mut GpuCall, min_time: Duration) -> Result<f64> {
    let desc = *call.plan().desc();
    let mut samples = Vec::with_capacity(MOST_HOST_SAMPLES);
    let began = Instant::now();
    while samples.len() < LEAST_HOST_SAMPLES || samples.len() < MOST_HOST_SAMPLES && began.elapsed() < min_time {
        let start = Instant::now();
        for _ in 0..HOST_CALLS {
            std::hint::black_box(stream.device().plan(&desc)?);
            call.run()?;
        }
        samples.push(start.elapsed().as_secs_f64() / f64::from(HOST_CALLS));
        stream.synchronize()?;
    }
    Ok(median(&samples))
}

#[cfg(test)]
mod tests {
    use super::{copy_elements, sets};

    #[test]
    fn sets_exceed_the_cache_and_fit_the_memory() {
        let (l2, free) = (60 << 20, 100 << 30);
        assert_eq!(sets(1 << 30, l2, free), 1);
        assert_eq!(sets(8 << 20, l2, free), 23);
        assert_eq!(sets(100, l2, free), 256);
        assert_eq!(sets(8 << 20, l2, 64 << 20), 4);
        assert_eq!(sets(0, l2, 0), 1);
    }

    #[test]
    fn the_driver_copies_whole_pages() {
        assert_eq!(copy_elements(214 * 256 * 35 * 35, 2), 214 * 256 * 35 * 35 / 4096 * 4096);
        assert_eq!(copy_elements(1 << 20, 4), 1 << 20);
        assert_eq!(copy_elements(100, 4), 100);
    }
}
