//! Sums over contiguous elements in a fixed number of lanes, so that they vectorize and have the same bits whatever the
//! width of the vectors.

use isonorm_math::{Element, Real};

/// Neighbouring elements that go to different lanes of one accumulator.
pub(super) const LANES: usize = 16;
/// Accumulators, so that an addition need not wait for the one before.
const ACCUMULATORS: usize = 4;

/// Running sums of lanes.
#[derive(Clone, Copy)]
pub(super) struct Lanes<A> {
    sums: [[A; LANES]; ACCUMULATORS],
    tail: [A; LANES],
}

impl<A: Real> Lanes<A> {
    /// Zeros.
    #[inline(always)]
    pub(super) fn zero() -> Lanes<A> {
        Lanes {
            sums: [[A::ZERO; LANES]; ACCUMULATORS],
            tail: [A::ZERO; LANES],
        }
    }

    /// Adds up `x`: `step(sum, element)` is the new sum.
    #[inline(always)]
    pub(super) fn add<T: Element<Acc = A>>(&mut self, x: &[T], step: impl Fn(A, A) -> A) {
        let mut blocks = x.chunks_exact(ACCUMULATORS * LANES);
        for block in &mut blocks {
            for j in 0..ACCUMULATORS {
                for i in 0..LANES {
                    self.sums[j][i] = step(self.sums[j][i], block[j * LANES + i].to_acc());
                }
            }
        }
        let mut vectors = blocks.remainder().chunks_exact(LANES);
        for vector in &mut vectors {
            for i in 0..LANES {
                self.sums[0][i] = step(self.sums[0][i], vector[i].to_acc());
            }
        }
        for (sum, v) in self.tail.iter_mut().zip(vectors.remainder()) {
            *sum = step(*sum, v.to_acc());
        }
    }

    /// Adds up pairs of numbers: `step(sum, a, b)` is the new sum. The lengths are multiples of [`LANES`].
    #[inline(always)]
    pub(super) fn add_pairs(&mut self, a: &[A], b: &[A], step: impl Fn(A, A, A) -> A) {
        for (j, (a, b)) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)).enumerate() {
            let sums = &mut self.sums[j % 2];
            for i in 0..LANES {
                sums[i] = step(sums[i], a[i], b[i]);
            }
        }
    }

    /// The total, added up as a tree.
    #[inline(always)]
    pub(super) fn total(&self) -> A {
        let mut lanes = [A::ZERO; LANES];
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = ((self.sums[0][i] + self.sums[1][i]) + (self.sums[2][i] + self.sums[3][i])) + self.tail[i];
        }
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }
}
