//! How wide a tile is, how many blocks share one, and how much of it shared memory holds.

use isonorm_kernels::tiles::{MOST_UNITS, head_bytes};

use super::super::MOST_BLOCKS;
use super::super::occupancy::RESERVED_SHARED_BYTES;
use super::super::tuning::TILES;
use super::*;

/// A kernel, with tiles and teams.
pub(super) struct Choice {
    pub(super) listed: &'static Listed,
    pub(super) tiling: Tiling,
    pub(super) teams: u32,
}

/// The fastest, by an estimate of their time.
pub(super) fn choose(problem: &Problem<'_>, width: Width) -> Result<Choice, String> {
    let mut best: Result<(u64, Choice), String> = Err("there is no such kernel".into());
    for (index, &(bytes, share)) in TILES.widths.iter().enumerate() {
        match of_width(problem, width, bytes, share) {
            Ok(found) if best.as_ref().is_ok_and(|(least, _)| *least <= found.0) => {}
            Err(_) if index > 0 => {}
            found => best = found,
        }
    }
    best.map(|(_, choice)| choice)
}

/// The fastest with tiles about so wide, of which memory moves so many of a hundred bytes in the time of a hundred.
fn of_width(problem: &Problem<'_>, width: Width, bytes: u32, share: u64) -> Result<(u64, Choice), String> {
    let elements = match width {
        Width::Vector => VECTOR_BYTES / problem.bytes(),
        Width::Element => 1,
    };
    let [tile, lanes] = tile(problem, elements, bytes)?;
    let one = lanes == 0;
    if tile / problem.run > MOST_UNITS {
        let side_by_side = problem.inner / problem.run;
        return Err(format!(
            "{side_by_side} parameters of a group side by side are more than {MOST_UNITS}"
        ));
    }
    let listed = problem.listed(width, one).ok_or("there is no such kernel")?;
    let across = problem.line().div_ceil(tile.into());
    let tiles = u32::try_from(across * problem.batch).map_err(|_| "there are more than 2³² tiles".to_string())?;
    let tiling = Tiling {
        rows: problem.rows,
        line: problem.line(),
        inner: problem.inner,
        run: problem.run,
        width: tile,
        across: across as u32,
        tiles,
        groups_of_line: problem.kept,
        lanes,
        blocks: 1,
        accesses: 0,
        kept: 0,
        slots: 1,
    };
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
    if problem.given && problem.pass == Pass::Forward {
        // Blocks exchange nothing, and keep nothing.
        let wanted = TILES.waves * most_at_once * problem.gpu.sms;
        let blocks = wanted.div_ceil(tiles).clamp(1, accesses(1));
        let tiling = Tiling {
            blocks,
            accesses: accesses(blocks),
            ..tiling
        };
        let teams = tiles.min(MOST_BLOCKS as u32 / blocks);
        return Ok((0, Choice { listed, tiling, teams }));
    }
    let access_bytes = listed.key.access_bytes() * THREADS;
    // Accesses that shared memory holds, beside so many blocks.
    let holds = |at_once: u32| {
        let room = (problem.gpu.shared_bytes_per_sm / at_once).saturating_sub(RESERVED_SHARED_BYTES);
        let room = room.min(problem.gpu.shared_bytes_per_block);
        let room = room.checked_sub(head_bytes(&tiling, elements))?;
        Some(room / access_bytes)
    };
    let read = u64::from(listed.key.tensors().min(2));
    let mut best: Option<(u64, Tiling, u32)> = None;
    for at_once in 1..=most_at_once.min(TILES.blocks_per_sm) {
        let Some(holds) = holds(at_once) else { continue };
        let resident = at_once * problem.gpu.sms;
        let speed = match (at_once, problem.pass) {
            (1, Pass::Forward) => TILES.alone[0],
            (1, Pass::Backward) => TILES.alone[1],
            _ => 100,
        };
        for blocks in 1..=resident.min(accesses(1)) {
            let teams = tiles.min(resident / blocks);
            let (steps, own) = (tiles.div_ceil(teams), accesses(blocks));
            // Two tiles where both are held, and there are two.
            let slots = if own <= holds / 2 && steps > 1 { 2 } else { 1 };
            let kept = own.min(holds);
            // Read once or twice, and written once, by all blocks that share a multiprocessor's part of the memory's speed.
            let moved = u64::from(at_once) * ((read + 1) * u64::from(own) + read * u64::from(own - kept));
            let waits = TILES.step[slots as usize - 1] + u64::from(blocks) * TILES.block;
            let step = moved.saturating_mul(TILES.access * 100 * 100) / (share * speed) + waits;
            let cost = u64::from(steps).saturating_mul(step);
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                let tiling = Tiling {
                    blocks,
                    accesses: own,
                    kept,
                    slots,
                    ..tiling
                };
                best = Some((cost, tiling, teams));
            }
        }
    }
    let (cost, tiling, teams) = best.ok_or("the sums of a tile do not fit shared memory")?;
    Ok((cost, Choice { listed, tiling, teams }))
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
    if whole
        && u64::from(inner) * u64::from(bytes) >= TILES.least_segment_bytes
        && !(problem.given && problem.pass == Pass::Forward)
    {
        return Ok([inner, 0]);
    }
    // Groups whose elements fill accesses.
    let mut unit = inner;
    while !unit.is_multiple_of(elements) {
        unit = unit.checked_add(inner).ok_or("groups are too long")?;
    }
    let most = THREADS * elements;
    if unit > most {
        return match elements {
            1 => Ok([inner, 0]),
            _ => Err(format!(
                "groups of {inner} neighbouring elements that fill no accesses are too long"
            )),
        };
    }
    let wanted = (wanted / bytes).div_ceil(unit).next_power_of_two();
    let most = most.min(MOST_UNITS.saturating_mul(problem.run)).max(unit);
    let width = (u64::from(unit) * u64::from(wanted))
        .min(problem.line())
        .min(most.into()) as u32;
    let width = width / unit * unit;
    Ok([width, width / elements])
}
