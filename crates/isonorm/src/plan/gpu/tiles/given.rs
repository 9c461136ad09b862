//! Statistics that are told, of channels that lie side by side: how wide a tile is, and how many rows of it a block has.

use super::super::MOST_BLOCKS;
use super::super::tuning::{GIVEN, LAUNCH};
use super::shapes::Choice;
use super::*;

/// A shape for each width of tiles that is as good as wider ones, those that are fastest by the estimate first.
pub(super) fn choices(problem: &Problem<'_>, width: Width) -> Result<Vec<Choice>, String> {
    let elements = width.elements(problem.bytes());
    let (line, channels) = (problem.line(), problem.kept);
    if !channels.is_multiple_of(elements) {
        return Err(format!(
            "rows of {channels} elements do not begin on {VECTOR_BYTES} bytes"
        ));
    }
    let accesses = channels / elements;
    let least = GIVEN.least_bytes / (elements * problem.bytes());
    let of_lanes = |lanes: u32| {
        let tiling = Tiling {
            rows: problem.rows * problem.batch,
            line,
            inner: 1,
            run: 1,
            width: lanes * elements,
            parts: 1,
            across: accesses.div_ceil(lanes),
            tiles: accesses.div_ceil(lanes),
            groups_of_line: channels,
            lanes,
            blocks: 1,
            accesses: 1,
            kept: 0,
            slots: 1,
        };
        choice(problem, width, tiling)
    };
    // Tiles of equal width, as far as that goes, from as wide as a block's threads on.
    let widths = (accesses.div_ceil(THREADS)..=accesses.div_ceil(least.min(THREADS)))
        .map(|across| accesses.div_ceil(across))
        .take(GIVEN.widths);
    let mut choices: Vec<Choice> = widths.map(of_lanes).collect::<Result<_, _>>()?;
    // The first of equals is taken: the widest.
    choices.sort_by_key(|choice| choice.nanoseconds);
    choices.dedup_by_key(|choice| choice.tiling);
    Ok(choices)
}

/// With such tiles, and as many rows of them for a block as are worth finding out what their columns have; fewer, where all blocks run at once.
fn choice(problem: &Problem<'_>, width: Width, tiling: Tiling) -> Result<Choice, String> {
    let listed = problem.listed(width, &tiling).ok_or("there is no such kernel")?;
    let (at_once, of_turn) = (THREADS / tiling.lanes, u64::from(listed.key.at_once));
    let least = match (width, problem.bytes()) {
        (Width::Element, _) => GIVEN.elements,
        (_, 4) if listed.key.class != Class::Any => GIVEN.accesses[0],
        _ => GIVEN.accesses[1],
    };
    let worth = u64::from(
        (tiling.width / GIVEN.columns_of_access)
            .min(GIVEN.most_accesses)
            .max(least),
    );
    // Accesses that there are for the threads of one block.
    let of_tile = tiling.rows.div_ceil(at_once.into());
    let all = of_tile.saturating_mul(tiling.tiles.into());
    let resident = blocks_per_sm(problem.gpu, &problem.kernel(listed, &tiling, 1)) * problem.gpu.sms;
    let each = match all.div_ceil(resident.max(1).into()) {
        few if few < of_turn => few.max(1),
        many => many.next_multiple_of(of_turn),
    };
    let accesses = each.min(worth).max(all.div_ceil(MOST_BLOCKS));
    let tiling = Tiling {
        accesses: u32::try_from(accesses).map_err(|_| "there are too many rows")?,
        blocks: of_tile.div_ceil(accesses) as u32,
        ..tiling
    };
    // How long it takes where threads have nothing, in percent of where all have something.
    let idle = u64::from(THREADS * 100 / (at_once * tiling.lanes));
    let tensors = 2 + u64::from(problem.residual);
    let bytes = tiling.rows * tiling.line * u64::from(problem.bytes()) * tensors;
    let moving = bytes as f64 / problem.gpu.copy_bytes_per_second * 1e9;
    Ok(Choice {
        listed,
        tiling,
        teams: tiling.tiles,
        nanoseconds: LAUNCH.saturating_add(moving as u64 * idle / 100),
    })
}
