//! Rows of runs of whole accesses that shared memory holds: contiguous ones, of which each has a weight and a bias (groups and instances of N, C,
//! spatial), or segments. A block holds a row, or the blocks of a cluster. And rows without parameters, as a run each.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::Pass;
use isonorm_kernels::rows::lines::lines_of_run;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::choice::Planned;
use super::super::occupancy::PARTS_OF_SM;
use super::super::tuning::{LEAST_BYTES, RUNS, Runs};
use super::registers::{self, CLUSTERS, Choice, teams};
use super::segments::{self, of_teams};
use super::{Listed, Parameters, Rows, VECTOR_BYTES, backward, running};
use crate::plan::explain::counted;
use crate::{Activation, NormDesc};

/// All shapes that hold a row, the fastest by the estimate first.
pub(super) fn plans(desc: &NormDesc, rows: &Rows<'_>) -> Vec<Planned> {
    match runs(rows).filter(|_| !desc.has_stream()) {
        Some(rows) => of_runs(&rows),
        None => Vec::new(),
    }
}

/// The same of rows whose runs are whole accesses.
pub(super) fn of_runs(rows: &Rows<'_>) -> Vec<Planned> {
    let kernels = rows.kernels_of_lines();
    let owned_alike = |listed: &Listed| kernels.iter().find(|other| other.key.owner == listed.key.owner);
    // Those with the least code for nothing come first.
    let least = |listed: &&&Listed| owned_alike(listed).is_some_and(|first| first.key.class == listed.key.class);
    let mut plans: Vec<Planned> = Vec::new();
    for listed in kernels.iter().filter(least) {
        plans.extend(
            shapes(rows, listed)
                .into_iter()
                .filter_map(|shape| planned(rows, shape)),
        );
    }
    // The first of equals is taken.
    plans.sort_by_key(|planned| planned.nanoseconds);
    plans
}

/// Whether these ways are tried before those that hold a row in registers, or in shared memory without another on its way.
pub(super) fn come_first(rows: &Rows<'_>) -> bool {
    rows.pass == Pass::Forward && rows.columns * u64::from(rows.bytes()) >= LEAST_BYTES
}

/// The rows as such, if they are.
fn runs<'a>(rows: &Rows<'a>) -> Option<Rows<'a>> {
    let run = match rows.parameters.sharing {
        Sharing::ByRun => rows.parameters.run,
        Sharing::ByColumn if !rows.has_parameters => rows.columns,
        _ => return None,
    };
    // Of shorter runs most lanes of a line had nothing.
    let least = u64::from(WARP * VECTOR_BYTES);
    let bytes = run * u64::from(rows.bytes());
    let is =
        rows.op == Op::Layer && bytes.is_multiple_of(VECTOR_BYTES.into()) && bytes >= least && rows.columns <= 1 << 30;
    is.then_some(Rows {
        parameters: Parameters {
            sharing: Sharing::ByRun,
            run,
            runs: (rows.columns / run) as u32,
            ..rows.parameters
        },
        ..*rows
    })
}

/// How blocks hold a row: each warp of theirs so many lines.
#[derive(Clone, Copy)]
struct Shape {
    choice: Choice,
    lines: u32,
    /// Places for an access of each thread in shared memory.
    places: u32,
}

/// Elements of a run, and how many there are.
fn runs_of_row(rows: &Rows<'_>) -> (u32, u32) {
    match rows.parameters.sharing {
        Sharing::Segmented => (rows.segments.length, rows.segments.count),
        // No more than 2³⁰ elements.
        _ => (rows.parameters.run as u32, rows.parameters.runs),
    }
}

/// Lines of a row.
fn lines_of_row(rows: &Rows<'_>) -> u64 {
    let (length, runs) = runs_of_row(rows);
    u64::from(runs) * u64::from(lines_of_run(length / Width::Vector.elements(rows.bytes())))
}

/// The ways in which a kernel's blocks hold a row: warps with a few lines each, or fewer warps with more.
fn shapes(rows: &Rows<'_>, listed: &'static Listed) -> Vec<Shape> {
    let has_clusters = super::needs(listed).is_some_and(|needs| rows.has_clusters(needs).is_ok());
    let blocks: &[u32] = match listed.key.owner {
        Owner::Block => &[1],
        _ if has_clusters => &CLUSTERS,
        _ => &[],
    };
    let tried = runs_of(rows);
    let mut shapes: Vec<Shape> = Vec::new();
    for &blocks in blocks {
        let of_block = lines_of_row(rows).div_ceil(blocks.into());
        for &lines in tried.lines {
            let warps = of_block.div_ceil(lines.into());
            let lines = of_block.div_ceil(warps) as u32;
            let Ok(threads) = u32::try_from(warps * u64::from(WARP)) else {
                continue;
            };
            let places = lines * listed.key.places(rows.bytes());
            let fits = listed.key.fits(rows.columns, (threads, blocks), rows.bytes());
            let is_wide = blocks == 1 || threads >= tried.cluster_threads;
            let is_new = shapes
                .iter()
                .all(|shape| (shape.choice.blocks, shape.choice.threads) != (blocks, threads));
            if fits && is_wide && is_new && listed.key.shared_bytes(threads, places) <= rows.gpu.shared_bytes_per_block
            {
                let choice = Choice {
                    listed,
                    threads,
                    blocks,
                };
                shapes.push(Shape { choice, lines, places });
            }
        }
    }
    shapes
}

