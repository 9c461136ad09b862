//! A new record beside an old one: what got slower, and what is noise.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::{Record, Row};
use crate::statistics::geometric_mean;

/// Differences below this are noise, however small the recorded spreads.
pub const LEAST_MARGIN: f64 = 0.05;

/// How a case fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing that the spreads do not explain.
    Same,
    /// Less time, also beside the floor.
    Faster,
    /// More time, also beside the floor.
    Regressed,
}

/// Two records, case by case.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Cases that both have.
    pub rows: Vec<Compared>,
    /// Cases that the old record does not have.
    pub missing: Vec<String>,
    /// Whether both records are of the same processor, and the same GPU.
    pub same_machine: bool,
    /// Of new over old time.
    pub geometric_mean: Option<f64>,
    /// How many cases have regressed.
    pub regressions: usize,
}

/// A case in both records.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// The problem string.
    pub case: String,
    /// Median before, in seconds.
    pub old_s: f64,
    /// Median now.
    pub new_s: f64,
    /// 10th to 90th percentile as a share of the median, before.
    pub old_spread: Option<f64>,
    /// The same now.
    pub new_spread: Option<f64>,
    /// New time over old time.
    pub ratio: f64,
    /// What that means.
    pub verdict: Verdict,
}

impl Compared {
    fn of(old: &Row, new: &Row) -> Compared {
        let spread = |row: &Row| row.spread.unwrap_or(0.0);
        let margin = 1.0 + spread(old).max(spread(new)).max(LEAST_MARGIN);
        let (time, over_floor) = (new.median_s / old.median_s, new.ratio / old.ratio);
        // A machine that is slower today moves bytes slower, too: only what is slower beside its floor as well counts.
        let verdict = match () {
            () if time > margin && over_floor > margin => Verdict::Regressed,
            () if time < 1.0 / margin && over_floor < 1.0 / margin => Verdict::Faster,
            () => Verdict::Same,
        };
        Compared {
            case: new.case.clone(),
            old_s: old.median_s,
            new_s: new.median_s,
            old_spread: old.spread,
            new_spread: new.spread,
            ratio: time,
            verdict,
        }
    }
}

impl Comparison {
    /// Compares case by case. Of a case with several plans, the one that is chosen counts.
    #[must_use]
    pub fn of(old: &Record, new: &Record) -> Comparison {
        // Of a case that is there twice, the first.
        let all = old.rows.iter().rev().filter(|row| row.is_chosen());
        let by_case: BTreeMap<&str, &Row> = all.map(|row| (row.case.as_str(), row)).collect();
        let before = |row: &Row| by_case.get(row.case.as_str()).copied();
        let now = || new.rows.iter().filter(|row| row.is_chosen());
        let rows: Vec<_> = now().filter_map(|row| Some(Compared::of(before(row)?, row))).collect();
        Comparison {
            missing: now()
                .filter(|row| before(row).is_none())
                .map(|row| row.case.clone())
                .collect(),
            same_machine: same_machine(old, new),
            geometric_mean: geometric_mean(rows.iter().map(|row| row.ratio)),
            regressions: rows.iter().filter(|row| row.verdict == Verdict::Regressed).count(),
            rows,
        }
    }
}

/// Of what both records tell about their machines, everything is the same. A record of peers knows less of a GPU than isonorm.
fn same_machine(old: &Record, new: &Record) -> bool {
    fn agree<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
        a.is_none() || b.is_none() || a == b
    }
    let (a, b) = (&old.machine, &new.machine);
    let caches = agree(&a.l2_bytes, &b.l2_bytes) && agree(&a.llc_bytes, &b.llc_bytes);
    let gpus = match (&old.gpu, &new.gpu) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            a.name == b.name
                && agree(&a.memory_bytes, &b.memory_bytes)
                && agree(&a.sms, &b.sms)
                && agree(&a.driver, &b.driver)
                && agree(&a.cuda, &b.cuda)
        }
        _ => false,
    };
    a.cpu == b.cpu && a.cores == b.cores && caches && gpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::{record, row};

    const CASE: &str = "layernorm x=8x16";

    fn spread(of: f64, row: Row) -> Row {
        Row {
            spread: Some(of),
            ..row
        }
    }

    #[test]
    fn only_what_the_spread_does_not_explain_is_a_regression() {
        let old = spread(0.1, row(CASE, 1.0, 0.5));
        let verdict = |new: Row| Compared::of(&old, &new).verdict;
        assert_eq!(verdict(row(CASE, 1.09, 0.5)), Verdict::Same);
        assert_eq!(verdict(row(CASE, 1.2, 0.5)), Verdict::Regressed);
        assert_eq!(verdict(spread(0.3, row(CASE, 1.2, 0.5))), Verdict::Same);
        assert_eq!(verdict(row(CASE, 1.2, 0.6)), Verdict::Same);
        assert_eq!(verdict(row(CASE, 0.7, 0.5)), Verdict::Faster);
    }

    #[test]
    fn cases_without_an_old_time_are_listed() {
        let old = record(vec![spread(0.1, row(CASE, 1.0, 0.5))]);
        let mut new = record(vec![row(CASE, 2.0, 0.5), row("rmsnorm x=8x16", 1.0, 0.5)]);
        let comparison = Comparison::of(&old, &new);
        let counts = (comparison.regressions, comparison.missing.len(), comparison.rows.len());
        assert_eq!(counts, (1, 1, 1));
        assert!(comparison.same_machine);
        new.machine.l2_bytes = None;
        assert!(Comparison::of(&old, &new).same_machine);
        new.machine.cpu = "another".into();
        assert!(!Comparison::of(&old, &new).same_machine);
    }
}
