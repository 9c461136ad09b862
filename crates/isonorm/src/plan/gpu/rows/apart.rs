//! The backward pass over few rows by one kernel: some blocks have strips of columns, for the gradients of weight and bias, the others
//! have rows, for dx.

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::backward::apart::rows_at_once;
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::statistics::Op;
use isonorm_kernels::rows::team::Owner;
use isonorm_kernels::simt::WARP;

use super::super::tuning::APART;
use super::registers::CLUSTERS;
use super::{Backward, Columns, Kernel, Listed, Messages, Rows, Schedule, Work};

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
    let of_team = |owner: Owner| match owner {
        Owner::Block => 1,
        Owner::Blocks => 2,
        _ => 0,
    };
    let shape = fitting.min_by_key(|shape| (of_team(shape.listed.key.owner), shape.listed.key.accesses));
    let shape = shape.ok_or("there is no such kernel that holds a row")?;
    let (read, cached) = (read_bytes(rows), rows.gpu.l2_bytes as u64 * APART.cached / 100);
    if read > cached {
        return Err(format!(
            "x and dy are read twice, and the last-level cache does not hold their {read} bytes"
        ));
    }
    if shape.blocks > 1 {
        let most = match rows.bytes() {
            4 => APART.most_shared[1],
            _ if rows.columns <= APART.short_shared => 2 * APART.most_shared[0],
            _ => APART.most_shared[0],
        };
        return match read > most {
            true => Err(format!(
                "x and dy are {read} bytes; of more than {most}, rows that blocks share leave sums for a second kernel sooner"
            )),
            false => Ok(shape.schedule(rows)),
        };
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
    /// Of a team.
    blocks: u32,
    columns: Columns,
}

impl Shape {
    /// How a kernel does it, if its teams hold a row.
    fn of(rows: &Rows<'_>, listed: &'static Listed) -> Option<Shape> {
        let key = &listed.key;
        let accesses = rows.columns.div_ceil(key.access_elements(rows.bytes()).into());
        let threads = |blocks: u32| {
            let threads = match key.owner {
                Owner::Block | Owner::Blocks => {
                    let of_block = u64::from(key.accesses * blocks);
                    accesses.div_ceil(of_block).next_multiple_of(WARP.into())
                }
                _ => APART.threads.into(),
            };
            let threads = u32::try_from(threads).ok()?;
            key.fits(rows.columns, (threads, blocks), rows.bytes())
                .then_some((threads, blocks))
        };
        match key.owner {
            // The largest clusters of which all run at once, if any do, for a row's threads have less to do then; but not of small blocks, for
            // strips have as many threads.
            Owner::Blocks => {
                rows.has_clusters(super::needs(listed)?).ok()?;
                let holding = || CLUSTERS.into_iter().filter_map(threads);
                let suits = |&(threads, blocks): &(u32, u32)| {
                    rows.rows * u64::from(blocks) <= rows.gpu.sms.into() && threads >= APART.least_threads
                };
                let shape = holding().rfind(suits).or_else(|| holding().next())?;
                Some(Shape::with(rows, listed, shape))
            }
            Owner::Block => Some(Shape::with(rows, listed, threads(1)?)),
            _ => {
                let (threads, blocks) = threads(1)?;
                let shape = Shape::with(rows, listed, (threads, blocks));
                let larger = Shape::with(rows, listed, (2 * threads, blocks));
                // Twice as many threads to a block, if that saves waiting for rows twice, and each block has a multiprocessor of its own.
                let suits = shape.rounds(rows) > 1
                    && larger.rounds(rows) == 1
                    && larger.grid(rows) <= rows.gpu.sms.into()
                    && key.fits(rows.columns, (larger.threads, blocks), rows.bytes());
                Some(if suits { larger } else { shape })
            }
        }
    }

    /// By blocks of so many threads, of which so many have a row together.
    fn with(rows: &Rows<'_>, listed: &'static Listed, (threads, blocks): (u32, u32)) -> Shape {
        let key = &listed.key;
        let accesses = rows.columns.div_ceil(key.access_elements(rows.bytes()).into());
        let most_blocks = APART.most_blocks * u64::from(rows.gpu.sms) / 100;
        // Narrow strips for enough blocks; but wide ones where each thread has all of its rows on their way at once.
        let suits = |&lanes: &u32| {
            let is_few = accesses.div_ceil(lanes.into()) <= most_blocks;
            let next_is_at_once = rows.rows <= u64::from(threads / (2 * lanes) * rows_at_once(key.accesses));
            is_few && !next_is_at_once
        };
        let mut narrower = (0..).map(|k| 1 << k).take_while(|&lanes| lanes < APART.most_lanes);
        let lanes = match key.owner {
            Owner::Blocks => {
                // As wide as they can be with all rows on their way at once, and enough blocks.
                let rows_of = |lanes: u32| u64::from(threads / lanes * rows_at_once(key.accesses));
                let suits = |&lanes: &u32| rows_of(lanes) >= rows.rows && accesses >= most_blocks * u64::from(lanes);
                let wider = (0..)
                    .map(|k| APART.most_lanes << k)
                    .take_while(|&lanes| lanes <= threads);
                wider.filter(suits).last().unwrap_or(APART.most_lanes)
            }
            _ => narrower.find(suits).unwrap_or(APART.most_lanes),
        };
        // Whole clusters.
        let strips = accesses.div_ceil(lanes.into()).next_multiple_of(blocks.into());
        Shape {
            listed,
            threads,
            blocks,
            columns: Columns {
                blocks: strips as u32,
                lanes,
            },
        }
    }

    /// Blocks that have rows: one for some teams, or some for each.
    fn row_blocks(&self, rows: &Rows<'_>) -> u64 {
        let teams = rows.rows.div_ceil(self.listed.key.teams(self.threads).into());
        teams * u64::from(self.blocks)
    }

    /// All blocks.
    fn grid(&self, rows: &Rows<'_>) -> u64 {
        u64::from(self.columns.blocks) + self.row_blocks(rows)
    }

    /// Times that a thread waits for rows of a strip.
    fn rounds(&self, rows: &Rows<'_>) -> u64 {
        let at_once = self.threads / self.columns.lanes * rows_at_once(self.listed.key.accesses);
        rows.rows.div_ceil(at_once.into())
    }

    /// What the strips take by an estimate, besides moving bytes.
    fn nanoseconds(&self, rows: &Rows<'_>) -> u64 {
        let wide = usize::from(rows.bytes() == 4);
        let bytes = read_bytes(rows) * 3 / 2;
        let copy = (bytes as f64 / rows.gpu.copy_bytes_per_second * 1e9) as u64;
        let is_crowded = self.listed.key.owner == Owner::Block && self.threads > APART.threads;
        let crowded = if is_crowded { copy * APART.crowded / 100 } else { 0 };
        let is_small = self.threads < APART.threads / 2;
        let round = APART.round * if is_small { 2 } else { 1 };
        APART.once[wide] + (rows.rows * APART.row[wide] / 1000).max(self.rounds(rows) * round) + crowded
    }

    fn schedule(&self, rows: &Rows<'_>) -> Schedule {
        let kernel = Kernel {
            cluster: self.blocks,
            ..rows.kernel(self.listed, self.grid(rows), self.threads, 0)
        };
        Schedule {
            kernels: vec![kernel],
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
