//! The backward pass over contiguous rows of runs of whole accesses, each with a weight and a bias, that shared memory holds: groups and instances of N,
//! C, spatial. A block holds a row, or the blocks of a cluster. And rows without parameters, as a run each.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::backward::by_run;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::Pass;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::choice::Planned;
use super::super::occupancy::PARTS_OF_SM;
use super::super::tuning::{self, RUNS};
use super::registers::{CLUSTERS, Choice, teams};
use super::segments::of_teams;
use super::{Listed, Parameters, Rows, VECTOR_BYTES, backward};
use crate::NormDesc;
use crate::plan::explain::counted;

/// All shapes that hold a row, the fastest by the estimate first.
pub(super) fn plans(desc: &NormDesc, rows: &Rows<'_>) -> Vec<Planned> {
    let Some(rows) = runs(rows).filter(|_| !desc.has_stream()) else {
        return Vec::new();
    };
    let kernels = rows.kernels_of_lines();
    let owned_alike = |listed: &Listed| kernels.iter().find(|other| other.key.owner == listed.key.owner);
    // Those with the least code for nothing come first.
    let least = |listed: &&&Listed| owned_alike(listed).is_some_and(|first| first.key.class == listed.key.class);
    let mut plans: Vec<Planned> = Vec::new();
    for listed in kernels.iter().filter(least) {
        plans.extend(
            shapes(&rows, listed)
                .into_iter()
                .filter_map(|shape| planned(&rows, shape)),
        );
    }
    // The first of equals is taken.
    plans.sort_by_key(|planned| planned.nanoseconds);
    plans
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
    let is = rows.pass == Pass::Backward
        && rows.op == Op::Layer
        && bytes.is_multiple_of(VECTOR_BYTES.into())
        && bytes >= least
        && rows.columns <= 1 << 30;
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

/// Lines of a row.
fn lines_of_row(rows: &Rows<'_>) -> u64 {
    // No more than 2³⁰ elements.
    let of_run = rows.parameters.run as u32 / Width::Vector.elements(rows.bytes());
    u64::from(rows.parameters.runs) * u64::from(by_run::lines_of_run(of_run))
}

/// The ways in which a kernel's blocks hold a row: warps with a few lines each, or fewer warps with more.
fn shapes(rows: &Rows<'_>, listed: &'static Listed) -> Vec<Shape> {
    let has_clusters = super::needs(listed).is_some_and(|needs| rows.has_clusters(needs).is_ok());
    let blocks: &[u32] = match listed.key.owner {
        Owner::Block => &[1],
        _ if has_clusters => &CLUSTERS,
        _ => &[],
    };
    let mut shapes: Vec<Shape> = Vec::new();
    for &blocks in blocks {
        let of_block = lines_of_row(rows).div_ceil(blocks.into());
        for &lines in RUNS.lines {
            let warps = of_block.div_ceil(lines.into());
            let lines = of_block.div_ceil(warps) as u32;
            let Ok(threads) = u32::try_from(warps * u64::from(WARP)) else {
                continue;
            };
            let places = lines * by_run::places(listed.key.class, rows.bytes());
            let fits = listed.key.fits(rows.columns, (threads, blocks), rows.bytes());
            let is_wide = blocks == 1 || threads >= RUNS.cluster_threads;
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
    let teams = teams(rows, choice, &tuning::BACKWARD_ROWS, places);
    let is_alone = teams < rows.rows && teams * u64::from(blocks) <= u64::from(rows.gpu.sms);
    if is_alone && listed.key.class != Class::Any {
        return None;
    }
    let name = format!("{} with {}", of_teams(choice, teams), counted(lines as usize, "line"));
    Some(Planned {
        name: "rows/runs",
        shape: name,
        nanoseconds: nanoseconds(rows, shape, teams),
        schedule: backward::with_slots(rows, choice, &tuning::BACKWARD_ROWS, places),
    })
}

/// The time that it takes by an estimate: of memory, of instructions and of rows that wait, which hide behind each other in part.
fn nanoseconds(rows: &Rows<'_>, Shape { choice, lines, places }: Shape, teams: u64) -> u64 {
    let Choice {
        listed,
        threads,
        blocks,
    } = choice;
    let class = match listed.key.class {
        Class::Plain => 0,
        Class::Piecewise => 1,
        _ => 2,
    };
    let (is_wide, gpu) = (rows.bytes() == 4, rows.gpu);
    let (all, teams_rows, sms) = (rows.rows as f64, rows.rows.div_ceil(teams) as f64, f64::from(gpu.sms));
    // Multiprocessors that have no block do nothing.
    let busy = (teams as f64 * f64::from(blocks)).min(sms);
    let blocks_of_sm = teams as f64 * f64::from(blocks) / busy;
    let shared = f64::from(threads * places * VECTOR_BYTES) * blocks_of_sm / f64::from(gpu.shared_bytes_per_sm);
    let bytes = 3.0 * all * rows.columns as f64 * f64::from(rows.bytes());
    let copy = bytes / (gpu.copy_bytes_per_second * busy / sms) * 1e9;
    let memory = copy * RUNS.memory * (1.0 + RUNS.full * shared);
    let warps = f64::from(blocks * (threads / WARP));
    let pieces = match rows.parameters.runs {
        1 => 0.0,
        runs => warps.max(f64::from(runs)),
    };
    let of_row =
        lines_of_row(rows) as f64 * RUNS.line[usize::from(is_wide)][class] + pieces * RUNS.piece + warps * RUNS.warp;
    let instructions = all * of_row / (busy * PARTS_OF_SM as f64);
    let of_line = RUNS.row_line[class] * if is_wide { RUNS.row_line_wide } else { 1.0 };
    let shared_row = match blocks.ilog2() {
        0 => 0.0,
        twos => RUNS.shared_row[twos as usize - 1],
    };
    let waits = teams_rows * (RUNS.row + f64::from(lines) * of_line + shared_row);
    let sum: f64 = [memory, instructions, waits]
        .map(|time| time.powf(RUNS.hidden))
        .iter()
        .sum();
    (RUNS.start + sum.powf(RUNS.hidden.recip())) as u64
}
