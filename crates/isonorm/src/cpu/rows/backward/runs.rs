//! Elements share weight and bias in runs: all of a group (BatchNorm, InstanceNorm) or those of a channel (GroupNorm). The
//! parameters' gradients are the sums of the runs, and a group's sums are those of its runs, weighted.

use std::ops::Range;

use isonorm_math::{Element, Real};

use super::{GroupSums, Means, RowsBackward, Stretch, Sweep};
use crate::cpu::chunk::{AffineMap, All, BackwardSpace, CHUNK};
use crate::cpu::crew::Crew;
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::Lanes;
use crate::cpu::statistics::GroupNormalizer;
use crate::plan::share;

pub(super) fn backward<T: Element>(pass: &RowsBackward<'_, T>, crew: &Crew) {
    let (groups, parts) = (pass.geometry.groups(), pass.plan.parts);
    if !pass.plan.split && pass.geometry.affine.kept_modulus.get() == groups {
        // A parameter belongs to one group: there is nothing to add up over groups.
        return crew.for_each(groups, |group| Groups {
            pass,
            chunk: 0,
            slot: group,
            groups: group..group + 1,
        });
    }
    if !pass.plan.split {
        let chunks = pass.plan.chunks;
        return crew.for_each(chunks, |chunk| {
            let groups = share(groups, chunks, chunk);
            Groups {
                pass,
                chunk,
                slot: chunk,
                groups,
            }
        });
    }
    crew.for_each(groups * parts, |task| PartOfGroup {
        pass,
        group: task / parts,
        part: task % parts,
    });
    pass.add_up_parts();
    if pass.second_sweep() {
        // The last parts read are the first written: a cache may still have them.
        let last = groups * parts - 1;
        crew.for_each(groups * parts, |task| {
            let task = last - task;
            WritePart {
                pass,
                group: task / parts,
                part: task % parts,
            }
        });
    }
}

/// `Σ g·x̂` and `Σ g` in lanes.
type LanePair<A> = [Lanes<A>; 2];

impl<'a, T: Element> RowsBackward<'a, T> {
    /// One sweep over a stretch of a run, adding `Σ g·x̂` and `Σ g` (without the weight) to `lanes`.
    ///
    /// # Safety
    /// If the sweep writes: no other task touches this stretch.
    #[inline(always)]
    unsafe fn sweep_stretch(
        &self,
        (sweep, stretch, parameter): (Sweep, Stretch, usize),
        normalizer: GroupNormalizer<T::Acc>,
        means: Means<T::Acc>,
        lanes: &mut LanePair<T::Acc>,
        space: &mut BackwardSpace<T>,
    ) {
        let n = normalizer.for_all();
        let weight = All(self.parameters.weight[parameter]);
        let affine = AffineMap {
            weight,
            bias: All(self.parameters.bias[parameter]),
        };
        for start in (0..stretch.len).step_by(CHUNK) {
            let chunk = (stretch.offset + start, CHUNK.min(stretch.len - start));
            self.chunks.gradient(chunk, n, affine, space);
            if sweep.sums() {
                let (g, xhat) = space.lanes(chunk.1);
                lanes[0].add_pairs(g, xhat, |s, g, xhat| g.mul_add(xhat, s));
                lanes[1].add_pairs(g, xhat, |s, g, _| s + g);
            }
            if sweep.writes() {
                // SAFETY: this function's contract.
                unsafe { self.chunks.write(chunk, n.rstd, weight, means, space) };
            }
        }
    }

    /// One sweep over a part of a group. Adds `Σ g·x̂` of each run to the first half of `sums` and `Σ g` to the second.
    ///
    /// # Safety
    /// If the sweep writes: no other task touches this part.
    #[inline(always)]
    unsafe fn sweep_part(
        &self,
        sweep: Sweep,
        (group, part): (usize, usize),
        normalizer: GroupNormalizer<T::Acc>,
        means: Means<T::Acc>,
        sums: &mut [f64],
    ) {
        let layout = self.layout(group);
        let first = layout.parameter();
        let (sums_gx, sums_g) = sums.split_at_mut(sums.len() / 2);
        let one_run = self.plan.runs(self.geometry) == 1;
        let blocks = self.plan.part_blocks(self.geometry, part);
        let mut space = BackwardSpace::new();
        let mut lanes = [Lanes::new(), Lanes::new()];
        for step in 0..blocks.len() {
            // The second sweep goes backwards: what the first read last may still be in a cache.
            let block = if sweep == Sweep::Write {
                blocks.end - 1 - step
            } else {
                blocks.start + step
            };
            for index in 0..layout.pieces(block) {
                for stretch in layout.piece(block, index).stretches(self.plan.run) {
                    let run = stretch.run;
                    let what = (sweep, stretch, first + run);
                    // SAFETY: this function's contract.
                    unsafe { self.sweep_stretch(what, normalizer, means, &mut lanes, &mut space) };
                    if sweep.sums() && !one_run {
                        sums_gx[run] += lanes[0].take().to_f64();
                        sums_g[run] += lanes[1].take().to_f64();
                    }
                }
            }
            if sweep.sums() && one_run {
                sums_gx[0] += lanes[0].take().to_f64();
                sums_g[0] += lanes[1].take().to_f64();
            }
        }
    }

