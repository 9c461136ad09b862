//! How wide a tile is, how many blocks share one, and how much of it shared memory holds.

use std::fmt;

use isonorm_kernels::tiles::MOST_UNITS;

use super::super::occupancy::RESERVED_SHARED_BYTES;
use super::super::tuning::TILES;
use super::*;
use crate::plan::explain::counted;

/// A kernel, with tiles and teams.
#[derive(Clone)]
pub(super) struct Choice {
    pub(super) listed: &'static Listed,
    pub(super) tiling: Tiling,
    pub(super) teams: u32,
    /// The time that it takes by the estimate.
    pub(super) nanoseconds: u64,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tiling {
            width, blocks, slots, ..
        } = self.tiling;
        let counted = |n: u32, what: &str| counted(n as usize, what);
        let (columns, teams) = (counted(width, "column"), counted(self.teams, "team"));
        if self.listed.key.kind == Kind::Held {
            let (threads, accesses) = (self.listed.key.threads(&self.tiling), self.tiling.accesses);
            let blocks = counted(blocks, "block");
            return write!(
                f,
                "{columns}, {teams} of {blocks} of {threads} threads with {accesses} accesses"
            );
        }
        write!(f, "{columns}, {teams} of {}", counted(blocks, "block"))?;
        match self.tiling.kept {
            0 => Ok(()),
            kept if kept < self.tiling.accesses => write!(
                f,
                ", {} % kept",
                100 * u64::from(kept) / u64::from(self.tiling.accesses)
            ),
            _ => write!(f, ", {} ahead", counted(slots - 1, "tile")),
        }
    }
}

/// Shapes for each width of tiles, those that are fastest by the estimate first.
pub(super) fn choices(problem: &Problem<'_>, width: Width) -> Result<Vec<Choice>, String> {
    let mut all: Vec<Choice> = Vec::new();
    let mut declined = None;
    for &(bytes, share) in TILES.widths {
        let found = of_width(problem, width, bytes, share).unwrap_or_else(|reason| {
            declined.get_or_insert(reason);
            Vec::new()
        });
        for new in found {
            let is_same = |old: &&mut Choice| (old.tiling, old.teams) == (new.tiling, new.teams);
            match all.iter_mut().find(is_same) {
                // A tile as wide as a row is contiguous, and memory as fast as for the widest.
                Some(old) => old.nanoseconds = old.nanoseconds.min(new.nanoseconds),
                None => all.push(new),
            }
        }
    }
    // The first of equals is taken.
    all.sort_by_key(|choice| choice.nanoseconds);
    match declined {
        Some(reason) if all.is_empty() => Err(reason),
        _ => Ok(all),
    }
}

/// Nanoseconds that memory takes for an access of each thread of one block on each multiprocessor, to one tensor, times 100. Those
/// of single elements take as long.
fn access(gpu: &GpuProperties) -> u64 {
    let bytes = f64::from(gpu.sms * THREADS * VECTOR_BYTES);
    (bytes / gpu.copy_bytes_per_second * 1e11) as u64
}

