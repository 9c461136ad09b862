//! Columns: a batch entry is a matrix of `outer` rows of `kept·inner` contiguous elements; vector lanes go across groups,
//! sums go down the columns.
//!
//! The columns are cut into *tiles* of whole groups, whose coefficients live on the stack, and the rows into *blocks* (a
//! second pass, if any, finds them in the cache) that are collected into *parts*. Blocks and parts are merged by Chan's formula in a
//! fixed order, whoever computes them; the `inner` columns of a group are merged last.
//!
//! Short rows are joined: a *line* is as many consecutive rows as fit a tile, and a *lane* is a column of one of them. Loops
//! run over lines, with coefficients repeated for each row; the lanes of a column are added up at the end of a block.

mod backward;
mod forward;
mod moments;

pub(super) use backward::{ColumnsBackward, backward};
pub(super) use forward::{ColumnsForward, forward};

use std::ops::{Deref, DerefMut, Range};

use isonorm_math::{BackwardCoefficients, Normalizer, Real};

use super::elementwise::{AffineMap, CHUNK, Each, REGISTER_LANES};
use super::parameters::Parameters;
use super::statistics::BATCH;
use crate::Geometry;
use crate::plan::{ColumnsPlan, WIDEST_TILE};

/// A number for each column of a tile, or for each lane of a line. Aligned, for a vector that straddles two cache lines takes
/// twice as long to load.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Tile<A>([A; WIDEST_TILE]);

impl<A: Real> Tile<A> {
    const ZERO: Tile<A> = Tile([A::ZERO; WIDEST_TILE]);
}

impl<A> Deref for Tile<A> {
    type Target = [A; WIDEST_TILE];

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<A> DerefMut for Tile<A> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

const _: () = assert!(WIDEST_TILE <= CHUNK, "a line is worked on at once");

/// Repeats the numbers of the first row's columns for the other rows of a line.
#[inline(always)]
fn spread<A: Copy>(numbers: &mut Tile<A>, tile: &TileLayout<'_>) {
    let width = tile.width();
    for row in 1..tile.plan.joined_rows {
        numbers.copy_within(..width, row * width);
    }
}

/// Adds up the lanes of each column, leaving the sums in the first row's.
#[inline(always)]
fn gather<A: Real>(sums: &mut Tile<A>, tile: &TileLayout<'_>) {
    let width = tile.width();
    let (columns, lanes) = sums[..tile.lanes()].split_at_mut(width);
    for row in lanes.chunks_exact(width) {
        for (sum, lane) in columns.iter_mut().zip(row) {
            *sum += *lane;
        }
    }
}

/// A tile of a batch entry.
#[derive(Clone)]
struct TileLayout<'p> {
    plan: &'p ColumnsPlan,
    geometry: &'p Geometry,
    batch: usize,
    columns: Range<usize>,
}

impl<'p> TileLayout<'p> {
    /// The `index`-th of all tiles of all batch entries.
    fn new(plan: &'p ColumnsPlan, geometry: &'p Geometry, index: usize) -> TileLayout<'p> {
        let tiles = plan.tiles(geometry);
        TileLayout {
            plan,
            geometry,
            batch: index / tiles,
            columns: plan.tile_columns(geometry, index % tiles),
        }
    }

    #[inline(always)]
    fn width(&self) -> usize {
        self.columns.len()
    }

    /// The offset of the tile's first element in a row.
    #[inline(always)]
    fn offset(&self, row: usize) -> usize {
        self.geometry.segment(self.batch, row, 0) + self.columns.start
    }

    /// Groups of the tile.
    #[inline(always)]
    fn groups(&self) -> usize {
        self.width() / self.geometry.inner
    }

    /// The index of the tile's first group among all.
    #[inline(always)]
    fn first_group(&self) -> usize {
        self.batch * self.geometry.kept + self.columns.start / self.geometry.inner
    }

    /// The columns of the tile's `group`-th group, within the tile.
    #[inline(always)]
    fn columns_of(&self, group: usize) -> Range<usize> {
        let inner = self.geometry.inner;
        group * inner..(group + 1) * inner
    }

    /// Lanes of a line.
    #[inline(always)]
    fn lanes(&self) -> usize {
        self.width() * self.plan.joined_rows
    }

    /// Whether rows follow each other in memory, [`REGISTER_LANES`] elements of them having the coefficients of a line's first ones.
    #[inline(always)]
    fn repeats(&self) -> bool {
        self.width() == self.geometry.row()
            && REGISTER_LANES.is_multiple_of(self.width())
            && REGISTER_LANES <= self.lanes()
    }

    /// Where the lines of some rows, which start with a line, begin in the tensor, and how long they are.
    #[inline(always)]
    fn lines(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        let joined = self.plan.joined_rows;
        rows.clone()
            .step_by(joined)
            .map(move |row| (self.offset(row), self.width() * joined.min(rows.end - row)))
    }

    /// The index of a row's affine parameter, when parameters differ by row.
    #[inline(always)]
    fn row_parameter(&self, row: usize) -> usize {
        self.geometry.affine.of_segment(0, row)
    }

    /// The index of a column's affine parameter, when parameters do not differ by row.
    #[inline(always)]
    fn parameter(&self, column: usize) -> usize {
        let at = self.columns.start + column;
        self.geometry
            .affine
            .at(at / self.geometry.inner, 0, at % self.geometry.inner)
    }
}

