//! Two sweeps over a group: the sums that the gradients need, then the gradient of `x`. Through given statistics there is
//! nothing to know beforehand, and one sweep does both.

use isonorm_math::{BackwardCoefficients, Element, Real};

use super::{GroupLayout, Piece};
use crate::Geometry;
use crate::cpu::chunk::{AffineMap, All, BackwardChunks, CHUNK, Each, Gradient};
use crate::cpu::crew::Crew;
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::Lanes;
use crate::cpu::memory::Scratch;
use crate::cpu::parameters::{GradientSums, Parameters};
use crate::cpu::statistics::{BackwardStatistics, GroupNormalizer};
use crate::plan::{Region, RowsPlan, share};

/// Rows whose contributions to a parameter's gradient are added up in the accumulator's type before they go to `f64`.
const ROWS_PER_FLUSH: usize = 128;

/// Everything that the tasks of a backward pass share.
pub(in crate::cpu) struct RowsBackward<'a, T: Element> {
    pub(in crate::cpu) plan: &'a RowsPlan,
    pub(in crate::cpu) geometry: &'a Geometry,
    pub(in crate::cpu) chunks: BackwardChunks<'a, T>,
    pub(in crate::cpu) parameters: Parameters<'a, T::Acc>,
    /// Whether a mean was subtracted.
    pub(in crate::cpu) centred: bool,
    pub(in crate::cpu) statistics: BackwardStatistics<'a>,
    pub(in crate::cpu) gradients: GradientSums<'a>,
    /// Whether anybody wants the parameters' gradients.
    pub(in crate::cpu) wants_parameters: bool,
    pub(in crate::cpu) scratch: Scratch<'a>,
    pub(in crate::cpu) parts: Region,
    pub(in crate::cpu) staging: Region,
}

/// What one sweep does with each chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Adds up what the gradients need.
    Sum,
    /// Writes the gradient of `x` (and of the residual).
    Write,
    /// Both: the gradient of `x` needs no sums.
    Both,
}

impl Sweep {
    fn sums(self) -> bool {
        self != Sweep::Write
    }

    fn writes(self) -> bool {
        self != Sweep::Sum
    }
}

/// `Σ w·g·x̂` and `Σ w·g` of a group.
#[derive(Clone, Copy, Default)]
struct GroupSums {
    gx: f64,
    g: f64,
}

/// Runs a backward pass, but for the final addition of the parameters' gradients.
pub(in crate::cpu) fn backward<T: Element>(pass: &RowsBackward<'_, T>, crew: &Crew) {
    let (g, plan) = (pass.geometry, pass.plan);
    let (groups, parts) = (g.groups(), plan.parts);
    let last = groups * parts - 1;
    match (plan.per_element(g), plan.split) {
        (true, false) => crew.for_each(plan.chunks, |chunk| ChunkOfRows { pass, chunk }),
        (true, true) => {
            crew.for_each(parts, |part| PartOfRows { pass, part });
            if pass.second_sweep() {
                crew.for_each(groups * parts, |task| {
                    let task = last - task;
                    WritePartOfRow {
                        pass,
                        group: task / parts,
                        part: task % parts,
                    }
                });
            }
        }
        (false, false) if pass.one_group_a_parameter() => {
            crew.for_each(groups, |group| GroupsOfRuns {
                pass,
                chunk: 0,
                slot: group,
                groups: group..group + 1,
            });
        }
        (false, false) => crew.for_each(plan.chunks, |chunk| GroupsOfRuns {
            pass,
            chunk,
            slot: chunk,
            groups: share(groups, plan.chunks, chunk),
        }),
        (false, true) => {
            crew.for_each(groups * parts, |task| PartOfRuns {
                pass,
                group: task / parts,
                part: task % parts,
            });
            pass.add_up_parts();
            if pass.second_sweep() {
                crew.for_each(groups * parts, |task| {
                    let task = last - task;
                    WritePartOfRuns {
                        pass,
                        group: task / parts,
                        part: task % parts,
                    }
                });
            }
        }
    }
}

