//! Numbers for people.

/// `0.00123` as `1.23 ms`.
#[must_use]
pub fn seconds(s: f64) -> String {
    // What is rounded to 1000 of a unit is 1 of the next.
    let (value, unit) = match s {
        s if s >= 0.9995 => (s, "s"),
        s if s >= 0.9995e-3 => (s * 1e3, "ms"),
        s if s >= 0.9995e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    };
    format!("{} {unit}", number(value))
}

/// Three significant digits or all before the point; an exponent where there would be many zeros.
#[must_use]
pub fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        a if !(1e-3..1e6).contains(&a) => format!("{x:.1e}"),
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.0995 => format!("{x:.2}"),
        _ => format!("{x:.4}"),
    }
}

/// `12345678` as `12.3 MB`.
pub(crate) fn bytes(n: f64) -> String {
    let mut value = n;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return format!("{} {unit}", trimmed(value));
        }
        value /= 1000.0;
    }
    format!("{} TB", trimmed(value))
}

/// Three significant digits without zeros at the end.
pub(crate) fn trimmed(x: f64) -> String {
    let text = number(x);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

/// A share as `87 %`; a small one with a digit more.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 9.95 => format!("{p:.1}\u{a0}%"),
        p => format!("{p:.0}\u{a0}%"),
    }
}

/// `1 case`, `2 cases`.
pub(crate) fn cases(n: usize) -> String {
    match n {
        1 => "1 case".into(),
        n => format!("{n} cases"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_size() {
        assert_eq!(seconds(0.001_234), "1.23 ms");
        assert_eq!(seconds(123e-6), "123 µs");
        assert_eq!([999.4e-9, 999.6e-9].map(seconds), ["999 ns", "1.00 µs"]);
        assert_eq!(bytes(12_345_678.0), "12.3 MB");
        assert_eq!(bytes(1000.0), "1 kB");
        assert_eq!(
            (trimmed(0.5), trimmed(1e-9), percent(0.871)),
            ("0.5".into(), "1.0e-9".into(), "87\u{a0}%".into())
        );
    }
}
