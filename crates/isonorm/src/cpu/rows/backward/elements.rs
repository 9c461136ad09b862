//! Every element of a row has a weight and bias of its own (LayerNorm, RMSNorm): their gradients are sums over the rows.

use isonorm_math::{Element, Real};

use super::{GroupSums, Means, Piece, RowsBackward, Sweep};
use crate::cpu::chunk::{AffineMap, BackwardSpace, CHUNK, Each};
use crate::cpu::crew::Crew;
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::Lanes;
use crate::cpu::parameters::Parameters;
use crate::cpu::statistics::GroupNormalizer;
use crate::plan::share;

/// Rows whose contributions to a parameter's gradient are added up in the accumulator's type before they go to `f64`.
const ROWS_PER_FLUSH: usize = 128;

pub(super) fn backward<T: Element>(pass: &RowsBackward<'_, T>, crew: &Crew) {
    let (groups, parts) = (pass.geometry.groups(), pass.plan.parts);
    if !pass.plan.split {
        return crew.for_each(pass.plan.chunks, |chunk| ChunkOfRows { pass, chunk });
    }
    crew.for_each(parts, |part| PartOfRows { pass, part });
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
    gx: Lanes<T::Acc>,
    g: Lanes<T::Acc>,
}

impl<T: Element> Space<T> {
    #[inline(always)]
    fn new() -> Space<T> {
        Space {
            chunk: BackwardSpace::new(),
            gx: Lanes::new(),
            g: Lanes::new(),
        }
    }

    /// Adds the chunk, weighted, to the sums of the piece.
    #[inline(always)]
    fn add_weighted(&mut self, weight: &[T::Acc]) {
        let len = weight.len();
        let (g, xhat) = self.chunk.lanes(len);
        let (gx_sums, g_sums) = (self.gx.first(len), self.g.first(len));
        for i in 0..len {
            let wg = g[i] * weight[i];
            gx_sums[i] = wg.mul_add(xhat[i], gx_sums[i]);
            g_sums[i] += wg;
        }
    }

    /// Adds the chunk to the sums of the piece, and to the parameters' gradients.
    #[inline(always)]
    fn add_to(&mut self, weight: &[T::Acc], [dweight, dbias]: Pair<'_, T::Acc>) {
        let len = weight.len();
        let (g, xhat) = self.chunk.lanes(len);
        let (gx_sums, g_sums) = (self.gx.first(len), self.g.first(len));
        let (dweight, dbias) = (&mut dweight[..len], &mut dbias[..len]);
        for i in 0..len {
            dweight[i] = g[i].mul_add(xhat[i], dweight[i]);
            dbias[i] += g[i];
            let wg = g[i] * weight[i];
            gx_sums[i] = wg.mul_add(xhat[i], gx_sums[i]);
            g_sums[i] += wg;
        }
    }
}

impl<'a, T: Element> RowsBackward<'a, T> {
    /// One sweep over a piece of a row; returns its sums. `staging` are the short-term sums of its elements.
    ///
    /// # Safety
    /// If the sweep writes: no other task touches this piece.
    #[inline(always)]
    unsafe fn sweep_piece(
        &self,
        sweep: Sweep,
        piece: Piece,
        normalizer: GroupNormalizer<T::Acc>,
        means: Means<T::Acc>,
        mut staging: Option<Pair<'_, T::Acc>>,
        space: &mut Space<T>,
    ) -> GroupSums {
        let n = normalizer.for_all();
        let Parameters { weight, bias } = self.parameters;
        for start in (0..piece.len).step_by(CHUNK) {
            let len = CHUNK.min(piece.len - start);
            let (chunk, at) = ((piece.offset + start, len), piece.inner + start);
            let affine = AffineMap {
                weight: Each(&weight[at..at + len]),
                bias: Each(&bias[at..at + len]),
            };
            self.chunks.gradient(chunk, n, affine, &mut space.chunk);
            if sweep.sums() {
                let weight = &weight[at..at + len];
                match &mut staging {
                    Some([dweight, dbias]) => {
                        space.add_to(
                            weight,
                            [&mut dweight[start..start + len], &mut dbias[start..start + len]],
                        );
                    }
                    None => space.add_weighted(weight),
                }
            }
            if sweep.writes() {
                // SAFETY: this function's contract.
                unsafe { self.chunks.write(chunk, n.rstd, affine.weight, means, &mut space.chunk) };
            }
        }
        GroupSums {
            gx: space.gx.take().to_f64(),
            g: space.g.take().to_f64(),
        }
    }

