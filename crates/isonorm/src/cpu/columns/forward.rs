use std::ops::Range;

use isonorm_math::{Element, Normalizer, Real};

use super::moments::{ColumnMoments, TileMoments};
use super::{TileLayout, TileNormalizer, TileParameters};
use crate::Geometry;
use crate::cpu::crew::Crew;
use crate::cpu::elementwise::{AffineMap, All, ForwardElements, OutputSpace, REGISTER_LANES, rounds};
use crate::cpu::isa::{Kernel, Vectors};
use crate::cpu::memory::Scratch;
use crate::cpu::parameters::Parameters;
use crate::cpu::statistics::{BATCH, Given, GroupStatistics, Outcome};
use crate::plan::{ColumnsPlan, Region};

/// Everything that the tasks of a forward pass share.
pub(in crate::cpu) struct ColumnsForward<'a, T: Element> {
    pub(in crate::cpu) vectors: Vectors,
    pub(in crate::cpu) plan: &'a ColumnsPlan,
    pub(in crate::cpu) geometry: &'a Geometry,
    pub(in crate::cpu) elements: ForwardElements<'a, T>,
    pub(in crate::cpu) parameters: Parameters<'a, T::Acc>,
    /// Whether a mean is subtracted.
    pub(in crate::cpu) centred: bool,
    /// Statistics that are given; `None`: those of `x`.
    pub(in crate::cpu) given: Option<Given<'a>>,
    pub(in crate::cpu) outcome: Outcome<'a>,
    pub(in crate::cpu) scratch: Scratch<'a>,
    /// Centre, mean and squared distances of each column of each part; once they are merged, what normalizes each column, in
    /// the first part's place.
    pub(in crate::cpu) parts: Region,
}

/// Runs a forward pass.
pub(in crate::cpu) fn forward<T: Element>(pass: &ColumnsForward<'_, T>, crew: &Crew) {
    let (tiles, parts) = (pass.tiles(), pass.plan.parts);
    if !pass.plan.split {
        return crew.for_each(tiles, |tiles| pass.whole_tiles(tiles));
    }
    if pass.given.is_none() {
        crew.for_each(tiles * parts, |tasks| pass.part_moments(tasks));
        crew.for_each(tiles, |tiles| crew.vectors.run(MergeParts { pass, tiles }));
    }
    if pass.elements.writes() {
        crew.for_each(tiles * parts, |tasks| pass.apply_parts(tasks));
    }
}

impl<'a, T: Element> ColumnsForward<'a, T> {
    /// Tiles of all batch entries.
    fn tiles(&self) -> usize {
        self.geometry.batch * self.plan.tiles(self.geometry)
    }

