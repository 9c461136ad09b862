//! Strips: tiles of columns that are groups, shared by blocks of the whole chip, each with a multiprocessor to itself.

use isonorm_kernels::tiles::strips::{AT_ONCE, MOST_COLUMNS, THREADS, passing};

use super::super::tuning::COLUMNS;
use super::shapes::Choice;
use super::*;

/// Shapes for each width of strips and number of teams, those that are fastest by the estimate first; none where columns are no groups.
pub(super) fn choices(problem: &Problem<'_>) -> Vec<Choice> {
    let Some(listed) = listed(problem) else {
        return Vec::new();
    };
    let mut all: Vec<Choice> = Vec::new();
    for &(bytes, share) in COLUMNS.widths {
        let mut of_width: Vec<Choice> = Vec::new();
        for teams in 1..=problem.gpu.sms {
            let Some(new) = choice(problem, listed, (bytes, share), teams) else {
                continue;
            };
            if of_width.iter().all(|old| old.tiling.blocks != new.tiling.blocks) {
                of_width.push(new);
            }
        }
        of_width.sort_by_key(|choice| choice.nanoseconds);
        of_width.truncate(COLUMNS.of_width);
        for new in of_width {
            if all.iter().all(|old| old.tiling != new.tiling) {
                all.push(new);
            }
        }
    }
    all.sort_by_key(|choice| choice.nanoseconds);
    all
}

/// The kernel with the least code that does it, if any does.
fn listed(problem: &Problem<'_>) -> Option<&'static Listed> {
    let elements = problem.rows.checked_mul(problem.line())?;
    let is_column = problem.inner == 1 && problem.batch == 1 && !problem.given && !problem.by_row;
    let fits = elements <= 1 << 30 && problem.line().is_multiple_of((VECTOR_BYTES / problem.bytes()).into());
    // What is added before an activation decides its slope.
    let sees_residual =
        problem.pass == Pass::Backward && problem.residual && problem.activation != Activation::Identity;
    if !is_column || !fits || sees_residual {
        return None;
    }
    let suits = |listed: &&Listed| {
        let key = &listed.key;
        (key.pass, key.kind) == (problem.pass, Kind::Columns) && key.class.has(problem.activation)
    };
    super::listed()
        .iter()
        .filter(suits)
        .min_by_key(|listed| listed.key.class != Class::Plain)
}

/// With strips about so wide, of which memory moves so many of a hundred bytes in the time of a hundred, and so many teams.
fn choice(problem: &Problem<'_>, listed: &'static Listed, (bytes, share): (u32, u64), teams: u32) -> Option<Choice> {
    let (key, gpu, line) = (&listed.key, problem.gpu, problem.line() as u32);
    let elements = key.access_elements(problem.bytes());
    let most = MOST_COLUMNS.min(THREADS * elements);
    let strips = line.div_ceil((bytes / problem.bytes()).clamp(elements, most));
    // As wide as each other.
    let width = line.div_ceil(strips).next_multiple_of(elements);
    let strips = line.div_ceil(width);
    let (lanes, blocks) = (width / elements, gpu.sms / teams);
    if teams > strips {
        return None;
    }
    let rows_at_once = u64::from(THREADS / lanes) * u64::from(blocks);
    let blocks = match rows_at_once > problem.rows {
        true => problem.rows.div_ceil((THREADS / lanes).into()) as u32,
        false => blocks,
    };
    let accesses = problem.rows.div_ceil(u64::from(THREADS / lanes) * u64::from(blocks)) as u32;
    let tiling = Tiling {
        rows: problem.rows,
        line: problem.line(),
        inner: 1,
        run: 1,
        width,
        parts: 1,
        across: strips,
        tiles: strips,
        groups_of_line: problem.kept,
        lanes,
        blocks,
        accesses,
        kept: 0,
        slots: 1,
    };
    let room = gpu
        .shared_bytes_per_block
        .checked_sub(key.head_bytes(&tiling, problem.bytes()))?;
    let holds = room / (key.access_bytes() * THREADS);
    // What neither registers nor shared memory hold.
    let left = accesses.saturating_sub(key.at_once);
    let passes = left.saturating_sub(holds).next_multiple_of(AT_ONCE).min(left);
    if !passes.is_multiple_of(AT_ONCE) {
        return None;
    }
    let tiling = Tiling {
        kept: left - passes,
        ..tiling
    };
    debug_assert_eq!(passing(&tiling, key.at_once), passes);
    if blocks_per_sm(gpu, &problem.kernel(listed, &tiling, blocks)) == 0 {
        return None;
    }
    let tensors = u64::from(key.tensors()) + u64::from(problem.residual);
    let steps = u64::from(strips.div_ceil(teams));
    // In hundredths: read, read again, written.
    let moved =
        (tensors + 1) * 100 * u64::from(accesses) + u64::from(key.tensors()) * COLUMNS.again * u64::from(passes);
    let bytes = moved * u64::from(teams * blocks * THREADS * VECTOR_BYTES);
    let memory = (bytes as f64 / gpu.copy_bytes_per_second * 1e9 / share as f64) as u64;
    let waits = COLUMNS.step + u64::from(blocks) * COLUMNS.block;
    Some(Choice {
        listed,
        tiling,
        teams,
        nanoseconds: steps * (memory + waits),
    })
}
