//! Two sweeps over a tile: the sums that the gradients need, then the gradient of `x`. Through given statistics there is
//! nothing to know beforehand, and one sweep does both.

use std::ops::Range;

use isonorm_math::{BackwardCoefficients, Element, Real};

use super::{Tile, TileLayout, TileNormalizer, TileParameters};
use crate::Geometry;
use crate::cpu::chunk::{All, BackwardChunks, BackwardSpace, Each};
use crate::cpu::crew::Crew;
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::Lanes;
use crate::cpu::memory::Scratch;
use crate::cpu::parameters::{GradientSums, Parameters};
use crate::cpu::statistics::BackwardStatistics;
use crate::plan::{BLOCK_ROWS, ColumnsPlan, Region, WIDEST_TILE, share};

/// Everything that the tasks of a backward pass share.
pub(in crate::cpu) struct ColumnsBackward<'a, T: Element> {
    pub(in crate::cpu) plan: &'a ColumnsPlan,
    pub(in crate::cpu) geometry: &'a Geometry,
    pub(in crate::cpu) chunks: BackwardChunks<'a, T>,
    pub(in crate::cpu) parameters: Parameters<'a, T::Acc>,
    /// Whether a mean was subtracted.
    pub(in crate::cpu) centred: bool,
    pub(in crate::cpu) statistics: BackwardStatistics<'a>,
    pub(in crate::cpu) gradients: GradientSums<'a>,
    pub(in crate::cpu) scratch: Scratch<'a>,
    /// `Σ g·x̂` and `Σ g` of each column of each part.
    pub(in crate::cpu) parts: Region,
}

/// `Σ g·x̂` and `Σ g` of each column (each term times the row's weight, when parameters differ by row).
struct ColumnSums<A> {
    gx: Tile<A>,
    g: Tile<A>,
}

impl<A: Real> ColumnSums<A> {
    #[inline(always)]
    fn zero() -> ColumnSums<A> {
        ColumnSums {
            gx: [A::ZERO; WIDEST_TILE],
            g: [A::ZERO; WIDEST_TILE],
        }
    }

    #[inline(always)]
    fn add<B: Real>(&mut self, gx: &[B], g: &[B]) {
        self.gx
            .iter_mut()
            .zip(gx)
            .for_each(|(s, v)| *s += A::from_f64(v.to_f64()));
        self.g
            .iter_mut()
            .zip(g)
            .for_each(|(s, v)| *s += A::from_f64(v.to_f64()));
    }

    /// Adds a chunk of a row.
    #[inline(always)]
    fn add_chunk(&mut self, columns: Range<usize>, (g, xhat): (&[A], &[A]), row_weight: A) {
        let sums = self.gx[columns.clone()].iter_mut().zip(&mut self.g[columns]);
        for ((gx_sum, g_sum), (xhat, g)) in sums.zip(xhat.iter().zip(g)) {
            let wg = *g * row_weight;
            *gx_sum = wg.mul_add(*xhat, *gx_sum);
            *g_sum += wg;
        }
    }
}

/// `mean(w·g·x̂)` and `mean(w·g)` of each column's group.
type TileMeans<A> = ColumnSums<A>;

impl<A: Real> TileMeans<A> {
    #[inline(always)]
    fn chunk(&self, columns: Range<usize>) -> BackwardCoefficients<Each<'_, A>> {
        BackwardCoefficients {
            mean_g: Each(&self.g[columns.clone()]),
            mean_gx: Each(&self.gx[columns]),
        }
    }
}

/// Runs a backward pass, but for the final addition of the parameters' gradients.
pub(in crate::cpu) fn backward<T: Element>(pass: &ColumnsBackward<'_, T>, crew: &Crew) {
    let (g, plan) = (pass.geometry, pass.plan);
    let (tiles, parts) = (plan.tiles(g), plan.parts);
    let all = g.batch * tiles;
    if !plan.split && plan.by_row {
        return crew.for_each(plan.chunks, |chunk| Tiles {
            pass,
            chunk,
            tiles: share(all, plan.chunks, chunk),
            step: 1,
        });
    }
    if !plan.split {
        // Tiles have accumulators of their own; a chunk is a share of the batch.
        return crew.for_each(plan.chunks * tiles, |task| {
            let (chunk, tile) = (task / tiles, task % tiles);
            let batch = share(g.batch, plan.chunks, chunk);
            Tiles {
                pass,
                chunk,
                tiles: batch.start * tiles + tile..batch.end * tiles,
                step: tiles,
            }
        });
    }
    crew.for_each(all * parts, |task| PartOfTile {
        pass,
        part: task / all,
        tile: task % all,
    });
    pass.add_up_parts();
    if pass.second_sweep() {
        let last = all * parts - 1;
        crew.for_each(all * parts, |task| {
            let task = last - task;
            WritePart {
                pass,
                part: task / all,
                tile: task % all,
            }
        });
    }
}

