//! Rows that their team holds in registers, or, if that is the whole chip, in shared memory: who owns a row, and how many teams
//! there are.
//!
//! The fewest threads that hold a row: lanes of a warp, else a block, else the blocks of a cluster, else blocks of the whole chip.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use isonorm_kernels::grid::message_words;
use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::Pass;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::ring::MOST_SLOTS;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::tuning::{self, Registers, Shared};
use super::{Forward, Kernel, Listed, MOST_BLOCKS, Messages, Rows, Schedule, Work};

/// Blocks of a cluster: every GPU that has clusters has these.
pub(super) const CLUSTERS: [u32; 3] = [2, 4, 8];

/// A kernel that holds the rows, the threads of its blocks, and how many of these hold a row.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) listed: &'static Listed,
    pub(super) threads: u32,
    pub(super) blocks: u32,
}

impl Choice {
    /// Blocks of a cluster.
    fn cluster(&self) -> u32 {
        match self.listed.key.owner {
            Owner::Blocks => self.blocks,
            _ => 1,
        }
    }

    /// What the blocks of so many teams leave for each other.
    pub(super) fn messages(&self, rows: &Rows<'_>, teams: u64) -> Messages {
        match self.listed.key.owner {
            Owner::Chip => Messages::new(
                teams as usize * message_words(self.blocks) as usize,
                rows.rows.div_ceil(teams),
            ),
            _ => Messages::default(),
        }
    }
}

pub(super) fn lanes(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_lanes(rows, width, &tuning::FORWARD).map(|choice| schedule(rows, choice))
}

pub(super) fn block(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_block(rows, width, &tuning::FORWARD).map(|choice| schedule(rows, choice))
}

pub(super) fn blocks(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_blocks(rows, width, &tuning::FORWARD).map(|choice| schedule(rows, choice))
}

pub(super) fn chip(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_chip(rows, width, &tuning::FORWARD).map(|choice| schedule(rows, choice))
}

/// The fewest lanes that hold a row.
pub(super) fn by_lanes(rows: &Rows<'_>, width: Width, tuning: &Registers) -> Result<Choice, String> {
    let threads = tuning.lanes_threads;
    let few = rows.has_parameters && rows.rows < tuning.few_rows_of_lanes * u64::from(rows.gpu.sms);
    let holds = |listed: &&&Listed| {
        let key = &listed.key;
        let lanes = matches!(key.owner, Owner::Lanes(_)) && key.fits(rows.columns, (threads, 1), rows.bytes());
        let accesses = rows.columns.div_ceil(key.access_elements(rows.bytes()).into());
        lanes && (width == Width::Element || few || accesses <= tuning.of(rows).lanes)
    };
    let kernels = rows.kernels(width);
    let fewest = kernels
        .iter()
        .filter(holds)
        .min_by_key(|listed| listed.key.team_threads(threads, 1));
    let mut listed = fewest.ok_or_else(|| does_not_hold(rows, "the registers of lanes of a warp", width))?;
    let of_all = rows.rows.saturating_mul(listed.key.team_threads(threads, 1).into());
    let few = of_all <= tuning.few_threads * u64::from(rows.gpu.sms);
    if width == Width::Vector && few && by_block(rows, width, tuning).is_ok() {
        return Err("a block of more threads does better with few rows".into());
    }
    if width == Width::Vector && rows.rows < tuning.few_rows * u64::from(rows.gpu.sms) {
        // The first of equals has the least code for nothing.
        let most = kernels
            .iter()
            .filter(holds)
            .min_by_key(|listed| Reverse(listed.key.team_threads(threads, 1)));
        listed = most.unwrap_or(listed);
    }
    // Blocks of fewer threads, where that leaves room for more of them in all.
    let fewer = threads / 4 * 3;
    let resident = |threads: u32| rows.resident_blocks(listed, threads, listed.key.least_slots()) * u64::from(threads);
    let fits = fewer.is_multiple_of(WARP) && listed.key.fits(rows.columns, (fewer, 1), rows.bytes());
    Ok(Choice {
        listed,
        threads: if fits && resident(fewer) > resident(threads) {
            fewer
        } else {
            threads
        },
        blocks: 1,
    })
}

