//! Designs of kernels for one problem: bars of their times from the simplest on, with what each loses.

use super::axis::Axis;
use super::canvas::{Area, Letters, Mark, Result, bar, draw as paint, fitting, line, mark, write};
use super::peers::called;
use super::plot::{Around, Entry, Frame, legend};
use super::{Picture, Subject, Table, ink, slug};
use crate::format::{bytes, number, percent, seconds};
use crate::merged::Machine;
use crate::record::{LadderProblem, Rung};

const WIDTH: u32 = 820;
/// The columns right of the bars: share of the floor, error.
const COLUMNS: [i32; 2] = [690, 806];
/// Where bars end.
const RIGHT: u32 = 200;
const LEFT: u32 = 14;
const TOP: i32 = 54;
const RUNG: i32 = 42;

pub(super) fn draw(machine: &Machine) -> Result<Vec<Picture>> {
    let ladders = machine.ladders().into_iter().filter(|ladder| !ladder.rungs.is_empty());
    ladders.map(|ladder| picture(ladder, machine)).collect()
}

fn published(rung: &Rung) -> Option<f64> {
    rung.published.as_ref()?.seconds
}

fn picture(ladder: &LadderProblem, machine: &Machine) -> Result<Picture> {
    let rungs = &ladder.rungs;
    let times = rungs
        .iter()
        .flat_map(|rung| [Some(rung.median_s), Some(rung.floor_s), published(rung)])
        .flatten();
    let x = Axis::log(times, 10.0, "time", seconds_of);
    let y = Axis::rows(rungs.len());
    let height = (TOP + RUNG * rungs.len() as i32 + 50) as u32;
    let problem = format!("{}, input {}", ladder.case, input(ladder));
    let body = paint((WIDTH, height), |area| {
        legend(area, &entries(rungs), (LEFT as i32, 4), WIDTH as i32 - 20)?;
        let around = Around {
            left: LEFT,
            right: RIGHT,
            top: TOP as u32,
        };
        let frame = Frame::draw(area, &x, &y, around)?;
        let heading = Letters::new(ink::MUTED).small().right();
        write(area, "of the copy's speed", (COLUMNS[0], TOP - 14), heading)?;
        write(area, "error", (COLUMNS[1], TOP - 14), heading)?;
        for (i, rung) in rungs.iter().enumerate() {
            step(area, &frame, rung, TOP + RUNG * i as i32)?;
        }
        Ok(())
    })?;
    Ok(Picture {
        subject: Subject::Ladder,
        machine: machine.name.clone(),
        name: format!("ladder-{}-{}", slug(&ladder.case), slug(&ladder.input)),
        title: format!("The ladder: {problem}, {}", machine.name),
        about: about(rungs),
        table: table(rungs, format!("The ladder: {problem}, {}", machine.name)),
        size: (WIDTH, height),
        body,
    })
}

fn input(ladder: &LadderProblem) -> &str {
    match ladder.input.as_str() {
        "normal" => "random",
        "counting" => "1, 2, 3, …",
        other => other,
    }
}

