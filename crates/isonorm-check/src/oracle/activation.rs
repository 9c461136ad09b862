//! Activations and their derivatives from their definitions; `erfc` and the hyperbolic functions come from `libm`.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use isonorm::Activation;

/// σ(z)
fn sigmoid(z: f64) -> f64 {
    if z >= 0.0 {
        1.0 / (1.0 + libm::exp(-z))
    } else {
        let e = libm::exp(z);
        e / (1.0 + e)
    }
}

/// Φ(z)
fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z * FRAC_1_SQRT_2)
}

/// φ(z)
fn normal_pdf(z: f64) -> f64 {
    libm::exp(-0.5 * z * z) / (2.0 * PI).sqrt()
}

/// `½ (1 + tanh u)` is σ(2u), and du/dz, for GELU's approximation.
fn gelu_tanh_gate(z: f64) -> (f64, f64) {
    let factor = (2.0 / PI).sqrt();
    let u = factor * (z + 0.044715 * z * z * z);
    (2.0 * u, factor * (1.0 + 3.0 * 0.044715 * z * z))
}

/// A product with a factor that tends to 0 faster than the others grow: 0 where it has got there, not ∞ · 0.
fn vanishing(gate: f64, factor: f64) -> f64 {
    if gate == 0.0 { 0.0 } else { gate * factor }
}

/// f(z).
pub fn value(activation: Activation, z: f64) -> f64 {
    match activation {
        Activation::Identity => z,
        Activation::Relu if z <= 0.0 => 0.0,
        Activation::Relu => z,
        Activation::LeakyRelu { slope } if z <= 0.0 => z * slope,
        Activation::LeakyRelu { .. } => z,
        Activation::Silu => vanishing(sigmoid(z), z),
        Activation::Gelu => vanishing(normal_cdf(z), z),
        Activation::GeluTanh => vanishing(sigmoid(gelu_tanh_gate(z).0), z),
        Activation::Sigmoid => sigmoid(z),
        Activation::Tanh => libm::tanh(z),
        Activation::HardSwish if z <= -3.0 => 0.0,
        Activation::HardSwish if z >= 3.0 => z,
        Activation::HardSwish => z * (z + 3.0) / 6.0,
    }
}

/// f′(z), as a sum of two terms: what is left of them after they cancel is the derivative, what they are before bounds
/// its rounding error.
fn derivative_terms(activation: Activation, z: f64) -> (f64, f64) {
    match activation {
        Activation::Identity => (1.0, 0.0),
        Activation::Relu => (if z <= 0.0 { 0.0 } else { 1.0 }, 0.0),
        Activation::LeakyRelu { slope } => (if z > 0.0 { 1.0 } else { slope }, 0.0),
        Activation::Silu => {
            let gate = sigmoid(z);
            (gate, vanishing(gate * sigmoid(-z), z))
        }
        Activation::Gelu => (normal_cdf(z), vanishing(normal_pdf(z), z)),
        Activation::GeluTanh => {
            let (argument, slope) = gelu_tanh_gate(z);
            let gate = sigmoid(argument);
            let product = vanishing(gate * sigmoid(-argument), 2.0 * slope * z);
            (gate, product)
        }
        Activation::Sigmoid => (sigmoid(z) * sigmoid(-z), 0.0),
        // 1 − tanh² z without the cancellation.
        Activation::Tanh => (4.0 * sigmoid(2.0 * z) * sigmoid(-2.0 * z), 0.0),
        Activation::HardSwish if z <= -3.0 => (0.0, 0.0),
        Activation::HardSwish if z < 3.0 => (0.5, z / 3.0),
        Activation::HardSwish => (1.0, 0.0),
    }
}

/// f′(z). At kinks and for NaN, what PyTorch has.
pub fn derivative(activation: Activation, z: f64) -> f64 {
    let (a, b) = derivative_terms(activation, z);
    a + b
}

/// The size of what f′(z) is the difference of.
pub fn derivative_magnitude(activation: Activation, z: f64) -> f64 {
    let (a, b) = derivative_terms(activation, z);
    a.abs() + b.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Activation; 9] = [
        Activation::Identity,
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::HardSwish,
    ];

    #[test]
    fn derivatives_are_the_slopes_of_values() {
        let h = 1e-5;
        for kind in KINDS {
            for i in -80..80 {
                // No kink lies between two points of this grid.
                let z = f64::from(i) * 0.1 + 0.05;
                let slope = (value(kind, z + h) - value(kind, z - h)) / (2.0 * h);
                assert!((derivative(kind, z) - slope).abs() < 1e-9, "{kind:?} at {z}");
            }
        }
    }

    #[test]
    fn known_values() {
        assert!((value(Activation::Gelu, 1.0) - 0.841_344_746_068_542_9).abs() < 1e-15);
        assert!((value(Activation::GeluTanh, 1.0) - 0.841_191_990_608_276_3).abs() < 1e-15);
        assert!((value(Activation::Silu, 1.0) - 0.731_058_578_630_004_9).abs() < 1e-15);
        for kind in [Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
            assert_eq!(value(kind, f64::NEG_INFINITY), 0.0);
            assert_eq!(derivative(kind, f64::NEG_INFINITY), 0.0);
            assert_eq!(derivative(kind, f64::INFINITY), 1.0);
            assert!(value(kind, f64::NAN).is_nan());
        }
    }
}