    #[inline(always)]
    fn layout(&self, tile: usize) -> TileLayout<'_> {
        TileLayout::new(self.plan, self.geometry, tile)
    }

    /// Centre, mean and squared distances of the columns of a part of a tile.
    ///
    /// # Safety
    /// Nobody else holds a borrow of these numbers.
    #[inline(always)]
    unsafe fn slots(&self, tile: &TileLayout<'_>, part: usize) -> [&'a mut [f64]; 3] {
        // SAFETY: this function's contract; the three stretches are disjoint.
        let slot = |first| unsafe { self.scratch.slice(self.parts, first, tile.width()) };
        self.first_of_slots(tile, part).map(slot)
    }

    #[inline(always)]
    fn first_of_slots(&self, tile: &TileLayout<'_>, part: usize) -> [usize; 3] {
        let row = self.geometry.row();
        [0, 1, 2].map(|k| ((tile.batch * self.plan.parts + part) * 3 + k) * row + tile.columns.start)
    }

    /// What normalizes the columns, from statistics that are given.
    #[inline(always)]
    fn given_normalizer(&self, tile: &TileLayout<'_>, given: &Given<'_>) -> TileNormalizer<T::Acc> {
        TileNormalizer::new(tile, |groups, normalizers| {
            for (group, normalizer) in groups.zip(normalizers) {
                *normalizer = given.normalizer(tile.first_group() + group);
            }
        })
    }

    /// What normalizes the columns, from their moments; saves the groups' statistics.
    ///
    /// # Safety
    /// No other task saves those of this tile.
    #[inline(always)]
    unsafe fn normalizer(
        &self,
        tile: &TileLayout<'_>,
        moments: &ColumnMoments,
        centre: impl Fn(usize) -> f64,
    ) -> TileNormalizer<T::Acc> {
        let mut statistics = [GroupStatistics::default(); BATCH];
        TileNormalizer::new(tile, |groups, normalizers| {
            let (first, statistics) = (tile.first_group() + groups.start, &mut statistics[..groups.len()]);
            for (group, statistics) in groups.zip(&mut *statistics) {
                *statistics = moments.of_group(tile.columns_of(group), &centre);
            }
            // SAFETY: this function's contract.
            unsafe { self.outcome.finish_groups(first, statistics, normalizers) };
        })
    }

    /// What normalizes the columns, once the parts have been merged.
    ///
    /// # Safety
    /// The phase that merged them has ended.
    #[inline(always)]
    unsafe fn merged_normalizer(&self, tile: &TileLayout<'_>) -> TileNormalizer<T::Acc> {
        // SAFETY: this function's contract: from now on they are only read.
        let slot = |first| unsafe { self.scratch.shared::<f64>(self.parts, first, tile.width()) };
        let [centre, rstd, offset] = self.first_of_slots(tile, 0).map(slot);
        TileNormalizer::new(tile, |groups, normalizers| {
            for (group, normalizer) in groups.zip(normalizers) {
                let column = tile.columns_of(group).start;
                *normalizer = Normalizer {
                    centre: T::Acc::from_f64(centre[column]),
                    rstd: T::Acc::from_f64(rstd[column]),
                    offset: T::Acc::from_f64(offset[column]),
                };
            }
        })
    }

    /// Computes `y` of some rows of a tile.
    ///
    /// # Safety
    /// No other task touches these elements.
    unsafe fn apply(
        &self,
        tile: &TileLayout<'_>,
        rows: Range<usize>,
        normalizer: &TileNormalizer<T::Acc>,
        space: &mut OutputSpace<T>,
    ) {
        self.vectors.run(ApplyRows {
            pass: self,
            tile,
            rows,
            normalizer,
            space,
        });
    }

    fn columns<'t>(&self, tile: &'t TileLayout<'_>) -> TileMoments<'a, 't, T> {
        TileMoments::new(self.elements.x, tile, self.centred)
    }
}

/// Tasks. What they touch is theirs alone: a tile, or a part of one.
impl<T: Element> ColumnsForward<'_, T> {
    /// Tiles from their statistics to their results.
    fn whole_tiles(&self, tiles: Range<usize>) {
        let mut space = OutputSpace::new();
        for tile in tiles {
            let tile = self.layout(tile);
            let normalizer = match &self.given {
                Some(given) => self.given_normalizer(&tile, given),
                None => {
                    let x = self.columns(&tile);
                    let mut moments = ColumnMoments::empty();
                    for part in 0..self.plan.parts {
                        let rows = self.plan.part_rows(self.geometry, part);
                        let of_part = self.vectors.run(x.rows(rows.clone()));
                        moments.merge(rows.len() as f64, of_part.mean(), of_part.m2());
                    }
                    // SAFETY: a tile is one task's.
                    unsafe { self.normalizer(&tile, &moments, |column| x.centre[column].to_f64()) }
                }
            };
            if !self.elements.writes() {
                continue;
            }
            // The last rows read are the first applied: a cache may still have them.
            for part in (0..self.plan.parts).rev() {
                // SAFETY: as above.
                unsafe { self.apply(&tile, self.plan.part_rows(self.geometry, part), &normalizer, &mut space) };
            }
        }
    }

    /// The moments of parts of tiles, into the workspace.
    fn part_moments(&self, tasks: Range<usize>) {
        let tiles = self.tiles();
        for task in tasks {
            let (tile, part) = (self.layout(task % tiles), task / tiles);
            let x = self.columns(&tile);
            let moments = self.vectors.run(x.rows(self.plan.part_rows(self.geometry, part)));
            // SAFETY: a part of a tile is one task's.
            let [centre, mean, m2] = unsafe { self.slots(&tile, part) };
            for (kept, centre) in centre.iter_mut().zip(&*x.centre) {
                *kept = centre.to_f64();
            }
            mean.copy_from_slice(&moments.mean()[..tile.width()]);
            m2.copy_from_slice(&moments.m2()[..tile.width()]);
        }
    }

    /// Parts' results, the last rows first: a cache may still have them.
    fn apply_parts(&self, tasks: Range<usize>) {
        let tiles = self.tiles();
        let last = tiles * self.plan.parts - 1;
        let mut space = OutputSpace::new();
        for task in tasks {
            let (tile, part) = (self.layout((last - task) % tiles), (last - task) / tiles);
            let normalizer = match &self.given {
                Some(given) => self.given_normalizer(&tile, given),
                // SAFETY: this phase comes after the merge.
                None => unsafe { self.merged_normalizer(&tile) },
            };
            // SAFETY: a part of a tile is one task's.
            unsafe { self.apply(&tile, self.plan.part_rows(self.geometry, part), &normalizer, &mut space) };
        }
    }
}