/// The fastest for each number of tiles that a block has in shared memory, and of blocks on a multiprocessor: with tiles about so wide, of
/// which memory moves so many of a hundred bytes in the time of a hundred.
fn of_width(problem: &Problem<'_>, width: Width, bytes: u32, share: u64) -> Result<Vec<Choice>, String> {
    let elements = width.elements(problem.bytes());
    let [tile, lanes, parts] = match problem.inner / problem.run > MOST_UNITS {
        true => part(problem, elements, bytes)?,
        false => {
            let [tile, lanes] = tile(problem, elements, bytes)?;
            let units = tile / problem.run;
            if units > MOST_UNITS {
                return Err(format!("{units} parameters side by side are more than {MOST_UNITS}"));
            }
            [tile, lanes, 1]
        }
    };
    let across = match parts {
        1 => problem.line().div_ceil(tile.into()),
        _ => problem.kept.into(),
    };
    let tiles = u32::try_from(across * problem.batch).map_err(|_| "there are more than 2³² tiles".to_string())?;
    let tiling = Tiling {
        rows: problem.rows,
        line: problem.line(),
        inner: problem.inner,
        run: problem.run,
        width: tile,
        parts,
        across: across as u32,
        tiles,
        groups_of_line: problem.kept,
        lanes,
        blocks: parts,
        accesses: 0,
        kept: 0,
        slots: 1,
    };
    let listed = problem.listed(width, &tiling).ok_or("there is no such kernel")?;
    // Accesses of a thread to a tile, at most, where so many blocks share one.
    let accesses = |blocks: u32| {
        let (all, at_once) = match lanes {
            0 => (problem.rows * u64::from(problem.inner / elements), THREADS),
            lanes => (problem.rows, THREADS / lanes),
        };
        let each = all.div_ceil(u64::from(blocks) * u64::from(at_once));
        each.min(u32::MAX.into()) as u32
    };
    let most_at_once = blocks_per_sm(problem.gpu, &problem.kernel(listed, &tiling, 1));
    let access_bytes = listed.key.access_bytes() * THREADS;
    // Accesses of so many that shared memory holds, beside other blocks.
    let holds = |at_once: u32, accesses: u32| {
        let room = (problem.gpu.shared_bytes_per_sm / at_once).saturating_sub(RESERVED_SHARED_BYTES);
        let room = room.min(problem.gpu.shared_bytes_per_block);
        let tiling = Tiling { accesses, ..tiling };
        let room = room.checked_sub(listed.key.head_bytes(&tiling, problem.bytes()))?;
        Some(room / access_bytes)
    };
    // Read before and behind the statistics, if it is not kept; and read or written once.
    let (both, once) = match problem.pass {
        Pass::Forward if problem.moments => (0, 1),
        Pass::Forward => (1, 1 + u64::from(problem.residual)),
        Pass::Backward => (2 + u64::from(problem.reads_residual()), 1 + u64::from(problem.residual)),
    };
    let mut best: Vec<(u32, Choice)> = Vec::new();
    for at_once in 1..=most_at_once.min(TILES.blocks_per_sm) {
        let resident = at_once * problem.gpu.sms;
        let speed = match (at_once, problem.pass) {
            (1, Pass::Forward) => TILES.alone[0],
            (1, Pass::Backward) => TILES.alone[1],
            _ => 100,
        };
        // Of those that have the same columns.
        for of_part in 1..=(resident / parts).min(accesses(1)) {
            let blocks = parts * of_part;
            let teams = tiles.min(resident / blocks);
            let (steps, own) = (tiles.div_ceil(teams), accesses(of_part));
            let Some(holds) = holds(at_once, own) else { continue };
            // Two tiles where both are held, and there are two.
            let slots = if own <= holds / 2 && steps > 1 { 2 } else { 1 };
            let kept = own.min(holds);
            // By all blocks that share a multiprocessor's part of the memory's speed.
            let moved = u64::from(at_once) * ((both + once) * u64::from(own) + both * u64::from(own - kept));
            let waits = TILES.step
                + u64::from(blocks) * TILES.block
                + u64::from(tiling.units()) * TILES.unit
                + if kept < own { TILES.again } else { 0 }
                + if tiling.run > 1 && tiling.groups() > 1 {
                    TILES.segments
                } else {
                    0
                };
            let step = moved.saturating_mul(access(problem.gpu) * 100) / (share * speed) + waits;
            let new = Choice {
                listed,
                tiling: Tiling {
                    blocks,
                    accesses: own,
                    kept,
                    slots,
                    ..tiling
                },
                teams,
                nanoseconds: u64::from(steps).saturating_mul(step).saturating_add(TILES.start),
            };
            match best
                .iter_mut()
                .find(|(n, old)| (*n, old.tiling.slots) == (at_once, slots))
            {
                Some((_, old)) if new.nanoseconds < old.nanoseconds => *old = new,
                Some(_) => {}
                None => best.push((at_once, new)),
            }
        }
    }
    if best.is_empty() && parts > problem.gpu.sms {
        let (channels, sms) = (problem.inner, problem.gpu.sms);
        return Err(format!(
            "{channels} parameters of a group side by side are too many for {sms} multiprocessors"
        ));
    }
    if best.is_empty() {
        return Err("the sums of a tile do not fit shared memory".into());
    }
    Ok(best.into_iter().map(|(_, choice)| choice).collect())
}

/// Elements of a row that belong to a part of a group, threads side by side in it, and parts: where a block has no thread for each of the
/// group's parameters.
fn part(problem: &Problem<'_>, elements: u32, wanted: u32) -> Result<[u32; 3], String> {
    let (inner, run) = (problem.inner, problem.run);
    if !inner.is_multiple_of(elements) || run != 1 {
        return Err(format!("groups of {inner} neighbouring elements fill no accesses"));
    }
    // Wider, where there would be more parts than multiprocessors.
    let least = inner.div_ceil(problem.gpu.sms).next_multiple_of(elements);
    let width = (wanted / problem.bytes()).max(least).clamp(elements, MOST_UNITS);
    Ok([width, width / elements, inner.div_ceil(width)])
}

/// Elements of a row that belong to a tile, and threads side by side in it: none where a tile is one group.
fn tile(problem: &Problem<'_>, elements: u32, wanted: u32) -> Result<[u32; 2], String> {
    let (inner, bytes) = (problem.inner, problem.bytes());
    if !problem.line().is_multiple_of(elements.into()) {
        return Err(format!(
            "rows of {} elements do not begin on {VECTOR_BYTES} bytes",
            problem.line()
        ));
    }
    let whole = inner.is_multiple_of(elements) && problem.run == inner;
    if whole && u64::from(inner) * u64::from(bytes) >= TILES.least_segment_bytes {
        return Ok([inner, 0]);
    }
    // Groups whose elements fill accesses.
    let mut unit = inner;
    while !unit.is_multiple_of(elements) {
        unit = unit.checked_add(inner).ok_or("groups are too long")?;
    }
    let most = THREADS * elements;
    if unit > most {
        if whole || elements == 1 {
            return Ok([inner, 0]);
        }
        return Err(format!(
            "groups of {inner} neighbouring elements that fill no accesses are too long"
        ));
    }
    let wanted = (wanted / bytes).div_ceil(unit).next_power_of_two();
    let most = most.min(MOST_UNITS.saturating_mul(problem.run)).max(unit);
    let width = (u64::from(unit) * u64::from(wanted))
        .min(problem.line())
        .min(most.into()) as u32;
    let width = width / unit * unit;
    Ok([width, width / elements])
}
