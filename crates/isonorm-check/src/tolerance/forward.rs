//! Tolerances of a forward pass.

use isonorm::{Pass, TensorData};

use super::arithmetic::{Arithmetic, StatisticsError};
use super::{Expected, activation};
use crate::Case;
use crate::engine::{ForwardInputs, Output};
use crate::oracle::{Forward, Statistics};

/// What the outputs of this forward pass have to be.
pub fn forward(case: &Case, inputs: &ForwardInputs, truth: &Forward) -> Vec<Expected> {
    let a = Arithmetic::of(case);
    let desc = &case.desc;
    let errors: Vec<StatisticsError> = truth
        .statistics
        .iter()
        .map(|s| {
            if desc.uses_running_statistics() {
                a.given(s)
            } else {
                a.computed(s)
            }
        })
        .collect();
    if desc.get_pass() == Pass::Moments {
        return moments(truth, &errors);
    }
    let mut expected = vec![y(case, &a, truth, &errors)];
    if desc.has_mask() {
        expected.push(mask(case, &expected[0]));
    }
    expected.extend(truth.stream.as_ref().map(|stream| Expected {
        output: Output::Stream,
        slack: vec![0.0; stream.len()],
        values: stream.clone(),
    }));
    if inputs.saved.is_some() {
        expected.extend(saved(case, truth, &errors));
    }
    if let Some((mean, var)) = &truth.running {
        expected.extend(running(&a, inputs, truth, &errors, [mean, var]));
    }
    expected
}

fn y(case: &Case, a: &Arithmetic, truth: &Forward, errors: &[StatisticsError]) -> Expected {
    let f = case.desc.get_activation();
    let slack = truth
        .preactivations
        .iter()
        .zip(&truth.index.group)
        .map(|(p, &group)| {
            let xhat = a.xhat(&truth.statistics[group], &errors[group], p.xhat);
            activation::value(f, a, p.z, a.preactivation(p, xhat))
        })
        .collect();
    Expected {
        output: Output::Y,
        values: truth.y.clone(),
        slack,
    }
}

/// Whether y is not 0, where its tolerance leaves no doubt.
fn mask(case: &Case, y: &Expected) -> Expected {
    let bit = |y: &f64| if *y == 0.0 { 0.0 } else { 1.0 };
    let stored = |y: f64| TensorData::from_f64(case.desc.get_dtype(), &[y.max(0.0)]).to_f64()[0];
    let doubt = |(y, slack): (&f64, &f64)| bit(&stored(y - slack)) != bit(&stored(y + slack));
    Expected {
        output: Output::Mask,
        values: y.values.iter().map(bit).collect(),
        slack: y
            .values
            .iter()
            .zip(&y.slack)
            .map(doubt)
            .map(|doubt| f64::from(u8::from(doubt)))
            .collect(),
    }
}

/// The mean and the variance where nothing else is wanted: 0 of empty groups.
fn moments(truth: &Forward, errors: &[StatisticsError]) -> Vec<Expected> {
    let groups = || truth.statistics.iter().zip(errors);
    let unless_empty = |s: &Statistics, number: f64| if s.count == 0 { 0.0 } else { number };
    let mean = Expected {
        output: Output::Mean,
        values: groups().map(|(s, _)| unless_empty(s, s.mean)).collect(),
        slack: groups()
            .map(|(s, e)| unless_empty(s, e.mean + s.mean_rest.abs()))
            .collect(),
    };
    let var = Expected {
        output: Output::Var,
        values: groups().map(|(s, _)| unless_empty(s, s.var)).collect(),
        slack: groups().map(|(s, e)| unless_empty(s, e.var)).collect(),
    };
    vec![mean, var]
}

/// The saved mean and rstd. Those of empty groups may be anything.
fn saved(case: &Case, truth: &Forward, errors: &[StatisticsError]) -> Vec<Expected> {
    let groups = || truth.statistics.iter().zip(errors);
    let unless_empty = |count: usize, slack: f64| if count == 0 { f64::INFINITY } else { slack };
    let mean = Expected {
        output: Output::Mean,
        values: groups().map(|(s, _)| s.mean).collect(),
        slack: groups()
            .map(|(s, e)| unless_empty(s.count, e.mean + s.mean_rest.abs()))
            .collect(),
    };
    let rstd = Expected {
        output: Output::Rstd,
        values: groups().map(|(s, _)| s.rstd).collect(),
        slack: groups().map(|(s, e)| unless_empty(s.count, e.rstd * s.rstd)).collect(),
    };
    if case.desc.get_norm().is_centred() {
        vec![mean, rstd]
    } else {
        vec![rstd]
    }
}

/// The running statistics after the update.
fn running(
    a: &Arithmetic,
    inputs: &ForwardInputs,
    truth: &Forward,
    errors: &[StatisticsError],
    [new_mean, new_var]: [&Vec<f64>; 2],
) -> Vec<Expected> {
    let channels = truth.index.parameters;
    let mut groups = vec![Vec::new(); channels];
    for (group, &channel) in truth.index.channel.iter().enumerate() {
        groups[channel].push(group);
    }
    let factor = inputs.factor.abs();
    let old = inputs.running.as_ref();
    let slack = |old: Vec<f64>, of: &dyn Fn(usize) -> (f64, f64)| -> Vec<f64> {
        let of_channel = |(channel, old): (usize, f64)| {
            let groups: &Vec<usize> = &groups[channel];
            let n = groups.len() as f64;
            let (mut magnitude, mut error) = (0.0, 0.0);
            for &group in groups.iter().filter(|g| truth.statistics[**g].count > 0) {
                let (value, off) = of(group);
                magnitude += value.abs() / n;
                error += off / n;
            }
            if magnitude == 0.0 && error == 0.0 && factor == 0.0 {
                return 0.0;
            }
            let kept = a.gamma(4.0) * ((1.0 - inputs.factor) * old).abs();
            let average = a.sum_of(groups.len()) + a.gamma(6.0);
            kept + factor * (error + average * magnitude) + a.tiny()
        };
        old.into_iter().enumerate().map(of_channel).collect()
    };
    let unbiased = |group: usize| {
        let n = truth.statistics[group].count as f64;
        n / (n - 1.0)
    };
    let mean = slack(old.map_or(vec![], |r| r.mean.to_f64()), &|g| {
        (truth.statistics[g].mean, errors[g].mean)
    });
    let var = slack(old.map_or(vec![], |r| r.var.to_f64()), &|g| {
        (truth.statistics[g].var * unbiased(g), errors[g].var * unbiased(g))
    });
    vec![
        Expected {
            output: Output::RunningMean,
            values: new_mean.clone(),
            slack: mean,
        },
        Expected {
            output: Output::RunningVar,
            values: new_var.clone(),
            slack: var,
        },
    ]
}
