//! Contiguous rows of segments that begin anywhere, each with a weight and a bias: groups and instances of N, C, spatial, of images of any size.
//! A block holds a row, or the blocks of a cluster. And rows with a weight and a bias for each column, whose length is no multiple of 16 bytes.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::Pass;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::segments::Segments;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::choice::Planned;
use super::super::occupancy::PARTS_OF_SM;
use super::super::tuning::{BY_SEGMENT, LAUNCH, OfPass};
use super::registers::{self, CLUSTERS, Choice, teams};
use super::segments::{needed_slots, shape, slots, tuning};
use super::{Listed, Parameters, Rows, backward, running};
use crate::{DType, NormDesc};

/// The elements of a row, at most: blocks that share it hold fewer by far.
const MOST_COLUMNS: u64 = 1 << 30;

/// The ways to hold a row that are tried before, by name: those that were faster where all were measured.
pub(super) fn tried_before(rows: &Rows<'_>) -> &'static [&'static str] {
    const ALL: &[&str] = &[
        "rows/apart",
        "rows/lanes",
        "rows/shared",
        "rows/block",
        "rows/blocks",
        "rows/chip",
    ];
    let has_several = rows.parameters.sharing == Sharing::ByRun && rows.parameters.run < rows.columns;
    let is_plain = Class::Plain.has(rows.activation);
    match (rows.pass, rows.dtype) {
        _ if rows.parameters.sharing == Sharing::ByColumn && rows.has_parameters => ALL,
        _ if !Class::Piecewise.has(rows.activation) || rows.residual => ALL,
        (Pass::Forward, _) if !has_several || is_plain => ALL,
        // Kernels of clusters and of the chip are those for smooth activations.
        (Pass::Forward, _) => &["rows/lanes", "rows/shared", "rows/block"],
        (Pass::Backward, DType::F32) if is_plain => ALL,
        (Pass::Backward, _) => &["rows/lanes", "rows/block"],
    }
}

/// All shapes that hold a row, the fastest by the estimate first.
pub(super) fn plans(desc: &NormDesc, rows: &Rows<'_>) -> Vec<Planned> {
    let segments = segments(rows).filter(|_| !desc.has_stream());
    let Some(rows) = segments else {
        return Vec::new();
    };
    let kernels = rows.kernels(Width::Ragged);
    let owned_alike = |listed: &Listed| kernels.iter().find(|other| other.key.owner == listed.key.owner);
    // Those with the least code for nothing come first.
    let least = |listed: &&&Listed| owned_alike(listed).is_some_and(|first| first.key.class == listed.key.class);
    let mut plans: Vec<Planned> = Vec::new();
    for listed in kernels.iter().filter(least) {
        for choice in choices(&rows, listed) {
            plans.extend(
                slots(&rows, choice)
                    .into_iter()
                    .filter_map(|slots| planned(&rows, choice, slots)),
            );
        }
    }
    // The first of equals is taken.
    plans.sort_by_key(|planned| planned.nanoseconds);
    plans
}

/// The rows as segments, if they are such: those of a parameter each, all of a row without any, or with a parameter for each column.
fn segments<'a>(rows: &Rows<'a>) -> Option<Rows<'a>> {
    let (run, sharing) = match (rows.parameters.sharing, rows.op) {
        (Sharing::ByRun, Op::Layer) => (rows.parameters.run, Sharing::BySegment),
        (Sharing::ByColumn, Op::Layer) if !rows.has_parameters => (rows.columns, Sharing::BySegment),
        (Sharing::ByColumn, Op::Layer | Op::Rms) if !rows.residual => (rows.columns, Sharing::ByColumn),
        _ => return None,
    };
    let elements = Width::Ragged.elements(rows.bytes());
    // The first access is not all of a row.
    let fits = rows.columns >= u64::from(2 * elements) && rows.columns <= MOST_COLUMNS;
    if !fits || !rows.columns.is_multiple_of(run) {
        return None;
    }
    Some(Rows {
        gpu: rows.gpu,
        segments: Segments {
            length: run as u32,
            stride: run as u32,
            count: (rows.columns / run) as u32,
        },
        parameters: Parameters {
            sharing,
            run,
            ..rows.parameters
        },
        ..*rows
    })
}

