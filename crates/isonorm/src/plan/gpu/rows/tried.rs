//! Ways that are tried in order.

use isonorm_kernels::rows::access::Width;

use super::super::choice::Planned;
use super::super::taken;
use super::{Rows, Schedule, Way, running};
use crate::plan::Candidate;

/// The first way that is not declined, but for some others, and what became of each.
#[derive(Clone)]
pub(super) struct Tried {
    /// How many are still to be skipped.
    pub(super) skipped: usize,
    pub(super) schedule: Option<Schedule>,
    pub(super) candidates: Vec<Candidate>,
}

impl Tried {
    pub(super) fn skipping(skipped: usize) -> Tried {
        Tried {
            skipped,
            schedule: None,
            candidates: Vec::new(),
        }
    }

    /// Tries ways in order.
    pub(super) fn ways<'w>(
        &mut self,
        rows: &Rows<'_>,
        ways: impl IntoIterator<Item = &'w (&'static str, Way)>,
        width: Width,
    ) {
        for (name, way) in ways {
            let declined = match taken(&self.candidates) {
                Some(other) => Some(format!("{other} was taken")),
                None => match way(rows, width) {
                    Ok(found) => self.take(running::added(rows, found)),
                    Err(reason) => Some(reason),
                },
            };
            self.candidates.push(Candidate::named(name, declined));
        }
    }

    /// Tries ways that are compared by an estimate.
    pub(super) fn planned(&mut self, plans: Vec<Planned>) {
        let before = taken(&self.candidates);
        for planned in plans {
            let declined = match (before, taken(&self.candidates)) {
                (Some(other), _) => Some(format!("{other} was taken")),
                (None, Some(_)) => Some("slower by the estimate".into()),
                (None, None) => self.take(planned.schedule),
            };
            self.candidates.push(Candidate {
                name: planned.name,
                shape: Some(planned.shape),
                estimate: Some(planned.nanoseconds as f64 * 1e-9),
                declined,
            });
        }
    }

    /// Takes it, or says why not.
    fn take(&mut self, schedule: Schedule) -> Option<String> {
        if self.skipped > 0 {
            self.skipped -= 1;
            return Some("skipped".into());
        }
        self.schedule = Some(schedule);
        None
    }
}
