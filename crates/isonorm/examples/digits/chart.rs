//! Curves in a terminal.

const ROWS: usize = 9;
const COLUMNS: usize = 60;
/// Every other row has its value beside it.
const LABELLED: usize = 2;

/// A vertical axis: where a value stands on it, and how it is written.
pub struct Axis {
    pub position: fn(f64) -> f64,
    pub value: fn(f64) -> f64,
    pub label: fn(f64) -> String,
}

/// A value each epoch, and the sign that draws it.
pub struct Curve<'a> {
    pub sign: char,
    pub name: &'a str,
    pub values: &'a [f64],
}

/// The value at `column` of all columns, between its neighbours.
fn at(values: &[f64], column: usize) -> f64 {
    let place = column as f64 * (values.len() - 1) as f64 / (COLUMNS - 1) as f64;
    let (left, part) = (place.floor() as usize, place.fract());
    let right = (left + 1).min(values.len() - 1);
    values[left] + part * (values[right] - values[left])
}

/// Draws curves of equal, non-zero length over the epochs. The first is drawn last; values that are not finite are left out.
pub fn draw(title: &str, axis: &Axis, curves: &[Curve<'_>]) -> String {
    let places: Vec<Vec<f64>> = curves
        .iter()
        .map(|c| c.values.iter().map(|&v| (axis.position)(v)).collect())
        .collect();
    let finite = || places.iter().flatten().copied().filter(|p| p.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let height = (high - low).max(f64::MIN_POSITIVE);

    let mut grid = [[' '; COLUMNS]; ROWS];
    for (curve, places) in curves.iter().zip(&places).rev() {
        let shares = (0..COLUMNS).map(|column| (high - at(places, column)) / height);
        for (column, share) in shares.enumerate().filter(|(_, share)| share.is_finite()) {
            grid[(share * (ROWS - 1) as f64).round() as usize][column] = curve.sign;
        }
    }

    let legend: Vec<String> = curves.iter().map(|c| format!("{} {}", c.sign, c.name)).collect();
    let mut text = format!("{title}   {}\n", legend.join("   "));
    for (r, row) in grid.iter().enumerate() {
        let value = (axis.value)(high - height * r as f64 / (ROWS - 1) as f64);
        let label = if r % LABELLED == 0 && value.is_finite() {
            (axis.label)(value)
        } else {
            String::new()
        };
        let line: String = row.iter().collect();
        text += format!("{label:>9} │{line}").trim_end();
        text.push('\n');
    }
    let (axis_line, epochs) = ("─".repeat(COLUMNS), curves.first().map_or(0, |c| c.values.len()));
    text + &format!(
        "{:>9} └{axis_line}\n{:>9}  1{epochs:>width$} epoch\n",
        "",
        "",
        width = COLUMNS - 1
    )
}