/// The first shape that holds a row; where kernels are those for smooth activations, with parameters by column, of those that leave the fewest accesses
/// without data, which take as long as others do; with few rows, that of the most threads.
pub(super) fn by_block(rows: &Rows<'_>, width: Width, tuning: &Registers) -> Result<Choice, String> {
    let kernels = rows.kernels(width);
    let is_smooth = |listed: &&Listed| (listed.key.class, listed.key.sharing) == (Class::Any, Sharing::ByColumn);
    let smooth = width == Width::Vector && kernels.iter().all(is_smooth);
    let few = rows.rows < tuning.few_rows * u64::from(rows.gpu.sms);
    let blocks = tuning.of(rows);
    let shapes = match width {
        Width::Vector if smooth => tuning.smooth,
        Width::Vector | Width::Ragged | Width::Half => blocks.block,
        Width::Element => tuning.elements,
    };
    let mut holding = shapes.iter().filter_map(|(accesses, range)| {
        let of_shape = |listed: &&&Listed| listed.key.owner == Owner::Block && listed.key.accesses == *accesses;
        kernels
            .iter()
            .filter(of_shape)
            .find_map(|listed| Some((listed, threads(rows, listed, range, 1)?)))
    });
    let found = match smooth {
        true => holding.min_by_key(|(listed, threads)| listed.key.accesses * threads),
        false if few => holding.max_by_key(|(_, threads)| *threads),
        false => holding.next(),
    };
    let (listed, threads) = found.ok_or_else(|| does_not_hold(rows, "the registers of a block", width))?;
    let bytes = rows.columns * u64::from(rows.bytes());
    let by_column = rows.op == Op::Rms || rows.has_parameters && rows.parameters.sharing == Sharing::ByColumn;
    let most_bytes = match by_column && !few {
        true => blocks.most_bytes,
        false => blocks.most_bytes_of_others,
    };
    if bytes > most_bytes && by_blocks(rows, width, tuning).is_ok() {
        return Err(format!(
            "a cluster does better than a block, with rows of {bytes} bytes"
        ));
    }
    Ok(Choice {
        listed,
        threads,
        blocks: 1,
    })
}

/// The first shape of which a cluster's blocks hold a row, and the fewest blocks.
pub(super) fn by_blocks(rows: &Rows<'_>, width: Width, tuning: &Registers) -> Result<Choice, String> {
    let kernels = rows.kernels(width);
    let kernels = kernels.iter().filter(|listed| listed.key.owner == Owner::Blocks);
    let Some(needs) = kernels.clone().filter_map(|listed| super::needs(listed)).min() else {
        return Err("there is no such kernel for clusters".into());
    };
    rows.has_clusters(needs)?;
    let choice = |accesses: u32, range: &RangeInclusive<u32>, cluster: u32| {
        let mut of_shape = kernels.clone().filter(|listed| listed.key.accesses == accesses);
        of_shape.find_map(|listed| {
            Some(Choice {
                listed,
                threads: threads(rows, listed, range, cluster)?,
                blocks: cluster,
            })
        })
    };
    let mut shapes = tuning.of(rows).cluster.iter();
    let found = shapes.find_map(|(accesses, range)| {
        let mut clusters = CLUSTERS.into_iter();
        clusters.find_map(|cluster| choice(*accesses, range, cluster))
    });
    let choice = found.ok_or_else(|| does_not_hold(rows, "the registers of the blocks of a cluster", width))?;
    // Where teams finish several rows, a smooth activation of 16 bits leaves time for sums to travel.
    let takes_long = |chip: &Choice| {
        rows.pass == Pass::Forward
            && rows.bytes() < 4
            && !Class::Piecewise.has(rows.activation)
            && rows.rows >= 2 * teams(rows, *chip, tuning, chip.listed.key.least_slots())
    };
    let is_wide = choice.threads > tuning.of(rows).most_cluster_threads;
    if by_chip(rows, width, tuning).is_ok_and(|chip| is_wide || takes_long(&chip)) {
        let Choice { threads, blocks, .. } = choice;
        return Err(format!(
            "blocks of the whole chip do better than a cluster of {blocks} of {threads} threads"
        ));
    }
    Ok(choice)
}

