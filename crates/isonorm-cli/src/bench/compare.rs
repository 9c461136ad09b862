//! How a comparison of two records is shown.

use isonorm_report::compare::{Compared, Comparison, Verdict};

use crate::error::Result;
use crate::format::seconds;
use crate::screen::{BAD, GOOD, STRONG, Screen, styled};
use crate::table::{Align, Columns};

const HEADING: [&str; 6] = ["case", "old", "±", "new", "±", "new/old"];

/// Shows it case by case, with the spreads that decide what is noise.
pub(super) fn show(comparison: &Comparison, screen: &mut Screen) -> Result<()> {
    let heading = HEADING.map(String::from);
    let rows: Vec<_> = comparison.rows.iter().map(cells).collect();
    let all = std::iter::once(&heading[..]).chain(rows.iter().map(|r| &r[..]));
    let aligns = [[Align::Left].as_slice(), &[Align::Right; 5]].concat();
    let columns = Columns::fitting(&aligns, all);
    screen.line("")?;
    screen.line(styled(STRONG, columns.row(&heading)))?;
    for (row, cells) in comparison.rows.iter().zip(&rows) {
        let verdict = match row.verdict {
            Verdict::Same => String::new(),
            Verdict::Faster => styled(GOOD, "  faster"),
            Verdict::Regressed => styled(BAD, "  regressed"),
        };
        screen.line(format!("{}{verdict}", columns.row(cells)))?;
    }
    let mut missing = comparison.missing.iter();
    missing.try_for_each(|case| screen.line(format!("{case}  not in the old record")))?;
    if !comparison.same_machine {
        screen.line("the old record is of another machine")?;
    }
    let mean = comparison
        .geometric_mean
        .map_or("-".into(), |mean| format!("{mean:.3}"));
    screen.line(format!(
        "geometric mean of new/old {mean}, {} regressed",
        comparison.regressions
    ))
}

fn cells(row: &Compared) -> [String; 6] {
    [
        row.case.clone(),
        seconds(row.old_s),
        spread(row.old_spread),
        seconds(row.new_s),
        spread(row.new_spread),
        format!("{:.2}", row.ratio),
    ]
}

/// Half of the spread to either side.
fn spread(spread: Option<f64>) -> String {
    match spread.map(|spread| spread / 2.0 * 100.0) {
        None => "-".into(),
        Some(percent) if percent < 9.95 => format!("± {percent:.1} %"),
        Some(percent) => format!("± {percent:.0} %"),
    }
}
