use std::ops::Range;

use isonorm_math::{Element, Moments, Normalizer, Real};

use super::GroupLayout;
use super::moments::{GroupMoments, measure_short_groups};
use crate::Geometry;
use crate::cpu::crew::Crew;
use crate::cpu::elementwise::{AffineMap, All, CHUNK, Each, ForwardElements, OutputSpace, ResidualStream, rounds};
use crate::cpu::isa::{Kernel, Vectors};
use crate::cpu::memory::Scratch;
use crate::cpu::parameters::Parameters;
use crate::cpu::statistics::{BATCH, Given, GroupStatistics, Outcome};
use crate::plan::{Region, RowsPlan};

/// Numbers that are kept of a part.
const SLOT: usize = 4;

/// Everything that the tasks of a forward pass share.
pub(in crate::cpu) struct RowsForward<'a, T: Element> {
    pub(in crate::cpu) vectors: Vectors,
    pub(in crate::cpu) plan: &'a RowsPlan,
    pub(in crate::cpu) geometry: &'a Geometry,
    /// What is added beforehand, making the `x` of the elements.
    pub(in crate::cpu) stream: Option<ResidualStream<'a, T>>,
    pub(in crate::cpu) elements: ForwardElements<'a, T>,
    pub(in crate::cpu) parameters: Parameters<'a, T::Acc>,
    /// Whether a mean is subtracted.
    pub(in crate::cpu) centred: bool,
    /// Statistics that are given; `None`: those of `x`.
    pub(in crate::cpu) given: Option<Given<'a>>,
    pub(in crate::cpu) outcome: Outcome<'a>,
    pub(in crate::cpu) scratch: Scratch<'a>,
    /// Count, mean, squared distances and shift of each part; once they are merged, what normalizes the group in the first
    /// part's place.
    pub(in crate::cpu) parts: Region,
}

/// Runs a forward pass.
pub(in crate::cpu) fn forward<T: Element>(pass: &RowsForward<'_, T>, crew: &Crew) {
    let run = |phase, tasks| pass.vectors.run(Tasks { pass, phase, tasks });
    let (groups, parts) = (pass.geometry.groups(), pass.plan.parts);
    if !pass.plan.split {
        return crew.for_each(groups, |tasks| run(Phase::Whole, tasks));
    }
    if pass.stream.is_some() {
        crew.for_each(groups * parts, |tasks| run(Phase::Add, tasks));
    }
    if pass.given.is_none() {
        crew.for_each(groups * parts, |tasks| run(Phase::Measure, tasks));
        crew.for_each(groups, |groups| groups.for_each(|group| pass.merge_parts(group)));
    }
    if pass.elements.writes() {
        crew.for_each(groups * parts, |tasks| run(Phase::Apply, tasks));
    }
}

/// What a task does, and with what: a group, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A group from its statistics to its result.
    Whole,
    /// What is added to a part beforehand; before any part is measured, for all are measured about the same elements.
    Add,
    /// The moments of a part, into the workspace.
    Measure,
    /// A part's result, the last first: a cache may still have them.
    Apply,
}

/// Tasks of a phase. What they touch is theirs alone.
struct Tasks<'p, 'a, T: Element> {
    pass: &'p RowsForward<'a, T>,
    phase: Phase,
    tasks: Range<usize>,
}

impl<T: Element> Kernel for Tasks<'_, '_, T> {
    type Output = ();

    const STORES_16_BITS: bool = rounds::<T>();

