//! What sweeps have in common: curves of one size after another, and where they jump.

use crate::format::number;
use crate::record::Row;

/// Neighbours of a curve whose ratios to the floor differ by more than this factor are a cliff.
pub const CLIFF: f64 = 1.5;

/// A jump between two neighbours of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Cliff {
    /// Which curve.
    pub curve: String,
    /// Where: the two sizes.
    pub between: (u64, u64),
    /// The ratios to the floor there.
    pub ratios: (f64, f64),
}

/// Rows that differ in one size.
#[derive(Debug)]
pub(super) struct Curve<'a> {
    pub(super) name: String,
    /// By size.
    pub(super) points: Vec<(u64, &'a Row)>,
}

impl<'a> Curve<'a> {
    /// Adds a row to the curve of this name; a curve that is not there yet is started.
    pub(super) fn add(curves: &mut Vec<Curve<'a>>, name: String, size: u64, row: &'a Row) {
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push((size, row)),
            None => curves.push(Curve {
                name,
                points: vec![(size, row)],
            }),
        }
    }

    /// Curves of at least so many sizes, in the order of these.
    pub(super) fn sorted(mut curves: Vec<Curve<'a>>, fewest: usize) -> Vec<Curve<'a>> {
        for curve in &mut curves {
            curve.points.sort_by_key(|(size, _)| *size);
            curve.points.dedup_by_key(|(size, _)| *size);
        }
        curves.retain(|curve| curve.points.len() >= fewest);
        curves
    }

    /// Points of a plot.
    pub(super) fn places(&self) -> Vec<(f64, f64)> {
        self.points
            .iter()
            .map(|(size, row)| (*size as f64, row.ratio))
            .collect()
    }

    /// Where neighbours differ by more than [`CLIFF`].
    pub(super) fn cliffs(&self) -> Vec<Cliff> {
        let pairs = self.points.windows(2).map(|pair| (pair[0], pair[1]));
        let jumps = pairs.filter(|((_, a), (_, b))| (a.ratio / b.ratio).max(b.ratio / a.ratio) > CLIFF);
        jumps
            .map(|((from, a), (to, b))| Cliff {
                curve: self.name.clone(),
                between: (from, to),
                ratios: (a.ratio, b.ratio),
            })
            .collect()
    }
}

impl Cliff {
    /// The place that is worse.
    pub(super) fn place(&self) -> (f64, f64) {
        let (a, b) = self.ratios;
        if a > b {
            (self.between.0 as f64, a)
        } else {
            (self.between.1 as f64, b)
        }
    }
}

/// How many cliffs there are, and which: of many, the highest.
pub(super) fn said(cliffs: &[Cliff]) -> String {
    const MOST: usize = 5;
    let jump = |cliff: &Cliff| (cliff.ratios.0 / cliff.ratios.1).max(cliff.ratios.1 / cliff.ratios.0);
    let mut highest: Vec<_> = cliffs.iter().collect();
    highest.sort_by(|a, b| jump(b).total_cmp(&jump(a)));
    let each = highest.iter().take(MOST).map(|cliff| {
        let ((from, to), (a, b)) = (cliff.between, cliff.ratios);
        format!("{}: {} at {from}, {} at {to}", cliff.curve, number(a), number(b))
    });
    let each = each.collect::<Vec<_>>().join("; ");
    match cliffs.len() {
        0 => format!("There is no cliff: no neighbours differ by more than a factor of {CLIFF}."),
        1 => format!(
            "There is one cliff, where neighbours differ by more than a factor of {CLIFF} (a circle around the slower): {each}."
        ),
        n if n <= MOST => {
            format!(
                "There are {n} cliffs, where neighbours differ by more than a factor of {CLIFF} (circles around the slower): {each}."
            )
        }
        n => format!(
            "There are {n} cliffs, where neighbours differ by more than a factor of {CLIFF} (circles around the slower); the highest: {each}."
        ),
    }
}

/// The least and the most ratio.
pub(super) fn extremes(curves: &[Curve]) -> (f64, f64) {
    let ratios = curves.iter().flat_map(|curve| &curve.points).map(|(_, row)| row.ratio);
    ratios.fold((f64::INFINITY, 0.0), |(low, high), ratio| {
        (low.min(ratio), high.max(ratio))
    })
}

/// Numbers of elements to the next power of two: `2^22 to 2^26 elements`.
pub(super) fn elements(counts: impl Iterator<Item = u64>) -> String {
    let exponents: Vec<u32> = counts.map(|n| (n.max(1) as f64).log2().round() as u32).collect();
    match (exponents.iter().min(), exponents.iter().max()) {
        (Some(least), Some(most)) if least != most => format!("2^{least} to 2^{most} elements"),
        (Some(all), _) => format!("2^{all} elements"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::row;

    #[test]
    fn a_jump_between_neighbours_is_a_cliff() {
        let rows = [
            row("a", 1.0, 1.0),
            row("b", 1.4, 1.0),
            row("c", 2.8, 1.0),
            row("d", 1.5, 1.0),
        ];
        let mut curves = Vec::new();
        // In any order.
        for (size, row) in [(8, &rows[3]), (1, &rows[0]), (4, &rows[2]), (2, &rows[1])] {
            Curve::add(&mut curves, "f32".into(), size, row);
        }
        let curves = Curve::sorted(curves, 4);
        let cliffs = curves[0].cliffs();
        assert_eq!(cliffs.iter().map(|c| c.between).collect::<Vec<_>>(), [(2, 4), (4, 8)]);
        assert!(cliffs.iter().all(|cliff| cliff.place() == (4.0, 2.8)));
        assert!(said(&cliffs).contains("2 cliffs"));
        assert!(Curve::sorted(curves, 5).is_empty());
    }
}
