//! [`suites`]: which cases there are, in the order in which they are run.
//!
//! | suite | what it is for |
//! |---|---|
//! | `smoke` | a few of everything, in a second |
//! | `shapes` | sizes at which loops, tiles and schedules begin and end |
//! | `segments` | every length of contiguous run from 1 to past the point where the traversal changes |
//! | `adversarial` | data that breaks careless arithmetic |
//! | `exact` | data whose sums are exact, so that tolerances are a few roundings |
//! | `pairwise` | any two choices (op, layout, types, affine, activation, residual, pass, in place, shape, data) meet |
//! | `combinations` | every op, layout, type, pass, affine, activation and residual with every other, on small shapes |
//! | `kernels` | a small case for each kernel of a GPU |
//! | `sync` | what the ranks of a synchronized BatchNorm do between the exchanges of their sums |
//! | `large` | groups so large that threads share them |
//! | `ladder` | published kernels (GPUs only; others skip them) |

mod generated;
pub mod pairwise;

use isonorm::Error;

use crate::Case;

/// A named list of cases.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// Its cases, in order.
    pub cases: Vec<Case>,
}

/// The cases of a text: a problem string with the words of a case a line, `#` begins a comment.
///
/// # Errors
/// The first line's that does not parse, with its number.
pub fn parse(text: &str) -> Result<Vec<Case>, Error> {
    let mut cases = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let problem = line.split('#').next().unwrap_or_default().trim();
        if problem.is_empty() {
            continue;
        }
        let case = problem.parse().map_err(|error| Error::InvalidProblem {
            reason: format!("line {}: {error}", number + 1),
            text: problem.chars().take(1024).collect(),
        })?;
        cases.push(case);
    }
    Ok(cases)
}

/// The cases of a file of this crate.
fn file(text: &str) -> Vec<Case> {
    parse(text).expect("a test parses every file of this crate")
}

/// All suites, quick ones first.
pub fn suites() -> Vec<Suite> {
    let suite = |name, cases| Suite { name, cases };
    vec![
        suite("smoke", file(include_str!("../../cases/smoke.txt"))),
        suite("shapes", file(include_str!("../../cases/shapes.txt"))),
        suite("segments", generated::segments()),
        suite("adversarial", file(include_str!("../../cases/adversarial.txt"))),
        suite("exact", generated::exact()),
        suite("pairwise", generated::pairwise()),
        suite("combinations", generated::combinations()),
        suite("kernels", file(include_str!("../../cases/kernels.txt"))),
        suite("sync", file(include_str!("../../cases/sync.txt"))),
        suite("large", file(include_str!("../../cases/large.txt"))),
        suite("ladder", file(include_str!("../../cases/ladder.txt"))),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn suites_are_valid_and_have_no_case_twice() {
        for suite in suites() {
            assert!(!suite.cases.is_empty(), "{} is empty", suite.name);
            let mut seen = HashSet::new();
            for case in &suite.cases {
                assert!(case.desc.check().is_ok(), "{case}");
                assert!(seen.insert(case.to_string()), "{} has {case} twice", suite.name);
                assert_eq!(case.to_string().parse::<Case>().as_ref(), Ok(case));
            }
        }
    }

    #[test]
    fn errors_name_the_line() {
        let error = parse("# nothing\nlayernorm x=2x3\nlayernorm x=2xx3").unwrap_err();
        assert!(error.to_string().contains("line 3"), "{error}");
    }
}
