//! Rows in segments: channels of N, C, spatial in training, which a block holds, the blocks of a cluster, or blocks of the whole chip.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::forward::later::STAY;
use isonorm_kernels::rows::key::{Key, Pass};
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::ring::MOST_SLOTS;
use isonorm_kernels::rows::segments::Segments;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::choice::Planned;
use super::super::occupancy::PARTS_OF_SM;
use super::super::tuning::{self, FEW_ACCESSES, Registers, SEGMENTS};
use super::registers::{CLUSTERS, Choice, kernel, teams};
use super::runs;
use super::{Backward, Forward, GpuProperties, Listed, Parameters, Rows, Schedule, Work};
use crate::plan::explain::counted;
use crate::{DType, Geometry, NormDesc};

/// What these ways have in common.
pub(in super::super) const NAME: &str = "rows";

/// All shapes that hold a channel, in no order; or why there are none.
pub(in super::super) fn plans(desc: &NormDesc, g: &Geometry, gpu: &GpuProperties) -> Result<Vec<Planned>, String> {
    let rows = channels(desc, g, gpu)?;
    // The first width with which some blocks hold a channel: accesses that are no other segment's were faster in every problem.
    let plans = widths(&rows).iter().map(|&width| of_width(&rows, width));
    plans
        .into_iter()
        .find(|plans| !plans.is_empty())
        .ok_or_else(|| format!("no blocks hold channels of {} elements of {}", rows.columns, rows.dtype))
}

/// Those whose threads access segments so.
fn of_width(rows: &Rows<'_>, width: Width) -> Vec<Planned> {
    // Backward, lines gained nothing but where slopes take time.
    let suits_lines = rows.pass == Pass::Forward || !Class::Piecewise.has(rows.activation);
    let mut plans: Vec<Planned> = match width {
        Width::Vector if suits_lines => runs::of_runs(rows),
        _ => Vec::new(),
    };
    let kernels = rows.kernels(width);
    let owned_alike = |listed: &Listed| kernels.iter().find(|other| other.key.owner == listed.key.owner);
    // Those with the least code for nothing come first.
    let code = |key: &Key| (key.class, key.residual);
    let least = |listed: &&&Listed| owned_alike(listed).is_some_and(|first| code(&first.key) == code(&listed.key));
    for listed in kernels.iter().filter(least) {
        let choices = choices(rows, listed).into_iter();
        let with_slots = |choice| slots(rows, choice).into_iter().map(move |slots| (choice, slots));
        for (choice, slots) in choices.flat_map(with_slots) {
            let new = planned(rows, choice, slots);
            if plans.iter().all(|old| old.schedule.kernels != new.schedule.kernels) {
                plans.push(new);
            }
        }
    }
    plans
}

/// The problem as kernels of rows see it, or why it is none of theirs.
fn channels<'a>(desc: &NormDesc, g: &Geometry, gpu: &'a GpuProperties) -> Result<Rows<'a>, String> {
    let own = g.batch == 1 && g.outer > 1 && g.affine.outer_stride == 0 && g.affine.inner_divisor.is_none();
    if !own || desc.uses_running_statistics() || !desc.get_norm().is_centred() {
        return Err("groups are not channels of several segments".into());
    }
    let elements = g.outer * g.kept * g.inner;
    if elements > 1 << 30 {
        return Err(format!("{elements} elements are more than 2³⁰"));
    }
    let narrow = |number: usize| u32::try_from(number).map_err(|_| format!("{number} is more than 2³²"));
    let segments = Segments {
        length: narrow(g.inner)?,
        stride: narrow(g.kept * g.inner)?,
        count: narrow(g.outer)?,
    };
    let bytes = g.inner * desc.get_dtype().bytes();
    if (bytes as u64) < SEGMENTS.least_bytes {
        return Err(format!("segments of {bytes} bytes are too short"));
    }
    let (contiguous, columns) = (Rows::supported(desc, gpu)?, g.outer * g.inner);
    Ok(Rows {
        rows: g.kept as u64,
        columns: columns as u64,
        stride: g.inner as u64,
        segments,
        parameters: Parameters {
            sharing: Sharing::Segmented,
            run: columns as u64,
            sets: narrow(g.kept)?,
            runs: 1,
            as_data: desc.get_param_dtype() != DType::F32,
        },
        ..contiguous
    })
}