/// The first shape with which blocks that run at the same time hold a row, and leave no multiprocessor without one; with few rows
/// that of the most blocks.
pub(super) fn by_chip(rows: &Rows<'_>, width: Width, tuning: &Registers) -> Result<Choice, String> {
    let kernels = rows.kernels(width);
    // Code for smooth activations is worth it where there is one.
    let is_smooth = !Class::Piecewise.has(rows.activation);
    let suits = |listed: &&&Listed| listed.key.owner == Owner::Chip && (is_smooth || listed.key.class != Class::Any);
    let kernels = kernels.iter().filter(suits);
    if kernels.clone().next().is_none() {
        return Err("there is no such kernel for blocks of the grid".into());
    }
    let choice = |&(accesses, most_threads, most_blocks): &(u32, u32, u32)| {
        let mut of_shape = kernels.clone().filter(|listed| listed.key.accesses == accesses);
        of_shape.find_map(|listed| {
            let elements = u64::from(accesses * listed.key.access_elements(rows.bytes()));
            let fewest = rows.columns.div_ceil(elements * u64::from(most_threads));
            let slots = listed.key.least_slots();
            let at_once = |threads| rows.resident_blocks(listed, threads, slots);
            if fewest > at_once(WARP).min(most_blocks.into()) {
                return None;
            }
            let of_blocks = |blocks: u64| {
                let blocks = blocks as u32;
                let threads = threads(rows, listed, &(WARP..=most_threads), blocks)?;
                let fits = listed.key.shared_bytes(threads, slots) <= rows.gpu.shared_bytes_per_block
                    && u64::from(blocks) <= at_once(threads);
                fits.then_some(Choice {
                    listed,
                    threads,
                    blocks,
                })
            };
            // Backward, a team that has no room for another has all blocks that run at once: a multiprocessor with more of them than others
            // takes longer.
            let all = at_once(most_threads);
            let is_alone = rows.pass == Pass::Backward && fewest <= all && 2 * fewest > all;
            let spread = is_alone.then(|| {
                let warps = rows.columns.div_ceil(elements * all * u64::from(WARP));
                rows.columns.div_ceil(elements * warps * u64::from(WARP))
            });
            let stays_alone = |choice: &Choice| at_once(choice.threads) < 2 * u64::from(choice.blocks);
            let spread = spread.and_then(of_blocks).filter(stays_alone);
            spread.or_else(|| of_blocks(fewest))
        })
    };
    let shapes = || tuning.of(rows).chip.iter().filter_map(choice);
    let busy = |choice: &Choice| u64::from(choice.blocks) * rows.rows >= rows.gpu.sms.into();
    let found = shapes()
        .find(busy)
        .or_else(|| shapes().max_by_key(|choice| choice.blocks));
    found.ok_or_else(|| does_not_hold(rows, "the shared memory of the whole chip", width))
}

/// The fewest threads in the range with which so many blocks hold a row.
pub(super) fn threads(rows: &Rows<'_>, listed: &Listed, range: &RangeInclusive<u32>, blocks: u32) -> Option<u32> {
    let key = &listed.key;
    let of_thread = key.accesses * key.access_elements(rows.bytes()) * blocks;
    let fewest = rows
        .columns
        .div_ceil(of_thread.into())
        .next_multiple_of(WARP.into())
        .try_into()
        .unwrap_or(u32::MAX);
    let threads = match key.width {
        // Threads may have less to do; of vectors only the last one may be missing.
        Width::Element => fewest.max(*range.start()),
        Width::Vector | Width::Ragged | Width::Half => fewest,
    };
    // Of vectors, no access of all threads may lie beyond the row: a shape with one less does better.
    let accesses = rows.columns.div_ceil(key.access_elements(rows.bytes()).into());
    let is_full =
        key.width != Width::Vector || accesses > u64::from(key.accesses - 1) * u64::from(threads) * u64::from(blocks);
    let fits = range.contains(&threads) && is_full && key.fits(rows.columns, (threads, blocks), rows.bytes());
    fits.then_some(threads)
}

impl Registers {
    /// What was found for such data.
    fn of(&self, rows: &Rows<'_>) -> &Shared {
        match (rows.bytes(), rows.op) {
            (4, _) => &self.wide,
            (_, Op::Layer) => &self.centred_16,
            _ => &self.other_16,
        }
    }
}

