//! Columns: a batch entry is a matrix of `outer` rows of `kept·inner` contiguous elements; vector lanes go across groups,
//! sums go down the columns.
//!
//! The columns are cut into *tiles* of whole groups, whose coefficients live on the stack, and the rows into *blocks* (whose
//! two passes find them in the cache) that are collected into *parts*. Blocks and parts are merged by Chan's formula in a
//! fixed order, whoever computes them; the `inner` columns of a group are merged last.

mod backward;
mod forward;
mod moments;

pub(super) use backward::{ColumnsBackward, backward};
pub(super) use forward::{ColumnsForward, forward};

use std::ops::Range;

use isonorm_math::Real;

use super::chunk::{AffineMap, CHUNK, Each, Normalizer};
use super::parameters::Parameters;
use super::statistics::GroupNormalizer;
use crate::Geometry;
use crate::plan::{ColumnsPlan, WIDEST_TILE};

/// A number for each column of a tile.
type Tile<A> = [A; WIDEST_TILE];

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

    /// The tile's groups: each one's index among all, and its columns within the tile.
    #[inline(always)]
    fn each_group(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (inner, first) = (self.geometry.inner, self.first_group());
        (0..self.groups()).map(move |group| (first + group, group * inner..(group + 1) * inner))
    }

    /// Chunks of columns.
    #[inline(always)]
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let width = self.width();
        (0..width)
            .step_by(CHUNK)
            .map(move |start| start..(start + CHUNK).min(width))
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

/// What normalizes each column of a tile.
struct TileNormalizer<A> {
    hi: Tile<A>,
    lo: Tile<A>,
    rstd: Tile<A>,
}

impl<A: Real> TileNormalizer<A> {
    #[inline(always)]
    fn new() -> TileNormalizer<A> {
        let zeros = [A::ZERO; WIDEST_TILE];
        TileNormalizer {
            hi: zeros,
            lo: zeros,
            rstd: zeros,
        }
    }

    /// Sets the columns of a group.
    #[inline(always)]
    fn set(&mut self, columns: Range<usize>, n: GroupNormalizer<A>) {
        self.hi[columns.clone()].fill(n.hi);
        self.lo[columns.clone()].fill(n.lo);
        self.rstd[columns].fill(n.rstd);
    }

    /// That of a chunk of columns.
    #[inline(always)]
    fn chunk(&self, columns: Range<usize>) -> Normalizer<Each<'_, A>> {
        Normalizer {
            hi: Each(&self.hi[columns.clone()]),
            lo: Each(&self.lo[columns.clone()]),
            rstd: Each(&self.rstd[columns]),
        }
    }
}

/// Weight and bias of each column of a tile, in the row at hand.
struct TileParameters<'a, A> {
    all: Parameters<'a, A>,
    weight: Tile<A>,
    bias: Tile<A>,
}

impl<'a, A: Real> TileParameters<'a, A> {
    #[inline(always)]
    fn new(tile: &TileLayout<'_>, all: Parameters<'a, A>) -> TileParameters<'a, A> {
        let mut out = TileParameters {
            all,
            weight: [A::ONE; WIDEST_TILE],
            bias: [A::ZERO; WIDEST_TILE],
        };
        if !tile.plan.by_row {
            for column in 0..tile.width() {
                let parameter = tile.parameter(column);
                out.weight[column] = all.weight[parameter];
                out.bias[column] = all.bias[parameter];
            }
        }
        out
    }

    /// Moves to a row; returns the factor that its sums are weighted by (1 unless parameters differ by row).
    #[inline(always)]
    fn enter(&mut self, tile: &TileLayout<'_>, row: usize) -> A {
        if !tile.plan.by_row {
            return A::ONE;
        }
        let parameter = tile.row_parameter(row);
        self.weight[..tile.width()].fill(self.all.weight[parameter]);
        self.bias[..tile.width()].fill(self.all.bias[parameter]);
        self.all.weight[parameter]
    }

    /// Those of a chunk of columns.
    #[inline(always)]
    fn chunk(&self, columns: Range<usize>) -> AffineMap<Each<'_, A>> {
        AffineMap {
            weight: Each(&self.weight[columns.clone()]),
            bias: Each(&self.bias[columns]),
        }
    }
}
