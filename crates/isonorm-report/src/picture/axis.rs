//! Axes: from a value to a place, and the ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Log,
}

/// One axis. Its places are logarithms where it is logarithmic.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    scale: Scale,
    pub(super) from: f64,
    pub(super) to: f64,
    /// Places and what stands there.
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) label: String,
}

/// More ticks than these run into each other.
const MOST_TICKS: usize = 12;

impl Axis {
    /// Over these values, with ticks at powers of `base`, or at multiples of them where there are only a few.
    pub(super) fn log(values: impl Iterator<Item = f64>, base: f64, label: &str, name: impl Fn(f64) -> String) -> Axis {
        let (low, high) = extremes(values.filter(|v| *v > 0.0).map(f64::log2));
        let step = base.log2();
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let last = last.max(first + 1.0);
        let every = ((last - first + 1.0) / MOST_TICKS as f64).ceil().max(1.0);
        let powers = (0..)
            .map(|i| first + every * f64::from(i))
            .take_while(|power| *power <= last);
        let mut ticks: Vec<_> = powers
            .map(|power| (power * step, name((power * step).exp2())))
            .collect();
        // Few powers alone would leave a reader to guess.
        let multiples: &[f64] = match () {
            () if every > 1.0 => &[],
            () if base > 4.0 && ticks.len() <= 3 => &[2.0, 5.0],
            () if base <= 4.0 && ticks.len() <= 5 => &[1.5],
            () => &[],
        };
        if !multiples.is_empty() {
            let powers = ticks.clone().into_iter();
            let between = powers.flat_map(|(at, _)| multiples.iter().map(move |multiple| at + multiple.log2()));
            let inside = between.filter(|at| *at < last * step);
            ticks.extend(inside.map(|at| (at, name(at.exp2()))));
        }
        Axis {
            scale: Scale::Log,
            from: first * step,
            to: last * step,
            ticks,
            label: label.into(),
        }
    }

    /// Of rows that are named elsewhere.
    pub(super) fn rows(count: usize) -> Axis {
        Axis {
            ticks: Vec::new(),
            ..Axis::linear(count as f64, 1.0, "", |_| String::new())
        }
    }

    /// From 0 to at least this value.
    pub(super) fn linear(most: f64, step: f64, label: &str, name: impl Fn(f64) -> String) -> Axis {
        let count = (most / step).ceil().clamp(1.0, 1000.0);
        let every = (count / MOST_TICKS as f64).ceil();
        let ticks = (0..).map(|i| f64::from(i) * every).take_while(|n| *n <= count);
        Axis {
            scale: Scale::Linear,
            from: 0.0,
            to: count * step,
            ticks: ticks.map(|n| (n * step, name(n * step))).collect(),
            label: label.into(),
        }
    }

    /// Where a value is, at the nearest end if it is not on the axis.
    pub(super) fn at(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log if value > 0.0 => value.log2(),
            Scale::Log => self.from,
        };
        place.clamp(self.from, self.to)
    }

    /// What stands at a tick.
    pub(super) fn name(&self, place: f64) -> String {
        let near = |(at, _): &&(f64, String)| (at - place).abs() < 1e-6;
        self.ticks
            .iter()
            .find(near)
            .map_or(String::new(), |(_, name)| name.clone())
    }
}

/// For plotters an axis is one of places.
impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, limit: (i32, i32)) -> i32 {
        let share = (place - self.from) / (self.to - self.from);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.iter().map(|(at, _)| *at).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(place: &f64) -> String {
        place.to_string()
    }

    fn format_ext(&self, place: &f64) -> String {
        self.name(*place)
    }
}

/// The least and the most; 0 to 1 of nothing.
fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
        (low.min(v), high.max(v))
    });
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_holds_its_values_between_ticks() {
        let axis = Axis::log([3.0, 900.0].into_iter(), 10.0, "", |v| format!("{v:.0}"));
        let names: Vec<_> = axis.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["1", "10", "100", "1000"]);
        assert_eq!((axis.at(0.0), axis.at(1e9)), (axis.from, axis.to));
        assert_eq!(axis.name(axis.at(10.0)), "10");
    }

    #[test]
    fn any_values_make_an_axis() {
        for values in [vec![], vec![0.0], vec![1.0], vec![1e-100, 1e100], vec![-1.0]] {
            let axis = Axis::log(values.into_iter(), 2.0, "", |v| format!("{v}"));
            assert!(
                axis.from < axis.to && (1..=MOST_TICKS + 1).contains(&axis.ticks.len()),
                "{axis:?}"
            );
        }
        assert!(Axis::linear(1e300, 0.25, "", |v| format!("{v}")).ticks.len() <= MOST_TICKS + 1);
    }
}