/// Teams of the grid: one for each row, as the GPU has others to run while one waits; so many as run at once, where a team's rows follow
/// each other closely. Blocks keep so much in shared memory.
pub(super) fn teams(rows: &Rows<'_>, choice: Choice, tuning: &Registers, kept: u32) -> u64 {
    let Choice {
        listed,
        threads,
        blocks,
    } = choice;
    let walks = listed.key.ahead || listed.key.pass == Pass::Backward;
    let most = match listed.key.owner {
        Owner::Chip => rows.resident_blocks(listed, threads, kept) / u64::from(blocks),
        _ if walks => rows.resident_clusters(listed, threads, kept, blocks),
        _ => u64::MAX,
    };
    let of_block = u64::from(listed.key.teams(threads));
    let busy = u64::from(rows.gpu.sms / blocks).max(1);
    let worth = rows.rows.div_ceil(of_block * tuning.least_rows).max(busy);
    let teams = rows.rows.div_ceil(of_block).min(worth).min(most);
    match (listed.key.width, listed.key.sharing) {
        // So that all rows of a team start equally far behind the start of an access.
        (Width::Ragged, Sharing::BySegment | Sharing::ByColumn) if teams * of_block < rows.rows => {
            let elements = u64::from(listed.key.access_elements(rows.bytes()));
            let step = elements >> (rows.columns | elements).trailing_zeros();
            // Both are powers of two.
            teams - teams % (step >> of_block.trailing_zeros()).max(1)
        }
        _ => teams,
    }
}

/// The kernel, for so many blocks that share no row, or so many times those that share one.
pub(super) fn kernel(rows: &Rows<'_>, choice: Choice, teams: u64, kept: u32) -> Kernel {
    let blocks = u64::from(choice.blocks);
    let grid = teams.min(MOST_BLOCKS / blocks) * blocks;
    Kernel {
        cluster: choice.cluster(),
        resident: choice.listed.key.owner == Owner::Chip,
        ..rows.kernel(choice.listed, grid, choice.threads, kept)
    }
}

/// Slots for rows in shared memory, where they come ahead there: as many as there is room for without fewer blocks at once.
pub(super) fn slots(rows: &Rows<'_>, choice: Choice, tuning: &Registers) -> u32 {
    let Choice { listed, threads, .. } = choice;
    let least = listed.key.least_slots();
    let resident = |slots| rows.resident_blocks(listed, threads, slots);
    let fits = |&slots: &u32| {
        listed.key.shared_bytes(threads, slots) <= rows.gpu.shared_bytes_per_block && resident(slots) == resident(least)
    };
    match least {
        0 => 0,
        _ => (least + 1..=tuning.slots.min(MOST_SLOTS))
            .rev()
            .find(fits)
            .unwrap_or(least),
    }
}

fn schedule(rows: &Rows<'_>, choice: Choice) -> Schedule {
    with_slots(rows, choice, slots(rows, choice, &tuning::FORWARD))
}

/// The kernel, where so many rows come ahead.
pub(super) fn with_slots(rows: &Rows<'_>, choice: Choice, kept: u32) -> Schedule {
    let teams = teams(rows, choice, &tuning::FORWARD, kept);
    scheduled(
        rows,
        Held {
            kernel: kernel(rows, choice, teams, kept),
            blocks: choice.blocks,
            kept,
            messages: choice.messages(rows, teams),
        },
    )
}

/// A kernel whose blocks hold rows, or keep them.
pub(super) struct Held {
    pub(super) kernel: Kernel,
    /// Blocks that share a row.
    pub(super) blocks: u32,
    /// What shared memory has room for.
    pub(super) kept: u32,
    /// Between those blocks.
    pub(super) messages: Messages,
}

/// A forward kernel that reads rows once.
pub(super) fn scheduled(rows: &Rows<'_>, held: Held) -> Schedule {
    Schedule {
        kernels: vec![held.kernel],
        work: Work::Forward(Forward {
            blocks: held.blocks,
            kept: held.kept,
            ..rows.forward()
        }),
        workspace_bytes: 0,
        running_bytes: 0,
        messages: held.messages,
        again_bytes: 0,
    }
}

pub(super) fn does_not_hold(rows: &Rows<'_>, memory: &str, width: Width) -> String {
    let (columns, dtype) = (rows.columns, rows.dtype);
    let access = match width {
        Width::Vector | Width::Ragged | Width::Half => "",
        Width::Element => ", accessed one by one",
    };
    let pass = match rows.pass {
        Pass::Forward => "",
        Pass::Backward => " in a backward pass",
    };
    format!("rows of {columns} elements of {dtype}{access} do not fit {memory}{pass}")
}
