//! Contiguous rows whose runs of columns, with a weight and a bias each, are no whole number of accesses: groups of N, C, spatial, of small images or
//! of odd ones. A block holds a row.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::key::Pass;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::simt::WARP;

use super::super::choice::Planned;
use super::super::tuning::ACROSS_RUNS;
use super::by_segment::estimate;
use super::registers::{self, Choice, teams, threads};
use super::segments::{needed_slots, shape, slots, tuning};
use super::{Listed, Parameters, Rows, backward, running};
use crate::NormDesc;

/// All shapes that hold a row, the fastest by the estimate first.
pub(super) fn plans(desc: &NormDesc, rows: &Rows<'_>) -> Vec<Planned> {
    let Some(rows) = across_runs(rows).filter(|_| !desc.has_stream()) else {
        return Vec::new();
    };
    let kernels = rows.kernels(Width::Vector);
    // Those with the least code for nothing come first.
    let least = |listed: &&&Listed| listed.key.class == kernels[0].key.class;
    let mut plans = Vec::new();
    for listed in kernels.iter().filter(least) {
        let threads = threads(&rows, listed, &(WARP..=listed.key.max_threads()), 1);
        let Some(threads) = threads else { continue };
        let choice = Choice {
            listed,
            threads,
            blocks: 1,
        };
        if listed.key.shared_bytes(threads, needed_slots(&listed.key)) > rows.gpu.shared_bytes_per_block {
            continue;
        }
        let slots = slots(&rows, choice).into_iter();
        plans.extend(slots.map(|slots| planned(&rows, choice, slots)));
    }
    // The first of equals is taken.
    plans.sort_by_key(|planned| planned.nanoseconds);
    plans
}

/// The rows as such, if they are.
fn across_runs<'a>(rows: &Rows<'a>) -> Option<Rows<'a>> {
    let Parameters { sharing, run, .. } = rows.parameters;
    let elements = u64::from(Width::Vector.elements(rows.bytes()));
    let is = (sharing, rows.op) == (Sharing::ByRun, Op::Layer)
        && rows.columns.is_multiple_of(elements)
        && !run.is_multiple_of(elements)
        && run > elements;
    is.then_some(Rows {
        parameters: Parameters {
            sharing: Sharing::AcrossRuns,
            ..rows.parameters
        },
        ..*rows
    })
}

fn planned(rows: &Rows<'_>, choice: Choice, kept: u32) -> Planned {
    let (schedule, pass) = match rows.pass {
        Pass::Forward => {
            let schedule = registers::with_slots(rows, choice, kept);
            (running::added(rows, schedule), &ACROSS_RUNS[0])
        }
        Pass::Backward => {
            let schedule = backward::with_slots(rows, choice, tuning(rows), kept);
            (schedule, &ACROSS_RUNS[1])
        }
    };
    let teams = teams(rows, choice, tuning(rows), kept);
    let accesses = rows.columns / u64::from(Width::Vector.elements(rows.bytes()));
    Planned {
        name: "rows/across",
        shape: shape(choice, teams, kept),
        nanoseconds: estimate(rows, choice, (teams, accesses, 100), pass),
        schedule,
    }
}