    /// `Σ w·g·x̂` and `Σ w·g` of a part of a row.
    ///
    /// # Safety
    /// Nobody writes this slot while it is borrowed.
    #[inline(always)]
    unsafe fn row_sums(&self, group: usize, part: usize) -> &'a mut [f64] {
        // SAFETY: this function's contract.
        unsafe { self.scratch.slice(self.parts, (group * self.plan.parts + part) * 2, 2) }
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

/// A chunk of whole rows.
struct ChunkOfRows<'a, T: Element> {
    pass: &'a RowsBackward<'a, T>,
    chunk: usize,
}

impl<T: Element> Kernel for ChunkOfRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ChunkOfRows { pass, chunk } = self;
        // SAFETY: a chunk is one task's.
        let (mut staging, mut sums) = unsafe { pass.parameter_sums(chunk, 0, pass.geometry.parameters) };
        let mut space = Space::new();
        let blocks = pass.plan.blocks(pass.geometry);
        let mut pending = 0;
        for group in share(pass.geometry.groups(), pass.plan.chunks, chunk) {
            let layout = pass.layout(group);
            let normalizer = pass.statistics.normalizer(group);
            let mut total = GroupSums::default();
            for block in 0..blocks {
                let piece = layout.piece(block, 0);
                let (start, end) = (piece.inner, piece.inner + piece.len);
                let [dweight, dbias] = &mut staging;
                let staging = pass
                    .wants_parameters
                    .then_some([&mut dweight[start..end], &mut dbias[start..end]]);
                let none = pass.means(None);
                // SAFETY: a row is one task's.
                total
                    .add(unsafe { pass.sweep_piece(pass.first_sweep(), piece, normalizer, none, staging, &mut space) });
            }
            if pass.second_sweep() {
                let means = pass.means(Some(total));
                for block in (0..blocks).rev() {
                    let piece = layout.piece(block, 0);
                    // SAFETY: a row is one task's.
                    unsafe { pass.sweep_piece(Sweep::Write, piece, normalizer, means, None, &mut space) };
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
        let mut space = Space::new();
        for group in 0..pass.geometry.groups() {
            let layout = pass.layout(group);
            let normalizer = pass.statistics.normalizer(group);
            let none = pass.means(None);
            let mut total = GroupSums::default();
            for block in blocks.clone() {
                let piece = layout.piece(block, 0);
                // SAFETY: a range of elements is one task's, in every row.
                unsafe {
                    let (mut staging, mut sums) = pass.parameter_sums(0, piece.inner, piece.len);
                    let [dweight, dbias] = &mut staging;
                    let short = pass.wants_parameters.then_some([&mut **dweight, &mut **dbias]);
                    total.add(pass.sweep_piece(pass.first_sweep(), piece, normalizer, none, short, &mut space));
                    flush(&mut staging, &mut sums);
                }
            }
            // SAFETY: a part is one task's.
            unsafe { pass.row_sums(group, part) }.copy_from_slice(&[total.gx, total.g]);
        }
    }
}

/// The gradient of `x` in a part of a row.
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
        let mut total = GroupSums::default();
        for part in 0..pass.plan.parts {
            // SAFETY: the tasks that wrote the slots have ended; now they are only read.
            let slot: &[f64] = unsafe { pass.row_sums(group, part) };
            total.add(GroupSums {
                gx: slot[0],
                g: slot[1],
            });
        }
        let (layout, means) = (pass.layout(group), pass.means(Some(total)));
        let normalizer = pass.statistics.normalizer(group);
        let mut space = Space::new();
        for block in pass.plan.part_blocks(pass.geometry, part).rev() {
            // SAFETY: a part is one task's.
            unsafe {
                pass.sweep_piece(
                    Sweep::Write,
                    layout.piece(block, 0),
                    normalizer,
                    means,
                    None,
                    &mut space,
                );
            }
        }
    }
}
