//! What an error of z becomes behind an activation.

use isonorm::Activation;

use super::arithmetic::{ACTIVATION, ARGUMENT, Arithmetic};
use crate::oracle::activation;

/// Largest |f′|, and largest |f″| away from kinks.
fn bounds(f: Activation) -> (f64, f64) {
    match f {
        Activation::Identity | Activation::Relu => (1.0, 0.0),
        Activation::LeakyRelu { slope } => (slope.abs().max(1.0), 0.0),
        Activation::Silu => (1.1, 0.5),
        Activation::Gelu => (1.13, 0.798),
        Activation::GeluTanh => (1.13, 0.81),
        Activation::Sigmoid => (0.25, 0.0963),
        Activation::Tanh => (1.0, 0.77),
        Activation::HardSwish => (1.5, 1.0 / 3.0),
    }
}

/// Where f′ jumps, and how far.
fn kinks(f: Activation) -> &'static [f64] {
    match f {
        Activation::Relu | Activation::LeakyRelu { .. } => &[0.0],
        Activation::HardSwish => &[-3.0, 3.0],
        _ => &[],
    }
}

fn jump(f: Activation) -> f64 {
    match f {
        Activation::Relu => 1.0,
        Activation::LeakyRelu { slope } => (1.0 - slope).abs(),
        Activation::HardSwish => 0.5,
        _ => 0.0,
    }
}

/// Whether a kink may lie between z and what the engine has for it.
fn near_kink(f: Activation, z: f64, error: f64) -> bool {
    error > 0.0 && kinks(f).iter().any(|k| (z - k).abs() <= error)
}

/// Roundings of f and f′ themselves.
fn roundings(f: Activation) -> f64 {
    match f {
        Activation::Identity | Activation::Relu => 0.0,
        Activation::LeakyRelu { .. } => 1.0,
        _ => ACTIVATION,
    }
}

/// What a smooth f's own argument, such as GELU's u(z) or −z/√2, goes through.
fn argument(f: Activation, a: &Arithmetic, z: f64) -> f64 {
    if roundings(f) < ACTIVATION || z.is_infinite() {
        return 0.0;
    }
    a.gamma(ARGUMENT) * z.abs()
}

/// The error of f(z), from that of z.
pub(super) fn value(f: Activation, a: &Arithmetic, z: f64, error: f64) -> f64 {
    let y = activation::value(f, z);
    let own = a.gamma(roundings(f)) * y.abs();
    let error = error + argument(f, a, z);
    if error == 0.0 {
        return own;
    }
    let (largest, curvature) = bounds(f);
    let slope = if near_kink(f, z, error) {
        largest
    } else {
        largest.min(activation::derivative(f, z).abs() + curvature * error)
    };
    own + slope * error + a.tiny()
}

/// The error of f′(z), from that of z.
pub(super) fn derivative(f: Activation, a: &Arithmetic, z: f64, error: f64) -> f64 {
    let own = a.gamma(roundings(f)) * activation::derivative_magnitude(f, z);
    let error = error + argument(f, a, z);
    let jump = if near_kink(f, z, error) { jump(f) } else { 0.0 };
    let (largest, curvature) = bounds(f);
    // Two derivatives differ by no more than their largest values.
    own + jump + (curvature * error).min(2.0 * largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold() {
        for f in [
            Activation::LeakyRelu { slope: -2.0 },
            Activation::Silu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Sigmoid,
            Activation::Tanh,
            Activation::HardSwish,
        ] {
            let (slope, curvature) = bounds(f);
            let h = 1e-4;
            for i in -100_000..100_000 {
                let z = (f64::from(i) + 0.5) * h;
                assert!(activation::derivative(f, z).abs() <= slope, "{f:?} at {z}");
                let step = activation::derivative(f, z + h / 4.0) - activation::derivative(f, z - h / 4.0);
                let second = step.abs() / (h / 2.0);
                assert!(
                    second <= curvature * 1.001 + 1e-9 || near_kink(f, z, h),
                    "{f:?} at {z}: {second}"
                );
            }
        }
    }
}
