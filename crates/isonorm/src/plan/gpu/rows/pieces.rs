//! Rows of millions of elements, in pieces that blocks of the whole chip keep in shared memory.

use isonorm_kernels::grid::message_words;
use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::key::Pass;
use isonorm_kernels::rows::pieces::share;
use isonorm_kernels::rows::team::Owner;

use super::super::occupancy::{RESERVED_SHARED_BYTES, blocks_per_sm};
use super::super::tuning::PIECES;
use super::registers::Held;
use super::{Kernel, Listed, Messages, Rows, Schedule, backward, registers};

/// Elements of a row, at most: of a piece, with the accesses beyond it, they are counted in 32 bits.
const MOST_COLUMNS: u64 = 1 << 31;

pub(super) fn plan(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    let kernels = rows.kernels(width);
    let listed = kernels.into_iter().find(|listed| listed.key.owner == Owner::Pieces);
    let listed = listed.ok_or("there is no such kernel")?;
    if rows.dstream {
        return Err("its kernels add no gradient of a residual stream".into());
    }
    if rows.columns > MOST_COLUMNS {
        return Err(format!("rows have more than {MOST_COLUMNS} elements"));
    }
    let Pieces {
        teams,
        parts,
        runs,
        kept,
        not_kept,
    } = Pieces::new(rows, listed)?;
    let blocks = parts * runs;
    let kernel = Kernel {
        resident: true,
        ..rows.kernel(listed, teams * blocks, PIECES.threads, kept)
    };
    let words = teams * u64::from(message_words(blocks as u32));
    let held = Held {
        kernel,
        blocks: blocks as u32,
        kept,
        messages: Messages::new(words as usize, rows.rows.div_ceil(teams)),
    };
    let mut schedule = match rows.pass {
        Pass::Forward => registers::scheduled(rows, held),
        Pass::Backward => {
            let (parts, gradients) = backward::of_rows(rows, parts);
            backward::scheduled(rows, held, (parts, gradients), rows.parameters.are_gradients(parts))
        }
    };
    schedule.again_bytes += rows.rows * not_kept * tensors(rows) * u64::from(rows.bytes());
    Ok(schedule)
}

/// Tensors that a row is read of.
fn tensors(rows: &Rows<'_>) -> u64 {
    match rows.pass {
        Pass::Forward => 1,
        Pass::Backward => 2,
    }
}

/// How rows are divided.
struct Pieces {
    /// Rows at a time.
    teams: u64,
    /// Blocks that share a run, and runs of a row.
    parts: u64,
    runs: u64,
    /// Groups of accesses that a thread keeps.
    kept: u32,
    /// Elements of a row that are not kept.
    not_kept: u64,
}

impl Pieces {
    /// As many rows at a time as all blocks keep, or two, if they keep most of them; else one, and of it as much as they keep.
    fn new(rows: &Rows<'_>, listed: &Listed) -> Result<Pieces, String> {
        let (threads, key) = (PIECES.threads, &listed.key);
        let runs = u64::from(rows.parameters.runs);
        let run = rows.columns / runs;
        let head = key.shared_bytes(threads, 0);
        let group_bytes = key.shared_bytes(threads, 1) - head;
        // As many blocks as registers leave room for.
        let blocks = blocks_per_sm(rows.gpu, &rows.kernel(listed, 1, threads, 0)).clamp(1, PIECES.most_blocks);
        let room = (rows.gpu.shared_bytes_per_sm / blocks).saturating_sub(RESERVED_SHARED_BYTES);
        let most_kept = room.min(rows.gpu.shared_bytes_per_block).saturating_sub(head) / group_bytes;
        let resident = rows.resident_blocks(listed, threads, most_kept);
        let of_group = u64::from(key.tile_elements(threads, rows.bytes()));
        let keeps = of_group * u64::from(most_kept);
        if run < of_group {
            return Err(format!(
                "runs of {run} elements leave threads of a block idle, which have {of_group} at a time"
            ));
        }
        if runs > resident {
            return Err(format!(
                "a row has {runs} runs, and no more than {resident} blocks run at once"
            ));
        }
        let fewest = run.div_ceil(keeps.max(1)).min(resident / runs);
        let whole = (resident / (runs * fewest)).min(rows.rows);
        // Two rows, where most of both is kept.
        let of_two = resident / 2 / runs * keeps.min(run);
        let teams = match 2.min(rows.rows) {
            two if whole < two && of_two * 100 >= PIECES.kept_of_two * run => two,
            _ => whole.max(1),
        };
        // No blocks with less than a group.
        let parts = (resident / teams / runs).min(run.div_ceil(of_group)).max(1);
        let groups = share(run, parts, rows.bytes()).div_ceil(of_group);
        let kept = groups.min(most_kept.into());
        Ok(Pieces {
            teams,
            parts,
            runs,
            kept: kept as u32,
            not_kept: (groups - kept) * of_group * parts * runs,
        })
    }
}
