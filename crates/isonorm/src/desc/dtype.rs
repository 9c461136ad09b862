use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The type of one element of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl DType {
    /// All types, smallest first.
    pub const ALL: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F16 | DType::Bf16 => 2,
            DType::F32 => 4,
            DType::F64 => 8,
        }
    }

    /// The type that sums over elements of this type are kept in, and that saved statistics have: `f64` for `f64`,
    /// `f32` for everything else.
    pub const fn accumulator(self) -> DType {
        match self {
            DType::F64 => DType::F64,
            _ => DType::F32,
        }
    }

    /// The name used in problem strings: `f16`, `bf16`, `f32`, `f64`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    /// Distance between 1 and the next larger value of this type.
    pub const fn epsilon(self) -> f64 {
        match self {
            DType::F16 => 9.765625e-4,
            DType::Bf16 => 7.8125e-3,
            DType::F32 => f32::EPSILON as f64,
            DType::F64 => f64::EPSILON,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        DType::ALL
            .into_iter()
            .find(|d| d.name() == s)
            .ok_or_else(|| format!("unknown type {s:?}; expected one of f16, bf16, f32, f64"))
    }
}
