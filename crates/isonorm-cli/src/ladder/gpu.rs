//! The ladder of a GPU.

use std::time::Duration;

use isonorm::Device;
use isonorm::cuda::{Plan, Stream};
use isonorm_report::record::Rung as Climbed;

use super::judge::judge;
use super::problem::Problem;
use super::{count, published};
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
        // Rungs refuse what they were not written for.
        let given = Inputs {
            running: inputs.running.clone().filter(|_| {
                desc.uses_running_statistics() || rung.is_none_or(isonorm::Rung::updates_running)
            }),
            ..inputs.clone()
        };
        let saves = problem.is_training() && rung.is_none_or(|rung| !rung.is_layer_norm());
        let save = Save {
            mean: saves,
            rstd: saves,
        };
        let (timed, outputs) = bench::measure_plan(&plan, &given, save, stream, min_time)?;
        let judged = judge(desc, rung, &given, &outputs.main)?;
        let (reads, writes) = count::transfers(desc, rung, Some(device.properties().clone()))?;
        climbed.push(Climbed {
            rung: rung.map_or(OURS, isonorm::Rung::name).into(),
            about: rung.map_or("what is planned", published::about).into(),
            reads: Some(reads),
            writes: Some(writes),
            bytes: Some(moved(&plan, rung, reads + writes)),
            error: judged.error,
            tolerance: judged.bound,
            right: Some(judged.right),
            published: rung.and_then(published::published),
            ..of(&timed, plan.traffic().compulsory_bytes)
        });
    }
    Ok(climbed)
}

/// Bytes that a rung moves by how often it does; a plan knows what it reads again.
fn moved(plan: &Plan, rung: Option<isonorm::Rung>, transfers: f64) -> u64 {
    let traffic = plan.traffic();
    let least = if plan.desc().get_pass().is_backward() { 3.0 } else { 2.0 };
    let tensor = plan.geometry().elements() as f64 * size_of::<f32>() as f64;
    match rung {
        Some(_) => traffic.compulsory_bytes + ((transfers - least) * tensor) as u64,
        None => traffic.moved_bytes,
    }
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