    #[inline(always)]
    fn run(self) {
        let Tasks { pass, phase, tasks } = self;
        let parts = pass.plan.parts;
        let mut space = OutputSpace::new();
        let mut normalizers = [Normalizer::default(); BATCH];
        let batch = if phase == Phase::Whole { pass.plan.batch } else { 1 };
        for start in tasks.clone().step_by(batch) {
            let (groups, parts) = match phase {
                Phase::Whole => (start..(start + batch).min(tasks.end), 0..parts),
                Phase::Add | Phase::Measure => (start / parts..start / parts + 1, start % parts..start % parts + 1),
                Phase::Apply => {
                    let task = pass.geometry.groups() * parts - 1 - start;
                    (task / parts..task / parts + 1, task % parts..task % parts + 1)
                }
            };
            if let (Some(stream), Phase::Whole | Phase::Add) = (&pass.stream, phase) {
                // SAFETY: a group is one task's, or a part of one is.
                unsafe { stream.add(pass.stretch(groups.clone(), parts.clone()), &mut space) };
            }
            if phase == Phase::Add {
                continue;
            }
            let normalizers = &mut normalizers[..groups.len()];
            // SAFETY: a group is one task's, or (when measuring) the slot of each part.
            unsafe { pass.normalizers(phase, groups.clone(), parts.clone(), normalizers) };
            if phase == Phase::Measure || !pass.elements.writes() {
                continue;
            }
            let len = pass.geometry.inner;
            if pass.plan.batch > 1 && len <= CHUNK && pass.plan.per_element(pass.geometry) {
                // Short rows: finding out where one lies would take as long as computing it.
                let Parameters { weight, bias } = pass.parameters;
                let affine = AffineMap {
                    weight: Each(weight),
                    bias: Each(bias),
                };
                // SAFETY: a group is one task's.
                unsafe {
                    pass.elements
                        .run_rows((groups.start * len, len), normalizers, affine, &mut space)
                };
                continue;
            }
            for (group, normalizer) in groups.zip(normalizers) {
                let layout = GroupLayout::new(pass.plan, pass.geometry, group);
                for part in parts.clone().rev() {
                    // SAFETY: a part is one task's.
                    unsafe { pass.apply(&layout, part, *normalizer, &mut space) };
                }
            }
        }
    }
}

impl<'a, T: Element> RowsForward<'a, T> {
    /// Where some whole groups, or some parts of one, begin, and how many elements they have, where groups are contiguous.
    fn stretch(&self, groups: Range<usize>, parts: Range<usize>) -> (usize, usize) {
        let (plan, len) = (self.plan, self.geometry.inner);
        debug_assert!(self.geometry.outer == 1, "a residual stream has contiguous rows");
        let start = groups.start * len + plan.part_blocks(parts.start).start * plan.block_inner;
        let of_last = (plan.part_blocks(parts.end - 1).end * plan.block_inner).min(len);
        (start, (groups.end - 1) * len + of_last - start)
    }

    /// What normalizes some groups; when only measuring, their moments go to the workspace.
    ///
    /// # Safety
    /// Of whole groups: no other task saves the statistics. When measuring: no other task measures this part.
    #[inline(always)]
    unsafe fn normalizers(
        &self,
        phase: Phase,
        groups: Range<usize>,
        parts: Range<usize>,
        normalizers: &mut [Normalizer<T::Acc>],
    ) {
        if let Some(given) = &self.given {
            for (group, normalizer) in groups.zip(normalizers) {
                *normalizer = given.normalizer(group);
            }
            return;
        }
        if phase == Phase::Apply {
            normalizers[0] = self.merged_normalizer(groups.start);
            return;
        }
        let mut statistics = [GroupStatistics::default(); BATCH];
        if self.plan.blocks == 1 {
            let layout = |group| GroupLayout::new(self.plan, self.geometry, group);
            measure_short_groups(
                self.vectors,
                self.elements.x,
                self.centred,
                groups.clone(),
                layout,
                &mut statistics,
            );
        } else {
            let layout = GroupLayout::new(self.plan, self.geometry, groups.start);
            let x = GroupMoments::new(self.elements.x, layout, self.centred);
            let moments = x.of_parts(parts.clone());
            if phase == Phase::Measure {
                let numbers = [moments.count, moments.mean, moments.m2, x.shift.to_f64()];
                // SAFETY: this function's contract.
                unsafe { *self.slot(groups.start, parts.start) = numbers };
                return;
            }
            statistics[0] = GroupStatistics::about(x.shift.to_f64(), moments);
        }
        // SAFETY: this function's contract.
        unsafe {
            self.outcome
                .finish_groups(groups.start, &statistics[..groups.len()], normalizers)
        };
    }

