//! Text in columns.

use std::fmt::Write;

/// How a column's cells are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Column widths, known before the first row is printed so that rows can appear one by one.
#[derive(Clone, Debug)]
pub(crate) struct Columns(Vec<(usize, Align)>);

impl Columns {
    /// Columns at least as wide as each of these rows' cells.
    pub(crate) fn fitting<'a>(aligns: &[Align], rows: impl IntoIterator<Item = &'a [String]>) -> Columns {
        let mut columns: Vec<_> = aligns.iter().map(|&align| (0, align)).collect();
        for row in rows {
            for (column, cell) in columns.iter_mut().zip(row) {
                column.0 = column.0.max(cell.chars().count());
            }
        }
        Columns(columns)
    }

    /// A row, without spaces at its end.
    pub(crate) fn row(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (i, ((width, align), cell)) in self.0.iter().zip(cells).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = match align {
                Align::Left => write!(line, "{gap}{cell:<width$}"),
                Align::Right => write!(line, "{gap}{cell:>width$}"),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}
