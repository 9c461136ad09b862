use std::ops::Range;

use isonorm_math::{Element, Real};

use super::moments::{ColumnMoments, TileMoments};
use super::{TileLayout, TileNormalizer, TileParameters};
use crate::Geometry;
use crate::cpu::chunk::{ForwardChunks, ForwardSpace};
use crate::cpu::crew::Crew;
use crate::cpu::isa::Kernel;
use crate::cpu::memory::Scratch;
use crate::cpu::parameters::Parameters;
use crate::cpu::statistics::{Given, Outcome};
use crate::plan::{ColumnsPlan, Region};

/// Everything that the tasks of a forward pass share.
pub(in crate::cpu) struct ColumnsForward<'a, T: Element> {
    pub(in crate::cpu) plan: &'a ColumnsPlan,
    pub(in crate::cpu) geometry: &'a Geometry,
    pub(in crate::cpu) chunks: ForwardChunks<'a, T>,
    pub(in crate::cpu) parameters: Parameters<'a, T::Acc>,
    /// Whether a mean is subtracted.
    pub(in crate::cpu) centred: bool,
    /// Statistics that are given; `None`: those of `x`.
    pub(in crate::cpu) given: Option<Given<'a>>,
    pub(in crate::cpu) outcome: Outcome<'a>,
    pub(in crate::cpu) scratch: Scratch<'a>,
    /// Shift, mean and squared distances of each column of each part.
    pub(in crate::cpu) parts: Region,
}

/// Runs a forward pass.
pub(in crate::cpu) fn forward<T: Element>(pass: &ColumnsForward<'_, T>, crew: &Crew) {
    let tiles = pass.geometry.batch * pass.plan.tiles(pass.geometry);
    let parts = pass.plan.parts;
    if !pass.plan.split {
        return crew.for_each(tiles, |tile| WholeTile { pass, tile });
    }
    if pass.given.is_none() {
        crew.for_each(tiles * parts, |task| PartMoments {
            pass,
            part: task / tiles,
            tile: task % tiles,
        });
    }
    // The last rows read are the first applied: a cache may still have them.
    let last = tiles * parts - 1;
    crew.for_each(tiles * parts, |task| {
        let task = last - task;
        ApplyPart {
            pass,
            part: task / tiles,
            tile: task % tiles,
        }
    });
}

impl<'a, T: Element> ColumnsForward<'a, T> {
    #[inline(always)]
    fn layout(&self, tile: usize) -> TileLayout<'_> {
        TileLayout::new(self.plan, self.geometry, tile)
    }

    /// Shift, mean and squared distances of the columns of a part of a tile.
    ///
    /// # Safety
    /// Nobody writes these numbers while they are borrowed.
    #[inline(always)]
    unsafe fn slots(&self, tile: &TileLayout<'_>, part: usize) -> [&'a mut [f64]; 3] {
        let row = self.geometry.row();
        let first = (tile.batch * self.plan.parts + part) * 3 * row + tile.columns.start;
        // SAFETY: this function's contract; the three stretches are disjoint.
        [0, 1, 2].map(|k| unsafe { self.scratch.slice(self.parts, first + k * row, tile.width()) })
    }

    /// What normalizes the columns, from statistics that are given.
    #[inline(always)]
    fn given_normalizer(&self, tile: &TileLayout<'_>, given: &Given<'_>) -> TileNormalizer<T::Acc> {
        let mut normalizer = TileNormalizer::new();
        for (group, columns) in tile.each_group() {
            normalizer.set(columns, given.normalizer(group));
        }
        normalizer
    }

    /// What normalizes the columns, from their moments; saves the groups' statistics if `save`.
    ///
    /// # Safety
    /// If `save`: no other task saves those of this tile.
    #[inline(always)]
    unsafe fn normalizer(
        &self,
        tile: &TileLayout<'_>,
        moments: &ColumnMoments,
        shift: impl Fn(usize) -> f64,
        save: bool,
    ) -> TileNormalizer<T::Acc> {
        let mut normalizer = TileNormalizer::new();
        for (group, columns) in tile.each_group() {
            let statistics = moments.of_group(columns.clone(), shift(columns.start));
            let of_group = if save {
                // SAFETY: this function's contract.
                unsafe { self.outcome.finish_group(group, statistics) }
            } else {
                self.outcome.normalizer(statistics)
            };
            normalizer.set(columns, of_group);
        }
        normalizer
    }

    /// Computes `y` of some rows of a tile, the last row first.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    unsafe fn apply(&self, tile: &TileLayout<'_>, rows: Range<usize>, normalizer: &TileNormalizer<T::Acc>) {
        let mut parameters = TileParameters::new(tile, self.parameters);
        let mut space = ForwardSpace::new();
        for row in rows.rev() {
            parameters.enter(tile, row);
            for columns in tile.chunks() {
                let (at, len) = (tile.offset(row) + columns.start, columns.len());
                let (n, affine) = (normalizer.chunk(columns.clone()), parameters.chunk(columns));
                // SAFETY: this function's contract.
                unsafe { self.chunks.run((at, len), n, affine, &mut space) };
            }
        }
    }
}

