//! The CPU's own ladder: scalar loops, then the product's engine with one thing more at each step.

use std::time::Duration;

use isonorm::{Activation, Device, Geometry, NormDesc, Rung, TensorData};
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
    let engines = [
        ("cpu-simd", "the same with vectors", Device::cpu_with_threads(1)),
        (OURS, "and threads: what is planned", host.clone()),
    ];
    let mut climbed = Vec::new();
    for (name, about, reads, whole) in [
        (
            "cpu-naive",
            "scalar loops: all means, all variances, all results",
            3.0,
            true,
        ),
        (
            "cpu-cached",
            "a channel or a row after the other, which the cache keeps",
            1.0,
            false,
        ),
    ] {
        climbed.push(Climbed {
            rung: name.into(),
            about: about.into(),
            ..scalar(problem, &inputs, (reads, whole), host, min_time)?
        });
    }
    for (name, about, device) in engines {
        let plan = device.plan(&problem.desc)?;
        let traffic = plan.traffic();
        let save = Save { mean: true, rstd: true };
        let mut call = Call::new(plan, inputs.clone(), save, bench::MOMENTUM)?;
        let timed = bench::measure_call(&mut call, &device, min_time)?;
        // The floor wrote over the results.
        call.prepare();
        call.run(&device)?;
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

/// The groups of a problem as scalar loops see them.
struct Groups<'a> {
    g: Geometry,
    x: &'a [f32],
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    eps: f32,
    relu: bool,
}

impl<'a> Groups<'a> {
    fn of(desc: &NormDesc, inputs: &'a Inputs) -> Result<Groups<'a>> {
        let f32s = |data: &'a TensorData| match data {
            TensorData::F32(values) => Ok(&values[..]),
            _ => Err(Error::usage("the ladder is one of f32")),
        };
        let parameters = |data: &'a Option<TensorData>| data.as_ref().map(f32s).transpose();
        Ok(Groups {
            g: Geometry::of(desc)?,
            x: f32s(&inputs.x)?,
            weight: parameters(&inputs.weight)?,
            bias: parameters(&inputs.bias)?,
            eps: desc.get_eps() as f32,
            relu: desc.get_activation() == Activation::Relu,
        })
    }

    fn count(&self) -> usize {
        self.g.kept
    }

    /// Where the segments of a group begin.
    fn segments(&self, group: usize) -> impl Iterator<Item = usize> {
        let Geometry { outer, kept, inner, .. } = self.g;
        (0..outer).map(move |n| (n * kept + group) * inner)
    }

    fn sum(&self, group: usize, of: impl Fn(f32) -> f32) -> f32 {
        let mut sum = 0.0;
        for start in self.segments(group) {
            for &x in &self.x[start..start + self.g.inner] {
                sum += of(x);
            }
        }
        sum
    }

    fn mean(&self, group: usize) -> f32 {
        self.sum(group, |x| x) / (self.g.outer * self.g.inner) as f32
    }

    fn variance(&self, group: usize, mean: f32) -> f32 {
        self.sum(group, |x| (x - mean) * (x - mean)) / (self.g.outer * self.g.inner) as f32
    }

    fn normalize(&self, group: usize, [mean, variance]: [f32; 2], y: &mut [f32]) {
        let rstd = 1.0 / (variance + self.eps).sqrt();
        let of = |parameters: Option<&[f32]>, without| parameters.map_or(without, |p| p[group]);
        let (weight, bias) = (of(self.weight, 1.0), of(self.bias, 0.0));
        for start in self.segments(group) {
            let segment = start..start + self.g.inner;
            for (y, x) in y[segment.clone()].iter_mut().zip(&self.x[segment]) {
                let z = weight * ((x - mean) * rstd) + bias;
                *y = if self.relu && z < 0.0 { 0.0 } else { z };
            }
        }
    }
}

/// The definition as it reads; each step for the whole tensor before the next, or for a group after the other.
fn scalar(
    problem: &Problem,
    inputs: &Inputs,
    (reads, whole): (f64, bool),
    host: &Device,
    min_time: Duration,
) -> Result<Climbed> {
    let desc = &problem.desc;
    let groups = Groups::of(desc, inputs)?;
    let mut y = vec![0.0f32; groups.x.len()];
    let mut run = || {
        if whole {
            let means: Vec<f32> = (0..groups.count()).map(|group| groups.mean(group)).collect();
            let of = |(group, &mean): (usize, &f32)| [mean, groups.variance(group, mean)];
            let moments: Vec<[f32; 2]> = means.iter().enumerate().map(of).collect();
            for (group, &moments) in moments.iter().enumerate() {
                groups.normalize(group, moments, &mut y);
            }
        } else {
            for group in 0..groups.count() {
                let mean = groups.mean(group);
                groups.normalize(group, [mean, groups.variance(group, mean)], &mut y);
            }
        }
    };
    let (median_s, spread) = bench::measure_loop(min_time, &mut run)?;
    // They add up as the naive kernels of GPUs do.
    let as_rung = match problem.rungs[0].is_layer_norm() {
        true => Rung::LnNaive,
        false => Rung::BnNaive,
    };
    let judged = judge(desc, Some(as_rung), inputs, &TensorData::F32(y))?;
    let tensor = size_of_val(groups.x) as f64;
    let traffic = host.plan(desc)?.traffic();
    Ok(Climbed {
        median_s,
        spread: Some(spread),
        reads: Some(reads),
        writes: Some(1.0),
        bytes: Some(traffic.compulsory_bytes + ((reads - 1.0) * tensor) as u64),
        compulsory_bytes: Some(traffic.compulsory_bytes),
        error: judged.error,
        tolerance: judged.bound,
        right: Some(judged.right),
        ..Climbed::default()
    })
}
