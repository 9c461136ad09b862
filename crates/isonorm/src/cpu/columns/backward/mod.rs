//! Two sweeps over a tile: the sums that the gradients need, then the gradient of `x`. Through given statistics there is
//! nothing to know beforehand, and one sweep does both.

mod sweeps;

use std::ops::Range;

use isonorm_math::{Element, Real};

use self::sweeps::{SumRows, WriteRows};
use super::{LaneSums, TileLayout, TileNormalizer, TileParameters, spread};
use crate::Geometry;
use crate::cpu::crew::Crew;
use crate::cpu::elementwise::{AffineMap, BackwardElements, BackwardSpace};
use crate::cpu::isa::Vectors;
use crate::cpu::memory::Scratch;
use crate::cpu::parameters::{GradientSums, Parameters};
use crate::cpu::statistics::BackwardStatistics;
use crate::plan::{ColumnsPlan, Region, share};

/// Everything that the tasks of a backward pass share.
pub(in crate::cpu) struct ColumnsBackward<'a, T: Element> {
    pub(in crate::cpu) vectors: Vectors,
    pub(in crate::cpu) plan: &'a ColumnsPlan,
    pub(in crate::cpu) geometry: &'a Geometry,
    pub(in crate::cpu) elements: BackwardElements<'a, T>,
    pub(in crate::cpu) parameters: Parameters<'a, T::Acc>,
    /// Whether a mean was subtracted.
    pub(in crate::cpu) centred: bool,
    pub(in crate::cpu) statistics: BackwardStatistics<'a>,
    pub(in crate::cpu) gradients: GradientSums<'a>,
    /// Whether anybody wants the parameters' gradients.
    pub(in crate::cpu) wants_parameters: bool,
    pub(in crate::cpu) scratch: Scratch<'a>,
    /// `Σ g·x̂` and `Σ g` of each column of each part.
    pub(in crate::cpu) parts: Region,
}

/// Runs a backward pass, but for the final addition of the parameters' gradients.
pub(in crate::cpu) fn backward<T: Element>(pass: &ColumnsBackward<'_, T>, crew: &Crew) {
    let (g, plan) = (pass.geometry, pass.plan);
    let (tiles, parts) = (plan.tiles(g), plan.parts);
    if !plan.split {
        // Tiles have accumulators of their own, unless parameters differ by row.
        let tasks = if plan.by_row { plan.chunks } else { plan.chunks * tiles };
        return crew.for_each(tasks, |tasks| pass.whole_tiles(tasks));
    }
    if pass.sums() {
        crew.for_each(g.batch * tiles * parts, |tasks| pass.sum_parts(tasks));
        pass.add_up_parts();
    }
    if pass.second_sweep() {
        crew.for_each(g.batch * tiles * parts, |tasks| pass.write_parts(tasks));
    }
}

