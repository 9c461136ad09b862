//! Results with the machine, date and versions that made them. `bench/records/README.md` documents the JSON.

mod load;
#[cfg(test)]
pub(crate) mod samples;
mod sections;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use load::{LONGEST_RECORD, LoadError};
pub use sections::{LadderProblem, Numerics, Published, Rung};

/// The version of the JSON. It is raised when a field changes its meaning or goes; new fields do not raise it.
pub const SCHEMA: u32 = 2;

/// Everything that one run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`], or an older one.
    pub schema: u32,
    /// When measuring began: UTC, RFC 3339.
    pub date: String,
    /// Where.
    pub machine: Machine,
    /// Of what was measured and of what built it, by name: `isonorm`, `rustc`, `torch`, `liger`, …
    pub versions: BTreeMap<String, String>,
    /// How.
    pub settings: Settings,
    /// What was measured, when it was not the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// The cases.
    #[serde(default)]
    pub rows: Vec<Row>,
    /// The cases that there is no kernel for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Designs of kernels from the simplest on, problem by problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ladder: Vec<LadderProblem>,
    /// Errors against `f64` as the mean grows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numerics: Vec<Numerics>,
}

impl Record {
    /// The rows of these cases; of a case with several plans, the one that is chosen.
    pub(crate) fn chosen(&self, is_of: impl Fn(&Row) -> bool) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.is_chosen() && is_of(row)).collect()
    }
}

/// A computer, as far as times depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Hardware threads that the process may use.
    pub cores: usize,
    /// Second-level cache of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_bytes: Option<u64>,
    /// Last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_bytes: Option<u64>,
    /// Operating system.
    #[serde(default)]
    pub os: String,
}

/// How it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Threads that worked.
    pub threads: usize,
    /// Vector instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isa: Option<String>,
    /// Least time for each case, or for each turn at it.
    #[serde(default)]
    pub min_time_s: f64,
    /// Turns, where peers were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
}

/// One case. Times are seconds of one run. What is optional is what a record may lack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The problem string.
    pub case: String,
    /// The candidate that was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The median sample.
    pub median_s: f64,
    /// The least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_s: Option<f64>,
    /// 10th to 90th percentile, as a share of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The same bytes, copied.
    pub floor_s: f64,
    /// How they were copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<String>,
    /// `median_s / floor_s`.
    pub ratio: f64,
    /// Compulsory bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// 10⁹ of them a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// How many samples there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Others at the same case, in the same run: `torch`, `compile`, `liger`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, Peer>,
    /// What only a GPU has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuRow>,
}

impl Row {
    /// Whether this is the plan that is chosen, or no other was measured.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        let alternative = self.gpu.as_ref().and_then(|gpu| gpu.alternative.as_ref());
        alternative.is_none_or(|alternative| alternative.number == 0)
    }

    /// The time of the fastest peer over that of isonorm.
    #[must_use]
    pub fn speedup(&self) -> Option<f64> {
        let fastest = self.peers.values().map(|peer| peer.median_s).min_by(f64::total_cmp);
        fastest.map(|s| s / self.median_s)
    }
}

/// What somebody else needs for a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// The median sample.
    pub median_s: f64,
    /// 10th to 90th percentile, as a share of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The least sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_s: Option<f64>,
}

/// What only a GPU has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuRow {
    /// Sets of tensors that runs take in turn, so that none finds its own in the cache.
    pub sets: usize,
    /// Seconds of the host for one cached call: plan looked up, arguments checked, kernel launched.
    pub host_s: f64,
    /// Which plan it was, where all were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternative: Option<Alternative>,
    /// What is left of the case without stages of its kernels, where that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ablations: Vec<Ablated>,
}

/// A case without stages of its kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ablated {
    /// Their names, with commas: `loads`, `stores`, `exchange`, `barriers`; or `everything`.
    pub without: String,
    /// The median sample.
    pub median_s: f64,
}

/// One of the plans for a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// In the order of the candidates; number 0 is the one that is chosen.
    pub number: usize,
    /// How it divides the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Seconds that it takes by the estimate that plans are compared by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_s: Option<f64>,
}

/// A case that the device has no kernel for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The problem string.
    pub case: String,
    /// Why.
    pub reason: String,
}

/// The GPU that was measured; of one that only a peer named, no more than that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Such as `9.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// Streaming multiprocessors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
    /// Second-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_bytes: Option<u64>,
    /// All of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The newest CUDA version that its driver supports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// The driver's own version, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}