impl<'a, T: Element> RowsBackward<'a, T> {
    #[inline(always)]
    fn layout(&self, group: usize) -> GroupLayout<'_> {
        GroupLayout::new(self.plan, self.geometry, group)
    }

    fn one_group_a_parameter(&self) -> bool {
        self.geometry.affine.kept_modulus.get() == self.geometry.groups()
    }

    /// Whether `dx` has to wait for the sums.
    fn second_sweep(&self) -> bool {
        self.chunks.writes() && self.statistics.depend_on_x()
    }

    /// What the first sweep does.
    fn first_sweep(&self) -> Sweep {
        if self.statistics.depend_on_x() || !self.chunks.writes() {
            Sweep::Sum
        } else {
            Sweep::Both
        }
    }

    #[inline(always)]
    fn means(&self, sums: GroupSums) -> BackwardCoefficients<All<T::Acc>> {
        let count = self.geometry.group_size() as f64;
        let mean = |sum: f64| {
            All(T::Acc::from_f64(if self.statistics.depend_on_x() {
                sum / count
            } else {
                0.0
            }))
        };
        BackwardCoefficients {
            mean_g: mean(if self.centred { sums.g } else { 0.0 }),
            mean_gx: mean(sums.gx),
        }
    }

    /// One sweep over a piece whose elements have parameters of their own.
    ///
    /// # Safety
    /// If the sweep writes: no other task touches this piece.
    #[inline(always)]
    unsafe fn sweep_elements(
        &self,
        sweep: Sweep,
        piece: Piece,
        normalizer: GroupNormalizer<T::Acc>,
        means: BackwardCoefficients<All<T::Acc>>,
        mut staging: Option<[&mut [T::Acc]; 2]>,
    ) -> GroupSums {
        let n = normalizer.for_all();
        let Parameters { weight, bias } = self.parameters;
        let mut sums = GroupSums::default();
        let (mut lanes_gx, mut lanes_g) = (Lanes::zero(), Lanes::zero());
        for start in (0..piece.len).step_by(CHUNK) {
            let len = CHUNK.min(piece.len - start);
            let (offset, at) = (piece.offset + start, piece.inner + start);
            let weight = &weight[at..at + len];
            let affine = AffineMap {
                weight: Each(weight),
                bias: Each(&bias[at..at + len]),
            };
            let mut gradient = self.chunks.gradient(offset, len, n, affine);
            if sweep.sums() {
                if let Some([dweight, dbias]) = &mut staging {
                    add_products(&mut dweight[start..start + len], &gradient);
                    add_gradients(&mut dbias[start..start + len], &gradient);
                }
                let mut weighted = [T::Acc::ZERO; CHUNK];
                for ((wg, g), w) in weighted.iter_mut().zip(&gradient.g).zip(weight) {
                    *wg = *g * *w;
                }
                let padded = Gradient::<T::Acc>::padded(len);
                lanes_gx.add_pairs(&weighted[..padded], &gradient.xhat[..padded], |s, wg, xhat| {
                    wg.mul_add(xhat, s)
                });
                lanes_g.add_pairs(&weighted[..padded], &weighted[..padded], |s, wg, _| s + wg);
            }
            if sweep.writes() {
                // SAFETY: this function's contract.
                unsafe {
                    self.chunks
                        .write((offset, len), &mut gradient, n.rstd, Each(weight), means)
                };
            }
        }
        sums.gx += lanes_gx.total().to_f64();
        sums.g += lanes_g.total().to_f64();
        sums
    }

    /// One sweep over a stretch of elements that share their parameters; returns `Σ g·x̂` and `Σ g`, without the weight.
    ///
    /// # Safety
    /// If the sweep writes: no other task touches this stretch.
    #[inline(always)]
    unsafe fn sweep_run(
        &self,
        sweep: Sweep,
        (offset, length): (usize, usize),
        parameter: usize,
        normalizer: GroupNormalizer<T::Acc>,
        means: BackwardCoefficients<All<T::Acc>>,
        lanes: &mut [Lanes<T::Acc>; 2],
    ) {
        let n = normalizer.for_all();
        let weight = All(self.parameters.weight[parameter]);
        let affine = AffineMap {
            weight,
            bias: All(self.parameters.bias[parameter]),
        };
        for start in (0..length).step_by(CHUNK) {
            let len = CHUNK.min(length - start);
            let mut gradient = self.chunks.gradient(offset + start, len, n, affine);
            if sweep.sums() {
                let padded = Gradient::<T::Acc>::padded(len);
                let (g, xhat) = (&gradient.g[..padded], &gradient.xhat[..padded]);
                lanes[0].add_pairs(g, xhat, |s, g, xhat| g.mul_add(xhat, s));
                lanes[1].add_pairs(g, xhat, |s, g, _| s + g);
            }
            if sweep.writes() {
                // SAFETY: this function's contract.
                unsafe {
                    self.chunks
                        .write((offset + start, len), &mut gradient, n.rstd, weight, means)
                };
            }
        }
    }

    /// One sweep over a part of a group of runs. Adds `Σ g·x̂` of each run to the first half of `sums` and `Σ g` to the
    /// second.
    ///
    /// # Safety
    /// If the sweep writes: no other task touches this part.
    #[inline(always)]
    unsafe fn sweep_part(
        &self,
        sweep: Sweep,
        (group, part): (usize, usize),
        normalizer: GroupNormalizer<T::Acc>,
        means: BackwardCoefficients<All<T::Acc>>,
        sums: &mut [f64],
    ) {
        let layout = self.layout(group);
        let first = layout.parameter();
        let (sums_gx, sums_g) = sums.split_at_mut(sums.len() / 2);
        let one_run = self.plan.runs(self.geometry) == 1;
        let blocks = self.plan.part_blocks(self.geometry, part);
        let (start, count) = (blocks.start, blocks.len());
        for step in 0..count {
            // The second sweep goes backwards: what the first read last may still be in a cache.
            let block = if sweep == Sweep::Write {
                start + count - 1 - step
            } else {
                start + step
            };
            let mut lanes = [Lanes::zero(); 2];
            for index in 0..layout.pieces(block) {
                layout
                    .piece(block, index)
                    .for_each_run(self.plan.run, |run, offset, length| {
                        // SAFETY: this function's contract.
                        unsafe { self.sweep_run(sweep, (offset, length), first + run, normalizer, means, &mut lanes) };
                        if sweep.sums() && !one_run {
                            sums_gx[run] += lanes[0].total().to_f64();
                            sums_g[run] += lanes[1].total().to_f64();
                            lanes = [Lanes::zero(); 2];
                        }
                    });
            }
            if sweep.sums() && one_run {
                sums_gx[0] += lanes[0].total().to_f64();
                sums_g[0] += lanes[1].total().to_f64();
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
            sums.gx += weight * gx;
            sums.g += weight * g;
        }
        sums
    }

    /// Adds a group's sums to the parameters' gradients of a chunk.
    ///
    /// # Safety
    /// No other task touches these parameters of this chunk.
    #[inline(always)]
    unsafe fn add_to_gradients(&self, chunk: usize, group: usize, runs: &[f64]) {
        // SAFETY: this function's contract.
        let sums = unsafe {
            self.gradients
                .of_chunk(chunk, self.layout(group).parameter(), runs.len() / 2)
        };
        for (sums, runs) in sums.into_iter().zip(runs.chunks_exact(runs.len() / 2)) {
            sums.iter_mut().zip(runs).for_each(|(s, r)| *s += r);
        }
    }

    /// The sums of the runs of a part (split groups).
    ///
    /// # Safety
    /// Nobody writes this slot while it is borrowed.
    #[inline(always)]
    unsafe fn part_sums(&self, group: usize, part: usize) -> &mut [f64] {
        let len = 2 * self.plan.runs(self.geometry);
        // SAFETY: this function's contract.
        unsafe {
            self.scratch
                .slice(self.parts, (group * self.plan.parts + part) * len, len)
        }
    }

    /// `Σ w·g·x̂` and `Σ w·g` of a part of a row (split rows).
    ///
    /// # Safety
    /// Nobody writes this slot while it is borrowed.
    #[inline(always)]
    unsafe fn row_sums(&self, group: usize, part: usize) -> &mut [f64] {
        // SAFETY: this function's contract.
        unsafe { self.scratch.slice(self.parts, (group * self.plan.parts + part) * 2, 2) }
    }

    /// Adds up the parts of each group, leaving the total in the first, and the groups into the parameters' gradients.
    fn add_up_parts(&self) {
        let groups = self.geometry.groups();
        for chunk in 0..self.plan.chunks {
            for group in share(groups, self.plan.chunks, chunk) {
                // SAFETY: no tasks are running.
                unsafe {
                    let total = self.part_sums(group, 0);
                    for part in 1..self.plan.parts {
                        total
                            .iter_mut()
                            .zip(self.part_sums(group, part))
                            .for_each(|(t, p)| *t += *p);
                    }
                    self.add_to_gradients(chunk, group, total);
                }
            }
        }
    }
}

