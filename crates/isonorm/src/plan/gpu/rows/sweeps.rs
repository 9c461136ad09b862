//! The backward pass in two sweeps, for rows of any length: what a block has of a row, or of some, and how many blocks there are.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::occupancy::{RESERVED_SHARED_BYTES, blocks_per_sm};
use super::super::tuning::SWEEPS;
use super::backward::gather;
use super::{
    Kernel, Listed, MOST_BLOCKS, Messages, REGION_BYTES, Rows, Schedule, Share, Sweeps, SweepsWorkspace, Work,
};

/// Parts of a run start on lines of the cache.
const LINE_BYTES: u64 = 128;

pub(super) fn plan(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let listed = rows.kernels(width);
    let of_grid = |columns: bool| {
        let suits = |listed: &&Listed| listed.key.owner == Owner::Grid && listed.key.is_down_columns() == columns;
        listed.iter().copied().find(suits)
    };
    if let Some(listed) = of_grid(true)
        && let Some(launch) = Launch::down_columns(rows, listed)
    {
        return Ok(schedule(rows, listed, &[launch.clone(), launch]));
    }
    let listed = of_grid(false).ok_or("there is no such kernel")?;
    let has_sums = rows.parameters.sharing == Sharing::ByColumn && rows.has_parameters;
    let mut both = Launch::new(rows, listed, has_sums)?;
    let blocks = both.division.blocks();
    // With gradients by column shares are small, and reading them again takes less time than waiting for each other.
    let apart = rows.op != Op::Given && blocks > if has_sums { 1 } else { both.resident };
    both.kernel.resident = rows.op != Op::Given && blocks > 1 && !apart;
    let launches = match (apart, has_sums) {
        // The first sweep adds nothing up by column.
        (true, true) => vec![Launch::new(rows, listed, false)?, both],
        (true, false) => vec![both.clone(), both],
        (false, _) => vec![both],
    };
    Ok(schedule(rows, listed, &launches))
}

/// A launch of the kernel.
#[derive(Clone)]
struct Launch {
    kernel: Kernel,
    division: Division,
    /// Tiles of a warp, and how many of them are kept.
    tiles: u64,
    kept: u32,
    /// Blocks that run at the same time, and groups of blocks that share rows.
    resident: u64,
    teams: u64,
}

impl Launch {
    /// Whose blocks add up gradients by column, or do not.
    fn new(rows: &Rows<'_>, listed: &Listed, has_sums: bool) -> Result<Launch, String> {
        // A first division, among as many blocks as registers leave room for; another, if shared memory leaves room for fewer.
        let mut kernel = rows.kernel(listed, 1, SWEEPS.threads, 0);
        let at_once = blocks_per_sm(rows.gpu, &kernel);
        let room = (rows.gpu.shared_bytes_per_sm / at_once).saturating_sub(RESERVED_SHARED_BYTES);
        let room = room.min(rows.gpu.shared_bytes_per_block) - kernel.shared_bytes;
        let tile_bytes = listed.key.sweeps_tile_bytes(SWEEPS.threads, rows.bytes(), has_sums);
        let tile = listed.key.tile_elements(SWEEPS.threads, rows.bytes()).into();
        let tile = has_sums.then_some(tile);
        let mut division = Division::new(rows, u64::from(at_once * rows.gpu.sms), tile);
        let tiles = division.tiles(rows, listed);
        let kept = tiles.min(u64::from(room / tile_bytes)) as u32;
        kernel.shared_bytes += kept * tile_bytes;
        let resident = u64::from(blocks_per_sm(rows.gpu, &kernel) * rows.gpu.sms);
        if resident < u64::from(at_once * rows.gpu.sms) {
            division = Division::new(rows, resident, tile);
        }
        let blocks = division.blocks();
        if blocks > MOST_BLOCKS {
            return Err(format!(
                "{blocks} blocks should share a row; a grid has at most {MOST_BLOCKS}"
            ));
        }
        let teams = rows
            .rows
            .div_ceil(division.rows_at_once.into())
            .min((resident / blocks).max(1));
        kernel.grid = (blocks * teams) as u32;
        Ok(Launch {
            kernel,
            tiles: division.tiles(rows, listed).max(1),
            division,
            kept,
            resident,
            teams,
        })
    }

    /// Whose threads have the same columns of all rows: a launch for each sweep, if there are parameters, and columns for all threads.
    fn down_columns(rows: &Rows<'_>, listed: &Listed) -> Option<Launch> {
        let mut kernel = rows.kernel(listed, 1, SWEEPS.threads, 0);
        let resident = u64::from(blocks_per_sm(rows.gpu, &kernel) * rows.gpu.sms);
        let strip = listed.key.tile_elements(SWEEPS.threads, rows.bytes()).into();
        let strips = rows.columns / strip;
        if !rows.has_parameters || strips < resident {
            return None;
        }
        let part = rows
            .columns
            .div_ceil(resident)
            .next_multiple_of(LINE_BYTES / u64::from(rows.bytes()));
        if part > u32::MAX.into() {
            return None;
        }
        let division = Division {
            run: rows.columns,
            runs: 1,
            part,
            parts: rows.columns.div_ceil(part),
            runs_at_once: 1,
            rows_at_once: 1,
            warps: SWEEPS.threads / WARP,
        };
        kernel.grid = division.parts as u32;
        Some(Launch {
            kernel,
            tiles: part.div_ceil(strip),
            division,
            kept: 0,
            resident,
            teams: 1,
        })
    }

