//! Sums over contiguous elements in a fixed number of lanes, so that they vectorize and have the same bits whatever the
//! width of the vectors.

use std::hint::black_box;

use isonorm_math::{Element, Real};

use super::elementwise::{Coefficient, Each, Gradient};

/// Lanes of a sum: enough vectors for additions to overlap, few enough for registers.
const LANES: usize = 64;

/// Lanes of each of two sums that are kept side by side.
const PAIR_LANES: usize = 32;

/// Lanes that are left when those of a vector's length and more have been added up.
const FEW: usize = 16;

/// Running sums of lanes. Rounding errors grow with the number of elements a lane, not of elements.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Lanes<A, const N: usize = LANES>([A; N]);

impl<A: Real> Lanes<A> {
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
}

impl<A: Real, const N: usize> Lanes<A, N> {
    /// No sums.
    #[inline(always)]
    pub(super) fn new() -> Lanes<A, N> {
        Lanes([A::ZERO; N])
    }

    /// The total, added up as a tree.
    #[inline(always)]
    pub(super) fn total(self) -> A {
        // Otherwise the compiler takes the tree for scalars from its root up to its leaves, which is three times as slow.
        let [a, b] = halve::<A, 4, 2>(halve::<A, 8, 4>(halve::<A, FEW, 8>(black_box(self.few()))));
        a + b
    }

    /// The sums of every `N / FEW`-th lane.
    #[inline(always)]
    fn few(self) -> [A; FEW] {
        const { assert!(N == 2 * FEW || N == 4 * FEW) };
        let sums = self.0;
        let mut few = [A::ZERO; FEW];
        for i in 0..FEW {
            few[i] = sums[i] + sums[i + FEW];
            if N == 4 * FEW {
                few[i] += sums[i + 2 * FEW] + sums[i + 3 * FEW];
            }
        }
        few
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

/// Running sums of distances from a number near the mean, and of their squares.
#[derive(Clone, Copy)]
pub(super) struct DistanceLanes<A> {
    distances: Lanes<A, PAIR_LANES>,
    squares: Lanes<A, PAIR_LANES>,
}

impl<A: Real> DistanceLanes<A> {
    /// No sums.
    #[inline(always)]
    pub(super) fn new() -> DistanceLanes<A> {
        DistanceLanes {
            distances: Lanes::new(),
            squares: Lanes::new(),
        }
    }

    /// Adds up the distances of `x` from `centre`.
    #[inline(always)]
    pub(super) fn add<T: Element<Acc = A>>(&mut self, x: &[T], centre: A) {
        let (chunks, rest) = x.as_chunks::<PAIR_LANES>();
        let (mut distances, mut squares) = (self.distances.0, self.squares.0);
        for chunk in chunks {
            for i in 0..PAIR_LANES {
                let d = chunk[i].to_acc() - centre;
                distances[i] += d;
                squares[i] = d.mul_add(d, squares[i]);
            }
        }
        (self.distances.0, self.squares.0) = (distances, squares);
        for (i, v) in rest.iter().enumerate() {
            let d = v.to_acc() - centre;
            self.distances.0[i] += d;
            self.squares.0[i] = d.mul_add(d, self.squares.0[i]);
        }
    }

    /// The totals of the distances and of their squares.
    #[inline(always)]
    pub(super) fn totals(self) -> (A, A) {
        (self.distances.total(), self.squares.total())
    }
}

/// Running sums of `g·x̂` and of `g`.
#[derive(Clone, Copy)]
pub(super) struct GradientLanes<A> {
    gx: Lanes<A, PAIR_LANES>,
    g: Lanes<A, PAIR_LANES>,
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
        let body = len / PAIR_LANES * PAIR_LANES;
        let (mut gx, mut g) = (self.gx.0, self.g.0);
        for start in (0..body).step_by(PAIR_LANES) {
            let gradient = gradient.part(start, PAIR_LANES);
            for i in 0..PAIR_LANES {
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
