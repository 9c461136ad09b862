//! Every element of a row has a weight and bias of its own (LayerNorm, RMSNorm): their gradients are sums over the rows.

use std::ops::Range;

use isonorm_math::{Element, Normalizer, Real};

use super::{GroupSums, Means, Piece, RowsBackward, Sweep};
use crate::cpu::crew::Crew;
use crate::cpu::elementwise::{
    AffineMap, All, BackwardSpace, Coefficient, Each, Gradient, GradientVisitor, Gradients, InputGradient, Results,
    rounds,
};
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::{Folded, GradientLanes, add_rows, fold_and_add_rows};
use crate::cpu::parameters::Parameters;
use crate::cpu::statistics::BATCH;
use crate::plan::share;

/// Rows whose contributions to a parameter's gradient are added up in the accumulator's type before they go to `f64`.
const ROWS_PER_FLUSH: usize = 128;

pub(super) fn backward<T: Element>(pass: &RowsBackward<'_, T>, crew: &Crew) {
    let run = |phase, tasks| pass.vectors.run(Tasks { pass, phase, tasks });
    let (groups, parts) = (pass.geometry.groups(), pass.plan.parts);
    if !pass.plan.split {
        return crew.for_each(pass.plan.chunks, |tasks| run(Phase::Rows, tasks));
    }
    crew.for_each(parts, |tasks| run(Phase::Sum, tasks));
    if pass.second_sweep() {
        crew.for_each(groups * parts, |tasks| run(Phase::Write, tasks));
    }
}

/// A row whose parameters' gradients fit the registers of the widest vectors: heads and channels-last pixels have this many
/// elements. Where the length is a constant, the loops over a row are unrolled, and no sum leaves the registers.
const REGISTER_ROW: usize = 64;

/// What a task does, and with what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A chunk of whole rows, from their sums to their results.
    Rows,
    /// The sums of the same part of every row (few, long rows), into the workspace; and the results, when they do not depend on
    /// the sums.
    Sum,
    /// The gradient of `x` in a part of a row, the last first: a cache may still have them.
    Write,
}

/// Sums of the parameters' gradients: the weight's, the bias's.
type Pair<'s, A> = [&'s mut [A]; 2];

/// Moves short-term sums to `f64`.
#[inline(always)]
fn flush<A: Real>(staging: &mut Pair<'_, A>, sums: &mut Pair<'_, f64>) {
    for (staging, sums) in staging.iter_mut().zip(sums) {
        for (sum, short) in sums.iter_mut().zip(staging.iter_mut()) {
            *sum += short.to_f64();
            *short = A::ZERO;
        }
    }
}

/// Working space of a task.
struct Space<T: Element> {
    chunk: BackwardSpace<T>,
    /// `Σ w·g·x̂` and `Σ w·g` of a piece.
    lanes: GradientLanes<T::Acc>,
    /// Those of short rows.
    folded: [[Folded<T::Acc>; BATCH]; 2],
}

impl<T: Element> Space<T> {
    #[inline(always)]
    fn new() -> Space<T> {
        Space {
            chunk: BackwardSpace::new(),
            lanes: GradientLanes::new(),
            folded: [[Folded::ZERO; BATCH]; 2],
        }
    }
}

/// One sweep over a chunk: rows, or a part of one, with the statistics and means of each.
struct SweepChunk<'s, 'w, A> {
    a: AffineMap<Each<'w, A>>,
    normalizers: &'s [All<Normalizer<A>>],
    means: &'s [Means<A>],
    sums: Option<Sums<'s, A>>,
    parameters: Option<Pair<'s, A>>,
}

