//! The definitions in `f64`, and how far a kernel may be from them.

use isonorm_kernels::rows::Data;
use isonorm_kernels::rows::statistics::Op;
use isonorm_math::Activation;

use crate::case::{Case, LINES, Tensor, input, run};

pub const F32_UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// How far a sum over a row may be off, of a thread's numbers and a tree of some levels, or one over rows, of which there are fewer.
fn sum_of<T: Data>(case: &Case<T>) -> f64 {
    let key = &case.kernel.key;
    let accesses = if key.is_of_lines() { LINES } else { key.accesses };
    let numbers = accesses * key.access_elements(size_of::<T>() as u32);
    f64::from(numbers + 16) * F32_UNIT
}

/// x̂, g, the weight, and how far g may be off.
type Element = (f64, f64, f64, f64);

/// Runs the case and compares with the definitions, from the saved statistics on.
pub fn check<T: Data>(case: &Case<T>, unit: f64) {
    let input = input(case);
    let output = run(case, &input);
    let (columns, op) = (case.columns, case.kernel.key.op);
    let number = |tensor: &Tensor<T>, i: usize| f64::from(tensor.get()[i].to_acc());
    let sum = sum_of(case);
    let mut sums = vec![[0.0; 4]; case.parameters()];
    for row in 0..case.rows {
        let (mean, rstd) = (f64::from(input.mean[row]), f64::from(input.rstd[row]));
        let element = |c: usize| {
            let i = row * columns + c;
            let xhat = (number(&input.x, i) - mean) * rstd;
            let [weight, bias] = [0, 1].map(|k: usize| f64::from(input.weight[k].get()[case.parameter(row, c)]));
            let added = if case.residual { number(&input.residual, i) } else { 0.0 };
            let z = xhat * weight + bias + added;
            let dy = number(&input.dy, i);
            let g = dy * case.activation.derivative(z);
            // Second derivatives stay below 1.2; the derivative's own roundings are a few units.
            let off = dy.abs() * F32_UNIT * (1.2 * 6.0 * (xhat.abs() * weight.abs() + bias.abs() + added.abs()) + 16.0);
            (
                xhat,
                g,
                weight,
                if case.activation == Activation::Identity {
                    0.0
                } else {
                    off
                },
            )
        };
        let row_of: Vec<Element> = (0..columns).map(element).collect();
        let count = columns as f64;
        let mean_of = |f: &dyn Fn(&Element) -> f64| row_of.iter().map(f).sum::<f64>() / count;
        let [mean_g, off_g] = [
            mean_of(&|e| e.1 * e.2),
            mean_of(&|e| (e.1 * e.2).abs() * sum + e.3 * e.2.abs()),
        ];
        let mean_gx = mean_of(&|e| e.1 * e.2 * e.0);
        let off_gx = mean_of(&|e| ((e.1 * e.2 * e.0).abs() * sum) + e.3 * (e.2 * e.0).abs());
        let mean_g = if op == Op::Layer { mean_g } else { 0.0 };
        for (c, &(xhat, g, weight, off)) in row_of.iter().enumerate() {
            let i = row * columns + c;
            let more = if case.stream { number(&input.dstream, i) } else { 0.0 };
            let inner = g * weight - mean_g - xhat * mean_gx;
            let dx = rstd * inner + more;
            let magnitude = (g * weight).abs() + mean_g.abs() + (xhat * mean_gx).abs();
            let slack = rstd * (off * weight.abs() + off_g + off_gx * xhat.abs() + 8.0 * F32_UNIT * magnitude);
            let smallest = 1e-7 * unit;
            close(
                case,
                "dx",
                number(&output.dx, i),
                dx,
                slack + (unit + 4.0 * F32_UNIT) * (dx.abs() + more.abs()) + smallest,
            );
            if case.residual {
                let got = number(&output.dresidual, i);
                close(case, "dresidual", got, g, off + unit * g.abs() + smallest);
            }
            let parameter = case.parameter(row, c);
            let [of_weight, magnitude, of_bias, offs] = sums[parameter];
            let slack = (1.0 + xhat.abs()) * (off + 8.0 * F32_UNIT * g.abs());
            sums[parameter] = [
                of_weight + g * xhat,
                magnitude + g.abs() * (1.0 + xhat.abs()),
                of_bias + g,
                offs + slack,
            ];
        }
    }
    // Gradients that the kernel writes as they are wanted.
    let rounding = if case.writes_gradients() && case.narrow {
        unit
    } else {
        0.0
    };
    for (c, &[of_weight, magnitude, of_bias, slack]) in sums.iter().enumerate() {
        let off = sum * magnitude + slack;
        for (k, what, expected) in [(0, "dweight", of_weight), (1, "dbias", of_bias)] {
            let got = output.gradients[k][c].into();
            close(case, what, got, expected, off + rounding * expected.abs());
        }
    }
}

#[track_caller]
fn close<T>(case: &Case<T>, what: &str, got: f64, expected: f64, off: f64) {
    let (kernel, columns) = (&case.kernel, case.columns);
    assert!(
        (got - expected).abs() <= off,
        "{what}: got {got}, expected {expected} within {off:e} ({} {}, {columns} columns)",
        kernel.family,
        kernel.name
    );
}
