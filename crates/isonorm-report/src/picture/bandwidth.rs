//! Every case: how many bytes it must move, and the share of the copy's speed that it moves them with.

use super::axis::Axis;
use super::canvas::{Mark, Result, draw as paint, mark};
use super::plot::{Around, Entry, Frame, legend, legend_height};
use super::{Picture, Subject, Table, ink, slug};
use crate::case::Case;
use crate::format::{bytes, cases, number, percent, seconds};
use crate::merged::Machine;
use crate::record::Row;
use crate::statistics::geometric_mean;

const SIZE: (u32, u32) = (820, 470);

pub(super) fn draw(machine: &Machine) -> Result<Option<Picture>> {
    let rows = machine.rows(|row| row.bytes.is_some());
    if rows.is_empty() {
        return Ok(None);
    }
    let sizes = rows.iter().filter_map(|row| row.bytes).map(|n| n as f64);
    let x = Axis::log(sizes, 10.0, "compulsory bytes", bytes);
    let most = rows.iter().map(|row| 1.0 / row.ratio).fold(1.0, f64::max);
    // Some work within a cache is several times as fast as a copy; what is above that is drawn at the edge.
    let y = Axis::linear(most.min(3.0), 0.25, "share of the copy's speed", percent);
    let ops = ops(&rows);
    let entries = entries(&ops);
    let body = paint(SIZE, |area| {
        let width = SIZE.0 as i32 - 80;
        let top = 34 + legend_height(&entries, width) as u32;
        let around = Around {
            left: 60,
            right: 24,
            top,
        };
        legend(area, &entries, (60, 4), width)?;
        let frame = Frame::draw(area, &x, &y, around)?;
        frame.level(area, 1.0, "as fast as the copy")?;
        for row in &rows {
            let (shape, ink) = look(&ops, row);
            mark(
                area,
                shape,
                frame.pixel(row.bytes.unwrap_or(1) as f64, 1.0 / row.ratio),
                ink,
            )?;
        }
        Ok(())
    })?;
    Ok(Some(Picture {
        subject: Subject::Bandwidth,
        machine: machine.name.clone(),
        name: format!("bandwidth-{}", slug(&machine.name)),
        title: format!(
            "Roofline: share of the copy's speed in {}, {}",
            cases(rows.len()),
            machine.name
        ),
        about: about(&rows),
        table: table(&rows, &machine.name),
        size: SIZE,
        body,
    }))
}

/// The ops, in the order of the record.
fn ops<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut ops = Vec::new();
    for row in rows {
        let op = Case::of(&row.case).op;
        if !ops.contains(&op) {
            ops.push(op);
        }
    }
    ops
}

/// A colour for each op, a shape for each direction.
fn look(ops: &[&str], row: &Row) -> (Mark, ink::Ink) {
    let case = Case::of(&row.case);
    let op = ops.iter().position(|op| *op == case.op).unwrap_or_default();
    (
        if case.is_backward() { Mark::Triangle } else { Mark::Disc },
        ink::series(op),
    )
}

fn entries(ops: &[&str]) -> Vec<Entry> {
    let ops = ops.iter().enumerate();
    let mut entries: Vec<Entry> = ops
        .map(|(i, op)| (Mark::Square, ink::series(i), op.to_string()))
        .collect();
    for (shape, name) in [(Mark::Disc, "forward"), (Mark::Triangle, "backward")] {
        entries.push((shape, ink::MUTED, name.into()));
    }
    entries
}

fn about(rows: &[&Row]) -> String {
    let mean = |backward: bool| {
        let of = rows.iter().filter(|row| Case::of(&row.case).is_backward() == backward);
        geometric_mean(of.map(|row| 1.0 / row.ratio))
    };
    let said = |name: &str, mean: Option<f64>| mean.map(|mean| format!("{} {name}", percent(mean)));
    let means: Vec<_> = [said("forward", mean(false)), said("backward", mean(true))]
        .into_iter()
        .flatten()
        .collect();
    format!(
        "The copy moves the same bytes: each input read once, each output written once. Of its speed isonorm reaches {} in the \
         geometric mean.",
        means.join(" and ")
    )
}

fn table(rows: &[&Row], name: &str) -> Table {
    let head = ["case", "bytes", "time", "copy", "GB/s", "share of the copy's speed"];
    let mut table = Table::new(format!("Every case, {name}"), &head);
    for row in rows {
        let moved = row.bytes.unwrap_or(0) as f64;
        table.rows.push(vec![
            row.case.clone(),
            bytes(moved),
            seconds(row.median_s),
            seconds(row.floor_s),
            number(row.gbps.unwrap_or(moved / row.median_s / 1e9)),
            percent(1.0 / row.ratio),
        ]);
    }
    table
}