/// The plan, unless a block would be alone on its multiprocessor, with nothing to do while its row comes or others are waited for: pieces of long rows
/// are faster then, but behind an activation that keeps it busy.
fn planned(rows: &Rows<'_>, shape: Shape) -> Option<Planned> {
    let Shape { choice, lines, places } = shape;
    let Choice { listed, blocks, .. } = choice;
    let teams = teams(rows, choice, segments::tuning(rows), places);
    let is_alone = teams < rows.rows && teams * u64::from(blocks) <= u64::from(rows.gpu.sms);
    let is_behind_slopes = (rows.pass, listed.key.class) == (Pass::Backward, Class::Any);
    if is_alone && !(is_behind_slopes && rows.parameters.sharing == Sharing::ByRun) {
        return None;
    }
    let name = format!("{} with {}", of_teams(choice, teams), counted(lines as usize, "line"));
    Some(Planned {
        name: "rows/runs",
        shape: name,
        nanoseconds: nanoseconds(rows, shape, teams),
        schedule: match rows.pass {
            _ if rows.parameters.sharing == Sharing::Segmented => segments::schedule(rows, choice, places),
            Pass::Forward => running::added(rows, registers::with_slots(rows, choice, places)),
            Pass::Backward => backward::with_slots(rows, choice, segments::tuning(rows), places),
        },
    })
}

/// What was found for the direction.
fn runs_of(rows: &Rows<'_>) -> &'static Runs {
    match rows.pass {
        Pass::Forward => &RUNS[0],
        Pass::Backward => &RUNS[1],
    }
}

/// The time that it takes by an estimate: of memory, of instructions and of rows that wait, which hide behind each other in part.
fn nanoseconds(rows: &Rows<'_>, Shape { choice, lines, places }: Shape, teams: u64) -> u64 {
    let Choice { threads, blocks, .. } = choice;
    let times = runs_of(rows);
    let class = match rows.activation {
        Activation::Identity => 0,
        activation if Class::Piecewise.has(activation) => 1,
        _ => 2,
    };
    let (is_wide, gpu) = (rows.bytes() == 4, rows.gpu);
    let (all, sms) = (rows.rows as f64, f64::from(gpu.sms));
    let rounds = all / teams as f64;
    let rounds = rounds + times.last * (rounds.ceil() - rounds);
    // Multiprocessors that have no block do nothing.
    let busy = (teams as f64 * f64::from(blocks)).min(sms);
    let blocks_of_sm = teams as f64 * f64::from(blocks) / busy;
    let shared = f64::from(threads * places * VECTOR_BYTES) * blocks_of_sm / f64::from(gpu.shared_bytes_per_sm);
    let tensors = match rows.pass {
        Pass::Forward => 2.0,
        Pass::Backward => 3.0,
    };
    let bytes = tensors * all * rows.columns as f64 * f64::from(rows.bytes());
    let copy = bytes / (gpu.copy_bytes_per_second * busy / sms) * 1e9;
    let memory = copy * times.memory[usize::from(is_wide)] * (1.0 + times.full * shared);
    let warps = f64::from(blocks * (threads / WARP));
    let pieces = match runs_of_row(rows).1 {
        1 => 0.0,
        runs => warps.max(f64::from(runs)),
    };
    let of_row =
        lines_of_row(rows) as f64 * times.line[usize::from(is_wide)][class] + pieces * times.piece + warps * times.warp;
    let instructions = all * of_row / (busy * PARTS_OF_SM as f64);
    let of_line = times.row_line[class] * if is_wide { times.row_line_wide } else { 1.0 };
    let shared_row = match blocks.ilog2() {
        0 => 0.0,
        twos => times.shared_row[twos as usize - 1],
    };
    let waits = rounds * (times.row + f64::from(lines) * of_line + shared_row);
    let sum: f64 = [memory, instructions, waits]
        .map(|time| time.powf(times.hidden))
        .iter()
        .sum();
    (times.start + sum.powf(times.hidden.recip())) as u64
}
