//! Which run a column lies in.

use core::num::NonZero;

use super::parameters::{Affine, at_least_one};
use super::quotient::Divisor;

/// Which run a column lies in.
#[derive(Clone, Copy)]
pub struct RunOf {
    /// The length of a run, if it is one of 32 bits.
    run: Option<Divisor>,
}

impl RunOf {
    #[inline(always)]
    pub(super) fn new(affine: &Affine) -> RunOf {
        let run = u32::try_from(affine.run).ok();
        RunOf {
            run: run.map(|run| Divisor::new(at_least_one(run))),
        }
    }

    #[inline(always)]
    pub(super) fn at(self, affine: &Affine, column: u64) -> u32 {
        if affine.runs <= 1 {
            return 0;
        }
        match (u32::try_from(column), self.run) {
            (Ok(column), Some(run)) => run.divide(column).0,
            _ => (column / NonZero::new(affine.run).unwrap_or(NonZero::<u64>::MIN)) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_lies_in_the_run_of_the_quotient() {
        for run in [1, 7, 4096, u32::MAX] {
            let affine = Affine {
                run: run.into(),
                runs: 2,
                ..Affine::NONE
            };
            let lookup = RunOf::new(&affine);
            let far = (1 << 32) * u64::from(run).min(1 << 16) + 5;
            for column in [0, u64::from(run), u64::from(u32::MAX), far] {
                assert_eq!(
                    lookup.at(&affine, column),
                    (column / u64::from(run)) as u32,
                    "{column} by {run}"
                );
            }
        }
    }
}
