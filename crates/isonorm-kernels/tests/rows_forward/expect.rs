//! The definitions in `f64`, and how far a kernel may be from them.

use isonorm_kernels::rows::Data;
use isonorm_kernels::rows::statistics::Op;

use crate::case::{Case, EPS, Input, Output, Residual, run};

pub const F32_UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// Roundings of a sum: up to 64 numbers a thread, and a tree of 10 levels.
const SUM: f64 = 74.0 * F32_UNIT;

/// The unit roundoff of a type, and its smallest number.
pub trait Rounding: Data {
    const UNIT: f64;
    const SMALLEST: f64;
}

impl Rounding for f32 {
    const UNIT: f64 = F32_UNIT;
    const SMALLEST: f64 = 1e-45;
}

impl Rounding for isonorm_math::F16 {
    const UNIT: f64 = 1.0 / 2048.0;
    const SMALLEST: f64 = 1.0 / 16_777_216.0;
}

impl Rounding for isonorm_math::Bf16 {
    const UNIT: f64 = 1.0 / 256.0;
    const SMALLEST: f64 = 1e-40;
}

/// Mean, 1 / √(variance + eps) and the variance, and how far each may be off.
struct Expected {
    mean: [f64; 2],
    rstd: [f64; 2],
    variance: [f64; 2],
}

fn statistics<T: Rounding>(case: &Case<T>, input: &Input<T>, row: usize, x: &[f64]) -> Expected {
    let count = x.len() as f64;
    let set = row % case.sets;
    let given = case.kernel.key.op == Op::Given;
    let mean = match case.kernel.key.op {
        Op::Layer => x.iter().sum::<f64>() / count,
        Op::Rms => 0.0,
        Op::Given => input.given_mean.get(set),
    };
    let variance = match given {
        true => input.given_variance.get(set),
        false => x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count,
    };
    let rstd = 1.0 / (variance + f64::from(EPS)).sqrt();
    // The mean is as good as the spread allows, however far it lies from 0; saved as one number it is rounded once more.
    let spread = if given { 0.0 } else { SUM * variance.sqrt() };
    Expected {
        mean: [mean, spread + 2.0 * F32_UNIT * mean.abs()],
        rstd: [rstd, (SUM + 8.0 * F32_UNIT) * rstd],
        variance: [variance, (2.0 * SUM + 8.0 * F32_UNIT) * variance],
    }
}

/// Runs the case and compares with the definitions.
pub fn check<T: Rounding>(case: &Case<T>, input: &Input<T>) -> Output<T> {
    let output = run(case, input);
    for row in 0..case.rows {
        check_row(case, input, &output, row);
    }
    let untouched = |i: &usize| *i < case.lead || (*i - case.lead) % case.stride() >= case.columns;
    for i in (0..output.y.slice().len()).filter(untouched).filter(|_| !case.in_place) {
        assert!(
            output.y.slice()[i].to_acc().is_nan(),
            "{case:?}: element {i} lies in no row, and was written"
        );
    }
    output
}

fn check_row<T: Rounding>(case: &Case<T>, input: &Input<T>, output: &Output<T>, row: usize) {
    let start = case.lead + row * case.stride();
    let residual = |i: usize| input.residual.slice()[start + i].to_acc();
    let element = |i: usize| {
        let x = input.x.slice()[start + i].to_acc();
        let sum = if case.residual == Residual::Stream {
            T::from_acc(x + residual(i)).to_acc()
        } else {
            x
        };
        f64::from(sum)
    };
    let x: Vec<f64> = (0..case.columns).map(element).collect();
    let expected = statistics(case, input, row, &x);
    let ([mean, mean_off], [rstd, rstd_off]) = (expected.mean, expected.rstd);
    // What is given is not saved.
    if case.kernel.key.op != Op::Given {
        let [variance, variance_off] = expected.variance;
        let saved = f64::from(output.variance[row]);
        close(case, "mean", row, f64::from(output.mean[row]), mean, mean_off);
        close(case, "rstd", row, f64::from(output.rstd[row]), rstd, rstd_off);
        close(case, "variance", row, saved, variance, variance_off);
    }
    for (i, &x) in x.iter().enumerate() {
        if case.residual == Residual::Stream {
            let stream = f64::from(output.stream.slice()[start + i].to_acc());
            assert_eq!(stream.to_bits(), x.to_bits(), "{case:?}: stream, row {row}, column {i}");
        }
        let parameter = if case.by_run() {
            row % case.sets * case.runs() + i / case.run
        } else {
            i
        };
        let weight = if case.weight { input.weight.get(parameter) } else { 1.0 };
        let bias = if case.bias { input.bias.get(parameter) } else { 0.0 };
        let added = if case.residual == Residual::Added {
            f64::from(residual(i))
        } else {
            0.0
        };
        let xhat = (x - mean) * rstd;
        let y = case.activation.apply(xhat * weight + bias + added);
        // The mean in two numbers is better than the one that is saved.
        let of_xhat = 2.0 * (SUM + 8.0 * F32_UNIT) * (xhat.abs() + 1.0);
        let before = of_xhat * weight.abs() + 4.0 * F32_UNIT * (weight.abs() * xhat.abs() + bias.abs() + added.abs());
        // Derivatives of the activations stay below 1.2; their own roundings are a few units.
        let off = 1.2 * before + (T::UNIT + 10.0 * F32_UNIT) * y.abs() + T::SMALLEST;
        close(case, "y", row, f64::from(output.y.slice()[start + i].to_acc()), y, off);
    }
}

#[track_caller]
fn close<T>(case: &Case<T>, what: &str, row: usize, got: f64, expected: f64, off: f64) {
    let Case {
        kernel,
        columns,
        lead,
        gap,
        ..
    } = case;
    assert!(
        (got - expected).abs() <= off,
        "{what} of row {row}: got {got}, expected {expected} within {off:e} ({} {}, {columns} columns, lead {lead}, gap {gap})",
        kernel.family,
        kernel.name,
    );
}
