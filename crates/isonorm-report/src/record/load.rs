//! Reading a record from a file that may hold anything.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use super::{Record, SCHEMA};

/// No record is longer: a case is a few hundred bytes.
pub const LONGEST_RECORD: u64 = 64 << 20;

/// Why a file is not a record that this program can read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The system says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is a directory or a device.
    #[error("not a file")]
    NotAFile,
    /// It is longer than any record.
    #[error("{got} bytes, a benchmark record has at most {LONGEST_RECORD}")]
    TooLong {
        /// Its length.
        got: u64,
    },
    /// It is not JSON, or not of the form that its schema says.
    #[error("not a benchmark record: {0}")]
    Form(#[from] serde_json::Error),
    /// It is JSON of something else.
    #[error("not a benchmark record: no schema, expected 1 to {SCHEMA}")]
    Foreign,
    /// It is newer than this program.
    #[error("benchmark record of schema {schema}, which a newer isonorm wrote; this one reads 1 to {SCHEMA}")]
    Newer {
        /// The version that it says.
        schema: u64,
    },
    /// A number is none that can be measured.
    #[error("benchmark record: {field} of {of:?} is {got}, expected {expected}")]
    Number {
        /// Which number.
        field: &'static str,
        /// Of which case or rung.
        of: String,
        /// What it is.
        got: f64,
        /// What would do.
        expected: &'static str,
    },
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// [`LoadError`]: the file cannot be read, is no record, or is newer than this program.
    pub fn load(path: &Path) -> Result<Record, LoadError> {
        // Before it is opened: opening a pipe would wait for who writes to it.
        let about = fs::metadata(path)?;
        if !about.is_file() {
            return Err(LoadError::NotAFile);
        }
        let file = File::open(path)?;
        // One byte more than there may be: the file may grow while it is read.
        let mut text = Vec::new();
        file.take(LONGEST_RECORD + 1).read_to_end(&mut text)?;
        match text.len() as u64 > LONGEST_RECORD {
            true => Err(LoadError::TooLong {
                got: about.len().max(text.len() as u64),
            }),
            false => Record::parse(&text),
        }
    }

    /// Reads a record's JSON.
    ///
    /// # Errors
    /// [`LoadError`], as [`Record::load`].
    pub fn parse(text: &[u8]) -> Result<Record, LoadError> {
        let value: Value = serde_json::from_slice(text)?;
        match value.get("schema").and_then(Value::as_u64) {
            Some(schema) if schema > u64::from(SCHEMA) => return Err(LoadError::Newer { schema }),
            Some(1..) => {}
            _ => return Err(LoadError::Foreign),
        }
        let record: Record = serde_json::from_value(value)?;
        record.check()?;
        Ok(record)
    }

    /// Every time is positive and every share and error at least 0, so that nothing that is computed of them is infinite or NaN.
    fn check(&self) -> Result<(), LoadError> {
        for row in &self.rows {
            let of = &row.case;
            positive("median_s", of, row.median_s)?;
            positive("floor_s", of, row.floor_s)?;
            positive("ratio", of, row.ratio)?;
            row.min_s.map_or(Ok(()), |min| positive("min_s", of, min))?;
            row.spread.map_or(Ok(()), |spread| not_negative("spread", of, spread))?;
            for ablated in row.gpu.iter().flat_map(|gpu| &gpu.ablations) {
                positive("an ablation's median_s", of, ablated.median_s)?;
            }
            for peer in row.peers.values() {
                positive("a peer's median_s", of, peer.median_s)?;
                peer.spread
                    .map_or(Ok(()), |spread| not_negative("a peer's spread", of, spread))?;
            }
        }
        for rung in self.ladder.iter().flat_map(|problem| &problem.rungs) {
            let of = &rung.rung;
            positive("median_s", of, rung.median_s)?;
            positive("floor_s", of, rung.floor_s)?;
            rung.error.map_or(Ok(()), |error| not_negative("error", of, error))?;
            let published = rung.published.as_ref().and_then(|published| published.seconds);
            published.map_or(Ok(()), |s| positive("published.seconds", of, s))?;
        }
        for point in &self.numerics {
            not_negative("mean_over_std", &point.case, point.mean_over_std)?;
            point
                .error
                .map_or(Ok(()), |error| not_negative("error", &point.case, error))?;
        }
        Ok(())
    }
}

