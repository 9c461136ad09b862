//! Rounding to the types of tensors.

use isonorm::{DType, bf16, f16};

/// The nearest number of this type, ties to even.
pub(super) fn nearest(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f32(to_odd(v)).to_f64(),
        DType::Bf16 => bf16::from_f32(to_odd(v)).to_f64(),
        DType::F32 => f64::from(v as f32),
        DType::F64 => v,
    }
}

/// `v` in `f32`, the last bit set where something was cut off: rounding that to fewer bits is as if `v` had been rounded
/// once.
fn to_odd(v: f64) -> f32 {
    let nearest = v as f32;
    if f64::from(nearest) == v || !nearest.is_finite() {
        return nearest;
    }
    let outward = f64::from(nearest).abs() > v.abs();
    f32::from_bits((nearest.to_bits() - u32::from(outward)) | 1)
}

/// From here on, in the direction of `target`, numbers are no longer rounded to `v` of this type. For `f64`, `v` itself.
pub(super) fn boundary(dtype: DType, v: f64, target: f64) -> f64 {
    let neighbour = |bits: u32, width: u32| {
        let zero = bits << (32 - width + 1) == 0;
        let outward = (target > v) == (v > 0.0);
        match (zero, outward) {
            (true, _) => (u32::from(target < 0.0) << (width - 1)) | 1,
            (false, true) => bits + 1,
            (false, false) => bits - 1,
        }
    };
    let next = |v: f64| match dtype {
        DType::F16 => f16::from_bits(neighbour(f16::from_f64(v).to_bits().into(), 16) as u16).to_f64(),
        DType::Bf16 => bf16::from_bits(neighbour(bf16::from_f64(v).to_bits().into(), 16) as u16).to_f64(),
        DType::F32 => f32::from_bits(neighbour((v as f32).to_bits(), 32)).into(),
        DType::F64 => v,
    };
    let next_to_v = next(v);
    if v.is_infinite() {
        // As if the step to infinity were as wide as the one before.
        return next_to_v + (next_to_v - next(next_to_v)) / 2.0;
    }
    v + (next_to_v - v) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_once() {
        let tie = 1.0 + 2f64.powi(-8);
        let hair = 2f64.powi(-40);
        assert_eq!(nearest(DType::Bf16, tie), 1.0);
        assert_eq!(nearest(DType::Bf16, tie + hair), 1.0 + 2f64.powi(-7));
        assert_eq!(nearest(DType::Bf16, -tie - hair), -1.0 - 2f64.powi(-7));
        assert_eq!(nearest(DType::Bf16, tie - hair), 1.0);
        assert_eq!(nearest(DType::F16, 65519.999999), 65504.0);
        assert_eq!(nearest(DType::F16, 65520.0), f64::INFINITY);
        assert_eq!(nearest(DType::F16, 1e300), f64::INFINITY);
        assert_eq!(nearest(DType::F16, 2f64.powi(-25) + 2f64.powi(-60)), 2f64.powi(-24));
        assert!(nearest(DType::Bf16, f64::NAN).is_nan());
    }

    #[test]
    fn boundaries_are_halfway() {
        assert_eq!(boundary(DType::Bf16, 1.0, 2.0), 1.0 + 2f64.powi(-8));
        assert_eq!(boundary(DType::Bf16, 1.0, 0.0), 1.0 - 2f64.powi(-9));
        assert_eq!(boundary(DType::Bf16, -1.0, -2.0), -1.0 - 2f64.powi(-8));
        assert_eq!(boundary(DType::F16, 0.0, -1.0), -2f64.powi(-25));
        assert_eq!(boundary(DType::F16, f64::INFINITY, 7.0), 65520.0);
        assert_eq!(boundary(DType::F32, 1.0, 2.0), 1.0 + 2f64.powi(-24));
        assert_eq!(boundary(DType::F64, 1.0, 2.0), 1.0);
    }
}
