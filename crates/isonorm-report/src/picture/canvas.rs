//! Where a picture is drawn: plotters' SVG, and letters and marks at pixels.

use plotters::coord::Shift;
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, FontStyle, IntoFont, ShapeStyle, TextStyle};

use super::ink::Ink;

/// A picture could not be drawn: a bug of ours or of the plotting crate, told instead of a panic.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw: {0}")]
pub struct DrawError(String);

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: DrawingAreaErrorKind<E>) -> DrawError {
        DrawError(error.to_string())
    }
}

pub(super) type Result<T = (), E = DrawError> = std::result::Result<T, E>;
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Letters of everything.
pub(super) const FONT_SIZE: i32 = 13;
/// Letters in a series of many.
pub(super) const SMALL: i32 = 12;
/// About how wide a letter is, as a share of its size.
const LETTER: f64 = 0.56;

/// Draws; what comes back is the content of an `svg` element.
pub(super) fn draw(size: (u32, u32), paint: impl FnOnce(&Area) -> Result) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        paint(&area)?;
        area.present()?;
    }
    // The element itself is written by who knows what it is for.
    let body = text.split_once(">\n").and_then(|(_, rest)| rest.rsplit_once("</svg>"));
    let body = body.ok_or_else(|| DrawError("the plotting crate wrote no svg element".into()))?;
    Ok(body.0.to_owned())
}

/// How letters look and to which side of their point they stand.
#[derive(Clone, Copy)]
pub(super) struct Letters {
    ink: Ink,
    size: i32,
    side: HPos,
    bold: bool,
}

impl Letters {
    pub(super) fn new(ink: Ink) -> Letters {
        Letters {
            ink,
            size: FONT_SIZE,
            side: HPos::Left,
            bold: false,
        }
    }

    pub(super) fn small(self) -> Letters {
        Letters { size: SMALL, ..self }
    }

    pub(super) fn bold(self) -> Letters {
        Letters { bold: true, ..self }
    }

    /// Before the point instead of after it.
    pub(super) fn right(self) -> Letters {
        Letters {
            side: HPos::Right,
            ..self
        }
    }

    pub(super) fn style(self) -> TextStyle<'static> {
        let style = if self.bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = (FontFamily::SansSerif, self.size, style).into_font();
        let color = self.ink.color().to_backend_color();
        let pos = Pos::new(self.side, VPos::Center);
        TextStyle { font, color, pos }
    }

    /// About how wide the text is.
    pub(super) fn width(self, text: &str) -> i32 {
        (text.chars().count() as f64 * f64::from(self.size) * LETTER).ceil() as i32
    }
}

/// Writes; the point is half way up the letters.
pub(super) fn write(area: &Area, text: &str, at: (i32, i32), letters: Letters) -> Result {
    // plotters escapes what is markup, but XML has no place at all for what is not printed.
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    Ok(area.draw(&Text::new(text, at, letters.style()))?)
}

/// A text, cut off where there is no room.
pub(super) fn fitting(text: &str, room: i32, letters: Letters) -> String {
    if letters.width(text) <= room {
        return text.into();
    }
    let share = f64::from(room.max(0)) / f64::from(letters.width(text));
    let kept = (text.chars().count() as f64 * share) as usize;
    text.chars().take(kept.saturating_sub(1)).chain(['…']).collect()
}

pub(super) fn line(area: &Area, points: Vec<(i32, i32)>, ink: Ink, width: u32) -> Result {
    Ok(area.draw(&PathElement::new(points, stroke(ink, width)))?)
}

pub(super) fn bar(area: &Area, from: (i32, i32), to: (i32, i32), ink: Ink) -> Result {
    Ok(area.draw(&Rectangle::new([from, to], ShapeStyle::from(ink.color()).filled()))?)
}

fn stroke(ink: Ink, width: u32) -> ShapeStyle {
    ShapeStyle::from(ink.color()).stroke_width(width)
}

/// The shape of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Disc,
    Triangle,
    Square,
    Diamond,
    /// A circle with nothing in it.
    Ring,
    /// A large one, around another mark.
    Around,
    Cross,
    /// What sets a diamond off from a bar.
    Backing,
    Upright,
}

impl Mark {
    /// One after another, for curves.
    const FILLED: [Mark; 4] = [Mark::Disc, Mark::Triangle, Mark::Square, Mark::Diamond];

    /// The shape of the series; with seven colours and four shapes, 28 are different.
    pub(super) fn series(index: usize) -> Mark {
        Mark::FILLED[index % Mark::FILLED.len()]
    }
}

/// Draws a point.
pub(super) fn mark(area: &Area, mark: Mark, (x, y): (i32, i32), ink: Ink) -> Result {
    let filled = ShapeStyle::from(ink.color()).filled();
    let polygon = |around: &[(i32, i32)]| {
        let points: Vec<_> = around.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        area.draw(&Polygon::new(points, filled))
    };
    match mark {
        Mark::Disc => area.draw(&Circle::new((x, y), 4, filled))?,
        Mark::Triangle => polygon(&[(0, -5), (5, 4), (-5, 4)])?,
        Mark::Square => polygon(&[(-4, -4), (4, -4), (4, 4), (-4, 4)])?,
        Mark::Diamond => polygon(&[(0, -6), (5, 0), (0, 6), (-5, 0)])?,
        Mark::Backing => polygon(&[(0, -10), (9, 0), (0, 10), (-9, 0)])?,
        Mark::Upright => return line(area, vec![(x, y - 8), (x, y + 8)], ink, 2),
        Mark::Ring => area.draw(&Circle::new((x, y), 3, stroke(ink, 1)))?,
        Mark::Around => area.draw(&Circle::new((x, y), 9, stroke(ink, 2)))?,
        Mark::Cross => {
            for side in [-1, 1] {
                line(area, vec![(x - 4, y - 4 * side), (x + 4, y + 4 * side)], ink, 2)?;
            }
        }
    }
    Ok(())
}
