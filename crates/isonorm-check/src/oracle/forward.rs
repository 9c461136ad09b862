//! The forward pass.

use isonorm::{DType, Norm, NormDesc, TensorData};

use super::statistics::values;
use super::{Index, Statistics, Sum, activation, statistics};
use crate::engine::ForwardInputs;

/// What the activation is applied to, of one element, and what it is the sum of.
#[derive(Clone, Copy, Debug)]
pub struct Preactivation {
    /// x̂.
    pub xhat: f64,
    /// The weight, 1 without one.
    pub weight: f64,
    /// z = x̂ · weight + bias + residual.
    pub z: f64,
    /// |x̂ · weight| + |bias| + |residual|.
    pub magnitude: f64,
    /// How many roundings it takes to compute z: one for a product, one for each addition of what is not 0.
    pub roundings: usize,
}

/// The results of a forward pass, in the order of memory.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Groups and parameters of elements.
    pub index: Index,
    /// The statistics of each group.
    pub statistics: Vec<Statistics>,
    /// The pre-activation of each element.
    pub preactivations: Vec<Preactivation>,
    /// The output.
    pub y: Vec<f64>,
    /// `x + residual`, rounded to the accumulator's type and then to the data's, where that is what is normalized.
    pub stream: Option<Vec<f64>>,
    /// The running mean and variance after the update, where there is one.
    pub running: Option<(Vec<f64>, Vec<f64>)>,
}

/// The pre-activations of all elements.
pub(super) fn preactivations(
    index: &Index,
    statistics: &[Statistics],
    x: &[f64],
    [weight, bias, residual]: [Option<Vec<f64>>; 3],
) -> Vec<Preactivation> {
    let of_element = |(offset, &x): (usize, &f64)| {
        let s = &statistics[index.group[offset]];
        let at = |p: &Option<Vec<f64>>, i: usize, without| p.as_ref().map_or(without, |p| p[i]);
        let xhat = s.distance(x) * s.rstd;
        let weight = at(&weight, index.parameter[offset], 1.0);
        let bias = at(&bias, index.parameter[offset], 0.0);
        let residual = at(&residual, offset, 0.0);
        let product = xhat * weight;
        let terms: Sum = [product, bias, residual].into_iter().collect();
        let added = [product, bias, residual].iter().filter(|t| **t != 0.0).count();
        Preactivation {
            xhat,
            weight,
            z: terms.value(),
            magnitude: terms.magnitude,
            roundings: added.saturating_sub(1) + usize::from(product != 0.0),
        }
    };
    x.iter().enumerate().map(of_element).collect()
}

/// The forward pass of a valid description on inputs that fit it.
pub fn forward(desc: &NormDesc, inputs: &ForwardInputs) -> Forward {
    let index = Index::of(desc);
    let stream = inputs.residual.as_ref().filter(|_| desc.has_stream());
    let stream = stream.map(|residual| sum(&inputs.x, residual));
    let x = stream.clone().unwrap_or_else(|| inputs.x.to_f64());
    let statistics = statistics(desc, &index, &x, inputs.running.as_ref());
    let residual = if desc.has_stream() { &None } else { &inputs.residual };
    let addends = [&inputs.weight, &inputs.bias, residual].map(values);
    let preactivations = preactivations(&index, &statistics, &x, addends);
    let f = desc.get_activation();
    let y = preactivations.iter().map(|p| activation::value(f, p.z)).collect();
    let running = updated(desc, inputs, &index, &statistics);
    Forward {
        index,
        statistics,
        preactivations,
        y,
        stream,
        running,
    }
}

/// `x + residual`. The definition says how it is rounded, for it is an input of what follows.
fn sum(x: &TensorData, residual: &TensorData) -> Vec<f64> {
    let sums = x.to_f64().into_iter().zip(residual.to_f64());
    let sums: Vec<f64> = match x.dtype() {
        DType::F64 => sums.map(|(x, residual)| x + residual).collect(),
        _ => sums
            .map(|(x, residual)| f64::from(x as f32 + residual as f32))
            .collect(),
    };
    TensorData::from_f64(x.dtype(), &sums).to_f64()
}

/// The running statistics after a training pass. Empty groups leave them alone.
fn updated(
    desc: &NormDesc,
    inputs: &ForwardInputs,
    index: &Index,
    statistics: &[Statistics],
) -> Option<(Vec<f64>, Vec<f64>)> {
    let running = inputs.running.as_ref()?;
    if desc.uses_running_statistics() {
        return None;
    }
    let (mut mean, mut var) = (running.mean.to_f64(), running.var.to_f64());
    for c in 0..index.parameters {
        let groups = statistics.iter().zip(&index.channel);
        let (mut means, mut vars) = (Sum::default(), Sum::default());
        for (s, _) in groups.filter(|(s, channel)| **channel == c && s.count > 0) {
            means.add(s.mean);
            vars.add(s.var * unbiased(s.count));
        }
        if means.count > 0 {
            let step = |old: f64, batch: f64| (1.0 - inputs.factor) * old + inputs.factor * batch;
            mean[c] = step(mean[c], means.over(means.count).0);
            var[c] = step(var[c], vars.over(vars.count).0);
        }
    }
    debug_assert!(matches!(desc.get_norm(), Norm::Batch | Norm::Instance));
    Some((mean, var))
}

/// n/(n − 1), which makes the variance of a sample unbiased.
fn unbiased(n: usize) -> f64 {
    n as f64 / (n as f64 - 1.0)
}