/// How threads may reach their parts of a segment, wherever that begins in a tensor that starts on 16 bytes: the widths that are tried, in
/// order.
fn widths(rows: &Rows<'_>) -> &'static [Width] {
    let bytes = rows.segments.length * rows.bytes();
    match () {
        () if bytes.is_multiple_of(super::VECTOR_BYTES) => &[Width::Vector],
        () if bytes.is_multiple_of(super::VECTOR_BYTES / 2) => &[Width::Half, Width::Ragged],
        () => &[Width::Ragged],
    }
}

/// Accesses of a thread that segments have all of, at most: where segments begin anywhere, one is for those that they have a part of.
fn whole_parts(key: &Key) -> u32 {
    key.accesses - u32::from(key.has_ends())
}

/// The ways in which a kernel's blocks hold a row.
fn choices(rows: &Rows<'_>, listed: &'static Listed) -> Vec<Choice> {
    // Segments whose whole accesses are accessed at once, at least, and one other access a thread at most.
    let at_once = u64::from(rows.segments.count.div_ceil(whole_parts(&listed.key)));
    let whole = rows.segments.whole_accesses(listed.key.width, rows.bytes());
    let ends = rows.segments.ends(listed.key.width, rows.bytes());
    let of_team = (at_once * u64::from(whole)).max(u64::from(ends) * u64::from(listed.key.ends_apart()));
    let choice = |blocks: u32| {
        let threads = u32::try_from(of_team.div_ceil(blocks.into()))
            .ok()?
            .next_multiple_of(WARP);
        let choice = Choice {
            listed,
            threads,
            blocks,
        };
        let shared = listed.key.shared_bytes(threads, needed_slots(&listed.key));
        let fits = listed.key.fits(rows.columns, (threads, blocks), rows.bytes());
        (fits && shared <= rows.gpu.shared_bytes_per_block).then_some(choice)
    };
    match listed.key.owner {
        Owner::Block => choice(1).into_iter().collect(),
        Owner::Blocks => {
            let has = super::needs(listed).is_some_and(|needs| rows.has_clusters(needs).is_ok());
            let wide = |choice: &Choice| choice.threads >= SEGMENTS.cluster_threads;
            let clusters = CLUSTERS.into_iter().filter(|_| has);
            clusters.filter_map(choice).filter(wide).collect()
        }
        Owner::Chip => {
            let blocks = |threads: &u32| of_team.div_ceil((*threads).into()) as u32;
            let resident = |choice: &Choice| {
                u64::from(choice.blocks) <= rows.resident_blocks(listed, choice.threads, needed_slots(&listed.key))
            };
            let of_threads = SEGMENTS.chip_threads.iter().map(blocks).filter(|&blocks| blocks > 1);
            of_threads.filter_map(choice).filter(resident).collect()
        }
        _ => Vec::new(),
    }
}

/// Slots for rows in shared memory that a kernel needs, if none is on its way while another is worked on.
pub(super) fn needed_slots(key: &Key) -> u32 {
    match key.owner {
        Owner::Chip => 1 + STAY,
        _ => key.least_slots(),
    }
}

/// Slots for rows that come ahead to shared memory: for each number of blocks that run at once, as many as leave room for these. Where there
/// is no room for any, and for channels also where there is, as many as are needed; none where rows come to registers.
pub(super) fn slots(rows: &Rows<'_>, choice: Choice) -> Vec<u32> {
    let Choice {
        listed,
        threads,
        blocks,
    } = choice;
    if !listed.key.has_slots() {
        return vec![0];
    }
    // Whole teams.
    let resident = |slots: u32| match listed.key.shared_bytes(threads, slots) <= rows.gpu.shared_bytes_per_block {
        true => rows.resident_blocks(listed, threads, slots) / u64::from(blocks),
        false => 0,
    };
    let most = match listed.key.width {
        // Copies of 8 bytes go through the first-level cache, which has what shared memory leaves.
        Width::Half => 1,
        _ => tuning(rows).slots.min(MOST_SLOTS),
    };
    let most = most.max(listed.key.least_slots());
    let is_most = |slots: &u32| resident(*slots) > 0 && (*slots == most || resident(*slots) > resident(slots + 1));
    let least = match listed.key.sharing {
        Sharing::Segmented => needed_slots(&listed.key),
        _ => listed.key.least_slots(),
    };
    let with_room: Vec<u32> = (least..=most).filter(is_most).collect();
    match with_room.is_empty() {
        true => vec![needed_slots(&listed.key)],
        false => with_room,
    }
}

pub(super) fn tuning(rows: &Rows<'_>) -> &'static Registers {
    match rows.pass {
        Pass::Forward => &tuning::FORWARD,
        Pass::Backward => &tuning::BACKWARD_ROWS,
    }
}

fn planned(rows: &Rows<'_>, choice: Choice, kept: u32) -> Planned {
    let teams = teams(rows, choice, tuning(rows), kept);
    Planned {
        name: match choice.listed.key.owner {
            Owner::Block => "rows/block",
            Owner::Blocks => "rows/blocks",
            _ => "rows/chip",
        },
        shape: shape(choice, teams, kept),
        nanoseconds: tuning::with_activation(
            nanoseconds(rows, choice, kept),
            rows.pass,
            rows.activation,
            rows.bytes(),
        ),
        schedule: schedule(rows, choice, kept),
    }
}

/// The one kernel, where shared memory has room for so much.
pub(super) fn schedule(rows: &Rows<'_>, choice: Choice, kept: u32) -> Schedule {
    let teams = teams(rows, choice, tuning(rows), kept);
    let kernel = kernel(rows, choice, teams, kept);
    let work = match rows.pass {
        Pass::Forward => Work::Forward(Forward {
            blocks: choice.blocks,
            kept,
            ..rows.forward()
        }),
        Pass::Backward => Work::Backward(Backward {
            slots: kept,
            blocks: choice.blocks,
            ..rows.backward(rows.rows)
        }),
    };
    Schedule {
        kernels: vec![kernel],
        work,
        workspace_bytes: 0,
        running_bytes: 0,
        messages: choice.messages(rows, teams),
        again_bytes: 0,
    }
}

pub(super) fn shape(choice: Choice, teams: u64, kept: u32) -> String {
    let key = &choice.listed.key;
    let accesses = key.accesses;
    let of = match key.width {
        Width::Half => " of 8 bytes",
        _ => "",
    };
    let slots = match kept {
        0 => String::new(),
        kept => format!(", {}", counted(kept as usize, "slot")),
    };
    format!("{} with {accesses} accesses{of}{slots}", of_teams(choice, teams))
}

/// The first half of that: how many teams there are, and of what.
pub(super) fn of_teams(choice: Choice, teams: u64) -> String {
    let (teams, blocks) = (
        counted(teams as usize, "team"),
        counted(choice.blocks as usize, "block"),
    );
    format!("{teams} of {blocks} of {} threads", choice.threads)
}

/// The time that it takes by an estimate.
fn nanoseconds(rows: &Rows<'_>, choice: Choice, kept: u32) -> u64 {
    let Choice {
        listed,
        threads,
        blocks,
    } = choice;
    let at_once = match listed.key.owner {
        Owner::Chip => rows.resident_blocks(listed, threads, kept) / u64::from(blocks),
        _ => rows.resident_clusters(listed, threads, kept, blocks),
    };
    let teams = at_once.min(rows.rows);
    // Blocks that have one row each do not wait for the last ones of a round.
    let hundredths = match listed.key.ahead {
        true => rows.rows.div_ceil(teams) * 100,
        false => rows.rows * 100 / teams,
    };
    let (tensors, of_pass) = match rows.pass {
        Pass::Forward => (2, 0),
        Pass::Backward => (3, 1),
    };
    let ragged = &SEGMENTS.ragged[of_pass];
    let pass = match listed.key.width {
        Width::Ragged => &ragged.pass,
        _ => &SEGMENTS.passes[of_pass],
    };
    let added = rows.added_tensors(&listed.key);
    let bytes = (tensors + added) * teams * rows.columns * u64::from(rows.bytes());
    let (blocks, sms) = (u64::from(blocks), u64::from(rows.gpu.sms));
    // Multiprocessors that have no block do not ask memory for anything.
    let busy = (teams * blocks).min(sms);
    let speed = rows.gpu.copy_bytes_per_second * busy as f64 / sms as f64;
    let memory = (bytes as f64 / speed * 1e9) as u64 * pass.memory / 100;
    // Where nothing is on its way while a row is worked on.
    let memory = match kept < listed.key.least_slots() {
        true => memory * pass.alone / 100,
        false => memory,
    };
    let (of_tensor, l2) = (
        rows.rows * rows.columns * u64::from(rows.bytes()),
        rows.gpu.l2_bytes as u64,
    );
    let memory = match listed.key.width {
        Width::Half => memory * SEGMENTS.halves[of_pass][usize::from(2 * of_tensor > l2)] / 100,
        _ => memory,
    };
    let accesses = match listed.key.width {
        Width::Ragged => {
            let whole = rows.segments.whole_accesses(listed.key.width, rows.bytes());
            let at_once = (u64::from(threads) * blocks / u64::from(whole.max(1))).max(1);
            let of_thread = u64::from(rows.segments.count).div_ceil(at_once);
            let is_narrow = rows.dtype != DType::F32;
            let is_crowded = is_narrow
                && rows.pass == Pass::Backward
                && listed.key.class == Class::Piecewise
                && listed.key.accesses >= 8;
            let crowded = if is_crowded { SEGMENTS.crowded } else { 100 };
            let few = if listed.key.accesses <= FEW_ACCESSES {
                ragged.few
            } else {
                100
            };
            let warps = teams * blocks * u64::from(threads / WARP);
            let access = ragged.access[usize::from(!is_narrow)] * crowded * few / 10_000;
            let access = access * (100 + ragged.waits * busy / warps) / 100;
            let end = if is_narrow {
                ragged.ends[usize::from(of_tensor > l2)]
            } else {
                ragged.wide_ends
            };
            let ends = 2 * rows.rows * u64::from(rows.segments.count);
            // Of the multiprocessor that has most blocks.
            let unused = u64::from(whole_parts(&listed.key)).saturating_sub(of_thread);
            let of_thread = 100 * of_thread + unused * ragged.unused;
            let of_warps = hundredths * (teams * blocks).div_ceil(sms) * u64::from(threads / WARP) * of_thread / 100;
            // What is added is accessed so, too, and so is its gradient.
            (of_warps * access / u64::from(100 * PARTS_OF_SM) + ends * end) * (tensors + added) / tensors
        }
        _ => 0,
    };
    let step = pass.step[match listed.key.owner {
        Owner::Block => 0,
        Owner::Blocks => 1,
        _ => 2,
    }];
    let shared = match listed.key.owner {
        Owner::Block => 0,
        Owner::Blocks => pass.shared[0] * blocks,
        _ => pass.shared[1] * blocks,
    };
    let waits = hundredths * (step + (shared + u64::from(threads) * pass.thread) / 1000) / 100
        + rows.rows * blocks * pass.block / sms / 1000;
    pass.start + waits + (hundredths * memory / 100).max(accesses / 1000)
}