/// Where the sums of a chunk go.
enum Sums<'s, A> {
    /// To those of the row that it is a part of.
    Lanes(&'s mut GradientLanes<A>),
    /// Each row's to a place of its own.
    Rows(&'s mut [[Folded<A>; BATCH]; 2]),
}

impl<A: Real> GradientVisitor<A> for SweepChunk<'_, '_, A> {
    #[inline(always)]
    fn visit<T: Element<Acc = A>, G: Gradients<A>>(&mut self, gradients: G, results: Results<'_, T>) {
        match self.a.weight.0.len() {
            REGISTER_ROW => {
                if let (Some(Sums::Rows(folded)), Some([dweight, dbias])) = (&mut self.sums, &mut self.parameters) {
                    fold_and_add_rows::<A, G, REGISTER_ROW>(gradients, self.a.weight, folded, [dweight, dbias]);
                    (self.sums, self.parameters) = (None, None);
                }
                self.sweep(gradients, results, REGISTER_ROW);
            }
            len => self.sweep(gradients, results, len),
        }
    }
}

impl<A: Real> SweepChunk<'_, '_, A> {
    /// Sweeps over rows of `len` elements.
    #[inline(always)]
    fn sweep<T: Element<Acc = A>, G: Gradients<A>>(&mut self, gradients: G, results: Results<'_, T>, len: usize) {
        let a = self.a.part(0, len);
        if let Some(sums) = &mut self.sums {
            match sums {
                Sums::Lanes(lanes) => lanes.add_weighted(gradients.row(0), a.weight),
                Sums::Rows([gx, g]) => {
                    for row in 0..gradients.rows().min(BATCH) {
                        let mut lanes = GradientLanes::new();
                        lanes.add_weighted(gradients.row(row).part(0, len), a.weight);
                        [gx[row], g[row]] = lanes.fold();
                    }
                }
            }
        }
        // A loop of its own, for one that also stores would not keep the lanes in registers.
        if let Some([dweight, dbias]) = &mut self.parameters {
            add_rows(gradients, [&mut dweight[..len], &mut dbias[..len]]);
        }
        results.write_rows((gradients, len), |row| InputGradient {
            n: self.normalizers[row],
            a,
            means: self.means[row],
        });
    }
}

impl<'a, T: Element> RowsBackward<'a, T> {
    /// `Σ w·g·x̂` and `Σ w·g` of a part of a row.
    ///
    /// # Safety
    /// Nobody else holds a borrow of this slot.
    #[inline(always)]
    unsafe fn row_sums(&self, group: usize, part: usize) -> &'a mut [f64] {
        // SAFETY: this function's contract.
        unsafe { self.scratch.slice(self.parts, (group * self.plan.parts + part) * 2, 2) }
    }

    /// `Σ w·g·x̂` and `Σ w·g` of a row, once those of its parts are in the workspace.
    fn total(&self, row: usize) -> GroupSums {
        let mut total = GroupSums::default();
        for part in 0..self.plan.parts {
            // SAFETY: the tasks that wrote the slots have ended; now they are only read.
            let slot: &[f64] = unsafe { self.scratch.shared(self.parts, (row * self.plan.parts + part) * 2, 2) };
            total.add(GroupSums {
                gx: slot[0],
                g: slot[1],
            });
        }
        total
    }

    /// Short-term and long-term sums of a chunk's parameters `start..start + len`, the short-term ones zero.
    ///
    /// # Safety
    /// No other task uses them.
    #[inline(always)]
    unsafe fn parameter_sums(&self, chunk: usize, start: usize, len: usize) -> (Pair<'a, T::Acc>, Pair<'a, f64>) {
        let all = self.geometry.parameters;
        // SAFETY: this function's contract; the two stretches are disjoint.
        let (staging, sums) = unsafe {
            let weight = self.scratch.slice::<T::Acc>(self.staging, chunk * 2 * all + start, len);
            let bias = self
                .scratch
                .slice::<T::Acc>(self.staging, (chunk * 2 + 1) * all + start, len);
            ([weight, bias], self.gradients.of_chunk(chunk, start, len))
        };
        let [weight, bias] = staging;
        weight.fill(T::Acc::ZERO);
        bias.fill(T::Acc::ZERO);
        ([weight, bias], sums)
    }
}

/// Tasks of a phase. What they touch is theirs alone.
struct Tasks<'p, 'a, T: Element> {
    pass: &'p RowsBackward<'a, T>,
    phase: Phase,
    tasks: Range<usize>,
}

impl<T: Element> Kernel for Tasks<'_, '_, T> {
    type Output = ();

    const STORES_16_BITS: bool = rounds::<T>();

    #[inline(always)]
    fn run(self) {
        let Tasks { pass, phase, tasks } = self;
        let (plan, groups) = (pass.plan, pass.geometry.groups());
        let mut space = Space::new();
        for task in tasks {
            // The accumulators of the parameters' gradients that are used, the rows, and their blocks.
            let (chunk, rows, part) = match phase {
                Phase::Rows => (task, share(groups, plan.chunks, task), 0),
                Phase::Sum => (0, 0..groups, task),
                Phase::Write => {
                    let task = groups * plan.parts - 1 - task;
                    (0, task / plan.parts..task / plan.parts + 1, task % plan.parts)
                }
            };
            let mut sweep = SweepRows {
                pass,
                phase,
                part,
                blocks: plan.part_blocks(part),
                space: &mut space,
            };
            if phase == Phase::Write {
                sweep.run(rows, None);
                continue;
            }
            let first = sweep.blocks.start * plan.block_inner;
            let len = (sweep.blocks.end * plan.block_inner).min(pass.geometry.inner) - first;
            // SAFETY: a chunk is one task's, or a range of elements is, in every row.
            let (mut staging, mut sums) = unsafe { pass.parameter_sums(chunk, first, len) };
            let mut pending = 0;
            for start in rows.clone().step_by(plan.batch) {
                let rows = start..(start + plan.batch).min(rows.end);
                let [dweight, dbias] = &mut staging;
                let staged = if pass.wants_parameters {
                    Some([&mut **dweight, &mut **dbias])
                } else {
                    None
                };
                pending += rows.len();
                sweep.run(rows, staged);
                if pending >= ROWS_PER_FLUSH {
                    flush(&mut staging, &mut sums);
                    pending = 0;
                }
            }
            flush(&mut staging, &mut sums);
        }
    }
}

