//! What a record may have beside its cases.

use serde::{Deserialize, Serialize};

/// Kernels for one problem, from the simplest design to isonorm's own plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LadderProblem {
    /// The problem string.
    pub case: String,
    /// `normal` (random) or `counting` (1, 2, 3, …).
    pub input: String,
    /// In the order of the story; the last is `isonorm`.
    pub rungs: Vec<Rung>,
}

/// One kernel of a ladder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    /// Its name.
    pub rung: String,
    /// What it does, in a few words.
    pub about: String,
    /// The median sample, in seconds.
    pub median_s: f64,
    /// 10th to 90th percentile, as a share of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The compulsory bytes, copied.
    pub floor_s: f64,
    /// How often it asks for each element of the input (of both, backward), counted on a small case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<f64>,
    /// How often it writes each element of the result, counted likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<f64>,
    /// Bytes that it moves, computed for the shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes that must move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compulsory_bytes: Option<u64>,
    /// Largest |y − y64|; absent where a result is not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// What the error may be, derived for this algorithm; absent where it promises no digit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Whether every element lies within its own bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<bool>,
    /// What was published about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

impl Rung {
    /// Whether no element was found out of its bound.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.right != Some(false)
    }
}

/// A figure that somebody published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The time, where one was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// On what.
    #[serde(default)]
    pub machine: String,
    /// What was said.
    #[serde(default)]
    pub claim: String,
}

/// The error of one implementation at one mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numerics {
    /// `isonorm`, `torch`, a rung's name, …
    pub implementation: String,
    /// The problem string.
    pub case: String,
    /// The mean of the input over its standard deviation.
    pub mean_over_std: f64,
    /// Largest |y − y64|; absent where a result is not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
}