#[inline(always)]
fn add_products<A: Real>(sums: &mut [A], gradient: &Gradient<A>) {
    for ((s, g), xhat) in sums.iter_mut().zip(&gradient.g).zip(&gradient.xhat) {
        *s = g.mul_add(*xhat, *s);
    }
}

#[inline(always)]
fn add_gradients<A: Real>(sums: &mut [A], gradient: &Gradient<A>) {
    for (s, g) in sums.iter_mut().zip(&gradient.g) {
        *s += *g;
    }
}

/// Moves short-term sums to `f64`.
#[inline(always)]
fn flush<A: Real>(staging: &mut [&mut [A]; 2], sums: &mut [&mut [f64]; 2]) {
    for (staging, sums) in staging.iter_mut().zip(sums) {
        for (sum, short) in sums.iter_mut().zip(staging.iter_mut()) {
            *sum += short.to_f64();
            *short = A::ZERO;
        }
    }
}

/// A chunk of whole rows whose elements have parameters of their own.
struct ChunkOfRows<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    chunk: usize,
}

impl<T: Element> Kernel for ChunkOfRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ChunkOfRows { pass, chunk } = self;
        let len = pass.geometry.parameters;
        // SAFETY: a chunk is one task's.
        let (mut staging, mut sums) = unsafe {
            let staging = [0, 1].map(|k| pass.scratch.slice::<T::Acc>(pass.staging, (chunk * 2 + k) * len, len));
            (staging, pass.gradients.of_chunk(chunk, 0, len))
        };
        staging.iter_mut().for_each(|s| s.fill(T::Acc::ZERO));
        let mut pending = 0;
        for group in share(pass.geometry.groups(), pass.plan.chunks, chunk) {
            let layout = pass.layout(group);
            let normalizer = pass.statistics.normalizer(group);
            let blocks = pass.plan.blocks(pass.geometry);
            let mut total = GroupSums::default();
            for block in 0..blocks {
                let piece = layout.piece(block, 0);
                let staging = pass.wants_parameters.then(|| {
                    let [dweight, dbias] = &mut staging;
                    let range = piece.inner..piece.inner + piece.len;
                    [&mut dweight[range.clone()], &mut dbias[range]]
                });
                let none = pass.means(GroupSums::default());
                // SAFETY: a row is one task's.
                let part = unsafe { pass.sweep_elements(pass.first_sweep(), piece, normalizer, none, staging) };
                total.gx += part.gx;
                total.g += part.g;
            }
            if pass.second_sweep() {
                let means = pass.means(total);
                for block in (0..blocks).rev() {
                    // SAFETY: a row is one task's.
                    unsafe { pass.sweep_elements(Sweep::Write, layout.piece(block, 0), normalizer, means, None) };
                }
            }
            pending += 1;
            if pending == ROWS_PER_FLUSH {
                flush(&mut staging, &mut sums);
                pending = 0;
            }
        }
        flush(&mut staging, &mut sums);
    }
}

