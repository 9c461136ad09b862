//! Tolerances of a backward pass.

use isonorm::{NormDesc, TensorData};

use super::arithmetic::{Arithmetic, StatisticsError};
use super::{Expected, activation};
use crate::Case;
use crate::engine::{BackwardInputs, Output};
use crate::oracle::{Backward, Sum};

/// The errors of one element.
#[derive(Clone, Copy, Debug)]
struct ElementError {
    xhat: f64,
    dz: f64,
    g: f64,
}

/// What the outputs of this backward pass have to be.
pub fn backward(case: &Case, inputs: &BackwardInputs, truth: &Backward) -> Vec<Expected> {
    let a = Arithmetic::of(case);
    let statistics = statistics(&a, &case.desc, inputs, truth);
    let elements = elements(&a, &case.desc, inputs, truth, &statistics);
    let gradients = parameters(&a, truth, &elements);
    let expected = |output, values: Vec<f64>, slack| Expected { output, values, slack };
    let totals = |sums: &[Sum]| sums.iter().map(Sum::value).collect();
    Output::of(&case.desc)
        .into_iter()
        .filter_map(|output| match output {
            Output::Dx if case.without_dx => None,
            Output::Dweight | Output::Dbias if case.without_dweight => None,
            Output::Dx => {
                let mut slack = dx(&a, case, inputs, truth, &statistics, &elements);
                if inputs.dstream.is_some() {
                    let sums = slack.iter_mut().zip(&truth.dx);
                    sums.for_each(|(slack, dx)| *slack += a.gamma(1.0) * dx.abs());
                }
                Some(expected(output, truth.dx.clone(), slack))
            }
            Output::Dweight => Some(expected(output, totals(&truth.dweight), gradients.0.clone())),
            Output::Dbias => Some(expected(output, totals(&truth.dbias), gradients.1.clone())),
            Output::Dresidual => {
                let slack = elements.iter().map(|e| e.dz).collect();
                Some(expected(output, truth.dz.clone(), slack))
            }
            _ => None,
        })
        .collect()
}

fn statistics(a: &Arithmetic, desc: &NormDesc, inputs: &BackwardInputs, truth: &Backward) -> Vec<StatisticsError> {
    if desc.uses_running_statistics() {
        return truth.statistics.iter().map(|s| a.given(s)).collect();
    }
    let saved = |data: &Option<TensorData>| {
        let zeros = || vec![0.0; truth.statistics.len()];
        data.as_ref().map_or_else(zeros, TensorData::to_f64)
    };
    let (mean, rstd) = (saved(&inputs.mean), saved(&inputs.rstd));
    truth
        .statistics
        .iter()
        .zip(mean.into_iter().zip(rstd))
        .map(|(s, (mean, rstd))| a.saved(s, mean, rstd))
        .collect()
}

fn elements(
    a: &Arithmetic,
    desc: &NormDesc,
    inputs: &BackwardInputs,
    truth: &Backward,
    statistics: &[StatisticsError],
) -> Vec<ElementError> {
    let f = desc.get_activation();
    let weighted = desc.get_affine().has_weight();
    let linear = desc.get_activation() == isonorm::Activation::Identity || desc.has_mask() || desc.reads_result();
    let dy = inputs.dy.to_f64();
    let of_element = |(i, p): (usize, &crate::oracle::Preactivation)| {
        let group = truth.index.group[i];
        let xhat = a.xhat(&truth.statistics[group], &statistics[group], p.xhat);
        let dz = if linear || dy[i] == 0.0 {
            0.0
        } else {
            let slope = activation::derivative(f, a, p.z, a.preactivation(p, xhat));
            dy[i].abs() * slope + a.gamma(1.0) * truth.dz[i].abs() + a.tiny()
        };
        let g = if weighted {
            p.weight.abs() * dz + a.gamma(1.0) * (truth.dz[i] * p.weight).abs() + a.tiny()
        } else {
            dz
        };
        ElementError { xhat, dz, g }
    };
    truth.preactivations.iter().enumerate().map(of_element).collect()
}

