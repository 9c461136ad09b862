//! Batches, channels and sides: a panel for each layout and direction, a colour for a range of channels.

use super::axis::Axis;
use super::canvas::{Area, Letters, Mark, Result, draw as paint, mark, write};
use super::plot::{Around, Entry, Frame, legend, legend_height};
use super::sweep::{Cliff, Curve, elements, said};
use super::{Picture, Subject, Table, ink, slug};
use crate::case::Case;
use crate::format::{number, seconds, trimmed};
use crate::merged::Machine;
use crate::record::Row;

const WIDTH: u32 = 860;
const PANEL: u32 = 340;
/// Fewer sides of one number of channels are no curve, and fewer cases no sweep.
const FEWEST_SIDES: usize = 3;
const FEWEST_CASES: usize = 24;
const LAYOUTS: [(&str, &str); 2] = [("nchw", "channels first"), ("nhwc", "channels last")];
/// A colour for channels up to so many.
const CHANNELS: [(u64, &str); 4] = [
    (8, "up to 8 channels"),
    (64, "9 to 64"),
    (512, "65 to 512"),
    (u64::MAX, "more than 512"),
];

pub(super) fn draw(machine: &Machine) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for dtype in ["f32", "bf16", "f16", "f64"] {
        let is_of = |row: &Row| {
            let case = Case::of(&row.case);
            let is_image = matches!(case.shape[..], [_, _, h, w] if h == w);
            let is_plain = case.get("act").or(case.get("residual")).is_none();
            case.op == "batchnorm" && is_image && is_plain && case.get("dtype") == Some(dtype)
        };
        // All is of one run: the newest that is a sweep.
        let newest = machine
            .records
            .iter()
            .rev()
            .map(|record| Sweep::of(record.chosen(is_of)));
        if let Some(sweep) = newest.into_iter().find(Sweep::is_one) {
            pictures.push(picture(dtype, &sweep, machine)?);
        }
    }
    Ok(pictures)
}

/// Cases over sides; curves are each of one layout, direction, number of channels and size.
struct Sweep<'a> {
    rows: Vec<&'a Row>,
    curves: Vec<Curve<'a>>,
    /// Fewer than a quarter of the most elements is small.
    most: u64,
}

