//! Colours. What is drawn has the light ones as attributes; [`css`] exchanges them by what the reader prefers.
//!
//! The hues are those of Okabe and Ito, which people who are colour-blind can tell apart, darker on white and lighter on black
//! where the contrast to the ground would be below 3:1. Shapes differ as well.

use std::fmt::Write;

use plotters::style::{Color, RGBAColor, RGBColor};

/// A colour with its name in CSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    name: &'static str,
    light: RGBColor,
    dark: &'static str,
}

impl Ink {
    const fn new(name: &'static str, light: (u8, u8, u8), dark: &'static str) -> Ink {
        Ink {
            name,
            light: RGBColor(light.0, light.1, light.2),
            dark,
        }
    }

    /// For plotters.
    pub(super) fn color(self) -> RGBAColor {
        self.light.to_rgba()
    }

    /// As plotters writes it.
    fn hex(self) -> String {
        let RGBColor(r, g, b) = self.light;
        format!("#{r:02X}{g:02X}{b:02X}")
    }
}

/// Letters and axes.
pub(crate) const TEXT: Ink = Ink::new("text", (0x1B, 0x1F, 0x24), "#E8EAED");
/// Letters that matter less.
pub(crate) const MUTED: Ink = Ink::new("muted", (0x57, 0x60, 0x6A), "#A9B1BA");
/// Lines behind everything.
pub(crate) const GRID: Ink = Ink::new("grid", (0xD8, 0xDC, 0xE0), "#3A4149");
/// The floor, and what must not be missed.
pub(crate) const FLOOR: Ink = Ink::new("floor", (0x77, 0x7F, 0x88), "#8D96A0");
/// The ground.
pub(crate) const GROUND: Ink = Ink::new("ground", (0xFE, 0xFE, 0xFE), "#15181C");

/// What is compared: isonorm is always the first.
pub(crate) const SERIES: [Ink; 7] = [
    Ink::new("blue", (0x00, 0x65, 0xA8), "#56B4E9"),
    Ink::new("vermillion", (0xD5, 0x5E, 0x00), "#FF8B3D"),
    Ink::new("green", (0x00, 0x8F, 0x68), "#2CCB9C"),
    Ink::new("purple", (0xB0, 0x4F, 0x87), "#E79AC6"),
    Ink::new("orange", (0xA8, 0x71, 0x00), "#E6B33C"),
    Ink::new("sky", (0x2E, 0x8F, 0xC4), "#9AD4F5"),
    Ink::new("black", (0x3A, 0x3A, 0x3A), "#D0D0D0"),
];

/// The series' colour, again from the start when there are more.
pub(crate) fn series(index: usize) -> Ink {
    SERIES[index % SERIES.len()]
}

fn all() -> impl Iterator<Item = Ink> {
    [TEXT, MUTED, GRID, FLOOR, GROUND].into_iter().chain(SERIES)
}

/// Rules that give everything drawn its colour in light, in dark and in print; the variables are those of `root`.
pub(crate) fn css(root: &str) -> String {
    let mut css = format!("{root}{{color-scheme:light dark");
    let mut add = |text: String| css.push_str(&text);
    for ink in all() {
        add(format!(";--{}:{}", ink.name, ink.hex()));
    }
    add(format!("}}\n@media screen and (prefers-color-scheme:dark){{{root}{{"));
    for (i, ink) in all().enumerate() {
        add(format!("{}--{}:{}", if i > 0 { ";" } else { "" }, ink.name, ink.dark));
    }
    add("}}\n".into());
    for ink in all() {
        let (hex, name) = (ink.hex(), ink.name);
        // Writing to a string cannot fail.
        let _ = writeln!(
            css,
            "[fill=\"{hex}\"]{{fill:var(--{name})}}[stroke=\"{hex}\"]{{stroke:var(--{name})}}"
        );
    }
    css + ".ground{fill:var(--ground)}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(hex: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.03928 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        if a > b { a / b } else { b / a }
    }

    #[test]
    fn everything_stands_out_from_its_ground() {
        let check = |ink: Ink, least: f64| {
            let (light, dark) = (contrast(&ink.hex(), &GROUND.hex()), contrast(ink.dark, GROUND.dark));
            assert!(light >= least && dark >= least, "{}: {light:.2} {dark:.2}", ink.name);
        };
        // What WCAG asks of letters, and of what is drawn.
        [TEXT, MUTED].into_iter().for_each(|ink| check(ink, 4.5));
        SERIES.into_iter().chain([FLOOR]).for_each(|ink| check(ink, 3.0));
    }

    #[test]
    fn no_colour_is_another_one() {
        let all: Vec<_> = all().collect();
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a.light != b.light && a.name != b.name), "{a:?}");
        }
    }
}
