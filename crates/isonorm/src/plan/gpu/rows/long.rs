//! Rows that are longer than registers: how many blocks share one, and how much of it they keep in shared memory.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::long::{long_down, long_shared};
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::occupancy::blocks_per_sm;
use super::super::tuning::{self, LONG};
use super::registers;
use super::{Exchange, Forward, Kernel, Listed, Messages, REGION_BYTES, Rows, Schedule, VECTOR_BYTES, Work};

/// Shares start on lines of the cache, as the kernels have it.
const LINE_BYTES: u64 = 128;
/// Numbers that a block exchanges: count, mean and squared distances.
const MOMENTS: usize = 3;

/// Whole rows in shared memory, where registers would not hold enough of them to keep memory busy, and there are enough of them.
pub(super) fn shared(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let mut kernels = rows.kernels(width).into_iter();
    let listed = kernels.find(|listed| listed.key.is_whole());
    let listed = listed.ok_or("there is no such kernel")?;
    let (bytes, sms) = (rows.columns * u64::from(rows.bytes()), u64::from(rows.gpu.sms));
    let by_run = listed.key.sharing == Sharing::ByRun;
    // Instructions besides bytes: registers do not hold as many rows beside them.
    let is_smooth = by_run && listed.key.class == Class::Any;
    let least = match is_smooth && rows.bytes() < 4 {
        true => LONG.least_smooth_bytes,
        false => LONG.least_shared_bytes,
    };
    // Blocks whose warps the four parts of a multiprocessor share evenly.
    let is_enough = |block: registers::Choice| {
        let of_sm = rows.resident_blocks(block.listed, block.threads, 0) / sms;
        block.threads.is_multiple_of(4 * WARP) && of_sm * bytes >= LONG.register_bytes
    };
    let in_registers = registers::by_block(rows, width, &tuning::FORWARD);
    if bytes < least || !is_smooth && in_registers.is_ok_and(is_enough) {
        return Err(format!("registers hold enough rows of {bytes} bytes"));
    }
    let accesses = rows.columns.div_ceil(listed.key.access_elements(rows.bytes()).into());
    let of_thread = u64::from(listed.key.accesses * long_shared::TILES);
    let threads = accesses.div_ceil(of_thread).next_multiple_of(WARP.into());
    let threads = u32::try_from(threads).unwrap_or(u32::MAX);
    if threads > listed.key.max_threads() {
        return Err(format!(
            "a block does not have the {threads} threads of rows of {bytes} bytes"
        ));
    }
    if by_run && rows.parameters.runs > threads {
        let runs = rows.parameters.runs;
        return Err(format!("blocks of {threads} threads have no room for {runs} runs"));
    }
    let kernel = Kernel {
        shared_bytes: long_shared::shared_bytes(threads, listed.key.sharing, accesses as u32),
        ..rows.kernel(listed, rows.rows, threads, long_shared::TILES)
    };
    let of_sm = match kernel.shared_bytes <= rows.gpu.shared_bytes_per_block {
        true => blocks_per_sm(rows.gpu, &kernel),
        false => 0,
    };
    if of_sm < 2 {
        return Err(format!("a multiprocessor has no room for two rows of {bytes} bytes"));
    }
    let is_short = bytes < LONG.least_shared_bytes;
    let many = match is_short {
        true => LONG.smooth_rows_of_sm,
        false => LONG.rows_of_sm,
    };
    let few_do = by_run && !is_short && of_sm >= LONG.many_of_sm && fills_rounds(rows, of_sm);
    if rows.rows < many * sms && !few_do {
        return Err(format!("{} rows are too few for {sms} multiprocessors", rows.rows));
    }
    Ok(Schedule {
        kernels: vec![kernel],
        work: Work::Forward(Forward {
            kept: long_shared::TILES,
            ..rows.forward()
        }),
        workspace_bytes: 0,
        running_bytes: 0,
        messages: Messages::default(),
        again_bytes: 0,
    })
}

/// Whether there are rows for all multiprocessors, and, where these have room for so many each and there are more, enough for a second round.
fn fills_rounds(rows: &Rows<'_>, of_sm: u32) -> bool {
    let sms = u64::from(rows.gpu.sms);
    let at_once = sms * u64::from(of_sm);
    let beyond = rows.rows.saturating_sub(at_once);
    rows.rows >= LONG.few_rows_of_sm * sms && (beyond == 0 || 100 * beyond >= LONG.second_round * at_once)
}

/// A row in the shared memory of one block.
pub(super) fn alone(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let tiles = Tiles::new(rows, Owner::Alone, width)?;
    let blocks = tiles.wanted(rows);
    if blocks > 1 {
        return Err(tiles.not_by(1, blocks));
    }
    Ok(tiles.schedule(rows, rows.rows, 1))
}

/// A row in the shared memory of blocks of the grid that run at the same time, as much of it as fits.
pub(super) fn grid(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let tiles = Tiles::new(rows, Owner::Grid, width)?;
    let resident = rows.resident_blocks(tiles.listed, LONG.threads, tiles.most_kept);
    let blocks = tiles.wanted(rows).min(resident);
    let teams = (resident / blocks).min(rows.rows);
    // None is left without.
    let blocks = (resident / teams).min(tiles.most_blocks(rows)).max(blocks);
    let mut schedule = tiles.schedule(rows, teams * blocks, blocks);
    schedule.kernels[0].resident = true;
    let arrived_bytes = teams as usize * size_of::<u32>();
    let moments_offset = arrived_bytes.next_multiple_of(REGION_BYTES);
    // Two slots a team, in turn.
    let moments_bytes = (teams * blocks) as usize * 2 * MOMENTS * size_of::<f32>();
    schedule.workspace_bytes = moments_offset + moments_bytes;
    if let Work::Forward(forward) = &mut schedule.work {
        forward.exchange = Some(Exchange {
            arrived_bytes,
            moments_offset,
        });
    }
    Ok(schedule)
}

