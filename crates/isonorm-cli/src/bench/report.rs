//! The table that `isonorm bench` prints, row by row.

use isonorm::NormDesc;
use isonorm_report::case::Case;
use isonorm_report::geometric_mean;
use isonorm_report::record::{Ablated, Row, Skipped};

use crate::error::Result;
use crate::format::seconds;
use crate::measure::median;
use crate::screen::{STRONG, Screen, styled};
use crate::table::{Align, Columns};

const HEADING: [&str; 7] = ["case", "time", "min", "floor", "ratio", "GB/s", "spread"];

pub(super) struct Table(Columns);

impl Table {
    /// Columns for these cases.
    pub(super) fn of(cases: &[NormDesc]) -> Table {
        // As wide as the widest number that a column will hold.
        let numbers = ["", "99.99 µs", "99.99 µs", "99.99 µs", "99.99", "999.9", "100 %"];
        let rows: Vec<[String; 7]> = cases
            .iter()
            .map(|case| {
                let mut row = numbers.map(String::from);
                row[0] = case.to_string();
                row
            })
            .collect();
        let heading = HEADING.map(String::from);
        let aligns = [[Align::Left].as_slice(), &[Align::Right; 6]].concat();
        Table(Columns::fitting(
            &aligns,
            rows.iter().map(|r| &r[..]).chain([&heading[..]]),
        ))
    }

    pub(super) fn heading(&self, screen: &mut Screen) -> Result<()> {
        screen.line(styled(STRONG, self.0.row(&HEADING.map(String::from))))
    }

    pub(super) fn row(&self, row: &Row, screen: &mut Screen) -> Result<()> {
        let line = self.0.row(&[
            row.case.clone(),
            seconds(row.median_s),
            told(row.min_s, seconds),
            seconds(row.floor_s),
            format!("{:.2}", row.ratio),
            told(row.gbps, |gbps| format!("{gbps:.1}")),
            told(row.spread, |spread| format!("{:.0} %", spread * 100.0)),
        ]);
        screen.line(format!("{line}{}", alternative(row)))?;
        row.gpu
            .iter()
            .flat_map(|gpu| &gpu.ablations)
            .try_for_each(|ablated| screen.line(without(row, ablated)))
    }
}

/// What is left of a case without some stages, and what share they have of its time beyond the floor.
fn without(row: &Row, ablated: &Ablated) -> String {
    let (saved, beyond) = (row.median_s - ablated.median_s, row.median_s - row.floor_s);
    let share = match beyond > 0.0 {
        true => format!(", {:.0} % of what is beyond the floor", saved / beyond * 100.0),
        false => String::new(),
    };
    let saved = match saved >= 0.0 {
        true => format!("{} less", seconds(saved)),
        false => format!("{} more", seconds(-saved)),
    };
    format!(
        "  {:>9}, {saved}{share}: without {}",
        seconds(ablated.median_s),
        ablated.without
    )
}

/// A number that a record may lack.
fn told(number: Option<f64>, as_text: impl Fn(f64) -> String) -> String {
    number.map_or("-".into(), as_text)
}

/// Which plan it was, where all were measured.
fn alternative(row: &Row) -> String {
    let Some(alternative) = row.gpu.as_ref().and_then(|gpu| gpu.alternative.as_ref()) else {
        return String::new();
    };
    let shape = alternative.shape.as_ref().map(|shape| format!(", {shape}"));
    let estimate = alternative
        .estimate_s
        .map(|s| format!(", {} by the estimate", seconds(s)));
    let chosen = if alternative.number == 0 { ", chosen" } else { "" };
    format!(
        "  {}{}{}{chosen}",
        row.plan.as_deref().unwrap_or_default(),
        shape.unwrap_or_default(),
        estimate.unwrap_or_default()
    )
}

/// Geometric means of time over floor.
pub(super) fn summary(rows: &[Row], screen: &mut Screen) -> Result<()> {
    let mean = |backward: Option<bool>| {
        let of = rows
            .iter()
            .filter(|r| backward.is_none_or(|b| Case::of(&r.case).is_backward() == b));
        geometric_mean(of.map(|r| r.ratio)).map(|mean| format!("{mean:.2}"))
    };
    let named = [
        ("all", mean(None)),
        ("forward", mean(Some(false))),
        ("backward", mean(Some(true))),
    ];
    let said: Vec<_> = named
        .iter()
        .filter_map(|(name, mean)| Some(format!("{name} {}", mean.as_ref()?)))
        .collect();
    screen.line("")?;
    screen.line(format!(
        "geometric mean of time/floor: {} ({} cases)",
        said.join(", "),
        rows.len()
    ))?;
    let host: Vec<f64> = rows.iter().filter_map(|row| Some(row.gpu.as_ref()?.host_s)).collect();
    if host.is_empty() {
        return Ok(());
    }
    screen.line(format!(
        "host, one cached call: {} (median over the cases)",
        seconds(median(&host))
    ))
}

/// What was not measured, and why.
pub(super) fn skipped(skipped: &[Skipped], screen: &mut Screen) -> Result<()> {
    let mut each = skipped.iter();
    each.try_for_each(|s| screen.line(format!("skipped: {}: {}", s.case, s.reason)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_its_share_of_what_is_beyond_the_floor() {
        let row = Row {
            median_s: 12e-6,
            floor_s: 8e-6,
            ..Row::default()
        };
        let told = |median_s, row: &Row| {
            let without = "exchange".into();
            super::without(row, &Ablated { without, median_s })
        };
        assert_eq!(
            told(10e-6, &row),
            "    10.0 µs, 2.00 µs less, 50 % of what is beyond the floor: without exchange"
        );
        assert_eq!(
            told(14e-6, &row),
            "    14.0 µs, 2.00 µs more, -50 % of what is beyond the floor: without exchange"
        );
        let at_the_floor = Row { floor_s: 12e-6, ..row };
        assert_eq!(
            told(10e-6, &at_the_floor),
            "    10.0 µs, 2.00 µs less: without exchange"
        );
    }
}
