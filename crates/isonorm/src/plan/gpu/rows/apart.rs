//! The backward pass over few rows by one kernel: some blocks have strips of columns, for the gradients of weight and bias, the others
//! have rows, for dx.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::backward::apart::rows_at_once;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::tuning::APART;
use super::{Backward, Columns, Listed, Messages, Rows, Schedule, Work};

pub(super) fn plan(rows: &Rows<'_>, width: Width) -> Result<Schedule, String> {
    if !rows.has_parameters || rows.parameters.sharing != Sharing::ByColumn {
        return Err("there are no gradients that are sums over rows".into());
    }
    if width != Width::Vector {
        return Err("its kernels access 16 bytes at a time".into());
    }
    if rows.in_place {
        return Err("dx is written over dy, which other blocks read".into());
    }
    let kernels = rows.kernels_apart();
    // The fewest threads for a row, and the least that each of them has of it.
    let fitting = kernels.iter().filter_map(|listed| Shape::of(rows, listed));
    let shape = fitting.min_by_key(|shape| (shape.listed.key.owner == Owner::Block, shape.listed.key.accesses));
    let shape = shape.ok_or("there is no such kernel that holds a row")?;
    let (read, cached) = (read_bytes(rows), rows.gpu.l2_bytes as u64 * APART.cached / 100);
    if read > cached {
        return Err(format!(
            "x and dy are read twice, and the last-level cache does not hold their {read} bytes"
        ));
    }
    let (apart, after) = (shape.nanoseconds(rows), after(rows, &shape));
    if apart > after {
        return Err(format!(
            "with {} rows, strips of columns take {apart} ns besides moving bytes, and sums and a second kernel {after}",
            rows.rows
        ));
    }
    Ok(shape.schedule(rows))
}

/// Bytes of x and dy.
fn read_bytes(rows: &Rows<'_>) -> u64 {
    rows.rows.saturating_mul(2 * rows.columns * u64::from(rows.bytes()))
}

/// What others take by an estimate, besides moving bytes, for sums over the rows of each block, and for a kernel that adds those up.
fn after(rows: &Rows<'_>, shape: &Shape) -> u64 {
    match (rows.bytes(), shape.listed.key.owner) {
        (4, _) => APART.after,
        (_, Owner::Block) => APART.after_blocks[usize::from(rows.op == Op::Rms)],
        _ => APART.after_lanes + rows.columns * APART.after_column / 1000,
    }
}

/// How the work is divided.
struct Shape {
    listed: &'static Listed,
    threads: u32,
    columns: Columns,
}

impl Shape {
    /// How a kernel does it, if its teams hold a row.
    fn of(rows: &Rows<'_>, listed: &'static Listed) -> Option<Shape> {
        let key = &listed.key;
        let accesses = rows.columns.div_ceil(key.access_elements(rows.bytes()).into());
        let threads = match key.owner {
            Owner::Block => accesses.div_ceil(key.accesses.into()).next_multiple_of(WARP.into()),
            _ => APART.threads.into(),
        };
        let threads = u32::try_from(threads).ok()?;
        if !key.fits(rows.columns, (threads, 1), rows.bytes()) {
            return None;
        }
        let most_blocks = APART.most_blocks * u64::from(rows.gpu.sms) / 100;
        // Narrow strips for enough blocks; but wide ones where each thread has all of its rows on their way at once.
        let suits = |&lanes: &u32| {
            let is_few = accesses.div_ceil(lanes.into()) <= most_blocks;
            let next_is_at_once = rows.rows <= u64::from(threads / (2 * lanes) * rows_at_once(key.accesses));
            is_few && !next_is_at_once
        };
        let mut narrower = (0..).map(|k| 1 << k).take_while(|&lanes| lanes < APART.most_lanes);
        let lanes = narrower.find(suits).unwrap_or(APART.most_lanes);
        Some(Shape {
            listed,
            threads,
            columns: Columns {
                blocks: accesses.div_ceil(lanes.into()) as u32,
                lanes,
            },
        })
    }

    /// Blocks that have rows, one for each team.
    fn row_blocks(&self, rows: &Rows<'_>) -> u64 {
        rows.rows.div_ceil(self.listed.key.teams(self.threads).into())
    }

    /// What the strips take by an estimate, besides moving bytes.
    fn nanoseconds(&self, rows: &Rows<'_>) -> u64 {
        let wide = usize::from(rows.bytes() == 4);
        let at_once = self.threads / self.columns.lanes * rows_at_once(self.listed.key.accesses);
        let rounds = rows.rows.div_ceil(at_once.into());
        let bytes = read_bytes(rows) * 3 / 2;
        let copy = (bytes as f64 / rows.gpu.copy_bytes_per_second * 1e9) as u64;
        let crowded = if self.threads > APART.threads {
            copy * APART.crowded / 100
        } else {
            0
        };
        APART.once[wide] + (rows.rows * APART.row[wide] / 1000).max(rounds * APART.round) + crowded
    }

    fn schedule(&self, rows: &Rows<'_>) -> Schedule {
        let grid = u64::from(self.columns.blocks) + self.row_blocks(rows);
        Schedule {
            kernels: vec![rows.kernel(self.listed, grid, self.threads, self.columns.lanes)],
            work: Work::Backward(Backward {
                apart: Some(self.columns),
                ..rows.backward(rows.columns)
            }),
            workspace_bytes: 0,
            running_bytes: 0,
            messages: Messages::default(),
            again_bytes: read_bytes(rows),
        }
    }
}
