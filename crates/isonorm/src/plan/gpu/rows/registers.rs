//! Rows that their team holds in registers: who owns a row, and how many teams there are.

use std::ops::RangeInclusive;

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::Pass;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::tuning::{self, Registers};
use super::{Listed, Rows, Schedule, Work};

/// A kernel that holds the rows, and the threads of its blocks.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) listed: &'static Listed,
    pub(super) threads: u32,
}

pub(super) fn lanes(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_lanes(rows, width, &tuning::FORWARD).map(|choice| schedule(rows, choice))
}

pub(super) fn block(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    by_block(rows, width, &tuning::FORWARD).map(|choice| schedule(rows, choice))
}

/// The fewest lanes that hold a row.
pub(super) fn by_lanes(rows: &Rows<'_>, width: Width, tuning: &Registers) -> Result<Choice, String> {
    let threads = tuning.lanes_threads;
    let holds = |listed: &&&Listed| {
        let key = &listed.key;
        let lanes = matches!(key.owner, Owner::Lanes(_)) && key.fits(rows.columns, threads, rows.bytes());
        let accesses = rows.columns.div_ceil(key.access_elements(rows.bytes()).into());
        lanes && (width == Width::Element || accesses <= tuning.lanes_accesses)
    };
    let kernels = rows.kernels(width);
    let fewest = kernels
        .iter()
        .filter(holds)
        .min_by_key(|listed| listed.key.team_threads(threads));
    let listed = fewest.ok_or_else(|| does_not_hold(rows, "lanes of a warp", width))?;
    Ok(Choice { listed, threads })
}

/// The first shape that holds a row; with a smooth activation, of those that leave the fewest accesses without data, which take
/// as long as others do.
pub(super) fn by_block(rows: &Rows<'_>, width: Width, tuning: &Registers) -> Result<Choice, String> {
    let smooth = width == Width::Vector && !Class::Piecewise.has(rows.activation);
    let shapes = match width {
        Width::Vector if smooth => tuning.smooth,
        Width::Vector => tuning.vectors,
        Width::Element => tuning.elements,
    };
    let kernels = rows.kernels(width);
    let mut holding = shapes.iter().filter_map(|(accesses, range)| {
        let of_shape = |listed: &&&Listed| listed.key.owner == Owner::Block && listed.key.accesses == *accesses;
        kernels
            .iter()
            .filter(of_shape)
            .find_map(|listed| Some((listed, threads(rows, listed, range)?)))
    });
    let found = match smooth {
        true => holding.min_by_key(|(listed, threads)| listed.key.accesses * threads),
        false => holding.next(),
    };
    let (listed, threads) = found.ok_or_else(|| does_not_hold(rows, "a block", width))?;
    Ok(Choice { listed, threads })
}

/// The fewest threads in the range with which a block holds a row.
fn threads(rows: &Rows<'_>, listed: &Listed, range: &RangeInclusive<u32>) -> Option<u32> {
    let key = &listed.key;
    let of_thread = key.accesses * key.access_elements(rows.bytes());
    let fewest = rows
        .columns
        .div_ceil(of_thread.into())
        .next_multiple_of(WARP.into())
        .try_into()
        .unwrap_or(u32::MAX);
    let threads = match key.width {
        // Threads may have less to do; of vectors only the last one may be missing.
        Width::Element => fewest.max(*range.start()),
        Width::Vector => fewest,
    };
    (range.contains(&threads) && key.fits(rows.columns, threads, rows.bytes())).then_some(threads)
}

/// Blocks of the grid: no more than there are rows for; so many as run at once, where a team's rows follow each other closely.
pub(super) fn grid(rows: &Rows<'_>, choice: Choice, tuning: &Registers) -> u64 {
    let Choice { listed, threads } = choice;
    let teams = u64::from(listed.key.teams(threads));
    let walks = listed.key.ahead || listed.key.owner != Owner::Block || tuning.waves == 1;
    let most = match walks {
        true => rows.resident_blocks(listed, threads, 0),
        false => u64::from(rows.gpu.sms) * u64::from(tuning.waves * (rows.gpu.threads_per_sm / threads).max(1)),
    };
    rows.rows.div_ceil(teams).min(most)
}

fn schedule(rows: &Rows<'_>, choice: Choice) -> Schedule {
    let grid = grid(rows, choice, &tuning::FORWARD);
    Schedule {
        kernels: vec![rows.kernel(choice.listed, grid, choice.threads, 0)],
        work: Work::Forward(rows.forward()),
        workspace_bytes: 0,
        again_bytes: 0,
    }
}

fn does_not_hold(rows: &Rows<'_>, team: &str, width: Width) -> String {
    let (columns, dtype) = (rows.columns, rows.dtype);
    let access = match width {
        Width::Vector => "",
        Width::Element => ", accessed one by one",
    };
    let pass = match rows.pass {
        Pass::Forward => "",
        Pass::Backward => " in a backward pass",
    };
    format!("rows of {columns} elements of {dtype}{access} do not fit the registers of {team}{pass}")
}
