//! Results with the machine, date and versions that made them. `bench/records/README.md` documents the JSON.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use isonorm::{CpuProperties, Isa, NormDesc, cuda};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::io::{Pending, ReadError};

/// The version of the JSON. It is raised when a field changes its meaning or goes; new fields do not raise it.
const SCHEMA: u32 = 1;
/// No record is longer: a case is a few hundred bytes.
const LONGEST_RECORD: u64 = 64 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    schema: u32,
    /// When measuring began: UTC, RFC 3339.
    date: String,
    pub(super) machine: Machine,
    versions: Versions,
    settings: Settings,
    /// What was measured, when it was not the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gpu: Option<Gpu>,
    pub(super) rows: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    l2_bytes: usize,
    llc_bytes: usize,
    os: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Versions {
    isonorm: String,
    rustc: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) threads: usize,
    pub(super) isa: String,
    pub(super) min_time_s: f64,
}

/// One case. Times are seconds of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) case: NormDesc,
    pub(super) plan: String,
    pub(super) median_s: f64,
    pub(super) min_s: f64,
    /// 10th to 90th percentile, as a share of the median.
    pub(super) spread: f64,
    pub(super) floor_s: f64,
    /// How the bytes were copied.
    pub(super) floor: String,
    /// `median_s / floor_s`.
    pub(super) ratio: f64,
    /// Compulsory bytes.
    pub(super) bytes: u64,
    pub(super) gbps: f64,
    pub(super) samples: usize,
    /// What only a GPU has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gpu: Option<GpuRow>,
}

/// What only a GPU has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct GpuRow {
    /// Sets of tensors that runs take in turn, so that none finds its own in the cache.
    pub(super) sets: usize,
    /// Seconds of the host for one cached call: plan looked up, arguments checked, kernel launched.
    pub(super) host_s: f64,
    /// Which plan it was, where all were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) alternative: Option<Alternative>,
}

/// One of the plans for a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Alternative {
    /// In the order of the candidates; number 0 is the one that is chosen.
    pub(super) number: usize,
    /// How it divides the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shape: Option<String>,
    /// Seconds that it takes by the estimate that plans are compared by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) estimate_s: Option<f64>,
}

/// A case that the device has no kernel for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Skipped {
    pub(super) case: NormDesc,
    pub(super) reason: String,
}

/// The GPU that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Gpu {
    name: String,
    compute_capability: String,
    sms: u32,
    l2_bytes: usize,
    memory_bytes: usize,
    /// The newest CUDA version that its driver supports.
    cuda: String,
    /// The driver's own version, where the system tells.
    driver: Option<String>,
}

impl Gpu {
    pub(super) fn of(device: &cuda::Device) -> Result<Gpu> {
        let p = device.properties();
        Ok(Gpu {
            name: p.name.to_string(),
            compute_capability: p.compute_capability(),
            sms: p.sms,
            l2_bytes: p.l2_bytes,
            memory_bytes: p.memory_bytes,
            cuda: cuda::driver_version()?,
            driver: driver_version(),
        })
    }
}

/// The version of the kernel's module, as Linux tells it.
fn driver_version() -> Option<String> {
    let told = fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(told.trim().to_owned())
}

impl Record {
    /// A record of this machine and moment, of nothing yet.
    pub(super) fn now(settings: Settings) -> Record {
        let versions = Versions {
            isonorm: env!("CARGO_PKG_VERSION").into(),
            rustc: env!("ISONORM_RUSTC").into(),
        };
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Record {
            schema: SCHEMA,
            date,
            machine: Machine::this(),
            versions,
            settings,
            gpu: None,
            rows: Vec::new(),
            skipped: Vec::new(),
        }
    }

    pub(super) fn load(path: &Path) -> Result<Record> {
        let refused = |source| Error::Read {
            path: path.into(),
            source,
        };
        let header = |reason: String| {
            refused(ReadError::Header {
                format: "benchmark record",
                reason,
            })
        };
        let about = fs::metadata(path).map_err(|e| refused(e.into()))?;
        if !about.is_file() || about.len() > LONGEST_RECORD {
            return Err(refused(ReadError::Unsupported(
                "not a file, or too long for a benchmark record".into(),
            )));
        }
        let text = fs::read(path).map_err(|e| refused(e.into()))?;
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(|e| header(e.to_string()))?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(schema) => return Err(header(format!("schema {schema}, expected {SCHEMA}"))),
            None => return Err(header(format!("no schema, expected {SCHEMA}"))),
        }
        serde_json::from_value(value).map_err(|e| header(e.to_string()))
    }

    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self).map_err(std::io::Error::from)?;
        Pending::create(path, |to| writeln!(to, "{json}"))?.publish()
    }
}

impl Machine {
    fn this() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let caches = CpuProperties::detect(cores, Isa::best());
        Machine {
            cpu: cpu_model(),
            cores,
            l2_bytes: caches.l2_bytes,
            llc_bytes: caches.llc_bytes,
            os: operating_system(),
        }
    }
}

/// The processor's name as Linux tells it; its architecture elsewhere.
fn cpu_model() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = told.lines().find(|line| line.starts_with("model name"));
    let name = line
        .and_then(|line| line.split_once(':'))
        .map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| std::env::consts::ARCH.into())
}

/// Its name, and on Linux the kernel's version.
fn operating_system() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = release.split(['.', '-']).take(2).collect::<Vec<_>>().join(".");
    format!("{} {}", std::env::consts::OS, version.trim()).trim().to_owned()
}

#[cfg(test)]
pub(super) fn sample(case: &str, median_s: f64, floor_s: f64, spread: f64) -> Row {
    Row {
        case: case.parse().expect("a test's problem parses"),
        plan: "rows/resident".into(),
        median_s,
        min_s: median_s,
        spread,
        floor_s,
        floor: "copy".into(),
        ratio: median_s / floor_s,
        bytes: 1000,
        gbps: 1.0,
        samples: 9,
        gpu: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let settings = Settings {
            threads: 2,
            isa: "avx2".into(),
            min_time_s: 0.5,
        };
        let mut record = Record::now(settings);
        record.rows.push(sample("layernorm x=8x16", 1e-3, 5e-4, 0.1));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        record.save(&path).unwrap();
        let read = Record::load(&path).unwrap();
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            serde_json::to_value(&record).unwrap()
        );
        std::fs::write(&path, r#"{"schema": 7}"#).unwrap();
        assert!(
            Record::load(&path)
                .unwrap_err()
                .to_string()
                .contains("schema 7, expected 1")
        );
    }
}