/// The sweeps of a phase over some blocks of rows.
struct SweepRows<'p, 'a, 's, T: Element> {
    pass: &'p RowsBackward<'a, T>,
    phase: Phase,
    part: usize,
    blocks: Range<usize>,
    space: &'s mut Space<T>,
}

impl<T: Element> SweepRows<'_, '_, '_, T> {
    /// Sweeps over at most [`BATCH`] rows. `staging` are the short-term sums of the elements of the blocks.
    #[inline(always)]
    fn run(&mut self, rows: Range<usize>, mut staging: Option<Pair<'_, T::Acc>>) {
        let (pass, phase) = (self.pass, self.phase);
        let mut normalizers = [Normalizer::default(); BATCH];
        pass.statistics.normalizers(rows.start, &mut normalizers[..rows.len()]);
        let normalizers = normalizers.map(All);
        let mut totals = [GroupSums::default(); BATCH];
        let mut means = [pass.means(None); BATCH];
        let mut sweep = pass.first_sweep();
        let short = pass.plan.batch > 1;
        if phase == Phase::Write {
            sweep = Sweep::Write;
            totals[0] = pass.total(rows.start);
        }
        // A loop, though of two turns at most: the compiler is to see its body once.
        loop {
            if sweep == Sweep::Write {
                for (means, total) in means.iter_mut().zip(&totals[..rows.len()]) {
                    *means = pass.means(Some(*total));
                }
            }
            for block in self.blocks.clone() {
                let piece = if short {
                    // Finding out where a short row lies would take as long as computing it.
                    let len = pass.geometry.inner;
                    Piece {
                        offset: rows.start * len,
                        inner: 0,
                        len,
                    }
                } else {
                    pass.layout(rows.start).piece(block, 0)
                };
                let staged = match &mut staging {
                    Some([dweight, dbias]) if sweep.sums() => Some([&mut **dweight, &mut **dbias]),
                    _ => None,
                };
                self.sweep_piece((sweep, piece), &normalizers[..rows.len()], &means[..rows.len()], staged);
                if sweep.sums() && !short {
                    let (gx, g) = self.space.lanes.take();
                    totals[0].add(GroupSums {
                        gx: gx.to_f64(),
                        g: g.to_f64(),
                    });
                }
            }
            if sweep.sums() && short {
                let [gx, g] = self
                    .space
                    .folded
                    .each_ref()
                    .map(|sums| Folded::totals(pass.vectors, sums));
                for (i, total) in totals.iter_mut().enumerate() {
                    *total = GroupSums {
                        gx: gx[i].to_f64(),
                        g: g[i].to_f64(),
                    };
                }
            }
            if sweep == Sweep::Write || phase == Phase::Sum || !pass.second_sweep() {
                break;
            }
            sweep = Sweep::Write;
        }
        if phase == Phase::Sum {
            for (row, total) in rows.zip(totals) {
                // SAFETY: a part is one task's.
                unsafe { pass.row_sums(row, self.part) }.copy_from_slice(&[total.gx, total.g]);
            }
        }
    }

    /// One sweep over a piece of a row; or over that row and those that follow it, as many as there are normalizers.
    #[inline(always)]
    fn sweep_piece(
        &mut self,
        (sweep, piece): (Sweep, Piece),
        normalizers: &[All<Normalizer<T::Acc>>],
        means: &[Means<T::Acc>],
        mut staging: Option<Pair<'_, T::Acc>>,
    ) {
        let SweepRows { pass, space, .. } = self;
        let Parameters { weight, bias } = pass.parameters;
        let short = pass.plan.batch > 1;
        let first_staged = self.blocks.start * pass.plan.block_inner;
        for (start, len) in pass.elements.chunks((piece.offset, piece.len), sweep.sums() || short) {
            let (at, first) = ((piece.offset + start, len), piece.inner + start);
            let a = AffineMap {
                weight: Each(&weight[first..first + len]),
                bias: Each(&bias[first..first + len]),
            };
            let staged = first - first_staged;
            let mut visitor = SweepChunk {
                a,
                normalizers,
                means,
                sums: match short {
                    _ if !sweep.sums() => None,
                    true => Some(Sums::Rows(&mut space.folded)),
                    false => Some(Sums::Lanes(&mut space.lanes)),
                },
                parameters: match &mut staging {
                    Some([dweight, dbias]) => {
                        Some([&mut dweight[staged..staged + len], &mut dbias[staged..staged + len]])
                    }
                    None => None,
                },
            };
            // SAFETY: this piece, and the rows that follow it, are this task's alone.
            unsafe {
                pass.elements
                    .chunk(at, sweep.writes(), (normalizers, a), &mut space.chunk, &mut visitor)
            };
        }
    }
}