    /// Merges the moments of a group's parts, saves its statistics, and leaves what normalizes it in the first part's place. A
    /// group is one task's, in a phase of its own.
    fn merge_parts(&self, group: usize) {
        // SAFETY: the tasks that wrote the slots have ended.
        let slot = |part| unsafe { self.slot(group, part) };
        let moments = (0..self.plan.parts).fold(Moments::EMPTY, |m, part| {
            let [count, mean, m2, _] = *slot(part);
            m.merge(Moments { count, mean, m2 })
        });
        let merged = slot(0);
        let statistics = GroupStatistics::about(merged[3], moments);
        // SAFETY: a group is one task's.
        let Normalizer { centre, rstd, offset } = unsafe { self.outcome.finish_group::<T::Acc>(group, statistics) };
        *merged = [centre.to_f64(), rstd.to_f64(), offset.to_f64(), 0.0];
    }

    /// What normalizes a group, once its parts have been merged.
    #[inline(always)]
    fn merged_normalizer(&self, group: usize) -> Normalizer<T::Acc> {
        // SAFETY: the phase that merged them has ended; now they are only read.
        let slot: &[f64] = unsafe { self.scratch.shared(self.parts, self.first_of_slot(group, 0), SLOT) };
        Normalizer {
            centre: T::Acc::from_f64(slot[0]),
            rstd: T::Acc::from_f64(slot[1]),
            offset: T::Acc::from_f64(slot[2]),
        }
    }

    /// Computes `y` of a part, in the order of memory, as prefetching likes it.
    ///
    /// # Safety
    /// No other task touches this part.
    #[inline(always)]
    unsafe fn apply(
        &self,
        layout: &GroupLayout<'_>,
        part: usize,
        normalizer: Normalizer<T::Acc>,
        space: &mut OutputSpace<T>,
    ) {
        let (first, n) = (layout.parameter(), All(normalizer));
        let Parameters { weight, bias } = self.parameters;
        let per_element = self.plan.per_element(self.geometry);
        for block in self.plan.part_blocks(part) {
            for index in 0..layout.pieces(block) {
                let piece = layout.piece(block, index);
                if per_element {
                    let (start, end) = (piece.inner, piece.inner + piece.len);
                    let affine = AffineMap {
                        weight: Each(&weight[start..end]),
                        bias: Each(&bias[start..end]),
                    };
                    // SAFETY: this function's contract.
                    unsafe { self.elements.run((piece.offset, piece.len), n, affine, space) };
                } else {
                    for stretch in piece.stretches(self.plan.run) {
                        let affine = All(AffineMap {
                            weight: weight[first + stretch.run],
                            bias: bias[first + stretch.run],
                        });
                        // SAFETY: this function's contract.
                        unsafe { self.elements.run((stretch.offset, stretch.len), n, affine, space) };
                    }
                }
            }
        }
    }

    /// Where the moments of a part are kept.
    ///
    /// # Safety
    /// Nobody else holds a borrow of this slot.
    #[inline(always)]
    unsafe fn slot(&self, group: usize, part: usize) -> &'a mut [f64; SLOT] {
        // SAFETY: this function's contract.
        let slot = unsafe { self.scratch.slice(self.parts, self.first_of_slot(group, part), SLOT) };
        slot.try_into().expect("a slot has so many numbers")
    }

    #[inline(always)]
    fn first_of_slot(&self, group: usize, part: usize) -> usize {
        (group * self.plan.parts + part) * SLOT
    }
}
