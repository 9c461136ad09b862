//! Records for tests: those that are committed, and one of forms that there is no committed one of.

use std::path::{Path, PathBuf};

/// Where the project's records are.
pub fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/records")
}

/// The record with a ladder, numerics and ablations. Its numbers are made up.
pub fn made_up() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records/made_up.json")
}
