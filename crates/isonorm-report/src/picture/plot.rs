//! The frame of a plot: axes, ticks and grid by plotters, and where a value is in pixels.

use plotters::chart::ChartBuilder;
use plotters::style::TRANSPARENT;

use super::axis::Axis;
use super::canvas::{Area, Letters, Mark, Result, SMALL, line, mark, write};
use super::ink::{FLOOR, GRID, Ink, MUTED, TEXT};

/// A frame that has been drawn.
pub(super) struct Frame<'a> {
    x: &'a Axis,
    y: &'a Axis,
    /// Left, right, top, bottom.
    pixels: (i32, i32, i32, i32),
}

/// What stays free around a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) top: u32,
}

/// Room for the ticks below a frame, and for the axis' name.
const BELOW: u32 = 46;
/// A row of a legend.
pub(super) const LEGEND_ROW: i32 = 20;

impl<'a> Frame<'a> {
    /// Draws axes into the area.
    pub(super) fn draw(area: &Area, x: &'a Axis, y: &'a Axis, around: Around) -> Result<Frame<'a>> {
        let mut chart = ChartBuilder::on(area)
            .margin_top(around.top)
            .margin_right(around.right)
            .y_label_area_size(around.left)
            .x_label_area_size(BELOW)
            .build_cartesian_2d(x.clone(), y.clone())?;
        let letters = Letters::new(MUTED).small();
        chart
            .configure_mesh()
            .bold_line_style(GRID.color())
            .light_line_style(TRANSPARENT)
            .axis_style(GRID.color())
            .x_labels(x.ticks.len().max(1))
            .y_labels(y.ticks.len().max(1))
            .label_style(letters.style())
            .axis_desc_style(letters.style())
            .x_desc(x.label.as_str())
            .draw()?;
        let (across, down) = chart.plotting_area().get_pixel_range();
        let pixels = (across.start, across.end, down.start, down.end);
        // Above the axis and level, where a phone can read it.
        if !y.label.is_empty() {
            write(area, &y.label, relative(area, (pixels.0 - 8, pixels.2 - 14)), letters)?;
        }
        Ok(Frame {
            x,
            y,
            pixels: shifted(area, pixels),
        })
    }

    /// Where a point is.
    pub(super) fn pixel(&self, x: f64, y: f64) -> (i32, i32) {
        (self.across(x), self.down(y))
    }

    pub(super) fn across(&self, value: f64) -> i32 {
        let (left, right, ..) = self.pixels;
        let share = (self.x.at(value) - self.x.from) / (self.x.to - self.x.from);
        left + (share * f64::from(right - left)).round() as i32
    }

    pub(super) fn down(&self, value: f64) -> i32 {
        let (_, _, top, bottom) = self.pixels;
        let share = (self.y.at(value) - self.y.from) / (self.y.to - self.y.from);
        bottom - (share * f64::from(bottom - top)).round() as i32
    }

    /// A level line at a value, such as the floor's.
    pub(super) fn level(&self, area: &Area, value: f64, name: &str) -> Result {
        let (left, right, y) = (self.pixels.0, self.pixels.1, self.down(value));
        line(area, vec![(left, y), (right, y)], FLOOR, 2)?;
        write(area, name, (right - 4, y - 8), Letters::new(MUTED).small().right())
    }

    /// Points and the line through them.
    pub(super) fn curve(&self, area: &Area, points: &[(f64, f64)], shape: Mark, ink: Ink) -> Result {
        let pixels: Vec<_> = points.iter().map(|(x, y)| self.pixel(*x, *y)).collect();
        line(area, pixels.clone(), ink, 2)?;
        pixels.into_iter().try_for_each(|at| mark(area, shape, at, ink))
    }
}

/// Pixels of the whole picture as pixels of an area of it, and back.
fn relative(area: &Area, (x, y): (i32, i32)) -> (i32, i32) {
    let (across, down) = area.get_pixel_range();
    (x - across.start, y - down.start)
}

fn shifted(area: &Area, (left, right, top, bottom): (i32, i32, i32, i32)) -> (i32, i32, i32, i32) {
    let ((left, top), (right, bottom)) = (relative(area, (left, top)), relative(area, (right, bottom)));
    (left, right, top, bottom)
}

/// What a legend explains.
pub(super) type Entry = (Mark, Ink, String);

/// Where the entries of a legend go, in as many rows as they need, and how high all is.
fn places(entries: &[Entry], width: i32) -> (Vec<(i32, i32)>, i32) {
    let (mut x, mut y) = (0, 0);
    let mut places = Vec::new();
    for (_, _, name) in entries {
        let needed = 21 + Letters::new(TEXT).width(name) + 14;
        if x > 0 && x + needed > width {
            (x, y) = (0, y + LEGEND_ROW);
        }
        places.push((x, y));
        x += needed;
    }
    (places, y + LEGEND_ROW)
}

/// How high a legend will be.
pub(super) fn legend_height(entries: &[Entry], width: i32) -> i32 {
    places(entries, width).1
}

/// Draws a legend.
pub(super) fn legend(area: &Area, entries: &[Entry], (left, top): (i32, i32), width: i32) -> Result {
    for ((shape, ink, name), (x, y)) in entries.iter().zip(places(entries, width).0) {
        let (x, y) = (left + x, top + y + SMALL / 2 + 2);
        mark(area, *shape, (x + 9, y), *ink)?;
        write(area, name, (x + 21, y), Letters::new(TEXT))?;
    }
    Ok(())
}