/// Numbers beyond these are none that anybody measured, and their quotients could not be computed with.
const REASONABLE: std::ops::RangeInclusive<f64> = 1e-100..=1e100;

fn positive(field: &'static str, of: &str, got: f64) -> Result<(), LoadError> {
    match REASONABLE.contains(&got) {
        true => Ok(()),
        false => Err(refused(field, of, got, "a positive number")),
    }
}

fn not_negative(field: &'static str, of: &str, got: f64) -> Result<(), LoadError> {
    match (0.0..=*REASONABLE.end()).contains(&got) {
        true => Ok(()),
        false => Err(refused(field, of, got, "a number of 0 or more")),
    }
}

fn refused(field: &'static str, of: &str, got: f64, expected: &'static str) -> LoadError {
    // A name of a foreign file may be as long as the file.
    let of = of.chars().take(80).collect();
    LoadError::Number {
        field,
        of,
        got,
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Record, String> {
        Record::parse(text.as_bytes()).map_err(|e| e.to_string())
    }

    fn with_row(row: &str) -> String {
        format!(
            r#"{{"schema": 2, "date": "", "machine": {{"cpu": "", "cores": 1}}, "versions": {{}}, "settings": {{"threads": 1}}, "rows": [{row}]}}"#
        )
    }

    #[test]
    fn what_is_no_record_is_told_in_one_line() {
        for (text, expected) in [
            ("", "not a benchmark record: EOF"),
            ("[1, 2]", "no schema, expected 1 to 2"),
            (r#"{"schema": "2"}"#, "no schema"),
            (r#"{"schema": 0}"#, "no schema"),
            (
                r#"{"schema": 99}"#,
                "schema 99, which a newer isonorm wrote; this one reads 1 to 2",
            ),
            (r#"{"schema": 1}"#, "missing field `date`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn times_that_nobody_measured_are_refused() {
        let good = r#"{"case": "layernorm x=2x3", "median_s": 1e-6, "floor_s": 1e-6, "ratio": 1.0}"#;
        assert_eq!(parse(&with_row(good)).unwrap().rows.len(), 1);
        for bad in ["0", "-1e-6", "1e300", "1e-300"] {
            let error = parse(&with_row(&good.replacen("1e-6", bad, 1))).unwrap_err();
            assert!(error.contains("median_s of \"layernorm x=2x3\""), "{error}");
        }
        let ablated = |s: &str| {
            let gpu = format!(
                r#""ratio": 1.0, "gpu": {{"sets": 1, "host_s": 1e-6, "ablations": [{{"without": "loads", "median_s": {s}}}]}}"#
            );
            parse(&with_row(&good.replace(r#""ratio": 1.0"#, &gpu)))
        };
        assert_eq!(
            ablated("1e-6").unwrap().rows[0].gpu.as_ref().unwrap().ablations[0].without,
            "loads"
        );
        assert!(ablated("0").unwrap_err().contains("an ablation's median_s"));
        assert!(parse(&with_row(&good.replacen("1e-6", "1e999", 1))).is_err());
        assert!(parse(&with_row(&good.replacen("1e-6", "\"fast\"", 1))).is_err());
    }

    #[test]
    fn a_folder_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Record::load(folder.path()).is_err());
        let long = folder.path().join("long.json");
        File::create(&long).unwrap().set_len(LONGEST_RECORD + 2).unwrap();
        let error = Record::load(&long).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{} bytes", LONGEST_RECORD + 2)), "{error}");
    }
}