/// What normalizes each lane of a line.
struct TileNormalizer<A> {
    centre: Tile<A>,
    rstd: Tile<A>,
    offset: Tile<A>,
}

impl<A: Real> TileNormalizer<A> {
    /// From what normalizes the groups: `of_groups` is asked for some of the tile's at a time, which take about as long as one.
    #[inline(always)]
    fn new(tile: &TileLayout<'_>, mut of_groups: impl FnMut(Range<usize>, &mut [Normalizer<A>])) -> TileNormalizer<A> {
        let mut all = TileNormalizer {
            centre: Tile::ZERO,
            rstd: Tile::ZERO,
            offset: Tile::ZERO,
        };
        let mut normalizers = [Normalizer::default(); BATCH];
        for first in (0..tile.groups()).step_by(BATCH) {
            let groups = first..(first + BATCH).min(tile.groups());
            let normalizers = &mut normalizers[..groups.len()];
            of_groups(groups.clone(), normalizers);
            for (group, n) in groups.zip(normalizers) {
                let columns = tile.columns_of(group);
                all.centre[columns.clone()].fill(n.centre);
                all.rstd[columns.clone()].fill(n.rstd);
                all.offset[columns].fill(n.offset);
            }
        }
        for numbers in [&mut all.centre, &mut all.rstd, &mut all.offset] {
            spread(numbers, tile);
        }
        all
    }

    /// That of the first `len` lanes.
    #[inline(always)]
    fn first(&self, len: usize) -> Normalizer<Each<'_, A>> {
        Normalizer {
            centre: Each(&self.centre[..len]),
            rstd: Each(&self.rstd[..len]),
            offset: Each(&self.offset[..len]),
        }
    }
}

/// Weight and bias of each lane of a line, where they do not differ by row.
struct TileParameters<A> {
    weight: Tile<A>,
    bias: Tile<A>,
}

impl<A: Real> TileParameters<A> {
    #[inline(always)]
    fn new(tile: &TileLayout<'_>, all: Parameters<'_, A>) -> TileParameters<A> {
        let mut out = TileParameters {
            weight: Tile([A::ONE; WIDEST_TILE]),
            bias: Tile::ZERO,
        };
        if !tile.plan.by_row {
            for column in 0..tile.width() {
                let parameter = tile.parameter(column);
                out.weight[column] = all.weight[parameter];
                out.bias[column] = all.bias[parameter];
            }
            spread(&mut out.weight, tile);
            spread(&mut out.bias, tile);
        }
        out
    }

    /// Those of the first `len` lanes.
    #[inline(always)]
    fn first(&self, len: usize) -> AffineMap<Each<'_, A>> {
        AffineMap {
            weight: Each(&self.weight[..len]),
            bias: Each(&self.bias[..len]),
        }
    }
}

/// `Σ g·x̂` and `Σ g` of each lane (each term times the row's weight, when parameters differ by row), or their means.
struct LaneSums<A> {
    gx: Tile<A>,
    g: Tile<A>,
}

impl<A: Real> LaneSums<A> {
    #[inline(always)]
    fn zero() -> LaneSums<A> {
        LaneSums {
            gx: Tile::ZERO,
            g: Tile::ZERO,
        }
    }

    /// Adds those of the first columns.
    #[inline(always)]
    fn add<B: Real>(&mut self, gx: &[B], g: &[B]) {
        for (sums, more) in [(&mut *self.gx, gx), (&mut *self.g, g)] {
            for (s, v) in sums.iter_mut().zip(more) {
                *s += A::from_f64(v.to_f64());
            }
        }
    }

    /// The means of the first `len` lanes.
    #[inline(always)]
    fn means(&self, len: usize) -> BackwardCoefficients<Each<'_, A>> {
        BackwardCoefficients {
            mean_g: Each(&self.g[..len]),
            mean_gx: Each(&self.gx[..len]),
        }
    }
}