impl<'a, T: Element> ColumnsBackward<'a, T> {
    #[inline(always)]
    fn layout(&self, tile: usize) -> TileLayout<'_> {
        TileLayout::new(self.plan, self.geometry, tile)
    }

    /// Whether `dx` has to wait for the sums.
    fn second_sweep(&self) -> bool {
        self.chunks.writes() && self.statistics.depend_on_x()
    }

    #[inline(always)]
    fn normalizer(&self, tile: &TileLayout<'_>) -> TileNormalizer<T::Acc> {
        let mut normalizer = TileNormalizer::new();
        for (group, columns) in tile.each_group() {
            normalizer.set(columns, self.statistics.normalizer(group));
        }
        normalizer
    }

    /// The first sweep over some rows of a tile: the sums; and the results, when they do not depend on the sums.
    ///
    /// # Safety
    /// No other task touches these elements, nor (by row) the accumulators of this chunk.
    #[inline(always)]
    unsafe fn sum(
        &self,
        tile: &TileLayout<'_>,
        rows: Range<usize>,
        normalizer: &TileNormalizer<T::Acc>,
        parameters: &mut TileParameters<'_, T::Acc>,
        chunk: usize,
    ) -> ColumnSums<f64> {
        let writes = !self.statistics.depend_on_x() && self.chunks.writes();
        let none = BackwardCoefficients {
            mean_g: All(T::Acc::ZERO),
            mean_gx: All(T::Acc::ZERO),
        };
        let mut total = ColumnSums::<f64>::zero();
        let mut space = BackwardSpace::new();
        let mut of_row = [Lanes::new(), Lanes::new()];
        for block in rows.clone().step_by(BLOCK_ROWS) {
            let mut sums = ColumnSums::<T::Acc>::zero();
            for row in block..(block + BLOCK_ROWS).min(rows.end) {
                let row_weight = parameters.enter(tile, row);
                for columns in tile.chunks() {
                    let (at, len) = (tile.offset(row) + columns.start, columns.len());
                    let (n, affine) = (normalizer.chunk(columns.clone()), parameters.chunk(columns.clone()));
                    self.chunks.gradient((at, len), n, affine, &mut space);
                    let (g, xhat) = space.lanes(len);
                    sums.add_chunk(columns, (g, xhat), row_weight);
                    if self.plan.by_row {
                        of_row[0].add_pairs(g, xhat, |s, g, xhat| g.mul_add(xhat, s));
                        of_row[1].add_pairs(g, xhat, |s, g, _| s + g);
                    }
                    if writes {
                        // SAFETY: this function's contract.
                        unsafe { self.chunks.write((at, len), n.rstd, affine.weight, none, &mut space) };
                    }
                }
                if self.plan.by_row {
                    // SAFETY: this function's contract.
                    let [dweight, dbias] = unsafe { self.gradients.of_chunk(chunk, tile.row_parameter(row), 1) };
                    dweight[0] += of_row[0].take().to_f64();
                    dbias[0] += of_row[1].take().to_f64();
                }
            }
            total.add(&sums.gx[..tile.width()], &sums.g[..tile.width()]);
        }
        total
    }

    /// The second sweep over some rows of a tile, the last row first.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    unsafe fn write(
        &self,
        tile: &TileLayout<'_>,
        rows: Range<usize>,
        normalizer: &TileNormalizer<T::Acc>,
        parameters: &mut TileParameters<'_, T::Acc>,
        means: &TileMeans<T::Acc>,
    ) {
        let mut space = BackwardSpace::new();
        for row in rows.rev() {
            parameters.enter(tile, row);
            for columns in tile.chunks() {
                let (at, len) = (tile.offset(row) + columns.start, columns.len());
                let (n, affine) = (normalizer.chunk(columns.clone()), parameters.chunk(columns.clone()));
                let means = means.chunk(columns);
                self.chunks.gradient((at, len), n, affine, &mut space);
                // SAFETY: this function's contract.
                unsafe { self.chunks.write((at, len), n.rstd, affine.weight, means, &mut space) };
            }
        }
    }

    /// The means of each column's group, from the sums of the columns.
    #[inline(always)]
    fn means(
        &self,
        tile: &TileLayout<'_>,
        gx: &[f64],
        g: &[f64],
        parameters: &TileParameters<'_, T::Acc>,
    ) -> TileMeans<T::Acc> {
        let mut means = TileMeans::zero();
        let count = self.geometry.group_size() as f64;
        for (_, columns) in tile.each_group() {
            let (mut sum_gx, mut sum_g) = (0.0, 0.0);
            for column in columns.clone() {
                // By row, the terms are weighted already.
                let weight = if self.plan.by_row {
                    1.0
                } else {
                    parameters.weight[column].to_f64()
                };
                sum_gx += weight * gx[column];
                sum_g += weight * g[column];
            }
            means.gx[columns.clone()].fill(T::Acc::from_f64(sum_gx / count));
            means.g[columns].fill(T::Acc::from_f64(if self.centred { sum_g / count } else { 0.0 }));
        }
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
    /// Nobody writes these numbers while they are borrowed.
    #[inline(always)]
    unsafe fn slots(&self, tile: &TileLayout<'_>, part: usize) -> [&'a mut [f64]; 2] {
        let row = self.geometry.row();
        let first = (tile.batch * self.plan.parts + part) * 2 * row + tile.columns.start;
        // SAFETY: this function's contract; the two stretches are disjoint.
        [0, 1].map(|k| unsafe { self.scratch.slice(self.parts, first + k * row, tile.width()) })
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

/// Whole tiles, one after the other: every `step`-th of a range.
struct Tiles<'a, T: Element> {
    pass: &'a ColumnsBackward<'a, T>,
    /// Whose accumulators of the parameters' gradients are used.
    chunk: usize,
    tiles: Range<usize>,
    step: usize,
}

impl<T: Element> Kernel for Tiles<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Tiles {
            pass,
            chunk,
            tiles,
            step,
        } = self;
        for tile in tiles.step_by(step) {
            let tile = pass.layout(tile);
            let normalizer = pass.normalizer(&tile);
            let mut parameters = TileParameters::new(&tile, pass.parameters);
            let mut total = ColumnSums::<f64>::zero();
            for part in 0..pass.plan.parts {
                let rows = pass.plan.part_rows(pass.geometry, part);
                // SAFETY: a tile is one task's, and (by row) so is a chunk.
                let of_part = unsafe { pass.sum(&tile, rows, &normalizer, &mut parameters, chunk) };
                total.add(&of_part.gx, &of_part.g);
            }
            let (gx, g) = (&total.gx[..tile.width()], &total.g[..tile.width()]);
            // SAFETY: as above.
            unsafe { pass.add_to_gradients(&tile, chunk, gx, g) };
            if pass.second_sweep() {
                let means = pass.means(&tile, gx, g, &parameters);
                // SAFETY: as above.
                unsafe { pass.write(&tile, 0..pass.geometry.outer, &normalizer, &mut parameters, &means) };
            }
        }
    }
}