fn seconds_of(s: f64) -> String {
    let text = seconds(s);
    match text.split_once(' ') {
        Some((value, unit)) if value.contains('.') => {
            format!("{} {unit}", value.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

fn entries(rungs: &[Rung]) -> Vec<Entry> {
    let mut entries = vec![
        (Mark::Square, ink::series(0), "isonorm".to_owned()),
        (Mark::Square, ink::series(4), "other designs".to_owned()),
        (Mark::Upright, ink::TEXT, "the copy".to_owned()),
    ];
    if rungs.iter().any(|rung| published(rung).is_some()) {
        entries.push((Mark::Diamond, ink::TEXT, "published, on its machine".to_owned()));
    }
    entries
}

/// One rung: its name over its bar, and the columns.
fn step(area: &Area, frame: &Frame, rung: &Rung, top: i32) -> Result {
    let (x, name) = (LEFT as i32 + 4, called(&rung.rung));
    let letters = Letters::new(ink::TEXT).bold();
    write(area, name, (x, top + 11), letters)?;
    let (about, small) = (x + letters.width(name) + 14, Letters::new(ink::MUTED).small());
    let room = WIDTH as i32 - about - 8;
    write(area, &fitting(&rung.about, room, small), (about, top + 11), small)?;
    let own = if rung.rung == "isonorm" {
        ink::series(0)
    } else {
        ink::series(4)
    };
    let end = frame.across(rung.median_s).max(LEFT as i32 + 2);
    bar(area, (LEFT as i32, top + 22), (end, top + 34), own)?;
    let floor = frame.across(rung.floor_s);
    line(area, vec![(floor, top + 19), (floor, top + 37)], ink::TEXT, 2)?;
    let published = published(rung).map(|s| frame.across(s));
    if let Some(at) = published {
        mark(area, Mark::Backing, (at, top + 28), ink::GROUND)?;
        mark(area, Mark::Diamond, (at, top + 28), ink::TEXT)?;
    }
    // Not under the mark.
    let at = published
        .filter(|at| (end - 8..end + 60).contains(at))
        .map_or(end + 6, |at| at.max(end) + 10);
    write(
        area,
        &seconds(rung.median_s),
        (at, top + 28),
        Letters::new(ink::TEXT).small(),
    )?;
    let column = Letters::new(ink::TEXT).small().right();
    write(
        area,
        &percent(rung.floor_s / rung.median_s),
        (COLUMNS[0], top + 28),
        column,
    )?;
    let (error, letters) = match rung.error {
        Some(error) if rung.tolerance.is_some_and(|most| error <= most) => (format!("{error:.1e}"), column),
        Some(error) => (format!("{error:.1e}"), column.bold()),
        None => ("not finite".into(), column.bold()),
    };
    write(area, &error, (COLUMNS[1], top + 28), letters)
}

fn about(rungs: &[Rung]) -> String {
    let (own, others): (Vec<_>, Vec<_>) = rungs.iter().partition(|rung| rung.rung == "isonorm");
    let best = others.iter().min_by(|a, b| a.median_s.total_cmp(&b.median_s));
    let mut text = match (own.first(), best) {
        (Some(own), Some(best)) => format!(
            "isonorm takes {}; {}, the fastest of the other designs, {} times as long; {}, the first, {} times.",
            seconds(own.median_s),
            called(&best.rung),
            number(best.median_s / own.median_s),
            called(&rungs[0].rung),
            number(rungs[0].median_s / own.median_s)
        ),
        _ => String::new(),
    };
    let lost: Vec<_> = rungs
        .iter()
        .filter(|rung| rung.tolerance.is_none())
        .map(|rung| called(&rung.rung))
        .collect();
    if !lost.is_empty() {
        text += &format!(
            " No digit is promised by {}, whose algorithm loses them.",
            lost.join(", ")
        );
    }
    text + " Bold errors are above what the algorithm promises, or of one that promises nothing."
}

fn table(rungs: &[Rung], caption: String) -> Table {
    let head = [
        "rung",
        "what it does",
        "time",
        "spread",
        "of the copy's speed",
        "reads of the input",
        "bytes moved",
        "over what must move",
        "error",
        "tolerance",
        "over the first",
        "published",
    ];
    let mut table = Table::new(caption, &head);
    let none = || "–".to_owned();
    for rung in rungs {
        let moved = rung.bytes.zip(rung.compulsory_bytes.filter(|n| *n > 0));
        let claim = rung.published.as_ref().map(|p| {
            let parts = [p.seconds.map(seconds), Some(p.claim.clone()), Some(p.machine.clone())];
            parts
                .into_iter()
                .flatten()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(", ")
        });
        table.rows.push(vec![
            called(&rung.rung).to_owned(),
            rung.about.clone(),
            seconds(rung.median_s),
            rung.spread
                .map_or_else(none, |spread| format!("± {}", percent(spread / 2.0))),
            percent(rung.floor_s / rung.median_s),
            rung.reads.map_or_else(none, number),
            rung.bytes.map_or_else(none, |n| bytes(n as f64)),
            moved.map_or_else(none, |(all, must)| number(all as f64 / must as f64)),
            rung.error.map_or("not finite".into(), |error| format!("{error:.2e}")),
            rung.tolerance
                .map_or("no digit promised".into(), |t| format!("{t:.2e}")),
            format!("{}×", number(rungs[0].median_s / rung.median_s)),
            claim.unwrap_or_else(none),
        ]);
    }
    table
}
