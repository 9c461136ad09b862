//! Sums over contiguous elements in a fixed number of lanes, so that they vectorize and have the same bits whatever the
//! width of the vectors.

use std::hint::black_box;

use isonorm_math::{Element, Real};

use super::elementwise::{Coefficient, Each, Gradient, Gradients};
use super::isa::Vectors;
use super::statistics::BATCH;

/// Lanes of a sum: enough vectors for additions to overlap, few enough for registers.
const LANES: usize = 64;

/// Lanes of each of two sums that are kept side by side.
const PAIR_LANES: usize = 32;

/// Lanes that are left when those of a vector's length and more have been added up.
const FOLDED: usize = 16;

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

    /// Adds up every [`FOLDED`]-th lane.
    #[inline(always)]
    pub(super) fn fold(self) -> Folded<A> {
        const { assert!(N == 2 * FOLDED || N == 4 * FOLDED) };
        let sums = self.0;
        let mut folded = [A::ZERO; FOLDED];
        for i in 0..FOLDED {
            folded[i] = sums[i] + sums[i + FOLDED];
            if N == 4 * FOLDED {
                folded[i] += sums[i + 2 * FOLDED] + sums[i + 3 * FOLDED];
            }
        }
        Folded(folded)
    }
}

/// What is left of the lanes of a sum.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Folded<A>([A; FOLDED]);

impl<A: Real> Folded<A> {
    /// Of no elements.
    pub(super) const ZERO: Folded<A> = Folded([A::ZERO; FOLDED]);

    /// The total, added up as a tree.
    #[inline(always)]
    pub(super) fn total(self) -> A {
        // Otherwise the compiler takes the tree for scalars from its root up to its leaves, which is three times as slow.
        let [a, b] = halve::<A, 4, 2>(halve::<A, 8, 4>(halve::<A, FOLDED, 8>(black_box(self.0))));
        a + b
    }

    /// The totals of some sums, with the same bits: together, for one after the other they would take much of the time of short
    /// rows.
    #[inline(always)]
    pub(super) fn totals(vectors: Vectors, sums: &[Folded<A>; BATCH]) -> [A; BATCH] {
        let mut totals = [A::ZERO; BATCH];
        #[cfg(target_arch = "x86_64")]
        if x86::totals(vectors.isa(), sums, &mut totals) {
            return totals;
        }
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = sum.total();
        }
        totals
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

    /// The sums of the distances and of their squares.
    #[inline(always)]
    pub(super) fn fold(self) -> [Folded<A>; 2] {
        [self.distances.fold(), self.squares.fold()]
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

    /// Adds up elements times their weights.
    #[inline(always)]
    pub(super) fn add_weighted<G: Gradient<A>>(&mut self, gradient: G, weight: Each<'_, A>) {
        self.add(Weighted { gradient, weight }, weight.0.len());
    }

    /// The sums of `g·x̂` and of `g`.
    #[inline(always)]
    pub(super) fn fold(self) -> [Folded<A>; 2] {
        [self.gx.fold(), self.g.fold()]
    }

    /// The totals of `g·x̂` and of `g`; leaves no sums.
    #[inline(always)]
    pub(super) fn take(&mut self) -> (A, A) {
        let [gx, g] = std::mem::replace(self, GradientLanes::new()).fold();
        (gx.total(), g.total())
    }
}

/// Adds up the rows of a chunk, `g·x̂` to the gradient of each element's weight and `g` to that of its bias.
#[inline(always)]
pub(super) fn add_rows<A: Real, G: Gradients<A>>(gradients: G, [dweight, dbias]: [&mut [A]; 2]) {
    let len = dweight.len();
    // The sums of some elements stay in registers from row to row, if there are several.
    let joined = if gradients.rows() > 1 {
        len / PAIR_LANES * PAIR_LANES
    } else {
        0
    };
    for start in (0..joined).step_by(PAIR_LANES) {
        let end = start + PAIR_LANES;
        let (to_dweight, to_dbias) = (&mut dweight[start..end], &mut dbias[start..end]);
        let (mut gx, mut g) = ([A::ZERO; PAIR_LANES], [A::ZERO; PAIR_LANES]);
        gx.copy_from_slice(to_dweight);
        g.copy_from_slice(to_dbias);
        for row in 0..gradients.rows() {
            let gradient = gradients.row(row).part(start, PAIR_LANES);
            for i in 0..PAIR_LANES {
                let (xhat, gradient) = gradient.at(i);
                gx[i] = gradient.mul_add(xhat, gx[i]);
                g[i] += gradient;
            }
        }
        to_dweight.copy_from_slice(&gx);
        to_dbias.copy_from_slice(&g);
    }
    if joined < len {
        let (dweight, dbias) = (&mut dweight[joined..len], &mut dbias[joined..len]);
        for row in 0..gradients.rows() {
            let gradient = gradients.row(row).part(joined, len - joined);
            for i in 0..len - joined {
                let (xhat, g) = gradient.at(i);
                dweight[i] = g.mul_add(xhat, dweight[i]);
                dbias[i] += g;
            }
        }
    }
}

/// Adds up rows of `LEN` elements both ways: each, weighted, as [`GradientLanes`] would, and all of them as [`add_rows`] would.
#[inline(always)]
pub(super) fn fold_and_add_rows<A: Real, G: Gradients<A>, const LEN: usize>(
    gradients: G,
    weight: Each<'_, A>,
    [gx, g]: &mut [[Folded<A>; BATCH]; 2],
    [dweight, dbias]: [&mut [A]; 2],
) {
    let weight = weight.part(0, LEN);
    let (mut of_weight, mut of_bias) = ([A::ZERO; LEN], [A::ZERO; LEN]);
    of_weight.copy_from_slice(&dweight[..LEN]);
    of_bias.copy_from_slice(&dbias[..LEN]);
    for row in 0..gradients.rows().min(BATCH) {
        let gradient = gradients.row(row).part(0, LEN);
        let (mut gx_lanes, mut g_lanes) = ([A::ZERO; PAIR_LANES], [A::ZERO; PAIR_LANES]);
        for start in (0..LEN).step_by(PAIR_LANES) {
            let (gradient, weight) = (gradient.part(start, PAIR_LANES), weight.part(start, PAIR_LANES));
            for i in 0..PAIR_LANES {
                let (xhat, g) = gradient.at(i);
                of_weight[start + i] = g.mul_add(xhat, of_weight[start + i]);
                of_bias[start + i] += g;
                let wg = g * weight.at(i);
                gx_lanes[i] = wg.mul_add(xhat, gx_lanes[i]);
                g_lanes[i] += wg;
            }
        }
        gx[row] = Lanes(gx_lanes).fold();
        g[row] = Lanes(g_lanes).fold();
    }
    dweight[..LEN].copy_from_slice(&of_weight);
    dbias[..LEN].copy_from_slice(&of_bias);
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

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BATCH, FOLDED, Folded};
    use crate::cpu::isa::Isa;
    use crate::cpu::same::{same, same_mut};

