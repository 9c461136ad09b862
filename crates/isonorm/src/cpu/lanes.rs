//! Sums over contiguous elements in a fixed number of lanes, so that they vectorize and have the same bits whatever the
//! width of the vectors.

use std::hint::black_box;

use isonorm_math::{Element, Real};

use super::elementwise::{Coefficient, Each, Gradient};

/// Lanes of a sum: enough vectors for additions to overlap, few enough for registers.
const LANES: usize = 64;

/// Running sums of lanes. Rounding errors grow with the number of elements a lane, not of elements.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Lanes<A>([A; LANES]);

impl<A: Real> Lanes<A> {
    /// No sums.
    #[inline(always)]
    pub(super) fn new() -> Lanes<A> {
        Lanes([A::ZERO; LANES])
    }

    /// Adds up `x`: `step(sum, element)` is the new sum.
    #[inline(always)]
    pub(super) fn add<T: Element<Acc = A>>(&mut self, x: &[T], step: impl Fn(A, A) -> A) {
        let (chunks, rest) = x.as_chunks::<LANES>();
        // A local copy, for only what is never indexed by a variable is kept in registers.
        let mut sums = self.0;
        for chunk in chunks {
            for i in 0..LANES {
                sums[i] = step(sums[i], chunk[i].to_acc());
            }
        }
        self.0 = sums;
        for (sum, v) in self.0.iter_mut().zip(rest) {
            *sum = step(*sum, v.to_acc());
        }
    }

    /// The total, added up as a tree.
    #[inline(always)]
    pub(super) fn total(self) -> A {
        let sums = self.0;
        let mut quarter = [A::ZERO; LANES / 4];
        for i in 0..LANES / 4 {
            quarter[i] = (sums[i] + sums[i + 16]) + (sums[i + 32] + sums[i + 48]);
        }
        // Otherwise the compiler takes the tree for scalars from its root up to its 64 leaves, which is three times as slow.
        let quarter = black_box(quarter);
        let [a, b] = halve::<A, 4, 2>(halve::<A, 8, 4>(halve::<A, 16, 8>(quarter)));
        a + b
    }
}

/// Sums of the first half with the second.
#[inline(always)]
fn halve<A: Real, const LEN: usize, const HALF: usize>(sums: [A; LEN]) -> [A; HALF] {
    let mut halves = [A::ZERO; HALF];
    for i in 0..HALF {
        halves[i] = sums[i] + sums[i + HALF];
    }
    halves
}

/// Running sums of `g·x̂` and of `g`.
#[derive(Clone, Copy)]
pub(super) struct GradientLanes<A> {
    pub(super) gx: Lanes<A>,
    pub(super) g: Lanes<A>,
}

impl<A: Real> GradientLanes<A> {
    /// No sums.
    #[inline(always)]
    pub(super) fn new() -> GradientLanes<A> {
        GradientLanes {
            gx: Lanes::new(),
            g: Lanes::new(),
        }
    }

    /// Adds up `len` elements.
    #[inline(always)]
    pub(super) fn add<G: Gradient<A>>(&mut self, gradient: G, len: usize) {
        let body = len / LANES * LANES;
        let (mut gx, mut g) = (self.gx.0, self.g.0);
        for start in (0..body).step_by(LANES) {
            let gradient = gradient.part(start, LANES);
            for i in 0..LANES {
                let (xhat, gradient) = gradient.at(i);
                gx[i] = gradient.mul_add(xhat, gx[i]);
                g[i] += gradient;
            }
        }
        (self.gx.0, self.g.0) = (gx, g);
        let rest = len - body;
        let (gradient, gx, g) = (gradient.part(body, rest), &mut self.gx.0[..rest], &mut self.g.0[..rest]);
        for i in 0..rest {
            let (xhat, gradient) = gradient.at(i);
            gx[i] = gradient.mul_add(xhat, gx[i]);
            g[i] += gradient;
        }
    }

    /// Adds up elements times their weights; and, element by element, to the gradients of weight and bias.
    #[inline(always)]
    pub(super) fn add_weighted<G: Gradient<A>>(
        &mut self,
        gradient: G,
        weight: Each<'_, A>,
        parameters: Option<[&mut [A]; 2]>,
    ) {
        let len = weight.0.len();
        self.add(Weighted { gradient, weight }, len);
        if let Some([dweight, dbias]) = parameters {
            // A loop of its own, for one that also stores would not keep the lanes in registers.
            let (gradient, dweight, dbias) = (gradient.part(0, len), &mut dweight[..len], &mut dbias[..len]);
            for i in 0..len {
                let (xhat, g) = gradient.at(i);
                dweight[i] = g.mul_add(xhat, dweight[i]);
                dbias[i] += g;
            }
        }
    }

    /// The totals of `g·x̂` and of `g`; leaves no sums.
    #[inline(always)]
    pub(super) fn take(&mut self) -> (A, A) {
        let GradientLanes { gx, g } = std::mem::replace(self, GradientLanes::new());
        (gx.total(), g.total())
    }
}

/// The gradient times the weight of each element.
#[derive(Clone, Copy)]
struct Weighted<'w, G, A> {
    gradient: G,
    weight: Each<'w, A>,
}

impl<G: Gradient<A>, A: Real> Gradient<A> for Weighted<'_, G, A> {
    #[inline(always)]
    fn at(&self, index: usize) -> (A, A) {
        let (xhat, g) = self.gradient.at(index);
        (xhat, g * self.weight.at(index))
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        Weighted {
            gradient: self.gradient.part(start, len),
            weight: self.weight.part(start, len),
        }
    }
}