/// The same part of every row (few, long rows).
struct PartOfRows<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    part: usize,
}

impl<T: Element> Kernel for PartOfRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let PartOfRows { pass, part } = self;
        let blocks = pass.plan.part_blocks(pass.geometry, part);
        for group in 0..pass.geometry.groups() {
            let layout = pass.layout(group);
            let normalizer = pass.statistics.normalizer(group);
            let none = pass.means(GroupSums::default());
            let mut total = GroupSums::default();
            for block in blocks.clone() {
                let piece = layout.piece(block, 0);
                // SAFETY: a range of elements is one task's, in every row.
                let (mut staging, mut sums) = unsafe {
                    let len = pass.geometry.parameters;
                    let at = |k: usize| {
                        pass.scratch
                            .slice::<T::Acc>(pass.staging, k * len + piece.inner, piece.len)
                    };
                    ([at(0), at(1)], pass.gradients.of_chunk(0, piece.inner, piece.len))
                };
                staging.iter_mut().for_each(|s| s.fill(T::Acc::ZERO));
                let [dweight, dbias] = &mut staging;
                let both = pass.wants_parameters.then_some([&mut **dweight, &mut **dbias]);
                // SAFETY: as above.
                let sum = unsafe { pass.sweep_elements(pass.first_sweep(), piece, normalizer, none, both) };
                flush(&mut staging, &mut sums);
                total.gx += sum.gx;
                total.g += sum.g;
            }
            // SAFETY: a part is one task's.
            unsafe { pass.row_sums(group, part) }.copy_from_slice(&[total.gx, total.g]);
        }
    }
}

