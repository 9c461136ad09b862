//! The CPU's own ladder: a scalar loop, then the product's engine with one thing more at each step.

use std::time::Duration;

use isonorm::{Device, Geometry, Isa, Rung, TensorData};
use isonorm_report::record::Rung as Climbed;

use super::gpu::{OURS, of};
use super::judge::judge;
use super::problem::Problem;
use crate::bench;
use crate::call::{Call, Inputs, Save};
use crate::error::{Error, Result};

/// Measures and judges each rung of a problem.
pub(super) fn climb(problem: &Problem, host: &Device, min_time: Duration) -> Result<Vec<Climbed>> {
    let inputs = problem.inputs(host)?;
    let scalar = Device::cpu_with_threads(1).with_isa(Isa::Baseline);
    let scalar = scalar.ok_or_else(|| Error::usage("this machine has no scalar instructions"))?;
    let engines = [
        ("cpu-cached", "a group stays in the cache between its passes", scalar),
        ("cpu-simd", "the same with vectors", Device::cpu_with_threads(1)),
        (OURS, "and threads: what is planned", host.clone()),
    ];
    let mut climbed = vec![naive(problem, &inputs, host, min_time)?];
    for (name, about, device) in engines {
        let plan = device.plan(&problem.desc)?;
        let traffic = plan.traffic();
        let save = Save {
            mean: true,
            rstd: true,
        };
        let mut call = Call::new(plan, inputs.clone(), save, bench::MOMENTUM)?;
        let timed = bench::measure_call(&mut call, &device, min_time)?;
        let judged = judge(&problem.desc, None, &inputs, &call.into_outputs().main)?;
        climbed.push(Climbed {
            rung: name.into(),
            about: about.into(),
            bytes: Some(traffic.moved_bytes),
            error: judged.error,
            tolerance: judged.bound,
            right: Some(judged.right),
            ..of(&timed, traffic.compulsory_bytes)
        });
    }
    // One floor for all: the copy by as many threads as there are.
    let floor_s = climbed.last().map_or(0.0, |ours| ours.floor_s);
    climbed.iter_mut().for_each(|rung| rung.floor_s = floor_s);
    Ok(climbed)
}

/// The definition as it reads, a group after the other: the mean, the squared distances, the results.
fn naive(problem: &Problem, inputs: &Inputs, host: &Device, min_time: Duration) -> Result<Climbed> {
    let (desc, g) = (&problem.desc, Geometry::of(&problem.desc)?);
    let TensorData::F32(x) = &inputs.x else {
        return Err(Error::usage("the ladder is one of f32"));
    };
    let parameters = |data: &Option<TensorData>| data.as_ref().map(TensorData::to_f64);
    let (weight, bias) = (parameters(&inputs.weight), parameters(&inputs.bias));
    let of = |parameters: &Option<Vec<f64>>, group: usize, without| {
        parameters.as_ref().map_or(without, |p| p[group] as f32)
    };
    let relu = desc.get_activation() != isonorm::Activation::Identity;
    let mut y = vec![0.0f32; x.len()];
    let mut run = || {
        for group in 0..g.kept {
            let segments = || (0..g.outer).map(|outer| (outer * g.kept + group) * g.inner);
            let elements = || segments().flat_map(|start| &x[start..start + g.inner]);
            let count = (g.outer * g.inner) as f32;
            let mean = elements().sum::<f32>() / count;
            let variance = elements().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
            let rstd = 1.0 / (variance + desc.get_eps() as f32).sqrt();
            let (weight, bias) = (of(&weight, group, 1.0), of(&bias, group, 0.0));
            for start in segments() {
                for (y, x) in y[start..start + g.inner].iter_mut().zip(&x[start..start + g.inner]) {
                    let z = weight * ((x - mean) * rstd) + bias;
                    *y = if relu && z < 0.0 { 0.0 } else { z };
                }
            }
        }
    };
    let (median_s, spread) = bench::measure_loop(min_time, &mut run)?;
    // It adds up as the naive kernels of GPUs do.
    let as_rung = if problem.rungs[0].is_layer_norm() { Rung::LnNaive } else { Rung::BnNaive };
    let as_rung = (!relu).then_some(as_rung);
    let judged = judge(desc, as_rung, inputs, &TensorData::F32(y))?;
    let traffic = host.plan(desc)?.traffic();
    let tensor = (g.elements() * size_of::<f32>()) as u64;
    Ok(Climbed {
        rung: "cpu-naive".into(),
        about: "a scalar loop, a group after the other".into(),
        median_s,
        spread: Some(spread),
        bytes: Some(traffic.compulsory_bytes + 2 * tensor),
        compulsory_bytes: Some(traffic.compulsory_bytes),
        error: judged.error,
        tolerance: judged.bound,
        right: Some(judged.right),
        ..Climbed::default()
    })
}