/// The sums of a part of a tile, into the workspace.
struct PartOfTile<'a, T: Element> {
    pass: &'a ColumnsBackward<'a, T>,
    part: usize,
    tile: usize,
}

impl<T: Element> Kernel for PartOfTile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let PartOfTile { pass, part, tile } = self;
        let tile = pass.layout(tile);
        let normalizer = pass.normalizer(&tile);
        let mut parameters = TileParameters::new(&tile, pass.parameters);
        let rows = pass.plan.part_rows(pass.geometry, part);
        // SAFETY: a part of a tile is one task's; only plans by column split.
        let (sums, [gx, g]) = unsafe {
            (
                pass.sum(&tile, rows, &normalizer, &mut parameters, 0),
                pass.slots(&tile, part),
            )
        };
        gx.copy_from_slice(&sums.gx[..tile.width()]);
        g.copy_from_slice(&sums.g[..tile.width()]);
    }
}

/// The gradient of `x` in a part of a tile.
struct WritePart<'a, T: Element> {
    pass: &'a ColumnsBackward<'a, T>,
    part: usize,
    tile: usize,
}

impl<T: Element> Kernel for WritePart<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let WritePart { pass, part, tile } = self;
        let tile = pass.layout(tile);
        let normalizer = pass.normalizer(&tile);
        let mut parameters = TileParameters::new(&tile, pass.parameters);
        // SAFETY: the tasks that wrote the sums have ended; now they are only read.
        let [gx, g] = unsafe { pass.slots(&tile, 0) };
        let means = pass.means(&tile, gx, g, &parameters);
        // SAFETY: a part of a tile is one task's.
        unsafe {
            pass.write(
                &tile,
                pass.plan.part_rows(pass.geometry, part),
                &normalizer,
                &mut parameters,
                &means,
            )
        };
    }
}