/// All rows at once, whose threads have their columns of each: so that parameters that the last-level cache does not keep are read once.
pub(super) fn down(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let mut kernels = rows.kernels(width).into_iter();
    let listed = kernels.find(|listed| listed.key.is_down_columns());
    let listed = listed.ok_or("there is no such kernel")?;
    let parameter_bytes = if rows.parameters.as_data {
        rows.bytes()
    } else {
        size_of::<f32>() as u32
    };
    let parameters = 2 * rows.columns * u64::from(parameter_bytes);
    if !rows.has_parameters || rows.rows <= LONG.kept_rows || parameters <= rows.gpu.l2_bytes as u64 / 2 {
        return Err("parameters are read once, or the last-level cache keeps them".into());
    }
    let blocks = rows.resident_blocks(listed, LONG.down_threads, 0);
    let strip = u64::from(VECTOR_BYTES / rows.bytes() * LONG.down_threads);
    let share = rows.columns.div_ceil(blocks);
    if share < strip || share > u64::from(u32::MAX >> 1) {
        return Err(format!(
            "{blocks} blocks have {share} columns each, where {strip} are at once"
        ));
    }
    let arrived_bytes = rows.rows.div_ceil(long_down::ROWS.into()) as usize * size_of::<u32>();
    let moments_offset = arrived_bytes.next_multiple_of(REGION_BYTES);
    Ok(Schedule {
        kernels: vec![Kernel {
            resident: true,
            ..rows.kernel(listed, blocks, LONG.down_threads, 0)
        }],
        work: Work::Forward(Forward {
            blocks: blocks as u32,
            exchange: Some(Exchange {
                arrived_bytes,
                moments_offset,
            }),
            ..rows.forward()
        }),
        workspace_bytes: moments_offset + long_down::moments_bytes(blocks) as usize,
        running_bytes: 0,
        messages: Messages::default(),
        again_bytes: rows.rows * rows.columns * u64::from(rows.bytes()),
    })
}

/// A row as tiles of what a block has at a time.
struct Tiles {
    listed: &'static Listed,
    /// Elements of a tile.
    elements: u64,
    /// Tiles that a block can keep.
    most_kept: u32,
}

impl Tiles {
    fn new(rows: &Rows<'_>, owner: Owner, width: Width) -> Result<Tiles, String> {
        let mut kernels = rows.kernels(width).into_iter();
        // Of others a tile is not on its way while the one before is worked on.
        let found = kernels.find(|listed| listed.key.owner == owner && listed.key.ahead);
        let listed = found.ok_or(match width {
            Width::Vector | Width::Ragged | Width::Half => "there is no such kernel",
            Width::Element => "there is no such kernel for single elements",
        })?;
        let key = &listed.key;
        let head = key.shared_bytes(LONG.threads, 0);
        let tile_bytes = key.shared_bytes(LONG.threads, 1) - head;
        Ok(Tiles {
            listed,
            elements: key.tile_elements(LONG.threads, rows.bytes()).into(),
            most_kept: rows.gpu.shared_bytes_per_block.saturating_sub(head) / tile_bytes,
        })
    }

    /// Elements of the largest of the shares of `blocks` blocks.
    fn share(&self, rows: &Rows<'_>, blocks: u64) -> u64 {
        let line = LINE_BYTES / u64::from(rows.bytes());
        rows.columns.div_ceil(blocks).next_multiple_of(line)
    }

    /// Blocks with less than a share that is worth it would only wait for each other.
    fn most_blocks(&self, rows: &Rows<'_>) -> u64 {
        let bytes = rows.columns.saturating_mul(rows.bytes().into());
        (bytes / LONG.least_share_bytes).max(1)
    }

    /// Blocks that keep a row between them, or more where there are multiprocessors for them.
    fn wanted(&self, rows: &Rows<'_>) -> u64 {
        let keeps = self.elements * u64::from(self.most_kept.max(1));
        let idle = u64::from(rows.gpu.sms) / rows.rows;
        rows.columns
            .div_ceil(keeps)
            .max(idle.min(self.most_blocks(rows)))
            .max(1)
    }

    fn not_by(&self, most: u64, wanted: u64) -> String {
        format!("{wanted} blocks should share a row, to keep it and to use the whole GPU; it has at most {most}")
    }

    /// Blocks that share a row keep the first tiles of their shares, and read the rest again.
    fn schedule(&self, rows: &Rows<'_>, grid: u64, blocks: u64) -> Schedule {
        let share = self.share(rows, blocks);
        let tiles = share.div_ceil(self.elements);
        let kept = tiles.min(self.most_kept.into()) as u32;
        let not_kept = share.saturating_sub(u64::from(kept) * self.elements) * blocks;
        Schedule {
            kernels: vec![rows.kernel(self.listed, grid, LONG.threads, kept)],
            work: Work::Forward(Forward {
                blocks: blocks as u32,
                kept,
                ..rows.forward()
            }),
            workspace_bytes: 0,
            running_bytes: 0,
            messages: Messages::default(),
            again_bytes: rows.rows * not_kept.min(rows.columns) * u64::from(rows.bytes()),
        }
    }
}