/// Merges the moments of the parts of tiles, saves their statistics, and leaves what normalizes them in the first part's place.
/// A tile is one task's.
struct MergeParts<'p, 'a, T: Element> {
    pass: &'p ColumnsForward<'a, T>,
    tiles: Range<usize>,
}

impl<T: Element> Kernel for MergeParts<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let MergeParts { pass, tiles } = self;
        for tile in tiles {
            let tile = pass.layout(tile);
            // SAFETY: the tasks that wrote the slots have ended, and a tile is one task's.
            let slots = |part| unsafe { pass.slots(&tile, part) };
            let mut moments = ColumnMoments::empty();
            for part in 0..pass.plan.parts {
                let [_, mean, m2] = slots(part);
                moments.merge(pass.plan.part_rows(pass.geometry, part).len() as f64, mean, m2);
            }
            let [first, second, third] = slots(0);
            // SAFETY: as above.
            let normalizer = unsafe { pass.normalizer(&tile, &moments, |column| first[column]) };
            for column in 0..tile.width() {
                first[column] = normalizer.centre[column].to_f64();
                second[column] = normalizer.rstd[column].to_f64();
                third[column] = normalizer.offset[column].to_f64();
            }
        }
    }
}

/// Computes `y` of some rows of a tile, in the order of memory, as prefetching likes it. Made where no other task touches them.
struct ApplyRows<'p, 'a, 's, T: Element> {
    pass: &'p ColumnsForward<'a, T>,
    tile: &'s TileLayout<'p>,
    rows: Range<usize>,
    normalizer: &'s TileNormalizer<T::Acc>,
    space: &'s mut OutputSpace<T>,
}

impl<T: Element> Kernel for ApplyRows<'_, '_, '_, T> {
    type Output = ();

    const STORES_16_BITS: bool = rounds::<T>();

    #[inline(always)]
    fn run(self) {
        let ApplyRows {
            pass,
            tile,
            rows,
            normalizer,
            space,
        } = self;
        if pass.plan.by_row {
            let Parameters { weight, bias } = pass.parameters;
            for row in rows {
                let (at, parameter) = ((tile.offset(row), tile.width()), tile.row_parameter(row));
                let affine = All(AffineMap {
                    weight: weight[parameter],
                    bias: bias[parameter],
                });
                // SAFETY: these rows are this task's alone.
                unsafe { pass.elements.run(at, normalizer.first(at.1), affine, space) };
            }
        } else {
            let parameters = TileParameters::new(tile, pass.parameters);
            let at = (tile.offset(rows.start), rows.len() * tile.width());
            if tile.repeats() && pass.elements.begins_on_line(at.0) {
                let (n, a) = (normalizer.first(REGISTER_LANES), parameters.first(REGISTER_LANES));
                // SAFETY: as above.
                return unsafe { pass.elements.run_repeating(at, n, a, space) };
            }
            for at in tile.lines(rows) {
                // SAFETY: as above.
                unsafe {
                    pass.elements
                        .run(at, normalizer.first(at.1), parameters.first(at.1), space)
                };
            }
        }
    }
}
