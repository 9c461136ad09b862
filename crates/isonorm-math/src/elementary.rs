//! Elementary functions; direct formulas for now.
use crate::Real;
pub(crate) fn exp<R: Real>(x: R) -> R {
    R::from_f64(x.to_f64().exp())
}
pub(crate) fn tanh<R: Real>(x: R) -> R {
    R::from_f64(x.to_f64().tanh())
}
pub(crate) fn sigmoid<R: Real>(x: R) -> R {
    R::from_f64(1.0 / (1.0 + (-x.to_f64()).exp()))
}
pub(crate) fn erf<R: Real>(x: R) -> R {
    R::from_f64(2.0 * normal_cdf_pdf(x.to_f64() * core::f64::consts::SQRT_2).0 - 1.0)
}
pub(crate) fn normal_pdf<R: Real>(x: R) -> R {
    normal_cdf_pdf(x).1
}
pub(crate) fn normal_cdf_pdf<R: Real>(x: R) -> (R, R) {
    let x = x.to_f64();
    let pdf = (-x * x / 2.0).exp() * 0.398_942_280_401_432_7;
    let (mut term, mut sum, mut k) = (x, x, 1.0);
    while k < 200.0 {
        term *= x * x / (2.0 * k + 1.0);
        sum += term;
        k += 1.0;
    }
    let cdf = if x > 8.0 {
        1.0
    } else if x < -8.0 {
        0.0
    } else {
        0.5 + pdf * sum
    };
    (R::from_f64(cdf), R::from_f64(pdf))
}
