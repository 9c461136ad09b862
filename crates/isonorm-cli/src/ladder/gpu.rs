//! The ladder of a GPU.

use std::time::Duration;

use isonorm::cuda::{self, Plan, Stream};
use isonorm::{Device, NormDesc, Rung};
use isonorm_report::record::Rung as Climbed;

use super::judge::judge;
use super::problem::Problem;
use super::published;
use crate::bench::{self, Timed};
use crate::call::{Inputs, Save};
use crate::error::Result;

/// The name of what is planned.
pub(super) const OURS: &str = "isonorm";

/// Measures and judges each rung of a problem, and the plan for it.
pub(super) fn climb(problem: &Problem, stream: &Stream, host: &Device, min_time: Duration) -> Result<Vec<Climbed>> {
    let (device, desc) = (stream.device(), &problem.desc);
    let inputs = problem.inputs(host)?;
    let mut climbed = Vec::new();
    let each = problem.rungs.iter().map(|&rung| Some(rung)).chain([None]);
    for rung in each {
        let plan = match rung {
            Some(rung) => device.rung(rung, desc)?,
            None => device.plan(desc)?,
        };
        // Rungs refuse what they were not written for; the plan does what any of them does.
        let does = |what: fn(Rung) -> bool| match rung {
            Some(rung) => what(rung),
            None => problem.rungs.iter().copied().any(what),
        };
        let has_running = desc.uses_running_statistics() || does(Rung::updates_running);
        let given = Inputs {
            running: inputs.running.clone().filter(|_| has_running),
            ..inputs.clone()
        };
        let saves = problem.is_training() && does(|rung| !rung.is_layer_norm());
        let save = Save {
            mean: saves,
            rstd: saves,
        };
        let (timed, outputs) = bench::measure_plan(&plan, &given, save, stream, min_time)?;
        let judged = judge(desc, rung, &given, &outputs.main)?;
        let transfers = match rung {
            Some(rung) => counted(rung, desc, device)?,
            // Its kernels are others where the problem is small.
            None => Some(planned(&plan)),
        };
        climbed.push(Climbed {
            rung: rung.map_or(OURS, Rung::name).into(),
            about: rung.map_or("what is planned", published::about).into(),
            reads: transfers.map(|(reads, _)| reads),
            writes: transfers.map(|(_, writes)| writes),
            bytes: Some(plan.traffic().moved_bytes),
            error: judged.error,
            tolerance: judged.bound,
            right: Some(judged.right),
            published: rung.and_then(published::published),
            ..of(&timed, plan.traffic().compulsory_bytes)
        });
    }
    Ok(climbed)
}

/// How often a rung reads and writes tensors, if there is an interpreter to count that.
#[cfg(feature = "interpreter")]
fn counted(rung: Rung, desc: &NormDesc, device: cuda::Device) -> Result<Option<(f64, f64)>> {
    super::count::transfers(rung, desc, device.properties().clone()).map(Some)
}

#[cfg(not(feature = "interpreter"))]
fn counted(_: Rung, _: &NormDesc, _: cuda::Device) -> Result<Option<(f64, f64)>> {
    Ok(None)
}

/// How often a plan reads and writes tensors.
fn planned(plan: &Plan) -> (f64, f64) {
    let (traffic, g) = (plan.traffic(), plan.geometry());
    let tensor = (g.elements() * size_of::<f32>()) as f64;
    let again = (traffic.moved_bytes - traffic.compulsory_bytes) as f64 / tensor;
    let reads = if plan.desc().get_pass().is_backward() { 2.0 } else { 1.0 };
    (reads + again, 1.0)
}

/// Times alone.
pub(super) fn of(timed: &Timed, compulsory_bytes: u64) -> Climbed {
    Climbed {
        median_s: timed.median_s,
        spread: Some(timed.spread),
        floor_s: timed.floor_s,
        compulsory_bytes: Some(compulsory_bytes),
        ..Climbed::default()
    }
}
