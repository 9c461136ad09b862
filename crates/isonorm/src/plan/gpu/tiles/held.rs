//! Tiles of small images that a block holds, or the blocks of a cluster.

use isonorm_kernels::tiles::held::{MOST_GROUPS, MOST_THREADS};

use super::super::tuning::{HELD, SEGMENTS};
use super::shapes::Choice;
use super::*;

/// Shapes that hold a tile, those that are fastest by the estimate first; none where groups are no channels of small images, or others do better.
pub(super) fn choices(problem: &Problem<'_>) -> Vec<Choice> {
    let Some(listed) = listed(problem) else {
        return Vec::new();
    };
    let mut all: Vec<Choice> = Vec::new();
    for width in widths(problem) {
        for &blocks in HELD.blocks {
            all.extend(choice(problem, listed, width, blocks));
        }
    }
    all.sort_by_key(|choice| choice.nanoseconds);
    all
}

/// The kernel that does it, if any does.
fn listed(problem: &Problem<'_>) -> Option<&'static Listed> {
    let image = u64::from(problem.inner) * u64::from(problem.bytes());
    // Others are rows of segments, which have no masks.
    let is_short = match image.is_multiple_of(VECTOR_BYTES.into()) {
        true => image < SEGMENTS.least_bytes,
        false => image < HELD.long_bytes,
    };
    let own = problem.batch == 1 && problem.run == problem.inner && !problem.by_row && problem.centred;
    let elements = VECTOR_BYTES / problem.bytes();
    let whole = problem.inner >= elements && problem.line().is_multiple_of(elements.into());
    let of_tensor = problem.rows.checked_mul(problem.line())?;
    if !own || !(is_short || problem.masked) || problem.given || problem.moments || !whole || of_tensor > 1 << 31 {
        return None;
    }
    // Of a mask that is made, dy keeps where it passes.
    let wanted: &[Class] = match (problem.pass, problem.activation) {
        (Pass::Forward, _) => &[Class::Piecewise, Class::Any],
        (Pass::Backward, Activation::Identity) => &[Class::Plain],
        (Pass::Backward, Activation::Relu) if problem.masked => &[Class::Masked],
        (Pass::Backward, Activation::Relu) => &[Class::Added],
        (Pass::Backward, _) => &[Class::Any],
    };
    problem.listed_of(Kind::Held, wanted)
}

/// Elements of a row that belong to a tile: the fewest groups that fill accesses, or twice as many, or four times, ….
fn widths(problem: &Problem<'_>) -> impl Iterator<Item = u32> {
    let elements = VECTOR_BYTES / problem.bytes();
    let groups = elements >> problem.inner.trailing_zeros().min(elements.trailing_zeros());
    let (least, inner, bytes) = (groups.saturating_mul(problem.inner), problem.inner, problem.bytes());
    let line = problem.line();
    (0..MOST_GROUPS.ilog2())
        .map_while(move |doubled| least.checked_mul(1 << doubled))
        .take_while(move |&width| width / inner <= MOST_GROUPS && u64::from(width) <= line)
        .take_while(move |&width| width == least || width.saturating_mul(bytes) <= HELD.most_bytes)
}

/// With tiles so wide, each held by so many blocks.
fn choice(problem: &Problem<'_>, listed: &'static Listed, width: u32, blocks: u32) -> Option<Choice> {
    let (key, gpu) = (&listed.key, problem.gpu);
    let lanes = width / key.access_elements(problem.bytes());
    let of_block = problem.rows.div_ceil(blocks.into());
    let accesses_of = |threads: u32| {
        let at_once = u64::from(threads / lanes).min(of_block);
        (at_once > 0).then(|| of_block.div_ceil(at_once))
    };
    let shapes = || {
        HELD.threads
            .iter()
            .filter_map(|&threads| accesses_of(threads.min(MOST_THREADS)))
    };
    let few = shapes().find(|&accesses| accesses <= HELD.accesses.into());
    let accesses = u32::try_from(few.or_else(|| shapes().next_back())?).ok()?;
    let tensors = match problem.pass {
        Pass::Forward => 1,
        Pass::Backward => 2 + u32::from(problem.reads_residual()),
    };
    let tiles = u32::try_from(problem.line().div_ceil(width.into())).ok()?;
    let tiling = Tiling {
        rows: problem.rows,
        line: problem.line(),
        inner: problem.inner,
        run: problem.run,
        width,
        parts: 1,
        across: tiles,
        tiles,
        groups_of_line: problem.kept,
        lanes,
        blocks,
        accesses,
        kept: accesses.checked_mul(tensors)?,
        slots: 1,
    };
    let kernel = problem.kernel(listed, &tiling, tiles.checked_mul(blocks)?);
    // The last block has some rows, too, though blocks are whole warps.
    let at_once = u64::from(kernel.block / lanes);
    if at_once * u64::from(blocks - 1) >= problem.rows {
        return None;
    }
    // From an access of a thread to the next, which is behind the tensor perhaps.
    let step = at_once * u64::from(blocks) * problem.line();
    if kernel.shared_bytes > gpu.shared_bytes_per_block || step > u32::MAX.into() {
        return None;
    }
    Some(Choice {
        listed,
        tiling,
        teams: tiles,
        nanoseconds: nanoseconds(problem, key.class, &tiling, &kernel),
    })
}

/// The time that it takes by the estimate.
fn nanoseconds(problem: &Problem<'_>, class: Class, tiling: &Tiling, kernel: &Kernel) -> u64 {
    let (gpu, blocks) = (problem.gpu, u64::from(tiling.tiles) * u64::from(tiling.blocks));
    let sms = u64::from(gpu.sms);
    let (pass, tensors) = match problem.pass {
        Pass::Forward => (&HELD.passes[0], 2),
        Pass::Backward => (&HELD.passes[1], 3 + u64::from(problem.reads_residual())),
    };
    let tensors = tensors + u64::from(problem.residual);
    let bytes = tensors * tiling.rows * tiling.line * u64::from(problem.bytes());
    let memory = (bytes as f64 / gpu.copy_bytes_per_second * 1e9) as u64 * pass.memory / 100;
    // A fifth of it by the multiprocessors that have most blocks.
    let (most, all) = (blocks.div_ceil(sms) * sms, blocks);
    let memory = memory * (4 * all + most) / (5 * all);
    let of_sm = u64::from(blocks_per_sm(gpu, kernel));
    // Nothing is on its way while a tile is worked on, and another follows.
    let memory = match of_sm == 1 && blocks > sms {
        true => memory * pass.alone / 100,
        false => memory,
    };
    let resident = of_sm * sms;
    let cluster = if tiling.blocks > 1 { pass.cluster } else { 0 };
    let access = match class {
        Class::Any => pass.access * pass.smooth / 100,
        _ => pass.access,
    };
    let round = pass.round + u64::from(tiling.accesses) * access + cluster;
    // Blocks do not wait for the last ones of a round.
    pass.start + memory + round * (blocks * 100 / resident).max(100) / 100
}
