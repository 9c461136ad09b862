//! The backward pass in two sweeps, for rows of any length: what a block has of a row, or of some, and how many blocks there are.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::rows::two_sweeps::tile_bytes;
use isonorm_kernels::simt::WARP;

use super::super::occupancy::blocks_per_sm;
use super::super::tuning::SWEEPS;
use super::backward::{REGION_BYTES, gather};
use super::{Kernel, Listed, MOST_BLOCKS, Rows, Schedule, Sweeps, SweepsWorkspace, Work};

/// Parts of a run start on lines of the cache.
const LINE_BYTES: u64 = 128;

pub(super) fn plan(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let listed = rows.kernels(width).into_iter().find(|listed| listed.key.owner == Owner::Grid);
    let listed = listed.ok_or("there is no such kernel")?;
    let by_column = rows.parameters.sharing == Sharing::ByColumn;
    let sums = by_column && rows.has_parameters;
    let tile = u64::from(listed.key.tile_elements(SWEEPS.threads, rows.bytes()));

    // A first division, for as many blocks as run at once without sums in shared memory.
    let kernel = rows.kernel(listed, 1, SWEEPS.threads, 0);
    let at_once = u64::from(blocks_per_sm(rows.gpu, &kernel) * rows.gpu.sms);
    let mut division = Division::new(rows, at_once);
    let (mut kernel, mut kept) = (kernel, 0);
    let mut resident = at_once;
    if sums {
        // What all of them keep leaves room for as many blocks; with fewer, rows are divided among those.
        let tiles = division.part.div_ceil(tile);
        let bytes = tile_bytes(tile as u32);
        let blocks = at_once / u64::from(rows.gpu.sms);
        let room = rows.gpu.shared_bytes_per_sm / blocks as u32;
        let room = room.saturating_sub(RESERVED_SHARED_BYTES).min(rows.gpu.shared_bytes_per_block);
        kept = tiles.min(u64::from(room / bytes)) as u32;
        kernel.shared_bytes = kept * bytes;
        resident = u64::from(blocks_per_sm(rows.gpu, &kernel) * rows.gpu.sms);
        division = Division::new(rows, resident);
    }
    let blocks = division.blocks();
    let teams = rows.rows.div_ceil(division.rows_at_once.into()).min((resident / blocks).max(1));
    let given = rows.op == Op::Given;
    if given {
        kernel.grid = (blocks * teams.max(rows.rows.min(resident * WAVES / blocks))).min(MOST_BLOCKS) as u32;
    } else {
        kernel.grid = (blocks * teams) as u32;
        kernel.resident = blocks > 1;
    }
    Ok(schedule(rows, listed, kernel, kept, teams, &division))
}

/// Bytes of shared memory that the GPU takes for itself in each block.
const RESERVED_SHARED_BYTES: u32 = 1 << 10;
/// Blocks of a grid in which none waits for another, as a multiple of what runs at once.
const WAVES: u64 = 4;

/// What a block has at a time.
struct Division {
    /// Elements of a run; runs of a row.
    run: u64,
    runs: u64,
    /// Elements of a run that a block has, and blocks that share one.
    part: u64,
    parts: u64,
    runs_at_once: u64,
    rows_at_once: u32,
    warps: u32,
}