impl<'a> Sweep<'a> {
    fn of(rows: Vec<&'a Row>) -> Sweep<'a> {
        let most = rows.iter().map(|row| Case::of(&row.case).elements()).max().unwrap_or(1);
        let mut curves = Vec::new();
        for row in &rows {
            let case = Case::of(&row.case);
            let &[_, channels, side, _] = &case.shape[..] else {
                continue;
            };
            let layout = case.get("layout").unwrap_or("nchw");
            let size = if is_small(&case, most) { "small" } else { "large" };
            let name = format!("{layout} {}, {channels} channels, {size}", case.direction());
            Curve::add(&mut curves, name, side, row);
        }
        Sweep {
            curves: Curve::sorted(curves, FEWEST_SIDES),
            rows,
            most,
        }
    }

    fn is_one(&self) -> bool {
        self.curves.iter().map(|curve| curve.points.len()).sum::<usize>() >= FEWEST_CASES
    }
}

fn is_small(case: &Case, most: u64) -> bool {
    case.elements().saturating_mul(4) <= most
}

/// The number of the range that so many channels are in.
fn range(channels: u64) -> usize {
    CHANNELS
        .iter()
        .position(|(most, _)| channels <= *most)
        .unwrap_or_default()
}

fn picture(dtype: &str, sweep: &Sweep, machine: &Machine) -> Result<Picture> {
    let cliffs: Vec<Cliff> = sweep.curves.iter().flat_map(Curve::cliffs).collect();
    let entries = entries(!cliffs.is_empty());
    let top = legend_height(&entries, WIDTH as i32 - 40) as u32 + 8;
    let size = (WIDTH, top + 2 * PANEL);
    let sides = sweep.rows.iter().map(|row| Case::of(&row.case).shape[2] as f64);
    let x = Axis::log(sides, 2.0, "positions of a side", trimmed);
    let ratios = || sweep.rows.iter().map(|row| row.ratio);
    let y = Axis::log(ratios().chain([1.0]), 2.0, "time over the floor", trimmed);
    let body = paint(size, |area| {
        legend(area, &entries, (20, 4), WIDTH as i32 - 40)?;
        let (_, panels) = area.split_vertically(top);
        let panels = panels.split_evenly((2, 2));
        for (panel, (layout, backward)) in panels.iter().zip([(0, false), (0, true), (1, false), (1, true)]) {
            draw_panel(panel, sweep, &cliffs, (LAYOUTS[layout], backward), (&x, &y))?;
        }
        Ok(())
    })?;
    let all = elements(sweep.rows.iter().map(|row| Case::of(&row.case).elements()));
    Ok(Picture {
        subject: Subject::Sweep,
        machine: machine.name.clone(),
        name: format!("sweep-batchnorm-{}-{}", slug(dtype), slug(&machine.name)),
        title: format!(
            "Batches, channels and sides: batchnorm {dtype}, {all}, {}",
            machine.name
        ),
        about: format!(
            "From {} to {} times the floor; what is hollow has fewer than a quarter of the most elements. {}",
            number(ratios().fold(f64::INFINITY, f64::min)),
            number(ratios().fold(0.0, f64::max)),
            said(&cliffs)
        ),
        table: table(dtype, sweep, &machine.name),
        size,
        body,
    })
}

fn entries(has_cliffs: bool) -> Vec<Entry> {
    let ranges = CHANNELS.iter().enumerate();
    let mut entries: Vec<Entry> = ranges
        .map(|(i, (_, name))| (Mark::Disc, ink::series(i), name.to_string()))
        .collect();
    entries.push((Mark::Ring, ink::MUTED, "fewer elements".into()));
    if has_cliffs {
        entries.push((Mark::Around, ink::TEXT, "cliff".into()));
    }
    entries
}

fn draw_panel(
    panel: &Area,
    sweep: &Sweep,
    cliffs: &[Cliff],
    ((layout, called), backward): ((&str, &str), bool),
    (x, y): (&Axis, &Axis),
) -> Result {
    let around = Around {
        left: 46,
        right: 18,
        top: 52,
    };
    let direction = if backward { "backward" } else { "forward" };
    let title = format!("{called}, {direction}");
    write(panel, &title, (46, 14), Letters::new(ink::TEXT).bold())?;
    let frame = Frame::draw(panel, x, y, around)?;
    for row in sweep.rows.iter() {
        let case = Case::of(&row.case);
        if case.get("layout").unwrap_or("nchw") != layout || case.is_backward() != backward {
            continue;
        }
        let shape = if is_small(&case, sweep.most) {
            Mark::Ring
        } else {
            Mark::Disc
        };
        let range = range(case.shape[1]);
        mark(
            panel,
            shape,
            beside(&frame, (case.shape[2] as f64, row.ratio), range),
            ink::series(range),
        )?;
    }
    let here = format!("{layout} {direction},");
    for cliff in cliffs.iter().filter(|cliff| cliff.curve.starts_with(&here)) {
        let channels = cliff
            .curve
            .split([',', ' '])
            .find_map(|word| word.parse().ok())
            .unwrap_or_default();
        mark(
            panel,
            Mark::Around,
            beside(&frame, cliff.place(), range(channels)),
            ink::TEXT,
        )?;
    }
    Ok(())
}

/// Where a point is: those of other channels are a little to the left or right, so that none hides another.
fn beside(frame: &Frame, (x, y): (f64, f64), range: usize) -> (i32, i32) {
    let (across, down) = frame.pixel(x, y);
    (across + 3 * range as i32 - 4, down)
}

fn table(dtype: &str, sweep: &Sweep, name: &str) -> Table {
    let mut table = Table::new(
        format!("batchnorm {dtype} by batch, channels and side, {name}"),
        &["x", "layout", "direction", "time", "floor", "time / floor"],
    );
    for row in sweep.rows.iter() {
        let case = Case::of(&row.case);
        table.rows.push(vec![
            case.get("x").unwrap_or_default().into(),
            case.get("layout").unwrap_or("nchw").into(),
            case.direction().into(),
            seconds(row.median_s),
            seconds(row.floor_s),
            number(row.ratio),
        ]);
    }
    table
}