/// A tile from its statistics to its result.
struct WholeTile<'a, T: Element> {
    pass: &'a ColumnsForward<'a, T>,
    tile: usize,
}

impl<T: Element> Kernel for WholeTile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let WholeTile { pass, tile } = self;
        let tile = pass.layout(tile);
        let normalizer = match &pass.given {
            Some(given) => pass.given_normalizer(&tile, given),
            None => {
                let x = TileMoments::new(pass.chunks.x, &tile, pass.centred);
                let mut moments = ColumnMoments::empty();
                for part in 0..pass.plan.parts {
                    let rows = pass.plan.part_rows(pass.geometry, part);
                    let of_part = x.of_rows(&tile, rows.clone());
                    moments.merge(rows.len() as f64, of_part.mean(), of_part.m2());
                }
                // SAFETY: a tile is one task's.
                unsafe { pass.normalizer(&tile, &moments, |column| x.shift[column].to_f64(), true) }
            }
        };
        // SAFETY: as above.
        unsafe { pass.apply(&tile, 0..pass.geometry.outer, &normalizer) };
    }
}

/// The moments of a part of a tile, into the workspace.
struct PartMoments<'a, T: Element> {
    pass: &'a ColumnsForward<'a, T>,
    part: usize,
    tile: usize,
}

impl<T: Element> Kernel for PartMoments<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let PartMoments { pass, part, tile } = self;
        let tile = pass.layout(tile);
        let x = TileMoments::new(pass.chunks.x, &tile, pass.centred);
        let moments = x.of_rows(&tile, pass.plan.part_rows(pass.geometry, part));
        // SAFETY: a part of a tile is one task's.
        let [shift, mean, m2] = unsafe { pass.slots(&tile, part) };
        for (kept, shift) in shift.iter_mut().zip(&x.shift) {
            *kept = shift.to_f64();
        }
        mean.copy_from_slice(&moments.mean()[..tile.width()]);
        m2.copy_from_slice(&moments.m2()[..tile.width()]);
    }
}

/// A part's result. Every task merges the tile's moments for itself, in the same order; the first part's saves them.
struct ApplyPart<'a, T: Element> {
    pass: &'a ColumnsForward<'a, T>,
    part: usize,
    tile: usize,
}

impl<T: Element> Kernel for ApplyPart<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ApplyPart { pass, part, tile } = self;
        let tile = pass.layout(tile);
        let normalizer = match &pass.given {
            Some(given) => pass.given_normalizer(&tile, given),
            None => {
                // SAFETY: the tasks that wrote the slots have ended; now they are only read.
                let slots = |part| unsafe { pass.slots(&tile, part) };
                let mut moments = ColumnMoments::empty();
                for part in 0..pass.plan.parts {
                    let [_, mean, m2] = slots(part);
                    moments.merge(pass.plan.part_rows(pass.geometry, part).len() as f64, &*mean, &*m2);
                }
                let [shift, _, _] = slots(0);
                // SAFETY: the first part of a tile is one task's.
                unsafe { pass.normalizer(&tile, &moments, |column| shift[column], part == 0) }
            }
        };
        // SAFETY: a part of a tile is one task's.
        unsafe { pass.apply(&tile, pass.plan.part_rows(pass.geometry, part), &normalizer) };
    }
}
