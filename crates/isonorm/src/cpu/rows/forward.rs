use isonorm_math::{Element, Moments, Real};

use super::GroupLayout;
use super::moments::GroupMoments;
use crate::Geometry;
use crate::cpu::chunk::{AffineMap, All, CHUNK, Each, ForwardChunks, ForwardSpace};
use crate::cpu::crew::Crew;
use crate::cpu::isa::Kernel;
use crate::cpu::memory::Scratch;
use crate::cpu::parameters::Parameters;
use crate::cpu::statistics::{Given, GroupNormalizer, GroupStatistics, Outcome};
use crate::plan::{Region, RowsPlan};

/// Numbers that are kept of a part: the shift because, in place, another part's task may have overwritten it in `x`.
const SLOT: usize = 4;

/// Everything that the tasks of a forward pass share.
pub(in crate::cpu) struct RowsForward<'a, T: Element> {
    pub(in crate::cpu) plan: &'a RowsPlan,
    pub(in crate::cpu) geometry: &'a Geometry,
    pub(in crate::cpu) chunks: ForwardChunks<'a, T>,
    pub(in crate::cpu) parameters: Parameters<'a, T::Acc>,
    /// Whether a mean is subtracted.
    pub(in crate::cpu) centred: bool,
    /// Statistics that are given; `None`: those of `x`.
    pub(in crate::cpu) given: Option<Given<'a>>,
    pub(in crate::cpu) outcome: Outcome<'a>,
    pub(in crate::cpu) scratch: Scratch<'a>,
    /// Count, mean, squared distances and shift of each part.
    pub(in crate::cpu) parts: Region,
}

/// Runs a forward pass.
pub(in crate::cpu) fn forward<T: Element>(pass: &RowsForward<'_, T>, crew: &Crew) {
    let (groups, parts) = (pass.geometry.groups(), pass.plan.parts);
    if !pass.plan.split {
        return crew.for_each(groups, |group| WholeGroup { pass, group });
    }
    if pass.given.is_none() {
        crew.for_each(groups * parts, |task| PartMoments {
            pass,
            group: task / parts,
            part: task % parts,
        });
    }
    // The last parts read are the first applied: a cache may still have them.
    let last = groups * parts - 1;
    crew.for_each(groups * parts, |task| {
        let task = last - task;
        ApplyPart {
            pass,
            group: task / parts,
            part: task % parts,
        }
    });
}

impl<'a, T: Element> RowsForward<'a, T> {
    #[inline(always)]
    fn layout(&self, group: usize) -> GroupLayout<'_> {
        GroupLayout::new(self.plan, self.geometry, group)
    }

    #[inline(always)]
    fn moments(&self, group: usize) -> GroupMoments<'_, '_, T> {
        GroupMoments {
            x: self.chunks.x,
            layout: self.layout(group),
            centred: self.centred,
        }
    }

    /// Computes `y` of a part, newest blocks first.
    ///
    /// # Safety
    /// No other task touches this part.
    #[inline(always)]
    unsafe fn apply(&self, group: usize, part: usize, normalizer: GroupNormalizer<T::Acc>) {
        let layout = self.layout(group);
        let first = layout.parameter();
        let n = normalizer.for_all();
        let mut space = ForwardSpace::new();
        let Parameters { weight, bias } = self.parameters;
        for block in self.plan.part_blocks(self.geometry, part).rev() {
            for index in (0..layout.pieces(block)).rev() {
                let piece = layout.piece(block, index);
                if self.plan.per_element(self.geometry) {
                    for start in (0..piece.len).step_by(CHUNK) {
                        let len = CHUNK.min(piece.len - start);
                        let at = first + piece.inner + start;
                        let affine = AffineMap {
                            weight: Each(&weight[at..at + len]),
                            bias: Each(&bias[at..at + len]),
                        };
                        // SAFETY: this function's contract.
                        unsafe { self.chunks.run((piece.offset + start, len), n, affine, &mut space) };
                    }
                } else {
                    for stretch in piece.stretches(self.plan.run) {
                        let at = first + stretch.run;
                        let affine = AffineMap {
                            weight: All(weight[at]),
                            bias: All(bias[at]),
                        };
                        for start in (0..stretch.len).step_by(CHUNK) {
                            let len = CHUNK.min(stretch.len - start);
                            // SAFETY: this function's contract.
                            unsafe { self.chunks.run((stretch.offset + start, len), n, affine, &mut space) };
                        }
                    }
                }
            }
        }
    }

    /// Where the moments of a part are kept.
    ///
    /// # Safety
    /// Nobody writes this slot while it is borrowed.
    #[inline(always)]
    unsafe fn slot(&self, group: usize, part: usize) -> &'a mut [f64] {
        // SAFETY: this function's contract.
        unsafe {
            self.scratch
                .slice(self.parts, (group * self.plan.parts + part) * SLOT, SLOT)
        }
    }
}

/// A group from its statistics to its result.
struct WholeGroup<'a, T: Element> {
    pass: &'a RowsForward<'a, T>,
    group: usize,
}

impl<T: Element> Kernel for WholeGroup<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let WholeGroup { pass, group } = self;
        let normalizer = match &pass.given {
            Some(given) => given.normalizer(group),
            None => {
                let x = pass.moments(group);
                let mut moments = Moments::EMPTY;
                for part in 0..pass.plan.parts {
                    moments = moments.merge(x.of_part(part));
                }
                // SAFETY: a group is one task's.
                unsafe {
                    pass.outcome
                        .finish_group(group, GroupStatistics::about(x.shift().to_f64(), moments))
                }
            }
        };
        for part in (0..pass.plan.parts).rev() {
            // SAFETY: as above.
            unsafe { pass.apply(group, part, normalizer) };
        }
    }
}

/// The moments of a part, into the workspace.
struct PartMoments<'a, T: Element> {
    pass: &'a RowsForward<'a, T>,
    group: usize,
    part: usize,
}

impl<T: Element> Kernel for PartMoments<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let x = self.pass.moments(self.group);
        let m = x.of_part(self.part);
        // SAFETY: a part is one task's.
        let slot = unsafe { self.pass.slot(self.group, self.part) };
        slot.copy_from_slice(&[m.count, m.mean, m.m2, x.shift().to_f64()]);
    }
}

/// A part's result. Every task merges the group's moments for itself, in the same order; the first part's saves them.
struct ApplyPart<'a, T: Element> {
    pass: &'a RowsForward<'a, T>,
    group: usize,
    part: usize,
}

impl<T: Element> Kernel for ApplyPart<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ApplyPart { pass, group, part } = self;
        let normalizer = match &pass.given {
            Some(given) => given.normalizer(group),
            None => {
                // SAFETY: the tasks that wrote the slots have ended; now they are only read.
                let slot = |part| unsafe { &*pass.slot(group, part) };
                let moments = (0..pass.plan.parts).fold(Moments::EMPTY, |m, part| {
                    let slot = slot(part);
                    m.merge(Moments {
                        count: slot[0],
                        mean: slot[1],
                        m2: slot[2],
                    })
                });
                let statistics = GroupStatistics::about(slot(0)[3], moments);
                if part == 0 {
                    // SAFETY: a group's first part is one task's.
                    unsafe { pass.outcome.finish_group(group, statistics) }
                } else {
                    pass.outcome.normalizer(statistics)
                }
            }
        };
        // SAFETY: a part is one task's.
        unsafe { pass.apply(group, part, normalizer) };
    }
}
