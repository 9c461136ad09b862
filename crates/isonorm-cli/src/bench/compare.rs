//! A new record beside an old one.

use serde::Serialize;

use super::record::{Record, Row};
use crate::error::Result;
use crate::format::seconds;
use crate::measure::geometric_mean;
use crate::screen::{BAD, GOOD, STRONG, Screen, styled};
use crate::table::{Align, Columns};

/// Differences below this are noise, however small the recorded spreads.
const LEAST_MARGIN: f64 = 0.05;

/// How a case fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Same,
    Faster,
    Regressed,
}

#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    rows: Vec<Compared>,
    /// Cases that the old record does not have.
    missing: Vec<String>,
    /// Whether both records are of the same processor, and the same GPU.
    same_machine: bool,
    geometric_mean: Option<f64>,
    pub(super) regressions: usize,
}

#[derive(Debug, Serialize)]
struct Compared {
    case: String,
    old_s: f64,
    new_s: f64,
    /// New time over old time.
    ratio: f64,
    verdict: Verdict,
}

impl Compared {
    fn of(old: &Row, new: &Row) -> Compared {
        let margin = 1.0 + old.spread.max(new.spread).max(LEAST_MARGIN);
        let (time, over_floor) = (new.median_s / old.median_s, new.ratio / old.ratio);
        // A machine that is slower today moves bytes slower, too: only what is slower beside its floor as well counts.
        let verdict = match () {
            () if time > margin && over_floor > margin => Verdict::Regressed,
            () if time < 1.0 / margin && over_floor < 1.0 / margin => Verdict::Faster,
            () => Verdict::Same,
        };
        Compared {
            case: new.case.to_string(),
            old_s: old.median_s,
            new_s: new.median_s,
            ratio: time,
            verdict,
        }
    }
}

impl Comparison {
    pub(super) fn of(old: &Record, new: &Record) -> Comparison {
        let before = |row: &Row| old.rows.iter().find(|o| o.case == row.case);
        let rows: Vec<_> = new
            .rows
            .iter()
            .filter_map(|row| Some(Compared::of(before(row)?, row)))
            .collect();
        Comparison {
            missing: new
                .rows
                .iter()
                .filter(|row| before(row).is_none())
                .map(|row| row.case.to_string())
                .collect(),
            same_machine: old.machine == new.machine && old.gpu == new.gpu,
            geometric_mean: geometric_mean(rows.iter().map(|row| row.ratio)),
            regressions: rows.iter().filter(|row| row.verdict == Verdict::Regressed).count(),
            rows,
        }
    }

    pub(super) fn show(&self, screen: &mut Screen) -> Result<()> {
        let heading = ["case", "old", "new", "new/old"].map(String::from);
        let cells = |r: &Compared| {
            [
                r.case.clone(),
                seconds(r.old_s),
                seconds(r.new_s),
                format!("{:.2}", r.ratio),
            ]
        };
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        let all = std::iter::once(&heading[..]).chain(rows.iter().map(|r| &r[..]));
        let columns = Columns::fitting(&[Align::Left, Align::Right, Align::Right, Align::Right], all);
        screen.line("")?;
        screen.line(styled(STRONG, columns.row(&heading)))?;
        for (row, cells) in self.rows.iter().zip(&rows) {
            let verdict = match row.verdict {
                Verdict::Same => String::new(),
                Verdict::Faster => styled(GOOD, "  faster"),
                Verdict::Regressed => styled(BAD, "  regressed"),
            };
            screen.line(format!("{}{verdict}", columns.row(cells)))?;
        }
        self.missing
            .iter()
            .try_for_each(|case| screen.line(format!("{case}  not in the old record")))?;
        if !self.same_machine {
            screen.line("the old record is of another machine")?;
        }
        let mean = self.geometric_mean.map_or("-".into(), |mean| format!("{mean:.3}"));
        screen.line(format!(
            "geometric mean of new/old {mean}, {} regressed",
            self.regressions
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Settings, sample};
    use super::*;

    const CASE: &str = "layernorm x=8x16";

    fn verdict(old: Row, new: Row) -> Verdict {
        Compared::of(&old, &new).verdict
    }

    #[test]
    fn only_what_the_spread_does_not_explain_is_a_regression() {
        let old = || sample(CASE, 1.0, 0.5, 0.1);
        assert_eq!(verdict(old(), sample(CASE, 1.09, 0.5, 0.0)), Verdict::Same);
        assert_eq!(verdict(old(), sample(CASE, 1.2, 0.5, 0.0)), Verdict::Regressed);
        assert_eq!(verdict(old(), sample(CASE, 1.2, 0.5, 0.3)), Verdict::Same);
        assert_eq!(verdict(old(), sample(CASE, 1.2, 0.6, 0.0)), Verdict::Same);
        assert_eq!(verdict(old(), sample(CASE, 0.7, 0.5, 0.0)), Verdict::Faster);
    }

    #[test]
    fn cases_without_an_old_time_are_listed() {
        let record = |rows| {
            let settings = Settings {
                threads: 1,
                isa: "avx2".into(),
                min_time_s: 0.0,
            };
            let mut record = Record::now(settings);
            record.rows = rows;
            record
        };
        let old = record(vec![sample(CASE, 1.0, 0.5, 0.1)]);
        let new = record(vec![
            sample(CASE, 2.0, 0.5, 0.1),
            sample("rmsnorm x=8x16", 1.0, 0.5, 0.1),
        ]);
        let comparison = Comparison::of(&old, &new);
        assert_eq!(
            (comparison.regressions, comparison.missing.len(), comparison.rows.len()),
            (1, 1, 1)
        );
        assert!(comparison.same_machine);
    }
}
