//! Named lists of problems, one a line, `#` for remarks.

use isonorm::NormDesc;

use crate::error::Result;

/// What is measured when nothing else is asked for.
pub(super) const DEFAULT: &str = "cpu";
/// The same on a GPU.
pub(super) const DEFAULT_GPU: &str = "gpu";

/// Each suite with its text.
const SUITES: [(&str, &str); 3] = [
    ("cpu", include_str!("../../suites/cpu.txt")),
    ("gpu", include_str!("../../suites/gpu.txt")),
    ("smoke", include_str!("../../suites/smoke.txt")),
];

/// The suites' names.
pub(super) fn names() -> [&'static str; SUITES.len()] {
    SUITES.map(|(name, _)| name)
}

/// The problems of a suite; none when there is no such suite.
pub(super) fn parse(name: &str) -> Result<Vec<NormDesc>> {
    let lines = SUITES
        .iter()
        .filter(|suite| suite.0 == name)
        .flat_map(|suite| suite.1.lines());
    let problems = lines
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty());
    problems.map(|line| Ok(line.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_parses_and_repeats_nothing() {
        for name in names() {
            let cases = parse(name).unwrap();
            assert!(!cases.is_empty());
            for (i, case) in cases.iter().enumerate() {
                assert!(!cases[..i].contains(case), "{name}: {case}");
            }
        }
    }
}