/// The ways in which a kernel's blocks hold a row.
fn choices(rows: &Rows<'_>, listed: &'static Listed) -> Vec<Choice> {
    let of_each = rows.segments.threads_of_each(listed.key.width, rows.bytes());
    let accesses = u64::from(rows.segments.count) * u64::from(of_each);
    let choice = |blocks: u32| {
        let threads = accesses
            .div_ceil(u64::from(listed.key.accesses) * u64::from(blocks))
            .next_multiple_of(WARP.into());
        let threads = u32::try_from(threads).ok()?;
        if threads > listed.key.max_threads() {
            return None;
        }
        let shared = listed.key.shared_bytes(threads, needed_slots(&listed.key));
        let fits = listed.key.fits(rows.columns, (threads, blocks), rows.bytes());
        (fits && shared <= rows.gpu.shared_bytes_per_block).then_some(Choice {
            listed,
            threads,
            blocks,
        })
    };
    match listed.key.owner {
        Owner::Block => choice(1).into_iter().collect(),
        _ if super::needs(listed).is_none_or(|needs| rows.has_clusters(needs).is_err()) => Vec::new(),
        _ => {
            let wide = |choice: &Choice| choice.threads >= BY_SEGMENT.cluster_threads;
            CLUSTERS.into_iter().filter_map(choice).filter(wide).collect()
        }
    }
}

/// The plan, unless there are too few teams for their rows to start alike.
fn planned(rows: &Rows<'_>, choice: Choice, kept: u32) -> Option<Planned> {
    let teams = teams(rows, choice, tuning(rows), kept);
    if teams == 0 {
        return None;
    }
    let schedule = match rows.pass {
        Pass::Forward => running::added(rows, registers::with_slots(rows, choice, kept)),
        Pass::Backward => backward::with_slots(rows, choice, tuning(rows), kept),
    };
    Some(Planned {
        name: match choice.listed.key.owner {
            Owner::Block => "rows/block",
            _ => "rows/blocks",
        },
        shape: shape(choice, teams, kept),
        nanoseconds: nanoseconds(rows, choice, teams),
        schedule,
    })
}

/// The time that it takes by an estimate.
fn nanoseconds(rows: &Rows<'_>, choice: Choice, teams: u64) -> u64 {
    let (backward, wide) = (rows.pass == Pass::Backward, rows.dtype == DType::F32);
    let (pass, element) = (usize::from(backward), usize::from(wide));
    let of_each = rows.segments.threads_of_each(Width::Ragged, rows.bytes());
    let accesses = u64::from(rows.segments.count) * u64::from(of_each);
    let is_whole = rows
        .segments
        .length
        .is_multiple_of(Width::Ragged.elements(rows.bytes()));
    let percent = if is_whole { BY_SEGMENT.whole[pass][element] } else { 100 };
    let step = if choice.blocks > 1 { BY_SEGMENT.step[pass] } else { 0 };
    let estimate = estimate(rows, choice, (teams, accesses, percent), &BY_SEGMENT.passes[pass]);
    estimate + rows.rows.div_ceil(teams) * step
}

/// The time that a pass takes by an estimate, of so many teams and accesses to a row, each of which takes so many percent of a usual one.
pub(super) fn estimate(
    rows: &Rows<'_>,
    choice: Choice,
    (teams, accesses, percent): (u64, u64, u64),
    pass: &OfPass,
) -> u64 {
    let warps_of_row = u64::from(choice.blocks) * u64::from(choice.threads / WARP);
    let rounds = rows.rows.div_ceil(teams);
    let tensors = match rows.pass {
        Pass::Forward => 2,
        Pass::Backward => 3,
    };
    let tensors = tensors + u64::from(rows.residual);
    let bytes = tensors * teams * rows.columns * u64::from(rows.bytes());
    let (blocks, sms) = (u64::from(choice.blocks), u64::from(rows.gpu.sms));
    // Multiprocessors that have no block do not ask memory for anything.
    let busy = (teams * blocks).min(sms);
    let speed = rows.gpu.copy_bytes_per_second * busy as f64 / sms as f64;
    let memory = (bytes as f64 / speed * 1e9) as u64 * pass.memory / 100;
    let wide = usize::from(rows.dtype == DType::F32);
    let access = pass.access[wide] * percent / 100;
    let accesses = accesses / u64::from(WARP) + 1;
    let parts = busy * u64::from(PARTS_OF_SM);
    let instructions = rows.rows * (accesses * access + warps_of_row * pass.warp) / parts;
    let waits = pass.waits * parts / (teams * warps_of_row);
    let waits = if warps_of_row == 1 { waits / 2 } else { waits };
    let instructions = instructions * (100 + waits) / 100_000;
    LAUNCH + pass.start + (rounds * memory).max(instructions)
}
