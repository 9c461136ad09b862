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
    // Joined rows are one strip, and contiguous.
    let widths = match listed.key.kind {
        Kind::Joined => &[(u32::MAX, [COLUMNS.whole; 2])],
        _ => COLUMNS.widths,
    };
    for &(bytes, shares) in widths {
        let mut of_width: Vec<Choice> = Vec::new();
        for number in 1..=problem.gpu.sms {
            // Of so many blocks each, as many as there are: strips of a batch are many.
            let teams = match listed.key.kind {
                Kind::Batched => problem.gpu.sms + 1 - number,
                _ => number,
            };
            let Some(new) = choice(problem, listed, (bytes, shares), teams) else {
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
    let of_tensor = problem.rows.checked_mul(problem.line())?;
    let has_own = problem.run == 1 || !problem.has_parameters;
    let of_columns = has_own && problem.centred && !problem.given && !problem.moments && !problem.by_row;
    if !of_columns || of_tensor.checked_mul(problem.batch)? > 1 << 30 {
        return None;
    }
    let is_column = problem.inner == 1 && problem.batch == 1;
    let kind = match joined(problem)? {
        1 if is_column => Kind::Columns,
        1 => Kind::Batched,
        _ if is_column => Kind::Joined,
        _ => return None,
    };
    let (adds, is_forward) = (problem.reads_residual(), problem.pass == Pass::Forward);
    // What is added before a ReLU is loaded ahead, whether its mask is kept or not.
    let wanted: &[Class] = match problem.activation {
        _ if kind == Kind::Joined && (problem.masked || problem.residual && !is_forward) => return None,
        _ if kind == Kind::Joined => &[Class::Piecewise, Class::Any],
        _ if kind == Kind::Batched && problem.masked => return None,
        _ if kind == Kind::Batched && adds && !is_forward => return None,
        _ if kind == Kind::Batched => &[Class::Plain, Class::Piecewise, Class::Any],
        Activation::Relu if problem.masked || adds && is_forward => &[Class::Masked],
        Activation::Relu if problem.by_result => &[Class::Result],
        Activation::Relu if adds => &[Class::Added],
        // What is added before another activation decides its slopes.
        _ if adds && !is_forward => return None,
        _ => &[Class::Plain, Class::Piecewise, Class::Any],
    };
    problem.listed_of(kind, wanted)
}

/// How many rows of memory have to be one for it to have a whole number of accesses; if that can be.
fn joined(problem: &Problem<'_>) -> Option<u32> {
    let elements = VECTOR_BYTES / problem.bytes();
    let joined = (1..=elements).find(|&rows| (problem.line() * u64::from(rows)).is_multiple_of(elements.into()))?;
    let line = problem.line() * u64::from(joined);
    let fits = joined == 1 || line <= MOST_COLUMNS.into() && problem.rows.is_multiple_of(joined.into());
    fits.then_some(joined)
}

/// About so many columns, at most, or else the fewest, that are whole groups and whole accesses, and of which a line has a whole number.
fn whole_groups(line: u32, inner: u32, elements: u32, about: u32) -> Option<u32> {
    let whole = |&width: &u32| width.is_multiple_of(inner) && width.is_multiple_of(elements);
    let widths = || {
        (1..=line)
            .map(|parts| line / parts)
            .filter(|width| line.is_multiple_of(*width))
    };
    let mut wide = widths().filter(whole);
    wide.find(|&width| width <= about)
        .or_else(|| widths().filter(whole).min())
}

/// With strips about so wide, of which memory moves so many of a hundred bytes in the time of a hundred, and so many teams.
fn choice(
    problem: &Problem<'_>,
    listed: &'static Listed,
    (bytes, shares): (u32, [u64; 2]),
    teams: u32,
) -> Option<Choice> {
    let (key, gpu, joined) = (&listed.key, problem.gpu, joined(problem)?);
    let (line, rows) = (problem.line() as u32 * joined, problem.rows / u64::from(joined));
    let elements = key.access_elements(problem.bytes());
    let most = MOST_COLUMNS.min(THREADS * elements);
    let about = (bytes / problem.bytes()).clamp(elements, most);
    let width = match key.kind {
        Kind::Batched => whole_groups(line, problem.inner, elements, about).filter(|&width| width <= most)?,
        // As wide as each other.
        _ => line.div_ceil(line.div_ceil(about)).next_multiple_of(elements),
    };
    let across = line.div_ceil(width);
    let tiles = u32::try_from(u64::from(across) * problem.batch).ok()?;
    let (lanes, blocks) = (width / elements, gpu.sms / teams);
    if teams > tiles {
        return None;
    }
    let rows_at_once = u64::from(THREADS / lanes) * u64::from(blocks);
    let blocks = match rows_at_once > rows {
        true => rows.div_ceil((THREADS / lanes).into()) as u32,
        false => blocks,
    };
    let accesses = rows.div_ceil(u64::from(THREADS / lanes) * u64::from(blocks)) as u32;
    let tiling = Tiling {
        rows,
        line: line.into(),
        inner: problem.inner,
        run: problem.run,
        width,
        parts: 1,
        across,
        tiles,
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
    Some(Choice {
        listed,
        tiling,
        teams,
        nanoseconds: nanoseconds(problem, listed, &tiling, (teams, shares)),
    })
}

/// The time that it takes by the estimate, where memory moves so many of a hundred bytes in the time of a hundred.
fn nanoseconds(problem: &Problem<'_>, listed: &Listed, tiling: &Tiling, (teams, shares): (u32, [u64; 2])) -> u64 {
    let (key, gpu) = (&listed.key, problem.gpu);
    // Of all teams at once, an access of each thread.
    let access = u64::from(teams * tiling.blocks) * u64::from(THREADS * VECTOR_BYTES);
    let (accesses, passing) = (u64::from(tiling.accesses), u64::from(passing(tiling, key.at_once)));
    let read = u64::from(key.tensors());
    let mask = |accesses: u64| if problem.masked { accesses * access / 16 } else { 0 };
    let added = u64::from(problem.residual) + u64::from(matches!(key.class, Class::Added | Class::Result));
    let moved = (read + 1 + added) * accesses * access + mask(accesses);
    let again = read * passing * access
        + if problem.pass == Pass::Backward {
            mask(passing)
        } else {
            0
        };
    let cached = again.min(gpu.l2_bytes as u64 * COLUMNS.cached / 100);
    let hundredths = moved * 100 + cached * COLUMNS.again[0] + (again - cached) * COLUMNS.again[1];
    let pass = match problem.pass {
        Pass::Forward => 0,
        Pass::Backward => 1,
    };
    let missing = COLUMNS.passing.saturating_sub(100 * passing / accesses.max(1));
    let slowed = 10_000 + missing * COLUMNS.idle;
    let tensors = u64::from(key.tensors()) + 1;
    let bytes = tensors * problem.batch * problem.rows * problem.line() * u64::from(problem.bytes());
    let share = match tiling.across {
        1 => COLUMNS.whole,
        _ => shares[usize::from(bytes > gpu.l2_bytes as u64)],
    };
    let memory = (hundredths * slowed / 10_000) as f64 / share as f64 / gpu.copy_bytes_per_second * 1e9;
    let wide = u64::from(tiling.width * problem.bytes()) * COLUMNS.wide[pass] / 1000;
    let waits = COLUMNS.step[pass] + u64::from(tiling.blocks) * COLUMNS.block[pass] + wide;
    COLUMNS.start[pass] + u64::from(tiling.tiles.div_ceil(teams)) * (memory as u64 + waits)
}