impl Division {
    /// For at most `most` blocks a row.
    fn new(rows: &Rows<'_>, most: u64) -> Division {
        let by_column = rows.parameters.sharing == Sharing::ByColumn;
        let (run, runs) = match by_column {
            true => (rows.columns, 1),
            false => (rows.parameters.run, u64::from(rows.parameters.runs)),
        };
        let bytes = u64::from(rows.bytes());
        // Few rows are divided among more blocks.
        let each = rows.rows.saturating_mul(rows.columns).saturating_mul(bytes) / most;
        let share = each.clamp(SWEEPS.least_share_bytes, SWEEPS.share_bytes) / bytes;
        let line = LINE_BYTES / bytes;
        let (mut parts, mut runs_at_once) = (run.div_ceil(share), (share / run).clamp(1, runs));
        if parts > 1 && parts * runs > most {
            parts = (most / runs).max(1);
        }
        if parts == 1 && runs.div_ceil(runs_at_once) > most {
            runs_at_once = runs.div_ceil(most);
        }
        let part = run.div_ceil(parts).next_multiple_of(line);
        let parts = run.div_ceil(part);
        let is_whole = parts == 1 && runs_at_once == runs;
        let rows_at_once = match is_whole && !by_column {
            true => (share / rows.columns).clamp(1, rows.rows.div_ceil(most).max(1)),
            false => 1,
        };
        let all = SWEEPS.threads / WARP;
        let stretches = rows_at_once * runs_at_once;
        let warps = match u64::from(all) / stretches {
            _ if by_column => all,
            0 => 1,
            warps => 1 << warps.ilog2(),
        };
        Division {
            run,
            runs,
            part,
            parts,
            runs_at_once,
            rows_at_once: rows_at_once as u32,
            warps,
        }
    }

    /// Blocks that share a row.
    fn blocks(&self) -> u64 {
        self.runs.div_ceil(self.runs_at_once) * self.parts
    }
}

fn schedule(
    rows: &Rows<'_>,
    listed: &Listed,
    kernel: Kernel,
    kept: u32,
    teams: u64,
    division: &Division,
) -> Schedule {
    let by_column = listed.key.sharing == Sharing::ByColumn;
    let places = division.parts * u64::from(division.warps);
    let mut end = 0;
    let mut region = |numbers: u64| {
        let start = end;
        end += (numbers as usize * size_of::<f32>()).next_multiple_of(REGION_BYTES);
        start
    };
    let counters = if kernel.resident { rows.rows } else { 0 };
    region(counters);
    let sums = [0; 2].map(|_| region(places * rows.rows * division.runs));
    let with_gradients = by_column && rows.has_parameters;
    let gradients = match with_gradients {
        true => [0; 2].map(|_| region(teams * rows.columns)),
        false => [0; 2],
    };
    let (gathered, parameters_in_all) = match by_column {
        true => (teams, rows.columns),
        false => {
            let all = u64::from(rows.parameters.sets) * division.runs;
            (places * rows.rows * division.runs / all, all)
        }
    };
    let mut kernels = vec![kernel];
    if rows.has_parameters {
        kernels.push(gather(rows.dtype, parameters_in_all));
    }
    // x and dy are read again, from the second-level cache if it holds what all blocks have at a time, of two rows.
    let grid = u64::from(kernels[0].grid);
    let tensors = 2 + u64::from(rows.residual);
    let share = division.part * division.runs_at_once * u64::from(division.rows_at_once) * u64::from(rows.bytes());
    let again = match 2 * tensors * share * grid <= rows.gpu.l2_bytes as u64 {
        _ if rows.op == Op::Given => 0,
        true => 0,
        false => tensors * rows.rows * rows.columns * u64::from(rows.bytes()),
    };
    let written_and_read = match with_gradients {
        true => 2 * 2 * teams * rows.columns * size_of::<f32>() as u64,
        false => 0,
    };
    Schedule {
        kernels,
        workspace_bytes: end,
        again_bytes: again + written_and_read,
        work: Work::RowsSweeps(Sweeps {
            rows: rows.rows,
            columns: rows.columns,
            parameters: rows.parameters,
            run: division.run,
            part: division.part,
            parts: division.parts as u32,
            runs_at_once: division.runs_at_once as u32,
            rows_at_once: division.rows_at_once,
            warps: division.warps,
            kept,
            workspace: SweepsWorkspace {
                arrived_bytes: counters as usize * size_of::<u32>(),
                sums,
                gradients,
            },
            gathered,
            parameters_in_all,
        }),
    }
}
