//! Elementary functions against values of 106 bits (`reference.txt`), dense sweeps, and the values at the ends.

use isonorm_math::Real;

const TABLE: &str = include_str!("reference.txt");

/// Largest errors allowed, in units in the last place: function, `f32`, `f64`. They are those that `Real` states, a
/// little rounded up.
const LIMITS: [(&str, f64, f64); 6] = [
    ("exp", 1.1, 1.1),
    ("tanh", 1.3, 1.3),
    ("sigmoid", 1.75, 1.75),
    ("erf", 1.3, 1.3),
    ("normal_cdf", 4.0, 3.5),
    ("normal_pdf", 1.3, 1.3),
];

fn call<R: Real>(name: &str, x: R) -> R {
    match name {
        "exp" => x.exp(),
        "tanh" => x.tanh(),
        "sigmoid" => x.sigmoid(),
        "erf" => x.erf(),
        "normal_cdf" => x.normal_cdf(),
        "normal_pdf" => x.normal_pdf(),
        _ => panic!("no function {name}"),
    }
}

/// The distance between neighbours of a type at `value`.
fn ulp(value: f64, smallest_exponent: i32, fraction_bits: i32) -> f64 {
    let biased = (value.abs().to_bits() >> 52) as i32;
    2f64.powi((biased - 1023).max(smallest_exponent)) * 2f64.powi(-fraction_bits)
}

fn ulp_f32(value: f64) -> f64 {
    ulp(value, -126, 23)
}

fn ulp_f64(value: f64) -> f64 {
    ulp(value, -1022, 52)
}

fn bits(hex: &str) -> u64 {
    u64::from_str_radix(hex, 16).unwrap()
}

#[test]
fn agrees_with_the_table() {
    let mut lines = 0;
    for line in TABLE.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (high, low) = (f64::from_bits(bits(fields[3])), f64::from_bits(bits(fields[4])));
        let &(name, limit_f32, limit_f64) = LIMITS.iter().find(|limit| limit.0 == fields[0]).unwrap();
        let (error, limit) = match fields[1] {
            "f32" => {
                let result = call(name, f32::from_bits(bits(fields[2]) as u32));
                ((f64::from(result) - high).abs() / ulp_f32(high), limit_f32)
            }
            _ => {
                let result = call(name, f64::from_bits(bits(fields[2])));
                (((result - high) - low).abs() / ulp_f64(high), limit_f64)
            }
        };
        assert!(error <= limit, "{line}: {error} ulp");
        lines += 1;
    }
    assert_eq!(lines, 6 * 2 * 160);
}

/// Every 16,411th `f32` (a prime), against the same function in `f64`, or `std`'s.
#[test]
fn f32_agrees_with_f64() {
    for (name, limit, _) in LIMITS {
        for pattern in (0..u32::MAX).step_by(16_411) {
            let x = f32::from_bits(pattern);
            let result = call(name, x);
            let wide = f64::from(x);
            let expected = match name {
                "exp" => wide.exp(),
                "tanh" => wide.tanh(),
                _ => call(name, wide),
            };
            if expected.is_nan() {
                assert!(result.is_nan(), "{name}({x}) = {result}");
            } else if expected > f64::from(f32::MAX) {
                assert_eq!(result, f32::INFINITY, "{name}({x})");
            } else {
                let error = (f64::from(result) - expected).abs() / ulp_f32(expected);
                let limit = if expected < f64::from(f32::MIN_POSITIVE) {
                    limit.max(2.0)
                } else {
                    limit
                };
                assert!(error <= limit, "{name}({x}) = {result}: {error} ulp");
            }
        }
    }
}

#[test]
fn f64_agrees_with_std() {
    for i in -80_000..80_000 {
        let x = f64::from(i) * 0.01;
        let (exp, tanh) = (x.exp(), x.tanh());
        assert!(
            (call("exp", x) - exp).abs() <= 2.0 * ulp_f64(exp) || call("exp", x) == exp,
            "exp({x})"
        );
        assert!((call("tanh", x) - tanh).abs() <= 2.0 * ulp_f64(tanh), "tanh({x})");
    }
}

fn ends<R: Real>() {
    let infinity = R::INFINITY;
    for (name, at_minus_infinity, at_zero, at_infinity) in [
        ("exp", 0.0, 1.0, f64::INFINITY),
        ("tanh", -1.0, 0.0, 1.0),
        ("sigmoid", 0.0, 0.5, 1.0),
        ("erf", -1.0, 0.0, 1.0),
        ("normal_cdf", 0.0, 0.5, 1.0),
        ("normal_pdf", 0.0, 0.398_942_280_401_432_7, 0.0),
    ] {
        assert_eq!(call(name, -infinity), R::from_f64(at_minus_infinity), "{name}");
        assert_eq!(call(name, infinity), R::from_f64(at_infinity), "{name}");
        assert_eq!(call(name, R::ZERO), R::from_f64(at_zero), "{name}");
        assert_eq!(call(name, -R::ZERO), R::from_f64(at_zero), "{name}");
        let nan = call(name, R::from_f64(f64::NAN));
        assert!(nan.to_f64().is_nan(), "{name}");
    }
    for name in ["tanh", "erf"] {
        let zero = call(name, -R::ZERO).to_f64();
        assert!(zero == 0.0 && zero.is_sign_negative(), "{name}(-0)");
    }
}

#[test]
fn ends_and_nan() {
    ends::<f32>();
    ends::<f64>();
}

#[test]
fn overflow_and_underflow() {
    assert_eq!(Real::exp(88.722_83_f32), 3.402_798_5e38);
    assert_eq!(Real::exp(88.722_84_f32), f32::INFINITY);
    assert_eq!(Real::exp(-103.278_93_f32), f32::from_bits(1));
    assert_eq!(Real::exp(-104.0_f32), 0.0);
    assert_eq!(Real::exp(709.783_f64), f64::INFINITY);
    assert_eq!(Real::exp(-745.0_f64), f64::from_bits(1));
    assert_eq!(Real::exp(-746.0_f64), 0.0);
    assert_eq!(Real::normal_cdf(-15.0_f32), 0.0);
    assert_eq!(Real::normal_cdf(-39.0_f64), 0.0);
    for tiny in [f32::from_bits(1), f32::from_bits(0x0012_3456)] {
        assert_eq!(Real::tanh(tiny), tiny);
    }
}

fn pairs<R: Real>(x: f64) {
    let x = R::from_f64(x);
    let (cdf, pdf) = x.normal_cdf_pdf();
    assert_eq!((cdf, pdf), (x.normal_cdf(), x.normal_pdf()));
    let (larger, smaller) = x.sigmoid_sides();
    for (pair, single) in [(larger, x.abs().sigmoid()), (smaller, (-x.abs()).sigmoid())] {
        assert!((pair - single).abs() <= R::from_f64(4.0) * R::EPSILON * single, "{x:?}");
    }
}

#[test]
fn pairs_agree_with_their_halves() {
    for i in -800..800 {
        pairs::<f32>(f64::from(i) * 0.1);
        pairs::<f64>(f64::from(i) * 0.1);
    }
}
