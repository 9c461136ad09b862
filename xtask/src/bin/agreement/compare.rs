//! One result against the exact one, beside PyTorch's.

use anyhow::{Result, ensure};
use isonorm::{DType, TensorData};

use crate::case::Case;

/// How far a result is from the exact one.
pub struct Distance {
    /// Root of the mean squared difference.
    pub rms: f64,
    /// The largest difference.
    pub max: f64,
    /// The largest difference in units of what the types allow.
    pub of_bound: f64,
    /// Where that is.
    pub at: usize,
}

/// A result of a case, ours and PyTorch's.
pub struct Comparison {
    pub name: &'static str,
    pub ours: Distance,
    pub torch: Distance,
    /// The values at the worst element: ours, PyTorch's, exact, allowed difference.
    pub worst: [f64; 4],
    /// Root of the mean square of the exact result, to which errors are relative.
    pub scale: f64,
    /// Whether PyTorch's result is the exact one itself, because there is no wider type.
    pub same_type: bool,
}

impl Comparison {
    /// As close as the types allow, or as close as PyTorch.
    pub fn agrees(&self) -> bool {
        self.ours.of_bound <= 1.0 || (!self.same_type && self.ours.max <= self.torch.max)
    }
}

/// The difference of two values; infinite when only one is a number, zero for two of the same infinity or two NaN.
fn difference(a: f64, b: f64) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) {
        0.0
    } else if (a - b).is_finite() {
        (a - b).abs()
    } else {
        f64::INFINITY
    }
}

fn distance(result: &[f64], exact: &[f64], bound: &[f64]) -> Distance {
    let mut distance = Distance {
        rms: 0.0,
        max: 0.0,
        of_bound: 0.0,
        at: 0,
    };
    let mut squares = 0.0;
    for (i, ((&r, &e), &b)) in result.iter().zip(exact).zip(bound).enumerate() {
        let d = difference(r, e);
        squares += d * d;
        distance.max = distance.max.max(d);
        let share = if d == 0.0 { 0.0 } else { d / b };
        if share > distance.of_bound || share.is_nan() {
            (distance.of_bound, distance.at) = (if share.is_nan() { f64::INFINITY } else { share }, i);
        }
    }
    distance.rms = (squares / result.len().max(1) as f64).sqrt();
    distance
}

/// Compares one result of a case.
pub fn compare(case: &Case<'_>, name: &'static str, result: &TensorData) -> Result<Comparison> {
    let values = |kind: &str| Ok::<_, anyhow::Error>(case.tensor(&format!("{kind}.{name}"))?.to_f64());
    let (ours, torch, exact, bound) = (result.to_f64(), values("torch")?, values("exact")?, values("bound")?);
    let lengths = [ours.len(), torch.len(), exact.len(), bound.len()];
    ensure!(
        lengths.iter().all(|&n| n == ours.len()),
        "{name}: lengths differ: {lengths:?}"
    );

    let d = distance(&ours, &exact, &bound);
    let value = |v: &[f64]| v.get(d.at).copied().unwrap_or_default();
    let worst = [value(&ours), value(&torch), value(&exact), value(&bound)];
    let squares: f64 = exact.iter().map(|e| e * e).sum();
    Ok(Comparison {
        name,
        torch: distance(&torch, &exact, &bound),
        ours: d,
        worst,
        scale: (squares / exact.len().max(1) as f64).sqrt(),
        same_type: case.desc.get_dtype() == DType::F64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_other_values_are_far_apart() {
        assert_eq!(difference(1.0, 1.5), 0.5);
        assert_eq!(difference(f64::NAN, f64::NAN), 0.0);
        assert_eq!(difference(f64::INFINITY, f64::INFINITY), 0.0);
        assert_eq!(difference(f64::NAN, 1.0), f64::INFINITY);
        assert_eq!(difference(f64::INFINITY, -f64::INFINITY), f64::INFINITY);
    }

    #[test]
    fn the_worst_element_is_worst_in_units_of_its_bound() {
        let d = distance(&[1.0, 2.0, 3.0], &[1.0, 2.5, 3.25], &[0.1, 1.0, 0.125]);
        assert_eq!((d.max, d.of_bound, d.at), (0.5, 2.0, 2));
    }
}
