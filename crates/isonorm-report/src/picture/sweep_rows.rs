//! Rows of one length after another: a curve for each type and direction.

use super::axis::Axis;
use super::canvas::{Mark, Result, draw as paint, mark};
use super::plot::{Around, Entry, Frame, legend, legend_height};
use super::sweep::{Cliff, Curve, elements, extremes, said};
use super::{Picture, Subject, Table, ink, slug};
use crate::case::Case;
use crate::format::{number, seconds, trimmed};
use crate::merged::Machine;
use crate::record::Row;

const SIZE: (u32, u32) = (820, 460);
/// Fewer lengths are no sweep.
const FEWEST: usize = 6;

pub(super) fn draw(machine: &Machine) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for op in ["layernorm", "rmsnorm"] {
        let is_of = |row: &Row| Case::of(&row.case).op == op && matches!(Case::of(&row.case).shape[..], [_, _]);
        // A curve is of one run: the newest that is a sweep.
        let newest = machine.records.iter().rev().map(|record| curves(&record.chosen(is_of)));
        if let Some(curves) = newest.into_iter().find(|curves| !curves.is_empty()) {
            pictures.push(picture(op, &curves, machine)?);
        }
    }
    Ok(pictures)
}

/// Rows that differ in their length, with about the same number of elements.
fn curves<'a>(rows: &[&'a Row]) -> Vec<Curve<'a>> {
    let mut curves = Vec::new();
    for row in rows {
        let case = Case::of(&row.case);
        let size = elements(std::iter::once(case.elements()));
        let extra = ["act", "residual", "inplace"]
            .iter()
            .filter_map(|key| Some(format!(", {key}={}", case.get(key)?)));
        let name = format!(
            "{}, {}{}",
            case.get("dtype").unwrap_or("f32"),
            case.direction(),
            extra.collect::<String>()
        );
        let length = case.shape.last().copied().unwrap_or_default();
        Curve::add(&mut curves, format!("{name}, {size}"), length, row);
    }
    let mut curves = Curve::sorted(curves, FEWEST);
    // Where all have as many elements, that stands in the title.
    let sizes: Vec<_> = curves
        .iter()
        .filter_map(|curve| curve.name.rsplit_once(", "))
        .map(|(_, s)| s.to_owned())
        .collect();
    if sizes.windows(2).all(|pair| pair[0] == pair[1]) {
        for curve in &mut curves {
            curve.name = curve
                .name
                .rsplit_once(", ")
                .map_or(String::new(), |(name, _)| name.into());
        }
    }
    curves
}

fn picture(op: &str, curves: &[Curve], machine: &Machine) -> Result<Picture> {
    let cliffs: Vec<Cliff> = curves.iter().flat_map(Curve::cliffs).collect();
    let points = || curves.iter().flat_map(Curve::places);
    let x = Axis::log(points().map(|(x, _)| x), 2.0, "elements of a row", count);
    let y = Axis::log(
        points().map(|(_, y)| y).chain([1.0]),
        2.0,
        "time over the floor",
        trimmed,
    );
    let mut entries: Vec<Entry> = curves
        .iter()
        .enumerate()
        .map(|(i, curve)| (Mark::series(i), ink::series(i), curve.name.clone()))
        .collect();
    if !cliffs.is_empty() {
        entries.push((Mark::Around, ink::TEXT, "cliff".into()));
    }
    let body = paint(SIZE, |area| {
        let width = SIZE.0 as i32 - 80;
        let around = Around {
            left: 50,
            right: 24,
            top: 34 + legend_height(&entries, width) as u32,
        };
        legend(area, &entries, (50, 4), width)?;
        let frame = Frame::draw(area, &x, &y, around)?;
        for (i, curve) in curves.iter().enumerate() {
            frame.curve(area, &curve.places(), Mark::series(i), ink::series(i))?;
        }
        for cliff in &cliffs {
            let (x, y) = cliff.place();
            mark(area, Mark::Around, frame.pixel(x, y), ink::TEXT)?;
        }
        Ok(())
    })?;
    let all = curves.iter().flat_map(|curve| &curve.points);
    let size = elements(all.map(|(_, row)| Case::of(&row.case).elements()));
    let (least, most) = extremes(curves);
    Ok(Picture {
        subject: Subject::Sweep,
        machine: machine.name.clone(),
        name: format!("sweep-{op}-{}", slug(&machine.name)),
        title: format!("Rows of every length: {op}, {size}, {}", machine.name),
        about: format!(
            "From {} to {} times the floor. {}",
            number(least),
            number(most),
            said(&cliffs)
        ),
        table: table(op, curves, &machine.name),
        size: SIZE,
        body,
    })
}

/// A power of two in few letters.
fn count(n: f64) -> String {
    match n {
        n if n >= 1048576.0 => format!("{}Mi", trimmed(n / 1048576.0)),
        n if n >= 1024.0 => format!("{}Ki", trimmed(n / 1024.0)),
        n => trimmed(n),
    }
}

fn table(op: &str, curves: &[Curve], name: &str) -> Table {
    let mut table = Table::new(
        format!("{op} by the length of a row, {name}"),
        &["curve", "elements of a row", "time", "floor", "time / floor"],
    );
    for curve in curves {
        for (length, row) in &curve.points {
            table.rows.push(vec![
                curve.name.clone(),
                length.to_string(),
                seconds(row.median_s),
                seconds(row.floor_s),
                number(row.ratio),
            ]);
        }
    }
    table
}
