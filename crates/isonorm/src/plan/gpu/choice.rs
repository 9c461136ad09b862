//! Ways to carry out a problem that are compared by an estimate of their time.

use std::cmp::Ordering;

use super::{GpuProperties, GpuSchedule, Schedule, rows, tiles};
use crate::plan::Candidate;
use crate::{Geometry, NormDesc};

/// One of these ways.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// Its name, such as `tiles`.
    pub(super) name: &'static str,
    /// How it divides the work.
    pub(super) shape: String,
    /// The time that it takes by the estimate.
    pub(super) nanoseconds: u64,
    pub(super) schedule: Schedule,
}

/// The fastest by the estimate, but for `skipped` others: for tensors that start on 16 bytes, and again for others.
pub(super) fn plan(
    desc: &NormDesc,
    g: &Geometry,
    gpu: &GpuProperties,
    skipped: usize,
    candidates: &mut Vec<Candidate>,
) -> GpuSchedule {
    let segments = rows::segments::plans(desc, g, gpu);
    let tiles = tiles::plans(desc, g, gpu);
    let (mut aligned, mut misaligned) = (Vec::new(), Vec::new());
    let mut declined = Vec::new();
    match segments {
        Ok(plans) => aligned.extend(plans),
        Err(reason) => declined.push(Candidate::named(rows::segments::NAME, Some(reason))),
    }
    match tiles {
        Ok(plans) => {
            aligned.extend(plans.aligned);
            misaligned = plans.misaligned;
        }
        Err(reason) => declined.push(Candidate::named(tiles::NAME, Some(reason))),
    }
    // The first of equals is taken.
    aligned.sort_by_key(|planned| planned.nanoseconds);
    candidates.extend(declined);
    candidates.extend(aligned.iter().enumerate().map(|(index, planned)| Candidate {
        name: planned.name,
        shape: Some(planned.shape.clone()),
        estimate: Some(planned.nanoseconds as f64 * 1e-9),
        declined: match index.cmp(&skipped) {
            Ordering::Less => Some("skipped".into()),
            Ordering::Equal => None,
            Ordering::Greater => Some("slower by the estimate".into()),
        },
    }));
    let Some(planned) = aligned.into_iter().nth(skipped) else {
        return GpuSchedule::Unsupported;
    };
    let last = misaligned.len().saturating_sub(1);
    let misaligned = misaligned.into_iter().nth(skipped.min(last));
    GpuSchedule::Kernels {
        aligned: Box::new(planned.schedule),
        misaligned: misaligned.map(|planned| Box::new(planned.schedule)),
    }
}
