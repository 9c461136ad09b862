//! The backward pass.

use isonorm::{NormDesc, TensorData};

use super::forward::preactivations;
use super::statistics::values;
use super::{Index, Preactivation, Statistics, Sum, activation, statistics};
use crate::engine::BackwardInputs;

/// The two sums of a group that the gradient of `x` needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupSums {
    /// Σ g.
    pub g: Sum,
    /// Σ g·x̂.
    pub gx: Sum,
    /// Σ g / n; 0 for RMSNorm and for running statistics, unless it is told.
    pub mean_g: f64,
    /// Σ g·x̂ / n; 0 for running statistics, unless it is told.
    pub mean_gx: f64,
}

/// The results of a backward pass, in the order of memory.
#[derive(Clone, Debug)]
pub struct Backward {
    /// Groups and parameters of elements.
    pub index: Index,
    /// The statistics of each group, computed from `x`: what was saved is a rounded copy.
    pub statistics: Vec<Statistics>,
    /// The pre-activation of each element.
    pub preactivations: Vec<Preactivation>,
    /// The gradient of `z`, which is also the residual's.
    pub dz: Vec<f64>,
    /// The gradient of `x`.
    pub dx: Vec<f64>,
    /// The weight's gradient.
    pub dweight: Vec<Sum>,
    /// The bias's gradient.
    pub dbias: Vec<Sum>,
    /// The sums of each group.
    pub sums: Vec<GroupSums>,
}

/// The backward pass of a valid description on inputs that fit it. The saved statistics are not looked at: gradients are
/// those of the definition, not of rounded statistics.
pub fn backward(desc: &NormDesc, inputs: &BackwardInputs) -> Backward {
    let index = Index::of(desc);
    let x = inputs.x.to_f64();
    let statistics = statistics(desc, &index, &x, inputs.running.as_ref());
    let addends = [&inputs.weight, &inputs.bias, &inputs.residual].map(values);
    let preactivations = preactivations(&index, &statistics, &x, addends);
    let f = desc.get_activation();
    let dy = inputs.dy.to_f64();
    let dz: Vec<f64> = match inputs.passes() {
        Some(passes) => {
            let elements = passes.into_iter().zip(dy);
            elements.map(|(passes, dy)| if passes { dy } else { 0.0 }).collect()
        }
        None => {
            let elements = preactivations.iter().zip(dy);
            elements.map(|(p, dy)| dy * activation::derivative(f, p.z)).collect()
        }
    };

    let mut dweight = vec![Sum::default(); index.parameters];
    let mut dbias = dweight.clone();
    for ((&parameter, &dz), p) in index.parameter.iter().zip(&dz).zip(&preactivations) {
        dweight[parameter].add(dz * p.xhat);
        dbias[parameter].add(dz);
    }

    let mut sums: Vec<GroupSums> = (0..index.groups())
        .map(|g| group_sums(desc, index.members(g), &dz, &preactivations))
        .collect();
    if let Some(means) = &inputs.means {
        let [mean_g, mean_gx] = means.each_ref().map(TensorData::to_f64);
        for (group, sums) in sums.iter_mut().enumerate() {
            // Those of dz and of dz·x̂, which have no weight yet.
            let weight = index.members(group).first().map_or(1.0, |&i| preactivations[i].weight);
            let channel = index.channel[group];
            (sums.mean_g, sums.mean_gx) = (weight * mean_g[channel], weight * mean_gx[channel]);
        }
    }
    let dstream = values(&inputs.dstream);
    let dx = index
        .group
        .iter()
        .zip(dz.iter().zip(&preactivations))
        .enumerate()
        .map(|(i, (&group, (&dz, p)))| {
            let (s, sums) = (&statistics[group], &sums[group]);
            let terms = [dz * p.weight, -sums.mean_g, -p.xhat * sums.mean_gx];
            let dx = s.rstd * terms.into_iter().collect::<Sum>().value();
            dx + dstream.as_ref().map_or(0.0, |dstream| dstream[i])
        })
        .collect();
    Backward {
        index,
        statistics,
        preactivations,
        dz,
        dx,
        dweight,
        dbias,
        sums,
    }
}

fn group_sums(desc: &NormDesc, members: &[usize], dz: &[f64], preactivations: &[Preactivation]) -> GroupSums {
    let mut sums = GroupSums::default();
    for &i in members {
        let p = &preactivations[i];
        let g = dz[i] * p.weight;
        sums.g.add(g);
        sums.gx.add(g * p.xhat);
    }
    if !desc.uses_running_statistics() {
        sums.mean_gx = sums.gx.over(members.len()).0;
        if desc.get_norm().is_centred() {
            sums.mean_g = sums.g.over(members.len()).0;
        }
    }
    sums
}
