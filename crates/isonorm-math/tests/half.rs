//! 16-bit types: every pattern, and rounding against a search through the neighbours.

use isonorm_math::{Bf16, F16};

/// A 16-bit type's numbers, by the definition of its fields.
struct Definition {
    fraction_bits: u32,
    bias: i32,
    to_f32: fn(u16) -> f32,
    from_f32: fn(f32) -> u16,
}

const F16_DEFINITION: Definition = Definition {
    fraction_bits: 10,
    bias: 15,
    to_f32: |bits| F16(bits).to_f32(),
    from_f32: |value| F16::from_f32(value).0,
};

const BF16_DEFINITION: Definition = Definition {
    fraction_bits: 7,
    bias: 127,
    to_f32: |bits| Bf16(bits).to_f32(),
    from_f32: |value| Bf16::from_f32(value).0,
};

impl Definition {
    fn infinity(&self) -> u16 {
        0x7fff >> self.fraction_bits << self.fraction_bits
    }

    /// The value of a pattern; infinity's continues the finite numbers, one step above the largest.
    fn value(&self, magnitude: u16) -> f64 {
        let exponent = i32::from(magnitude >> self.fraction_bits);
        let fraction = f64::from(magnitude & ((1 << self.fraction_bits) - 1)) / f64::from(1 << self.fraction_bits);
        if exponent == 0 {
            fraction * 2f64.powi(1 - self.bias)
        } else {
            (1.0 + fraction) * 2f64.powi(exponent - self.bias)
        }
    }

    /// The nearest pattern by bisection, ties to the even one.
    fn nearest(&self, value: f32) -> u16 {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let magnitude = f64::from(value.abs());
        let (mut low, mut high) = (0, self.infinity());
        if magnitude >= self.value(high) {
            return sign | high;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.value(middle) <= magnitude {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (below, above) = (magnitude - self.value(low), self.value(high) - magnitude);
        let even = if low % 2 == 0 { low } else { high };
        sign | match below.partial_cmp(&above).unwrap() {
            std::cmp::Ordering::Less => low,
            std::cmp::Ordering::Equal => even,
            std::cmp::Ordering::Greater => high,
        }
    }

    fn every_pattern(&self) {
        for bits in 0..=u16::MAX {
            let value = (self.to_f32)(bits);
            let magnitude = bits & 0x7fff;
            let back = (self.from_f32)(value);
            if magnitude > self.infinity() {
                let quiet = 1 << (self.fraction_bits - 1);
                assert!(value.is_nan(), "{bits:#06x}");
                assert_eq!(back, bits | quiet, "{bits:#06x}");
                continue;
            }
            assert_eq!(back, bits);
            assert_eq!(value.is_sign_negative(), bits >= 0x8000, "{bits:#06x}");
            if magnitude == self.infinity() {
                assert!(value.is_infinite(), "{bits:#06x}");
            } else {
                assert_eq!(f64::from(value.abs()), self.value(magnitude), "{bits:#06x}");
            }
        }
    }

    fn rounds(&self, value: f32) {
        assert_eq!(
            (self.from_f32)(value),
            self.nearest(value),
            "{value:e} {:#010x}",
            value.to_bits()
        );
    }

    /// Halfway between every two neighbours, and one f32 to each side.
    fn ties(&self) {
        for low in 0..self.infinity() {
            let halfway = ((self.value(low) + self.value(low + 1)) / 2.0) as f32;
            for value in [halfway.next_down(), halfway, halfway.next_up()] {
                self.rounds(value);
                self.rounds(-value);
            }
        }
    }

    fn sweep(&self) {
        for bits in (0..u32::MAX).step_by(4_093) {
            let value = f32::from_bits(bits);
            if value.is_nan() {
                assert!((self.to_f32)((self.from_f32)(value)).is_nan(), "{bits:#010x}");
            } else {
                self.rounds(value);
            }
        }
        for bits in 1..4_096 {
            assert!(
                (self.to_f32)((self.from_f32)(f32::from_bits(0x7f80_0000 | bits))).is_nan(),
                "{bits:#x}"
            );
        }
    }
}

#[test]
fn f16_every_pattern() {
    F16_DEFINITION.every_pattern();
}

#[test]
fn f16_ties() {
    F16_DEFINITION.ties();
}

#[test]
fn f16_sweep() {
    F16_DEFINITION.sweep();
}

#[test]
fn bf16_every_pattern() {
    BF16_DEFINITION.every_pattern();
}

#[test]
fn bf16_ties() {
    BF16_DEFINITION.ties();
}

#[test]
fn bf16_sweep() {
    BF16_DEFINITION.sweep();
}
