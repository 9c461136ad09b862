//! Numbers for people.

pub(crate) use isonorm_report::seconds;

/// `12345678` as `12.3 MB`.
pub(crate) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" {
                format!("{n} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// Five significant digits, without an exponent where that is short.
pub(crate) fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        a if (1e-3..1e5).contains(&a) => {
            let decimals = (4 - a.log10().floor() as i32).clamp(0, 8) as usize;
            format!("{x:.decimals$}")
        }
        _ if x.is_finite() => format!("{x:.4e}"),
        _ => format!("{x}"),
    }
}

/// Sizes as `2x3x4`; a scalar has none.
pub(crate) fn dims(dims: &[usize]) -> String {
    if dims.is_empty() {
        return "scalar".into();
    }
    dims.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// Billions of bytes a second; none when no time passed.
pub(crate) fn gbps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 / seconds / 1e9
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_size() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(12_345_678), "12.3 MB");
        assert_eq!(seconds(0.001_234), "1.23 ms");
        assert_eq!(seconds(123e-6), "123 µs");
    }

    #[test]
    fn numbers_keep_five_digits() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(-1.234_567), "-1.2346");
        assert_eq!(number(1e30), "1.0000e30");
        assert_eq!(number(f64::NAN), "NaN");
    }
}
