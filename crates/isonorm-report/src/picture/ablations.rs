//! What is left of cases whose kernels lack stages.

use super::axis::Axis;
use super::bars::{self, Group, Part};
use super::canvas::Result;
use super::{Picture, Subject, Table, slug};
use crate::format::{cases, number, seconds, trimmed};
use crate::merged::Machine;
use crate::record::Row;
use crate::statistics::geometric_mean;

/// The ablations that a picture shows, by what they leave out: what each is called. The table has all.
const SHOWN: [(&str, &str); 6] = [
    ("exchange", "without exchange"),
    ("exchange, barriers", "without exchange, barriers"),
    ("stores, exchange, barriers", "loads alone"),
    ("loads, exchange, barriers", "stores alone"),
    ("loads, stores", "neither loads nor stores"),
    ("everything", "the launch alone"),
];

pub(super) fn draw(machine: &Machine) -> Result<Vec<Picture>> {
    let rows = machine.rows(|row| ablated(row).next().is_some());
    bars::divide(&rows).map(|part| picture(&part, machine)).collect()
}

/// What each ablation leaves out, and its time over the floor.
fn ablated(row: &Row) -> impl Iterator<Item = (&str, f64)> {
    let ablations = row.gpu.iter().flat_map(|gpu| &gpu.ablations);
    ablations.map(|ablated| (ablated.without.as_str(), ablated.median_s / row.floor_s))
}

/// The time over the floor without these stages.
fn without(row: &Row, stages: &str) -> Option<f64> {
    ablated(row)
        .find(|(without, _)| *without == stages)
        .map(|(_, ratio)| ratio)
}

fn picture(part: &Part, machine: &Machine) -> Result<Picture> {
    let Part {
        rows, title, suffix, ..
    } = part;
    let names: Vec<_> = std::iter::once("the whole")
        .chain(SHOWN.map(|(_, name)| name))
        .collect();
    let groups: Vec<_> = rows
        .iter()
        .map(|row| Group {
            case: &row.case,
            ratios: std::iter::once(Some(row.ratio))
                .chain(SHOWN.map(|(stages, _)| without(row, stages)))
                .collect(),
        })
        .collect();
    let most = groups
        .iter()
        .flat_map(|group| &group.ratios)
        .flatten()
        .copied()
        .fold(1.0, f64::max);
    let x = Axis::linear(most, 0.25, "time over the floor, a copy of the same bytes", trimmed);
    let (size, body) = bars::draw(&names, &x, &groups, 0.0)?;
    Ok(Picture {
        subject: Subject::Ablations,
        machine: machine.name.clone(),
        name: format!("ablations-{}{suffix}", slug(&machine.name)),
        title: format!("Without stages, {}{title}", machine.name),
        about: about(rows),
        table: table(rows, &format!("{}{title}", machine.name)),
        size,
        body,
    })
}

fn about(rows: &[&Row]) -> String {
    let said = |stages: &str| {
        let left = rows.iter().filter_map(|row| Some(without(row, stages)? / row.ratio));
        geometric_mean(left).map_or("–".into(), number)
    };
    format!(
        "Of the time of {}, in the geometric mean, {} is left without exchange, {} without barriers either, and {} of the launch alone.",
        cases(rows.len()),
        said("exchange"),
        said("exchange, barriers"),
        said("everything"),
    )
}

fn table(rows: &[&Row], name: &str) -> Table {
    let mut stages: Vec<&str> = Vec::new();
    for (without, _) in rows.iter().flat_map(|row| ablated(row)) {
        if !stages.contains(&without) {
            stages.push(without);
        }
    }
    let left_out: Vec<_> = stages.iter().map(|stages| format!("without {stages}")).collect();
    let left_out = left_out.iter().map(String::as_str);
    let head: Vec<_> = ["case", "the whole", "copy"]
        .into_iter()
        .chain(left_out)
        .chain(["loads and stores overlap"])
        .collect();
    let mut table = Table::new(format!("Without stages, {name}"), &head);
    for row in rows {
        let time = |ratio: Option<f64>| ratio.map_or("–".into(), |ratio| seconds(ratio * row.floor_s));
        let mut cells = vec![row.case.clone(), seconds(row.median_s), seconds(row.floor_s)];
        cells.extend(stages.iter().map(|stages| time(without(row, stages))));
        cells.push(time(overlap(row)));
        table.rows.push(cells);
    }
    table
}

/// The time over the floor in which loads and stores are under way together, where nobody waits.
fn overlap(row: &Row) -> Option<f64> {
    let alone = without(row, "stores, exchange, barriers")? + without(row, "loads, exchange, barriers")?;
    Some((alone - without(row, "exchange, barriers")?).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merged::machines;
    use crate::record::samples::{record, row};
    use crate::record::{Ablated, GpuRow};

    #[test]
    fn a_table_has_all_that_was_left_out_and_what_overlaps() {
        let mut whole = row("layernorm x=2x3", 12e-6, 10e-6);
        let left = [
            ("exchange, barriers", 11e-6),
            ("stores, exchange, barriers", 7e-6),
            ("loads, exchange, barriers", 6e-6),
            ("everything", 3e-6),
        ];
        whole.gpu = Some(GpuRow {
            sets: 1,
            host_s: 1e-6,
            alternative: None,
            ablations: left
                .map(|(without, median_s)| Ablated {
                    without: without.into(),
                    median_s,
                })
                .into(),
        });
        let records = [record(vec![whole, row("layernorm x=2x4", 1.0, 1.0)])];
        let pictures = draw(&machines(&records)[0]).unwrap();
        let [picture] = &pictures[..] else {
            panic!("{} pictures", pictures.len())
        };
        let [cells] = &picture.table.rows[..] else {
            panic!("{:?}", picture.table)
        };
        let expected = [
            "layernorm x=2x3",
            "12.0 µs",
            "10.0 µs",
            "11.0 µs",
            "7.00 µs",
            "6.00 µs",
            "3.00 µs",
            "2.00 µs",
        ];
        assert_eq!(cells, &expected);
        assert!(
            picture
                .about
                .contains("– is left without exchange, 0.92 without barriers"),
            "{}",
            picture.about
        );
        assert!(
            draw(&machines(&[record(vec![row("layernorm x=2x4", 1.0, 1.0)])])[0])
                .unwrap()
                .is_empty()
        );
    }
}