/// The error of Σ v·x̂ by its terms, from the errors of v and x̂, of a group with this rstd.
fn product(a: &Arithmetic, [v, v_error]: [f64; 2], [xhat, xhat_error]: [f64; 2], rstd: f64) -> f64 {
    // v·(x − mean) may come before rstd does, and be subnormal.
    let underflow = if v == 0.0 || xhat == 0.0 { 0.0 } else { a.tiny() * rstd };
    v_error * xhat.abs() + (v.abs() + v_error) * xhat_error + a.gamma(1.0) * (v * xhat).abs() + underflow
}

/// The errors of the gradients of weight and bias.
fn parameters(a: &Arithmetic, truth: &Backward, elements: &[ElementError]) -> (Vec<f64>, Vec<f64>) {
    let mut weight: Vec<f64> = truth.dweight.iter().map(|sum| a.sum(sum)).collect();
    let mut bias: Vec<f64> = truth.dbias.iter().map(|sum| a.sum(sum)).collect();
    for (i, e) in elements.iter().enumerate() {
        let parameter = truth.index.parameter[i];
        let xhat = truth.preactivations[i].xhat;
        let rstd = truth.statistics[truth.index.group[i]].rstd;
        weight[parameter] += product(a, [truth.dz[i], e.dz], [xhat, e.xhat], rstd);
        bias[parameter] += e.dz;
    }
    (weight, bias)
}

fn dx(
    a: &Arithmetic,
    case: &Case,
    inputs: &BackwardInputs,
    truth: &Backward,
    statistics: &[StatisticsError],
    elements: &[ElementError],
) -> Vec<f64> {
    let through_statistics = !case.desc.uses_running_statistics();
    let dstream = inputs.dstream.as_ref().map(TensorData::to_f64);
    let mut slack = vec![0.0; elements.len()];
    let groups = truth.statistics.iter().zip(statistics).zip(&truth.sums);
    for (group, ((s, e), sums)) in groups.enumerate() {
        let members = truth.index.members(group);
        let (mut mean_g, mut mean_gx) = (0.0, 0.0);
        if through_statistics {
            let n = members.len() as f64;
            (mean_g, mean_gx) = (a.sum(&sums.g), a.sum(&sums.gx));
            for &i in members {
                let p = &truth.preactivations[i];
                let element = &elements[i];
                mean_g += element.g;
                let g = [truth.dz[i] * p.weight, element.g];
                mean_gx += product(a, g, [p.xhat, element.xhat], s.rstd);
            }
            mean_g = mean_g / n + a.gamma(2.0) * sums.mean_g.abs();
            mean_gx = mean_gx / n + a.gamma(2.0) * sums.mean_gx.abs();
            if !case.desc.get_norm().is_centred() {
                mean_g = 0.0;
            }
        }
        if inputs.means.is_some() {
            // Times the weight.
            mean_g = a.gamma(1.0) * sums.mean_g.abs() + a.tiny();
            mean_gx = a.gamma(1.0) * sums.mean_gx.abs() + a.tiny();
        }
        for &i in members {
            let (p, element) = (&truth.preactivations[i], &elements[i]);
            let magnitude = (truth.dz[i] * p.weight).abs() + sums.mean_g.abs() + (p.xhat * sums.mean_gx).abs();
            let of_product = p.xhat.abs() * mean_gx + (sums.mean_gx.abs() + mean_gx) * element.xhat;
            let own = truth.dx[i] - dstream.as_ref().map_or(0.0, |dstream| dstream[i]);
            let inner = element.g + mean_g + of_product + a.gamma(3.0) * magnitude;
            slack[i] = s.rstd * (1.0 + e.rstd) * inner + own.abs() * (e.rstd + a.gamma(1.0)) + a.tiny();
        }
    }
    slack
}