/// The gradient of `x` in a part of a row.
struct WritePartOfRow<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    group: usize,
    part: usize,
}

impl<T: Element> Kernel for WritePartOfRow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let WritePartOfRow { pass, group, part } = self;
        let mut total = GroupSums::default();
        for part in 0..pass.plan.parts {
            // SAFETY: the tasks that wrote the slots have ended; now they are only read.
            let slot: &[f64] = unsafe { pass.row_sums(group, part) };
            total.gx += slot[0];
            total.g += slot[1];
        }
        let (layout, means) = (pass.layout(group), pass.means(total));
        let normalizer = pass.statistics.normalizer(group);
        for block in pass.plan.part_blocks(pass.geometry, part).rev() {
            // SAFETY: a part is one task's.
            unsafe { pass.sweep_elements(Sweep::Write, layout.piece(block, 0), normalizer, means, None) };
        }
    }
}

/// Whole groups whose elements share parameters in runs.
struct GroupsOfRuns<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    /// Whose accumulators of the parameters' gradients are used.
    chunk: usize,
    /// Whose space for a group's sums is used.
    slot: usize,
    groups: std::ops::Range<usize>,
}

impl<T: Element> Kernel for GroupsOfRuns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let GroupsOfRuns {
            pass,
            chunk,
            slot,
            groups,
        } = self;
        let len = 2 * pass.plan.runs(pass.geometry);
        // SAFETY: a slot is one task's.
        let space = unsafe { pass.scratch.slice::<f64>(pass.parts, slot * 2 * len, 2 * len) };
        let (total, of_part) = space.split_at_mut(len);
        let none = pass.means(GroupSums::default());
        for group in groups {
            let normalizer = pass.statistics.normalizer(group);
            total.fill(0.0);
            for part in 0..pass.plan.parts {
                of_part.fill(0.0);
                // SAFETY: a group is one task's.
                unsafe { pass.sweep_part(pass.first_sweep(), (group, part), normalizer, none, of_part) };
                total.iter_mut().zip(&*of_part).for_each(|(t, p)| *t += *p);
            }
            // SAFETY: a chunk is one task's, or a group's parameters are its own.
            unsafe { pass.add_to_gradients(chunk, group, total) };
            if pass.second_sweep() {
                let means = pass.means(pass.weigh(group, total));
                for part in (0..pass.plan.parts).rev() {
                    // SAFETY: a group is one task's.
                    unsafe { pass.sweep_part(Sweep::Write, (group, part), normalizer, means, of_part) };
                }
            }
        }
    }
}

/// The sums of a part of a group, into the workspace.
struct PartOfRuns<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    group: usize,
    part: usize,
}

impl<T: Element> Kernel for PartOfRuns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let PartOfRuns { pass, group, part } = self;
        let none = pass.means(GroupSums::default());
        // SAFETY: a part is one task's.
        unsafe {
            let sums = pass.part_sums(group, part);
            sums.fill(0.0);
            pass.sweep_part(
                pass.first_sweep(),
                (group, part),
                pass.statistics.normalizer(group),
                none,
                sums,
            );
        }
    }
}

/// The gradient of `x` in a part of a group.
struct WritePartOfRuns<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    group: usize,
    part: usize,
}

impl<T: Element> Kernel for WritePartOfRuns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let WritePartOfRuns { pass, group, part } = self;
        // SAFETY: the tasks that wrote the sums have ended; now they are only read.
        let total: &[f64] = unsafe { pass.part_sums(group, 0) };
        let means = pass.means(pass.weigh(group, total));
        let normalizer = pass.statistics.normalizer(group);
        // SAFETY: a part is one task's.
        unsafe { pass.sweep_part(Sweep::Write, (group, part), normalizer, means, &mut []) };
    }
}