impl<'a, T: Element> ColumnsBackward<'a, T> {
    #[inline(always)]
    fn layout(&self, tile: usize) -> TileLayout<'_> {
        TileLayout::new(self.plan, self.geometry, tile)
    }

    /// Whether the sums are wanted: not where those that `dx` needs are told, and nobody wants the parameters' gradients.
    fn sums(&self) -> bool {
        self.wants_parameters || self.statistics.means().is_none()
    }

    /// Whether `dx` has a sweep of its own, for it needs the sums.
    fn second_sweep(&self) -> bool {
        self.elements.writes() && self.statistics.depend_on_x()
    }

    /// A tile, and what its lanes are normalized and mapped by.
    fn coefficients(&self, tile: usize) -> TileCoefficients<'_, T::Acc> {
        let layout = self.layout(tile);
        TileCoefficients {
            normalizer: TileNormalizer::new(&layout, |groups, normalizers| {
                self.statistics
                    .normalizers(layout.first_group() + groups.start, normalizers);
            }),
            parameters: TileParameters::new(&layout, self.parameters),
            layout,
        }
    }

    /// Weight and bias of a row, when they differ by row.
    #[inline(always)]
    fn of_row(&self, tile: &TileLayout<'_>, row: usize) -> AffineMap<T::Acc> {
        let parameter = tile.row_parameter(row);
        AffineMap {
            weight: self.parameters.weight[parameter],
            bias: self.parameters.bias[parameter],
        }
    }

    /// The means of each lane's group: as they are told, or from the sums of the columns.
    #[inline(always)]
    fn means_of(&self, tile: &TileCoefficients<'_, T::Acc>, gx: &[f64], g: &[f64]) -> LaneSums<T::Acc> {
        let Some(told) = self.statistics.means() else {
            return self.means(tile, gx, g);
        };
        let (tile, weight) = (&tile.layout, &tile.parameters.weight);
        let mut means = LaneSums::zero();
        for group in 0..tile.groups() {
            let columns = tile.columns_of(group);
            // A channel has one weight.
            let of_group = told.of(tile.first_group() + group, weight[columns.start]);
            means.gx[columns.clone()].fill(of_group.mean_gx);
            means.g[columns].fill(of_group.mean_g);
        }
        spread(&mut means.gx, tile);
        spread(&mut means.g, tile);
        means
    }

    /// The means of each lane's group, from the sums of the columns.
    #[inline(always)]
    fn means(&self, tile: &TileCoefficients<'_, T::Acc>, gx: &[f64], g: &[f64]) -> LaneSums<T::Acc> {
        let (tile, parameters) = (&tile.layout, &tile.parameters);
        let mut means = LaneSums::zero();
        let count = self.geometry.group_size() as f64;
        for columns in (0..tile.groups()).map(|group| tile.columns_of(group)) {
            let (mut sum_gx, mut sum_g) = (0.0, 0.0);
            for column in columns.clone() {
                // By row, the terms are weighted already (and these weights are 1).
                let weight = parameters.weight[column].to_f64();
                sum_gx += weight * gx[column];
                sum_g += weight * g[column];
            }
            means.gx[columns.clone()].fill(T::Acc::from_f64(sum_gx / count));
            means.g[columns].fill(T::Acc::from_f64(if self.centred { sum_g / count } else { 0.0 }));
        }
        spread(&mut means.gx, tile);
        spread(&mut means.g, tile);
        means
    }

    /// Adds a tile's sums to its columns' gradients of a chunk (by row, the sweep has done so).
    ///
    /// # Safety
    /// No other task touches these accumulators.
    #[inline(always)]
    unsafe fn add_to_gradients(&self, tile: &TileLayout<'_>, chunk: usize, gx: &[f64], g: &[f64]) {
        if self.plan.by_row {
            return;
        }
        // SAFETY: this function's contract.
        let [dweight, dbias] = unsafe { self.gradients.of_chunk(chunk, tile.columns.start, tile.width()) };
        dweight.iter_mut().zip(gx).for_each(|(s, v)| *s += v);
        dbias.iter_mut().zip(g).for_each(|(s, v)| *s += v);
    }

    /// `Σ g·x̂` and `Σ g` of the columns of a part of a tile.
    ///
    /// # Safety
    /// Nobody else holds a borrow of these numbers.
    #[inline(always)]
    unsafe fn slots(&self, tile: &TileLayout<'_>, part: usize) -> [&'a mut [f64]; 2] {
        // SAFETY: this function's contract; the two stretches are disjoint.
        let slot = |first| unsafe { self.scratch.slice(self.parts, first, tile.width()) };
        self.first_of_slots(tile, part).map(slot)
    }

    #[inline(always)]
    fn first_of_slots(&self, tile: &TileLayout<'_>, part: usize) -> [usize; 2] {
        let row = self.geometry.row();
        [0, 1].map(|k| ((tile.batch * self.plan.parts + part) * 2 + k) * row + tile.columns.start)
    }

    /// Adds up the parts of each tile, leaving the total in the first, and the tiles into the parameters' gradients.
    fn add_up_parts(&self) {
        let tiles = self.plan.tiles(self.geometry);
        for chunk in 0..self.plan.chunks {
            let batch = share(self.geometry.batch, self.plan.chunks, chunk);
            for tile in batch.start * tiles..batch.end * tiles {
                let tile = self.layout(tile);
                // SAFETY: no tasks are running; parts are disjoint.
                unsafe {
                    let [gx, g] = self.slots(&tile, 0);
                    for part in 1..self.plan.parts {
                        let [more_gx, more_g] = self.slots(&tile, part);
                        gx.iter_mut().zip(more_gx).for_each(|(s, v)| *s += *v);
                        g.iter_mut().zip(more_g).for_each(|(s, v)| *s += *v);
                    }
                    self.add_to_gradients(&tile, chunk, gx, g);
                }
            }
        }
    }
}

