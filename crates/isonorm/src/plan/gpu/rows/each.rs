//! Given statistics: each access by itself, in blocks that have nothing to do with each other.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::each::most_rows;
use isonorm_kernels::rows::team::Owner;

use super::super::tuning::EACH_THREADS;
use super::{Forward, Messages, Rows, Schedule, Work};

/// What the kernels divide by, and what they add to it, have 32 bits.
const MOST_SETS: u64 = 1 << 31;

/// A block for so much of the tensor as its threads access at once.
pub(super) fn plan(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    if rows.masked && width == Width::Element {
        return Err("a thread writes whole bytes of a mask".into());
    }
    let kernels = rows.kernels(width);
    let of_each = kernels.iter().find(|listed| listed.key.owner == Owner::Each);
    let listed = of_each.ok_or("there is no such kernel")?;
    let (columns, sets) = (rows.columns, rows.parameters.sets);
    if u64::from(sets) >= MOST_SETS {
        return Err(format!("{sets} channels are too many"));
    }
    let elements = rows.rows * columns;
    let of_block = listed.key.tile_elements(EACH_THREADS, rows.bytes());
    let kept = most_rows(of_block, columns);
    Ok(Schedule {
        kernels: vec![rows.kernel(listed, elements.div_ceil(of_block.into()), EACH_THREADS, kept)],
        work: Work::Forward(Forward { kept, ..rows.forward() }),
        workspace_bytes: 0,
        running_bytes: 0,
        messages: Messages::default(),
        again_bytes: 0,
    })
}
