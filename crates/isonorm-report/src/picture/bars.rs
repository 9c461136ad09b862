//! Cases one below the other, each with a bar for every series.

use super::axis::Axis;
use super::canvas::{Area, Letters, Mark, Result, SMALL, bar, draw as paint, fitting, line, write};
use super::ink;
use super::plot::{Around, Entry, Frame, legend, legend_height};
use crate::case::Case;
use crate::format::number;
use crate::record::Row;

const WIDTH: u32 = 760;
/// Where bars begin and end.
const SIDES: (u32, u32) = (12, 24);
const BAR: i32 = 6;
const LABEL: i32 = 17;
const GAP: i32 = 10;

/// A picture with more cases does not fit a printed page.
const MOST_CASES: usize = 24;

/// Cases of one picture.
pub(super) struct Part<'a> {
    pub(super) rows: &'a [&'a Row],
    /// Whether it is the first one.
    pub(super) is_first: bool,
    /// What is added to a title, and to a name; empty where there is one part.
    pub(super) title: String,
    pub(super) suffix: String,
}

/// How many pictures there are of so many cases.
pub(super) fn parts(cases: usize) -> usize {
    cases.div_ceil(MOST_CASES).max(1)
}

/// Divides cases among pictures, about equally.
pub(super) fn divide<'a>(rows: &'a [&'a Row]) -> impl Iterator<Item = Part<'a>> {
    let parts = parts(rows.len());
    let each = rows.chunks(rows.len().div_ceil(parts).max(1)).enumerate();
    each.map(move |(i, rows)| {
        let number = i + 1;
        let (title, suffix) = match parts {
            1 => (String::new(), String::new()),
            _ => (format!(", part {number} of {parts}"), format!("-{number}")),
        };
        Part {
            rows,
            is_first: i == 0,
            title,
            suffix,
        }
    })
}

/// A case with its bars.
pub(super) struct Group<'a> {
    /// The problem string.
    pub(super) case: &'a str,
    /// Times over the floor; some series may lack one.
    pub(super) ratios: Vec<Option<f64>>,
}

/// Draws cases with bars from a ratio on, and a line at the floor; returns the picture's size, and the picture.
pub(super) fn draw(names: &[&str], x: &Axis, groups: &[Group], from: f64) -> Result<((u32, u32), String)> {
    let named = names.iter().enumerate();
    let entries: Vec<Entry> = named
        .map(|(i, name)| (Mark::Square, ink::series(i), (*name).to_owned()))
        .collect();
    let case_height = LABEL + BAR * entries.len() as i32 + GAP;
    let legend_width = WIDTH as i32 - 24;
    let top = legend_height(&entries, legend_width) + 12;
    let size = (WIDTH, (top + case_height * groups.len() as i32 + 50) as u32);
    let y = Axis::rows(groups.len());
    let body = paint(size, |area| {
        legend(area, &entries, (SIDES.0 as i32, 4), legend_width)?;
        let around = Around {
            left: SIDES.0,
            right: SIDES.1,
            top: top as u32,
        };
        let frame = Frame::draw(area, x, &y, around)?;
        for (i, of_case) in groups.iter().enumerate() {
            group(area, &frame, of_case, from, top + case_height * i as i32)?;
        }
        Ok(())
    })?;
    Ok((size, body))
}

/// A line with the case and its ratios, and the bars below.
fn group(area: &Area, frame: &Frame, group: &Group, from: f64, top: i32) -> Result {
    let Group { case, ratios } = group;
    let said: Vec<_> = ratios.iter().map(|ratio| ratio.map_or("–".into(), number)).collect();
    let (numbers, baseline) = (said.join(" · "), top + SMALL / 2 + 4);
    let right = WIDTH as i32 - SIDES.1 as i32 - 5;
    write(
        area,
        &numbers,
        (right, baseline),
        Letters::new(ink::MUTED).small().right(),
    )?;
    let letters = Letters::new(ink::TEXT).small();
    let room = right - SIDES.0 as i32 - Letters::new(ink::MUTED).small().width(&numbers) - 17;
    write(
        area,
        &fitting(&Case::of(case).short(), room, letters),
        (SIDES.0 as i32 + 5, baseline),
        letters,
    )?;
    let (floor, start) = (frame.across(1.0), frame.across(from));
    // Beside the bars only: a line through letters is hard to read.
    let (first, last) = (top + LABEL - 3, top + LABEL + BAR * ratios.len() as i32 + 2);
    line(area, vec![(floor, first), (floor, last)], ink::FLOOR, 2)?;
    for (i, ratio) in ratios.iter().enumerate() {
        let Some(ratio) = ratio else { continue };
        let (y, end) = (top + LABEL + BAR * i as i32, frame.across(*ratio));
        // What equals the start has a bar, too.
        let end = if (end - start).abs() < 2 { start + 2 } else { end };
        bar(area, (start.min(end), y), (start.max(end), y + BAR - 1), ink::series(i))?;
    }
    Ok(())
}