    fn share(&self) -> Share {
        let division = &self.division;
        Share {
            part: division.part,
            parts: division.parts as u32,
            runs_at_once: division.runs_at_once as u32,
            rows_at_once: division.rows_at_once,
            warps: division.warps,
            kept: self.kept,
        }
    }
}

/// What a block has at a time.
#[derive(Clone)]
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
    /// For at most `most` blocks a row, unless there are gradients by column: then a block of a long row has a tile of so many
    /// elements, of which it keeps the sums.
    fn new(rows: &Rows<'_>, most: u64, tile: Option<u64>) -> Division {
        let by_column = rows.parameters.sharing == Sharing::ByColumn;
        let (run, runs) = match by_column {
            true => (rows.columns, 1),
            false => (rows.parameters.run, u64::from(rows.parameters.runs)),
        };
        let bytes = u64::from(rows.bytes());
        // Few rows are divided among more blocks.
        let each = rows.rows.saturating_mul(rows.columns).saturating_mul(bytes) / most;
        let most_bytes = match tile {
            Some(_) => SWEEPS.share_elements * bytes,
            None => SWEEPS.share_bytes,
        };
        let share = each.clamp(SWEEPS.least_share_bytes, most_bytes) / bytes;
        let line = LINE_BYTES / bytes;
        let all = u64::from(SWEEPS.threads / WARP);
        let (mut parts, runs_at_once) = (run.div_ceil(share), (share / run).clamp(1, runs.min(all)));
        if parts > 1 && parts * runs > most {
            parts = match tile {
                Some(tile) => run.div_ceil(tile),
                None => (most / runs).max(1),
            };
        }
        let part = run.div_ceil(parts).next_multiple_of(line);
        let parts = run.div_ceil(part);
        let is_whole = parts == 1 && runs_at_once == runs;
        let rows_at_once = match is_whole && !by_column {
            true => (share / rows.columns)
                .clamp(1, rows.rows.div_ceil(most).max(1))
                .min(all / runs),
            false => 1,
        };
        let warps = match by_column {
            true => all,
            false => all / (rows_at_once * runs_at_once),
        };
        Division {
            run,
            runs,
            part,
            parts,
            runs_at_once,
            rows_at_once: rows_at_once as u32,
            warps: warps as u32,
        }
    }

    /// Tiles of a warp.
    fn tiles(&self, rows: &Rows<'_>, listed: &Listed) -> u64 {
        let of_warp = u64::from(listed.key.tile_elements(WARP, rows.bytes()));
        self.part.min(self.run).div_ceil(of_warp * u64::from(self.warps))
    }

    /// Blocks that share a row.
    fn blocks(&self) -> u64 {
        self.runs.div_ceil(self.runs_at_once) * self.parts
    }
}

fn schedule(rows: &Rows<'_>, listed: &Listed, launches: &[Launch]) -> Schedule {
    let by_column = listed.key.sharing == Sharing::ByColumn;
    let (first, last) = (&launches[0], &launches[launches.len() - 1]);
    let (runs, apart) = (first.division.runs, launches.len() > 1);
    let mut end = 0;
    let mut region = |numbers: u64| {
        let start = end;
        end += (numbers as usize * size_of::<f32>()).next_multiple_of(REGION_BYTES);
        start
    };
    let counters = if first.kernel.resident { rows.rows } else { 0 };
    region(counters);
    let places = first.division.parts * rows.rows * runs;
    let sums = [0; 2].map(|_| region(places));
    // By run the last kernel wants the sums of parts, too.
    let totals = (apart && by_column && first.division.parts > 1).then(|| [0; 2].map(|_| region(rows.rows)));
    let are_gradients =
        listed.key.leaves_gradients(last.teams) || by_column && rows.parameters.are_gradients(last.teams);
    let with_gradients = by_column && rows.has_parameters && !are_gradients;
    let gradients = match with_gradients {
        true => [0; 2].map(|_| region(last.teams * rows.columns)),
        false => [0; 2],
    };
    let (gathered, parameters_in_all) = match by_column {
        true => (last.teams, rows.columns),
        false => {
            let all = u64::from(rows.parameters.sets) * runs;
            (places / all, all)
        }
    };
    let mut kernels = vec![first.kernel];
    if totals.is_some() {
        kernels.push(gather(rows.dtype, first.division.parts, rows.rows));
    }
    if apart {
        kernels.push(last.kernel);
    }
    if rows.has_parameters && !are_gradients {
        kernels.push(gather(rows.dtype, gathered, parameters_in_all));
    }
    // What is not kept is read again.
    let again = match rows.op {
        Op::Given => 0,
        _ => {
            let kept = if apart { 0 } else { first.kept };
            let bytes = (2 + u64::from(rows.residual)) * rows.rows * rows.columns * u64::from(rows.bytes());
            bytes / first.tiles * first.tiles.saturating_sub(kept.into())
        }
    };
    let written_and_read = match with_gradients {
        true => 2 * 2 * last.teams * rows.columns * size_of::<f32>() as u64,
        false => 0,
    };
    Schedule {
        kernels,
        workspace_bytes: end,
        running_bytes: 0,
        messages: Messages::default(),
        again_bytes: again + written_and_read,
        work: Work::Sweeps(Sweeps {
            rows: rows.rows,
            columns: rows.columns,
            parameters: rows.parameters,
            run: first.division.run,
            shares: launches.iter().map(Launch::share).collect(),
            totals,
            workspace: SweepsWorkspace {
                arrived_bytes: counters as usize * size_of::<u32>(),
                sums,
                gradients,
            },
            gathered,
            are_gradients,
            parameters_in_all,
        }),
    }
}
