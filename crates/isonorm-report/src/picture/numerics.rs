//! The error against `f64` as the mean grows over the standard deviation: a line for each implementation.

use super::axis::Axis;
use super::canvas::{Mark, Result, draw as paint, mark};
use super::peers::called;
use super::plot::{Around, Entry, Frame, legend, legend_height};
use super::{Picture, Subject, Table, ink, slug};
use crate::format::number;
use crate::merged::Machine;
use crate::record::Numerics;

const SIZE: (u32, u32) = (820, 470);

pub(super) fn draw(machine: &Machine) -> Result<Vec<Picture>> {
    machine
        .numerics()
        .into_iter()
        .map(|(case, points)| picture(case, &points, machine))
        .collect()
}

/// The errors of one implementation, by the mean.
struct Line<'a> {
    name: &'a str,
    points: Vec<&'a Numerics>,
}

/// isonorm first; the others in the order of the record.
fn lines<'a>(points: &[&'a Numerics]) -> Vec<Line<'a>> {
    let mut lines: Vec<Line> = Vec::new();
    for point in points {
        match lines.iter_mut().find(|line| line.name == point.implementation) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: &point.implementation,
                points: vec![point],
            }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.mean_over_std.total_cmp(&b.mean_over_std));
    }
    lines.sort_by_key(|line| line.name != "isonorm");
    lines
}

fn picture(case: &str, points: &[&Numerics], machine: &Machine) -> Result<Picture> {
    let lines = lines(points);
    let means = points.iter().map(|point| point.mean_over_std);
    let errors = points.iter().filter_map(|point| point.error);
    let x = Axis::log(means, 10.0, "mean over standard deviation", power);
    let y = Axis::log(errors, 10.0, "largest error", power);
    let not_finite = points.iter().any(|point| point.error.is_none());
    let mut entries: Vec<Entry> = lines
        .iter()
        .enumerate()
        .map(|(i, line)| (Mark::series(i), ink::series(i), called(line.name).to_owned()))
        .collect();
    if not_finite {
        entries.push((Mark::Cross, ink::TEXT, "not finite".into()));
    }
    let body = paint(SIZE, |area| {
        let width = SIZE.0 as i32 - 90;
        let around = Around {
            left: 66,
            right: 30,
            top: 34 + legend_height(&entries, width) as u32,
        };
        legend(area, &entries, (66, 4), width)?;
        let frame = Frame::draw(area, &x, &y, around)?;
        for (i, line) in lines.iter().enumerate().rev() {
            let finite = line.points.iter().filter_map(|p| Some((p.mean_over_std, p.error?)));
            frame.curve(area, &finite.collect::<Vec<_>>(), Mark::series(i), ink::series(i))?;
            for lost in line.points.iter().filter(|point| point.error.is_none()) {
                mark(
                    area,
                    Mark::Cross,
                    frame.pixel(lost.mean_over_std, y.to.exp2()),
                    ink::series(i),
                )?;
            }
        }
        Ok(())
    })?;
    Ok(Picture {
        subject: Subject::Numerics,
        machine: machine.name.clone(),
        name: format!("numerics-{}", slug(case)),
        title: format!("Error against f64: {case}, {}", machine.name),
        about: about(&lines),
        table: table(case, &lines, &machine.name),
        size: SIZE,
        body,
    })
}

/// `1e-7` as it is; what is near 1 without an exponent.
fn power(value: f64) -> String {
    match value {
        v if (0.09..=1000.5).contains(&v) => crate::format::trimmed(v),
        v => format!("{v:.0e}"),
    }
}

fn about(lines: &[Line]) -> String {
    let each = lines.iter().map(|line| {
        let most = line.points.iter().filter_map(|point| point.error).fold(0.0, f64::max);
        let lost = line.points.iter().filter(|point| point.error.is_none()).count();
        let lost = match lost {
            0 => String::new(),
            1 => " and one result that is not finite".into(),
            n => format!(" and {n} results that are not finite"),
        };
        format!("{} {}{lost}", called(line.name), number(most))
    });
    format!(
        "Largest |y − y64| of any mean: {}. Errors of 0 and means of 0 are drawn at the edge.",
        each.collect::<Vec<_>>().join("; ")
    )
}

fn table(case: &str, lines: &[Line], name: &str) -> Table {
    let mut means: Vec<f64> = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|p| p.mean_over_std)
        .collect();
    means.sort_by(f64::total_cmp);
    means.dedup();
    let head: Vec<_> = std::iter::once("mean / std")
        .chain(lines.iter().map(|line| called(line.name)))
        .collect();
    let mut table = Table::new(format!("Largest |y − y64|: {case}, {name}"), &head);
    for mean in means {
        let of = |line: &Line| match line.points.iter().find(|point| point.mean_over_std == mean) {
            Some(point) => point.error.map_or("not finite".into(), |error| format!("{error:.2e}")),
            None => "–".into(),
        };
        let cells = lines.iter().map(of);
        table.rows.push(std::iter::once(power(mean)).chain(cells).collect());
    }
    table
}
