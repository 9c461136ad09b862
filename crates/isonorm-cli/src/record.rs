//! Records: of this machine and moment, read and written. `isonorm-report` has their form; `bench/records/README.md` documents it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use isonorm::{CpuProperties, Isa, cuda};
use isonorm_report::record::{Gpu, Machine, Record, SCHEMA, Settings};

use crate::error::{Error, Result};
use crate::io::Pending;

/// A record of this machine and moment, of nothing yet.
pub(crate) fn now(settings: Settings) -> Record {
    let versions = [("isonorm", env!("CARGO_PKG_VERSION")), ("rustc", env!("ISONORM_RUSTC"))];
    Record {
        schema: SCHEMA,
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        machine: machine(),
        versions: BTreeMap::from(versions.map(|(program, version)| (program.into(), version.into()))),
        settings,
        gpu: None,
        rows: Vec::new(),
        skipped: Vec::new(),
        ladder: Vec::new(),
        numerics: Vec::new(),
    }
}

/// What is told of a GPU.
pub(crate) fn gpu(device: &cuda::Device) -> Result<Gpu> {
    let p = device.properties();
    Ok(Gpu {
        name: p.name.to_string(),
        compute_capability: Some(p.compute_capability()),
        sms: Some(p.sms),
        l2_bytes: Some(p.l2_bytes as u64),
        memory_bytes: Some(p.memory_bytes as u64),
        cuda: Some(cuda::driver_version()?),
        driver: driver_version(),
    })
}

/// The version of the kernel's module, as Linux tells it.
fn driver_version() -> Option<String> {
    let told = fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(told.trim().to_owned())
}

/// Reads a record.
pub(crate) fn load(path: &Path) -> Result<Record> {
    Record::load(path).map_err(|source| Error::Record {
        path: path.into(),
        source,
    })
}

/// Writes a record, whole or not at all.
pub(crate) fn save(record: &Record, path: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(record).map_err(std::io::Error::from)?;
    Pending::create(path, |to| writeln!(to, "{json}"))?.publish()
}

fn machine() -> Machine {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let caches = CpuProperties::detect(cores, Isa::best());
    Machine {
        cpu: cpu_model(),
        cores,
        l2_bytes: Some(caches.l2_bytes as u64),
        llc_bytes: Some(caches.llc_bytes as u64),
        os: operating_system(),
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
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let settings = Settings {
            threads: 2,
            isa: Some("avx2".into()),
            min_time_s: 0.5,
            rounds: None,
        };
        let record = now(settings);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        save(&record, &path).unwrap();
        assert_eq!(load(&path).unwrap(), record);
    }
}