    /// A group's sums from those of its runs.
    #[inline(always)]
    fn weigh(&self, group: usize, runs: &[f64]) -> GroupSums {
        let first = self.layout(group).parameter();
        let (gx, g) = runs.split_at(runs.len() / 2);
        let mut sums = GroupSums::default();
        for (run, (gx, g)) in gx.iter().zip(g).enumerate() {
            let weight = self.parameters.weight[first + run].to_f64();
            sums.add(GroupSums {
                gx: weight * gx,
                g: weight * g,
            });
        }
        sums
    }

    /// Adds a group's sums to the parameters' gradients of a chunk.
    ///
    /// # Safety
    /// No other task touches these parameters of this chunk.
    #[inline(always)]
    unsafe fn add_to_gradients(&self, chunk: usize, group: usize, runs: &[f64]) {
        let (gx, g) = runs.split_at(runs.len() / 2);
        // SAFETY: this function's contract.
        let [dweight, dbias] = unsafe { self.gradients.of_chunk(chunk, self.layout(group).parameter(), gx.len()) };
        dweight.iter_mut().zip(gx).for_each(|(s, v)| *s += v);
        dbias.iter_mut().zip(g).for_each(|(s, v)| *s += v);
    }

    /// The sums of the runs of a part of a split group.
    ///
    /// # Safety
    /// Nobody writes this slot while it is borrowed.
    #[inline(always)]
    unsafe fn part_sums(&self, group: usize, part: usize) -> &'a mut [f64] {
        let len = 2 * self.plan.runs(self.geometry);
        // SAFETY: this function's contract.
        unsafe {
            self.scratch
                .slice(self.parts, (group * self.plan.parts + part) * len, len)
        }
    }

    /// Adds up the parts of each group, leaving the total in the first, and the groups into the parameters' gradients.
    fn add_up_parts(&self) {
        for chunk in 0..self.plan.chunks {
            for group in share(self.geometry.groups(), self.plan.chunks, chunk) {
                // SAFETY: no tasks are running; parts are disjoint.
                unsafe {
                    let total = self.part_sums(group, 0);
                    for part in 1..self.plan.parts {
                        add(total, self.part_sums(group, part));
                    }
                    self.add_to_gradients(chunk, group, total);
                }
            }
        }
    }
}

#[inline(always)]
fn add(sums: &mut [f64], more: &[f64]) {
    for (s, m) in sums.iter_mut().zip(more) {
        *s += m;
    }
}

/// Whole groups, one after the other.
struct Groups<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    /// Whose accumulators of the parameters' gradients are used.
    chunk: usize,
    /// Whose space for a group's sums is used.
    slot: usize,
    groups: Range<usize>,
}

impl<T: Element> Kernel for Groups<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Groups {
            pass,
            chunk,
            slot,
            groups,
        } = self;
        let len = 2 * pass.plan.runs(pass.geometry);
        // SAFETY: a slot is one task's.
        let space = unsafe { pass.scratch.slice::<f64>(pass.parts, slot * 2 * len, 2 * len) };
        let (total, of_part) = space.split_at_mut(len);
        let none = pass.means(None);
        for group in groups {
            let normalizer = pass.statistics.normalizer(group);
            total.fill(0.0);
            for part in 0..pass.plan.parts {
                of_part.fill(0.0);
                // SAFETY: a group is one task's.
                unsafe { pass.sweep_part(pass.first_sweep(), (group, part), normalizer, none, of_part) };
                add(total, of_part);
            }
            // SAFETY: a chunk is one task's, or a group's parameters are its own.
            unsafe { pass.add_to_gradients(chunk, group, total) };
            if pass.second_sweep() {
                let means = pass.means(Some(pass.weigh(group, total)));
                for part in (0..pass.plan.parts).rev() {
                    // SAFETY: a group is one task's.
                    unsafe { pass.sweep_part(Sweep::Write, (group, part), normalizer, means, of_part) };
                }
            }
        }
    }
}

/// The sums of a part of a group, into the workspace.
struct PartOfGroup<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    group: usize,
    part: usize,
}

impl<T: Element> Kernel for PartOfGroup<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let PartOfGroup { pass, group, part } = self;
        let normalizer = pass.statistics.normalizer(group);
        // SAFETY: a part is one task's.
        unsafe {
            let sums = pass.part_sums(group, part);
            sums.fill(0.0);
            pass.sweep_part(pass.first_sweep(), (group, part), normalizer, pass.means(None), sums);
        }
    }
}

/// The gradient of `x` in a part of a group.
struct WritePart<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    group: usize,
    part: usize,
}

impl<T: Element> Kernel for WritePart<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let WritePart { pass, group, part } = self;
        // SAFETY: the tasks that wrote the sums have ended; now they are only read.
        let total: &[f64] = unsafe { pass.part_sums(group, 0) };
        let means = pass.means(Some(pass.weigh(group, total)));
        let normalizer = pass.statistics.normalizer(group);
        // SAFETY: a part is one task's.
        unsafe { pass.sweep_part(Sweep::Write, (group, part), normalizer, means, &mut []) };
    }
}