    /// Adds up each sum, if there are instructions for it.
    #[inline(always)]
    pub(super) fn totals<A: 'static>(isa: Isa, sums: &[Folded<A>; BATCH], totals: &mut [A; BATCH]) -> bool {
        match (same(sums), same_mut(totals)) {
            (Some(sums), Some(totals)) if isa == Isa::Avx512 => {
                // SAFETY: this machine has these instructions, or `isa` would be another.
                unsafe { totals_avx512(sums, totals) };
                true
            }
            _ => false,
        }
    }

    /// Adds the halves of sixteen trees side by side, step by step: half as many vectors after each.
    #[target_feature(enable = "avx512f")]
    fn totals_avx512(sums: &[Folded<f32>], totals: &mut [f32]) {
        const { assert!(BATCH == 16 && FOLDED == 16) };
        assert!(sums.len() == BATCH && totals.len() == BATCH);
        /// The vectors of every two, in pairs of which the second ones follow the first ones.
        macro_rules! halve {
            ($vectors:expr, $half:literal, $shuffle:ident, $first:literal, $second:literal) => {{
                let vectors = $vectors;
                let mut halves = [_mm512_setzero_ps(); $half];
                for i in 0..$half {
                    let (a, b) = (vectors[2 * i], vectors[2 * i + 1]);
                    halves[i] = _mm512_add_ps($shuffle::<$first>(a, b), $shuffle::<$second>(a, b));
                }
                halves
            }};
        }
        let mut vectors = [_mm512_setzero_ps(); BATCH];
        for i in 0..BATCH {
            // SAFETY: a folded sum is sixteen numbers.
            vectors[i] = unsafe { _mm512_loadu_ps(sums[i].0.as_ptr()) };
        }
        let eights = halve!(vectors, 8, _mm512_shuffle_f32x4, 0x44, 0xee);
        let fours = halve!(eights, 4, _mm512_shuffle_f32x4, 0x88, 0xdd);
        let twos = halve!(fours, 2, _mm512_shuffle_ps, 0x44, 0xee);
        let [ones] = halve!(twos, 1, _mm512_shuffle_ps, 0x88, 0xdd);
        // The total of tree 4i + j is now number 4j + i.
        let rows = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
        // SAFETY: there is room for sixteen numbers.
        unsafe { _mm512_storeu_ps(totals.as_mut_ptr(), _mm512_permutexvar_ps(rows, ones)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn totals_have_the_same_bits_for_every_isa() {
        let mut state = 1u32;
        let mut number = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 65536.0 - 100.0
        };
        let sums = [(); BATCH].map(|()| Folded([(); FOLDED].map(|()| number())));
        let want = sums.map(Folded::total);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert_eq!(Folded::totals(isa.vectors(), &sums), want, "{isa}");
        }
    }
}
