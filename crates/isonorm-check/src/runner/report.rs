//! What came of a case.

use std::collections::BTreeMap;
use std::fmt;

use isonorm::Error;
use serde::{Serialize, Serializer};

use crate::Case;
use crate::engine::Output;

/// The element that used up most of its tolerance, or exceeded it most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The output that it belongs to.
    pub output: Output,
    /// Its coordinates with their names: `n, c` and spatial ones, a group or a parameter.
    pub coordinates: Vec<(String, usize)>,
    /// What the engine wrote.
    pub got: f64,
    /// What the oracle has.
    pub expected: f64,
    /// How far from that the engine may be before it rounds to the output's type.
    pub tolerance: f64,
    /// The error before that rounding, at the least, divided by the tolerance: 0 for the truth rounded, at most 1 when the
    /// case passes, infinite when a NaN or an infinity is missing or out of place.
    pub ratio: f64,
    /// Whether the engine never wrote it.
    pub unwritten: bool,
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.output)?;
        for (i, (name, at)) in self.coordinates.iter().enumerate() {
            write!(f, "{}{name}={at}", if i == 0 { "" } else { " " })?;
        }
        if self.unwritten {
            return write!(f, "] was not written, expected {:e}", self.expected);
        }
        write!(
            f,
            "] = {:e}, expected {:e} ± {:.2e} before rounding (error/tolerance {:.3})",
            self.got, self.expected, self.tolerance, self.ratio
        )
    }
}

/// What came of a case. Prints as one line, with the case string that reproduces it.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// The case.
    pub case: Case,
    /// The engine's name.
    pub engine: String,
    /// Whether everything is as it should be.
    pub passed: bool,
    /// The number of elements compared.
    pub compared: usize,
    /// The number of elements outside their tolerance.
    pub wrong: usize,
    /// The element nearest to the end of its tolerance, or farthest beyond; `None` when nothing was compared.
    pub worst: Option<Worst>,
    /// Memory that was written and should not have been, outputs that are missing.
    pub faults: Vec<String>,
    /// The engine's refusal.
    #[serde(serialize_with = "as_text")]
    pub refused: Option<Error>,
}

fn as_text<S: Serializer>(error: &Option<Error>, serializer: S) -> Result<S::Ok, S::Error> {
    error.as_ref().map(ToString::to_string).serialize(serializer)
}

impl CaseReport {
    pub(super) fn new(case: Case, engine: String) -> CaseReport {
        CaseReport {
            case,
            engine,
            passed: false,
            compared: 0,
            wrong: 0,
            worst: None,
            faults: Vec::new(),
            refused: None,
        }
    }

    /// Why nothing was run: the engine has no kernel for it. Such a case neither passed nor failed.
    pub fn skipped(&self) -> Option<&str> {
        match &self.refused {
            Some(Error::Unsupported { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    /// The largest error/tolerance; 0 when nothing was compared.
    pub fn ratio(&self) -> f64 {
        self.worst.as_ref().map_or(0.0, |w| w.ratio)
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.passed, self.skipped()) {
            (true, _) => "pass",
            (false, Some(_)) => "skip",
            (false, None) => "FAIL",
        })?;
        write!(f, " {} on {}", self.case, self.engine)?;
        if let Some(error) = &self.refused {
            return write!(f, ": refused: {error}");
        }
        for fault in &self.faults {
            write!(f, ": {fault}")?;
        }
        if self.wrong > 0 {
            write!(f, ": {} of {} wrong", self.wrong, self.compared)?;
        }
        self.worst.as_ref().map_or(Ok(()), |w| write!(f, ": {w}"))
    }
}

/// What came of many cases.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// The engine's name.
    pub engine: String,
    /// The number of cases.
    pub cases: usize,
    /// The number of elements compared.
    pub compared: usize,
    /// How long it took. Of engines that take turns with the cases, the first one waits for the oracle.
    pub seconds: f64,
    /// The cases that the engine has no kernel for, counted by the reason it gave.
    pub skipped: BTreeMap<String, usize>,
    /// The cases that ran and did not pass.
    pub failed: Vec<CaseReport>,
    /// The case with the largest error/tolerance.
    pub worst: Option<CaseReport>,
}

impl SuiteReport {
    pub(super) fn new(engine: String) -> SuiteReport {
        SuiteReport {
            engine,
            cases: 0,
            compared: 0,
            seconds: 0.0,
            skipped: BTreeMap::new(),
            failed: Vec::new(),
            worst: None,
        }
    }

    /// Adds a case.
    pub fn add(&mut self, report: CaseReport) {
        self.cases += 1;
        self.compared += report.compared;
        if let Some(reason) = report.skipped() {
            *self.skipped.entry(reason.to_owned()).or_default() += 1;
            return;
        }
        if self.worst.as_ref().is_none_or(|w| report.ratio() > w.ratio()) {
            self.worst = Some(report.clone());
        }
        if !report.passed {
            self.failed.push(report);
        }
    }

    /// Whether no case failed.
    pub fn passed(&self) -> bool {
        self.failed.is_empty()
    }

    /// The number of cases that the engine has no kernel for.
    pub fn skipped(&self) -> usize {
        self.skipped.values().sum()
    }

    /// The number of cases that ran and were right.
    pub fn right(&self) -> usize {
        self.cases - self.skipped() - self.failed.len()
    }
}

impl fmt::Display for SuiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} cases passed on {} ({} elements)",
            self.right(),
            self.cases,
            self.engine,
            self.compared
        )?;
        for (reason, cases) in &self.skipped {
            write!(f, "\n{cases} skipped: {reason}")?;
        }
        self.failed.iter().try_for_each(|r| write!(f, "\n{r}"))
    }
}
