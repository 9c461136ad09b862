//! Activations against their formulas in `f64`, their derivatives against differences, and both at the ends.

use isonorm_math::{Activation, Real};

const KINDS: [Activation; 9] = [
    Activation::Identity,
    Activation::Relu,
    Activation::LeakyRelu { slope: 0.125 },
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::HardSwish,
];

/// The definitions, written without care for cancellation.
fn definition(kind: Activation, z: f64) -> f64 {
    let sigmoid = 1.0 / (1.0 + (-z).exp());
    match kind {
        Activation::Identity => z,
        Activation::Relu => z.max(0.0),
        Activation::LeakyRelu { slope } => z.max(0.0) + slope * z.min(0.0),
        Activation::Silu => z * sigmoid,
        Activation::Gelu => 0.5 * z * (1.0 + Real::erf(z / 2f64.sqrt())),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (z + 0.044_715 * z.powi(3));
            0.5 * z * (1.0 + u.tanh())
        }
        Activation::Sigmoid => sigmoid,
        Activation::Tanh => z.tanh(),
        Activation::HardSwish => z * (z + 3.0).clamp(0.0, 6.0) / 6.0,
    }
}

/// Points that miss the kinks.
fn points() -> impl Iterator<Item = f64> {
    (-1000..1000).map(|i| (f64::from(i) + 0.5) * 0.01)
}

#[test]
fn apply_agrees_with_the_definition() {
    for kind in KINDS {
        for z in points() {
            let expected = definition(kind, z);
            let (double, single) = (kind.apply(z), kind.apply(z as f32));
            assert!((double - expected).abs() <= 1e-14, "{kind:?} {z}: {double} {expected}");
            assert!(
                (f64::from(single) - expected).abs() <= 1e-6 * z.abs().max(1.0),
                "{kind:?} {z}: {single} {expected}"
            );
        }
    }
}

#[test]
fn derivative_agrees_with_differences() {
    const STEP: f64 = 1e-5;
    for kind in KINDS {
        for z in points() {
            let expected = (kind.apply(z + STEP) - kind.apply(z - STEP)) / (2.0 * STEP);
            let (double, single) = (kind.derivative(z), kind.derivative(z as f32));
            assert!((double - expected).abs() <= 1e-9, "{kind:?} {z}: {double} {expected}");
            assert!(
                (f64::from(single) - double).abs() <= 1e-6,
                "{kind:?} {z}: {single} {double}"
            );
        }
    }
}

/// The negative tails keep their digits, which ½ · (1 + erf) and ½ · (1 + tanh) lose.
#[test]
fn tails() {
    // -10 Φ(-10), and -10 / (1 + e^(2u)) with u = √(2/π) (10 + 44.715).
    let cases = [
        (Activation::Gelu, -7.619_853_024_160_527e-23),
        (Activation::GeluTanh, -1.204_092_348_209_808e-37),
    ];
    for (kind, expected) in cases {
        let (double, single) = (kind.apply(-10f64), f64::from(kind.apply(-10f32)));
        assert!((double / expected - 1.0).abs() < 1e-9, "{kind:?}: {double}");
        assert!((single / expected - 1.0).abs() < 2e-5, "{kind:?}: {single}");
    }
}

#[test]
fn derivatives_at_kinks() {
    let leaky = Activation::LeakyRelu { slope: 0.125 };
    for zero in [0f32, -0.0] {
        assert_eq!(Activation::Relu.derivative(zero), 0.0);
        assert_eq!(leaky.derivative(zero), 0.125);
    }
    assert_eq!(Activation::HardSwish.derivative(-3f32), 0.0);
    assert_eq!(Activation::HardSwish.derivative(3f32), 1.0);
    assert_eq!(Activation::Gelu.derivative(0f32), 0.5);
    assert_eq!(Activation::Silu.derivative(0f32), 0.5);
    assert_eq!(Activation::Tanh.derivative(0f32), 1.0);
}

fn ends<R: Real>(kind: Activation) {
    let zero_below = !matches!(
        kind,
        Activation::Identity | Activation::LeakyRelu { .. } | Activation::Tanh
    );
    let bounded = matches!(kind, Activation::Sigmoid | Activation::Tanh);
    let (low, high) = (kind.apply(-R::INFINITY), kind.apply(R::INFINITY));
    if zero_below {
        assert_eq!(low, R::ZERO, "{kind:?}");
    }
    assert_eq!(high, if bounded { R::ONE } else { R::INFINITY }, "{kind:?}");
    let slope_below = match kind {
        Activation::Identity => 1.0,
        Activation::LeakyRelu { slope } => slope,
        _ => 0.0,
    };
    let slope_above = if bounded { 0.0 } else { 1.0 };
    for far in [R::INFINITY, R::from_f64(1e30), R::from_f64(1e4)] {
        assert_eq!(kind.derivative(-far), R::from_f64(slope_below), "{kind:?} at -{far:?}");
        assert_eq!(kind.derivative(far), R::from_f64(slope_above), "{kind:?} at {far:?}");
    }
    let nan = R::from_f64(f64::NAN);
    let result = kind.apply(nan);
    assert!(result.to_f64().is_nan(), "{kind:?}(NaN) = {result:?}");
    let slope = kind.derivative(nan);
    match kind {
        Activation::Identity | Activation::Relu | Activation::HardSwish => assert_eq!(slope, R::ONE, "{kind:?}"),
        Activation::LeakyRelu { slope: below } => assert_eq!(slope, R::from_f64(below)),
        _ => assert!(slope.to_f64().is_nan(), "{kind:?}'(NaN) = {slope:?}"),
    }
}

#[test]
fn infinities_and_nan() {
    for kind in KINDS {
        ends::<f32>(kind);
        ends::<f64>(kind);
    }
}

#[test]
fn slices_agree_with_single_numbers() {
    let z: Vec<f32> = points()
        .map(|z| z as f32)
        .chain([f32::INFINITY, -f32::INFINITY, 0.0, -0.0])
        .collect();
    for kind in KINDS {
        let mut applied = z.clone();
        kind.apply_slice(&mut applied);
        let mut gradient = vec![1.5f32; z.len()];
        kind.backward_slice(&z, &mut gradient);
        for (i, &z) in z.iter().enumerate() {
            assert_eq!(applied[i].to_bits(), kind.apply(z).to_bits(), "{kind:?} {z}");
            assert_eq!(
                gradient[i].to_bits(),
                (1.5 * kind.derivative(z)).to_bits(),
                "{kind:?} {z}"
            );
        }
    }
}
