//! Elements share weight and bias in runs: all of a group (BatchNorm, InstanceNorm) or those of a channel (GroupNorm). The
//! parameters' gradients are the sums of the runs, and a group's sums are those of its runs, weighted.

use std::ops::Range;

use isonorm_math::{Element, Normalizer, Real};

use super::{GroupLayout, GroupSums, Means, RowsBackward, Stretch, Sweep};
use crate::cpu::crew::Crew;
use crate::cpu::elementwise::{
    AffineMap, All, BackwardSpace, GradientVisitor, Gradients, InputGradient, Results, rounds,
};
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::GradientLanes;
use crate::plan::share;

pub(super) fn backward<T: Element>(pass: &RowsBackward<'_, T>, crew: &Crew) {
    let (groups, parts) = (pass.geometry.groups(), pass.plan.parts);
    if !pass.plan.split {
        return crew.for_each(pass.group_tasks(), |tasks| pass.whole_groups(tasks));
    }
    if pass.sums() {
        crew.for_each(groups * parts, |tasks| pass.sum_parts(tasks));
        pass.add_up_parts();
    }
    if pass.second_sweep() {
        crew.for_each(groups * parts, |tasks| pass.write_parts(tasks));
    }
}

/// Working space of a task.
struct Space<T: Element> {
    chunk: BackwardSpace<T>,
    /// `Σ g·x̂` and `Σ g`, without the weight.
    lanes: GradientLanes<T::Acc>,
}

impl<T: Element> Space<T> {
    #[inline(always)]
    fn new() -> Space<T> {
        Space {
            chunk: BackwardSpace::new(),
            lanes: GradientLanes::new(),
        }
    }
}

/// One group's statistics, and one weight and bias.
type RunGradient<A> = InputGradient<All<Normalizer<A>>, All<AffineMap<A>>, Means<A>>;

/// One sweep over a chunk of a run.
struct SweepChunk<'s, A> {
    len: usize,
    sums: Option<&'s mut GradientLanes<A>>,
    write: RunGradient<A>,
}

impl<A: Real> GradientVisitor<A> for SweepChunk<'_, A> {
    #[inline(always)]
    fn visit<T: Element<Acc = A>, G: Gradients<A>>(&mut self, gradients: G, results: Results<'_, T>) {
        let gradient = gradients.row(0);
        if let Some(sums) = &mut self.sums {
            sums.add(gradient, self.len);
        }
        self.write.write(gradient, results);
    }
}

impl<'a, T: Element> RowsBackward<'a, T> {
    /// Whether a parameter belongs to one group, so that there is nothing to add up over groups.
    fn one_group_each(&self) -> bool {
        self.geometry.affine.kept_modulus.get() == self.geometry.groups()
    }

