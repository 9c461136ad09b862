//! Element by element.

use isonorm::{NormDesc, TensorData};

use super::report::{CaseReport, Worst};
use crate::engine::{Output, Outputs, bits, is_poison};
use crate::oracle::Index;
use crate::tolerance::Expected;

/// Compares every expected output with what the engine wrote.
pub(super) fn all(desc: &NormDesc, outputs: &Outputs, expected: &[Expected], index: &Index, report: &mut CaseReport) {
    for expected in expected {
        let name = expected.output;
        match outputs.get(name) {
            None => report.faults.push(format!("{name} is missing")),
            Some(got) if got.len() != expected.values.len() => report.faults.push(format!(
                "{name} has {} elements, expected {}",
                got.len(),
                expected.values.len()
            )),
            Some(got) => one(desc, got, expected, index, report),
        }
    }
}

fn one(desc: &NormDesc, got: &TensorData, expected: &Expected, index: &Index, report: &mut CaseReport) {
    for (i, got_value) in got.to_f64().into_iter().enumerate() {
        if expected.slack[i] == f64::INFINITY {
            continue;
        }
        let unwritten = got_value.is_nan() && is_poison(got, i);
        let ratio = if unwritten {
            f64::INFINITY
        } else {
            judge(expected, i, got, got_value)
        };
        report.compared += 1;
        report.wrong += usize::from(ratio > 1.0);
        if report.worst.as_ref().is_none_or(|w| ratio > w.ratio) {
            report.worst = Some(Worst {
                output: expected.output,
                coordinates: coordinates(desc, expected.output, index, i),
                got: got_value,
                expected: expected.values[i],
                tolerance: expected.slack[i],
                ratio,
                unwritten,
            });
        }
    }
}

/// The share of its tolerance that an element needs.
fn judge(expected: &Expected, i: usize, data: &TensorData, got: f64) -> f64 {
    let truth = expected.values[i];
    let verdict = |right: bool| if right { 0.0 } else { f64::INFINITY };
    let statistics = [
        Output::Mean,
        Output::Rstd,
        Output::Var,
        Output::RunningMean,
        Output::RunningVar,
    ];
    if !truth.is_finite() && statistics.contains(&expected.output) {
        // Whether a sum with an infinity is that or NaN depends on how it is centred.
        return verdict(!got.is_finite());
    }
    if truth.is_nan() || got.is_nan() {
        return verdict(truth.is_nan() && got.is_nan());
    }
    if truth.is_infinite() {
        return verdict(got == truth);
    }
    expected.used(i, got, data.dtype())
}

fn coordinates(desc: &NormDesc, output: Output, index: &Index, i: usize) -> Vec<(String, usize)> {
    let name = |n: &str| vec![(n.to_string(), i)];
    match output {
        Output::Mean | Output::Rstd | Output::Var => name("group"),
        Output::RunningMean | Output::RunningVar => name("c"),
        Output::Dweight | Output::Dbias => name("parameter"),
        Output::Y | Output::Mask | Output::Stream | Output::Dx | Output::Dresidual => {
            let at = index.coordinates(i);
            let rank = at.len();
            let name = |d: usize| match (desc.get_norm().has_channels(), d) {
                (true, 0) => "n".to_string(),
                (true, 1) => "c".to_string(),
                (true, _) => ["w", "h", "d"]
                    .get(rank - 1 - d)
                    .map_or_else(|| format!("s{}", d - 2), |s| s.to_string()),
                (false, _) => format!("i{d}"),
            };
            at.iter().enumerate().map(|(d, &at)| (name(d), at)).collect()
        }
    }
}

pub(super) fn differences(a: &Outputs, b: &Outputs) -> Vec<String> {
    let mut found = Vec::new();
    for (output, a) in &a.tensors {
        let Some(b) = b.get(*output) else {
            found.push(format!("{output} is missing"));
            continue;
        };
        let (av, bv) = (a.to_f64(), b.to_f64());
        // NaNs are alike: their signs and payloads are nobody's promise.
        let differs = |i: &usize| bits(a, *i) != bits(b, *i) && !(av[*i].is_nan() && bv[*i].is_nan());
        let different: Vec<usize> = (0..a.len().min(b.len())).filter(differs).collect();
        if let Some(&i) = different.first() {
            found.push(format!(
                "{output}: {} of {} elements differ, the first at {i}: {:e} and {:e}",
                different.len(),
                a.len(),
                av[i],
                bv[i]
            ));
        }
    }
    found
}