/// Tasks. What they touch is theirs alone: a tile, or a part of one, and the sums that belong to it.
impl<T: Element> ColumnsBackward<'_, T> {
    /// Shares of the tiles.
    fn whole_tiles(&self, tasks: Range<usize>) {
        let mut space = BackwardSpace::new();
        for task in tasks {
            let (chunk, tiles, step) = self.share_of_tiles(task);
            for tile in tiles.step_by(step) {
                let tile = self.coefficients(tile);
                let mut total = LaneSums::<f64>::zero();
                for part in 0..if self.sums() { self.plan.parts } else { 0 } {
                    let rows = self.plan.part_rows(self.geometry, part);
                    // SAFETY: a tile is one task's, and (by row) so is a chunk.
                    let of_part = unsafe { self.sum(&tile, rows, chunk, &mut space) };
                    total.add(&*of_part.gx, &*of_part.g);
                }
                let width = tile.layout.width();
                let (gx, g) = (&total.gx[..width], &total.g[..width]);
                // SAFETY: as above.
                unsafe { self.add_to_gradients(&tile.layout, chunk, gx, g) };
                if self.second_sweep() {
                    let means = self.means_of(&tile, gx, g);
                    // The last rows read are the first written: a cache may still have them.
                    for part in (0..self.plan.parts).rev() {
                        // SAFETY: as above.
                        unsafe { self.write(&tile, self.plan.part_rows(self.geometry, part), &means, &mut space) };
                    }
                }
            }
        }
    }

    /// The chunk of a task, which says whose accumulators of the parameters' gradients are used, and its tiles: every
    /// `step`-th of a range.
    fn share_of_tiles(&self, task: usize) -> (usize, Range<usize>, usize) {
        let (g, plan) = (self.geometry, self.plan);
        let tiles = plan.tiles(g);
        if plan.by_row {
            return (task, share(g.batch * tiles, plan.chunks, task), 1);
        }
        let (chunk, tile) = (task / tiles, task % tiles);
        let batch = share(g.batch, plan.chunks, chunk);
        (chunk, batch.start * tiles + tile..batch.end * tiles, tiles)
    }

    /// The sums of parts of tiles, into the workspace.
    fn sum_parts(&self, tasks: Range<usize>) {
        let tiles = self.geometry.batch * self.plan.tiles(self.geometry);
        let mut space = BackwardSpace::new();
        for task in tasks {
            let (tile, part) = (self.coefficients(task % tiles), task / tiles);
            let rows = self.plan.part_rows(self.geometry, part);
            // SAFETY: a part of a tile is one task's; only plans by column split.
            let (sums, [gx, g]) = unsafe { (self.sum(&tile, rows, 0, &mut space), self.slots(&tile.layout, part)) };
            gx.copy_from_slice(&sums.gx[..gx.len()]);
            g.copy_from_slice(&sums.g[..g.len()]);
        }
    }

    /// The gradient of `x` in parts of tiles, the last first: a cache may still have them.
    fn write_parts(&self, tasks: Range<usize>) {
        let tiles = self.geometry.batch * self.plan.tiles(self.geometry);
        let last = tiles * self.plan.parts - 1;
        let mut space = BackwardSpace::new();
        for task in tasks {
            let (tile, part) = (self.coefficients((last - task) % tiles), (last - task) / tiles);
            // SAFETY: the tasks that wrote the sums have ended; now they are only read.
            let slot = |first| unsafe { self.scratch.shared(self.parts, first, tile.layout.width()) };
            let [gx, g] = self.first_of_slots(&tile.layout, 0).map(slot);
            let means = self.means_of(&tile, gx, g);
            let rows = self.plan.part_rows(self.geometry, part);
            // SAFETY: a part of a tile is one task's.
            unsafe { self.write(&tile, rows, &means, &mut space) };
        }
    }

    /// The first sweep over some rows of a tile.
    ///
    /// # Safety
    /// No other task touches these elements, nor (by row) the accumulators of this chunk.
    unsafe fn sum(
        &self,
        tile: &TileCoefficients<'_, T::Acc>,
        rows: Range<usize>,
        chunk: usize,
        space: &mut BackwardSpace<T>,
    ) -> LaneSums<f64> {
        self.vectors.run(SumRows {
            pass: self,
            tile,
            rows,
            chunk,
            space,
        })
    }

    /// The second sweep over some rows of a tile.
    ///
    /// # Safety
    /// No other task touches these elements.
    unsafe fn write(
        &self,
        tile: &TileCoefficients<'_, T::Acc>,
        rows: Range<usize>,
        means: &LaneSums<T::Acc>,
        space: &mut BackwardSpace<T>,
    ) {
        self.vectors.run(WriteRows {
            pass: self,
            tile,
            rows,
            means,
            space,
        });
    }
}

/// A tile and what its lanes are normalized and mapped by.
struct TileCoefficients<'p, A> {
    layout: TileLayout<'p>,
    normalizer: TileNormalizer<A>,
    parameters: TileParameters<A>,
}
