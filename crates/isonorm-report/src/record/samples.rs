//! Records for tests.

use std::collections::BTreeMap;

use super::{Machine, Record, Row, SCHEMA, Settings};

pub(crate) fn row(case: &str, median_s: f64, floor_s: f64) -> Row {
    Row {
        case: case.into(),
        median_s,
        floor_s,
        ratio: median_s / floor_s,
        bytes: Some(1000),
        ..Row::default()
    }
}

pub(crate) fn record(rows: Vec<Row>) -> Record {
    Record {
        schema: SCHEMA,
        date: "2026-11-26T00:00:00Z".into(),
        machine: Machine {
            cpu: "a processor".into(),
            cores: 2,
            l2_bytes: Some(1 << 20),
            llc_bytes: None,
            os: "linux".into(),
        },
        versions: BTreeMap::from([("isonorm".into(), "0.1.0".into())]),
        settings: Settings {
            threads: 2,
            isa: None,
            min_time_s: 0.1,
            rounds: None,
        },
        gpu: None,
        rows,
        skipped: Vec::new(),
        ladder: Vec::new(),
        numerics: Vec::new(),
    }
}