    /// The number of tasks that whole groups are shared by.
    fn group_tasks(&self) -> usize {
        if self.one_group_each() {
            self.geometry.groups()
        } else {
            self.plan.chunks
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

    /// The means that the gradient of `x` needs: as they are told, or from the sums of the group's runs.
    #[inline(always)]
    fn means_of(&self, group: usize, runs: &[f64]) -> Means<T::Acc> {
        match self.statistics.means() {
            // A channel has one weight.
            Some(means) => All(means.of(group, self.parameters.weight[self.layout(group).parameter()])),
            None => self.means(Some(self.weigh(group, runs))),
        }
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
    /// Nobody else holds a borrow of this slot.
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

/// Tasks. What they touch is theirs alone: a group, or a part of one, and the sums that belong to it.
impl<T: Element> RowsBackward<'_, T> {
    /// Chunks of whole groups.
    fn whole_groups(&self, tasks: Range<usize>) {
        let len = 2 * self.plan.runs(self.geometry);
        let none = self.means(None);
        let mut space = Space::new();
        for task in tasks {
            // Whose accumulators of the parameters' gradients are used.
            let chunk = if self.one_group_each() { 0 } else { task };
            // SAFETY: a slot is one task's.
            let slot = unsafe { self.scratch.slice::<f64>(self.parts, task * 2 * len, 2 * len) };
            let (total, of_part) = slot.split_at_mut(len);
            for group in share(self.geometry.groups(), self.group_tasks(), task) {
                total.fill(0.0);
                for part in 0..if self.sums() { self.plan.parts } else { 0 } {
                    of_part.fill(0.0);
                    // SAFETY: a group is one task's.
                    unsafe { self.sweep_part(self.first_sweep(), (group, part), none, of_part, &mut space) };
                    add(total, of_part);
                }
                // SAFETY: a chunk is one task's, or a group's parameters are its own.
                unsafe { self.add_to_gradients(chunk, group, total) };
                if self.second_sweep() {
                    let means = self.means_of(group, total);
                    for part in (0..self.plan.parts).rev() {
                        // SAFETY: a group is one task's.
                        unsafe { self.sweep_part(Sweep::Write, (group, part), means, of_part, &mut space) };
                    }
                }
            }
        }
    }

    /// The sums of parts of groups, into the workspace.
    fn sum_parts(&self, tasks: Range<usize>) {
        let none = self.means(None);
        let mut space = Space::new();
        for task in tasks {
            let (group, part) = (task / self.plan.parts, task % self.plan.parts);
            // SAFETY: a part is one task's.
            unsafe {
                let sums = self.part_sums(group, part);
                sums.fill(0.0);
                self.sweep_part(self.first_sweep(), (group, part), none, sums, &mut space);
            }
        }
    }

    /// The gradient of `x` in parts of groups, the last first: a cache may still have them.
    fn write_parts(&self, tasks: Range<usize>) {
        let parts = self.plan.parts;
        let runs = 2 * self.plan.runs(self.geometry);
        let last = self.geometry.groups() * parts - 1;
        let mut space = Space::new();
        for task in tasks {
            let (group, part) = ((last - task) / parts, (last - task) % parts);
            // SAFETY: the tasks that wrote the sums have ended; now they are only read.
            let total: &[f64] = unsafe { self.scratch.shared(self.parts, group * parts * runs, runs) };
            let means = self.means_of(group, total);
            // SAFETY: a part is one task's.
            unsafe { self.sweep_part(Sweep::Write, (group, part), means, &mut [], &mut space) };
        }
    }

    /// One sweep over a part of a group.
    ///
    /// # Safety
    /// If the sweep writes: no other task touches this part.
    unsafe fn sweep_part(
        &self,
        sweep: Sweep,
        (group, part): (usize, usize),
        means: Means<T::Acc>,
        sums: &mut [f64],
        space: &mut Space<T>,
    ) {
        self.vectors.run(SweepPart {
            pass: self,
            sweep,
            layout: self.layout(group),
            part,
            n: All(self.statistics.normalizer(group)),
            means,
            sums,
            space,
        });
    }
}

/// One sweep over a part of a group. Adds `Σ g·x̂` of each run to the first half of `sums` and `Σ g` to the second. Made where
/// no other task touches this part.
struct SweepPart<'p, 'a, 's, T: Element> {
    pass: &'p RowsBackward<'a, T>,
    sweep: Sweep,
    layout: GroupLayout<'p>,
    part: usize,
    n: All<Normalizer<T::Acc>>,
    means: Means<T::Acc>,
    sums: &'s mut [f64],
    space: &'s mut Space<T>,
}

impl<T: Element> Kernel for SweepPart<'_, '_, '_, T> {
    type Output = ();

    const STORES_16_BITS: bool = rounds::<T>();

    #[inline(always)]
    fn run(mut self) {
        let (plan, sweep, layout) = (self.pass.plan, self.sweep, self.layout);
        let one_run = plan.runs(self.pass.geometry) == 1;
        for block in plan.part_blocks(self.part) {
            for index in 0..layout.pieces(block) {
                for stretch in layout.piece(block, index).stretches(plan.run) {
                    let run = stretch.run;
                    self.sweep_stretch(stretch);
                    if sweep.sums() && !one_run {
                        self.take_sums(run);
                    }
                }
            }
            if sweep.sums() && one_run {
                self.take_sums(0);
            }
        }
    }
}

impl<T: Element> SweepPart<'_, '_, '_, T> {
    #[inline(always)]
    fn sweep_stretch(&mut self, stretch: Stretch) {
        let SweepPart {
            pass, sweep, n, means, ..
        } = *self;
        let parameter = self.layout.parameter() + stretch.run;
        let a = All(AffineMap {
            weight: pass.parameters.weight[parameter],
            bias: pass.parameters.bias[parameter],
        });
        for (start, len) in pass.elements.chunks((stretch.offset, stretch.len), sweep.sums()) {
            let at = (stretch.offset + start, len);
            let mut visitor = SweepChunk {
                len,
                sums: sweep.sums().then_some(&mut self.space.lanes),
                write: InputGradient { n, a, means },
            };
            let space = &mut self.space.chunk;
            // SAFETY: this part is this task's alone.
            unsafe { pass.elements.chunk(at, sweep.writes(), (&[n], a), space, &mut visitor) };
        }
    }

    /// Moves the sums of the lanes to those of a run.
    #[inline(always)]
    fn take_sums(&mut self, run: usize) {
        let (gx, g) = self.space.lanes.take();
        let (sums_gx, sums_g) = self.sums.split_at_mut(self.sums.len() / 2);
        sums_gx[run] += gx.to_f64();
        sums_g[run] += g.to_f64();
    }
}
