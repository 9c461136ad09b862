//! What is written for each element: the gradient of the input, and that of the residual.

use isonorm_math::normalize::input_gradient;
use isonorm_math::{BackwardCoefficients, Element, Normalizer, Real};

use super::backward::{Gradient, GradientVisitor, Gradients};
use super::output::rounds;
use super::{AffineMap, Coefficient, STRIP};
use crate::cpu::isa::Vectors;
use crate::cpu::lookahead::Lookahead;
use crate::cpu::stream::Stores;

/// Where the results of a chunk go; `None` where they are not wanted.
pub(in crate::cpu) struct Results<'r, T> {
    pub(super) dx: Option<(Stores, &'r mut [T])>,
    /// What is added to `dx`.
    pub(super) dstream: Option<&'r [T]>,
    pub(super) dresidual: Option<(Stores, &'r mut [T])>,
    /// What to fetch while they are computed.
    pub(super) ahead: Lookahead,
}

/// What the gradient of the input is computed with, besides that of the normalized.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct InputGradient<N, W, M> {
    pub(in crate::cpu) n: N,
    pub(in crate::cpu) a: W,
    pub(in crate::cpu) means: M,
}

impl<N: Copy, W: Copy, M: Copy> InputGradient<N, W, M> {
    /// Writes `dx = rstd·(w·g − mean_g − x̂·mean_gx)`, and the gradient of the residual, `g`, where they are wanted.
    #[inline(always)]
    pub(in crate::cpu) fn write<T, G>(self, gradient: G, results: Results<'_, T>)
    where
        T: Element,
        G: Gradient<T::Acc>,
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
        M: Coefficient<BackwardCoefficients<T::Acc>>,
    {
        if let Some((stores, to)) = results.dresidual {
            write_dresidual(gradient, to, stores);
        }
        if let Some((stores, to)) = results.dx {
            self.write_dx(gradient, (to, results.dstream), stores, results.ahead);
        }
    }

    #[inline(always)]
    fn write_dx<T, G>(self, gradient: G, (to, plus): (&mut [T], Option<&[T]>), stores: Stores, ahead: Lookahead)
    where
        T: Element,
        G: Gradient<T::Acc>,
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
        M: Coefficient<BackwardCoefficients<T::Acc>>,
    {
        for (start, len) in ahead.steps(to.len()) {
            let (to, plus) = (&mut to[start..start + len], plus.map(|plus| &plus[start..start + len]));
            let dx = OfInput {
                gradient: gradient.part(start, len),
                n: self.n.part(start, len),
                a: self.a.part(start, len),
                means: self.means.part(start, len),
            };
            match plus {
                None => fill(to, stores, dx),
                Some(plus) => fill(to, stores, Sum { dx, plus }),
            }
        }
    }
}

#[inline(always)]
fn write_dresidual<T: Element, G: Gradient<T::Acc>>(gradient: G, to: &mut [T], stores: Stores) {
    fill(to, stores, OfResidual(gradient));
}

/// A number for each element of a stretch.
trait Numbers<A>: Copy {
    fn at(&self, index: usize) -> A;

    /// Those of elements `start..start + len`, as [`Coefficient::part`].
    fn part(self, start: usize, len: usize) -> Self;
}

/// `to = numbers`, rounded.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "an iterator would leave bounds checks in the loops"
)]
fn fill<T: Element>(to: &mut [T], stores: Stores, numbers: impl Numbers<T::Acc>) {
    let past_caches = !rounds::<T>() && stores.past_caches;
    let strips = if rounds::<T>() || past_caches {
        to.len() / STRIP * STRIP
    } else {
        0
    };
    let (whole, rest) = to.split_at_mut(strips);
    if past_caches {
        fill_strips::<_, _, true>(whole, stores.vectors, numbers);
    } else {
        fill_strips::<_, _, false>(whole, stores.vectors, numbers);
    }
    let len = rest.len();
    let numbers = numbers.part(strips, len);
    for i in 0..len {
        rest[i] = T::from_acc(numbers.at(i));
    }
}

/// Strips of it.
#[inline(always)]
fn fill_strips<T: Element, N: Numbers<T::Acc>, const PAST_CACHES: bool>(to: &mut [T], vectors: Vectors, numbers: N) {
    for (strip, to) in to.as_chunks_mut().0.iter_mut().enumerate() {
        let numbers = numbers.part(strip * STRIP, STRIP);
        let mut values = [T::Acc::ZERO; STRIP];
        for (i, value) in values.iter_mut().enumerate() {
            *value = numbers.at(i);
        }
        vectors.store::<_, PAST_CACHES>(&values, to);
    }
}

/// The gradient of the input.
#[derive(Clone, Copy)]
struct OfInput<G, N, W, M> {
    gradient: G,
    n: N,
    a: W,
    means: M,
}

impl<A, G, N, W, M> Numbers<A> for OfInput<G, N, W, M>
where
    A: Real,
    G: Gradient<A>,
    N: Coefficient<Normalizer<A>>,
    W: Coefficient<AffineMap<A>>,
    M: Coefficient<BackwardCoefficients<A>>,
{
    #[inline(always)]
    fn at(&self, index: usize) -> A {
        let (xhat, g) = self.gradient.at(index);
        let (n, a) = (self.n.at(index), self.a.at(index));
        input_gradient(g * a.weight, xhat, n.rstd, self.means.at(index))
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        OfInput {
            gradient: self.gradient.part(start, len),
            n: self.n.part(start, len),
            a: self.a.part(start, len),
            means: self.means.part(start, len),
        }
    }
}

/// And another gradient added to it.
#[derive(Clone, Copy)]
struct Sum<'r, D, T> {
    dx: D,
    plus: &'r [T],
}

impl<T: Element, D: Numbers<T::Acc>> Numbers<T::Acc> for Sum<'_, D, T> {
    #[inline(always)]
    fn at(&self, index: usize) -> T::Acc {
        self.dx.at(index) + self.plus[index].to_acc()
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        Sum {
            dx: self.dx.part(start, len),
            plus: &self.plus[start..start + len],
        }
    }
}

/// The gradient of the residual.
#[derive(Clone, Copy)]
struct OfResidual<G>(G);

impl<A: Real, G: Gradient<A>> Numbers<A> for OfResidual<G> {
    #[inline(always)]
    fn at(&self, index: usize) -> A {
        self.0.at(index).1
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        OfResidual(self.0.part(start, len))
    }
}

impl<T: Element> Results<'_, T> {
    /// Writes the results of every row of `len` elements; `with(index)` is what they are computed with.
    #[inline(always)]
    pub(in crate::cpu) fn write_rows<G, N, W, M>(
        self,
        (gradients, len): (G, usize),
        with: impl Fn(usize) -> InputGradient<N, W, M>,
    ) where
        G: Gradients<T::Acc>,
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
        M: Coefficient<BackwardCoefficients<T::Acc>>,
    {
        if let Some((stores, to)) = self.dresidual {
            for row in 0..gradients.rows() {
                write_dresidual(gradients.row(row), &mut to[row * len..][..len], stores);
            }
        }
        if let Some((stores, to)) = self.dx {
            for row in 0..gradients.rows() {
                let start = row * len;
                let to = (
                    &mut to[start..start + len],
                    self.dstream.map(|plus| &plus[start..start + len]),
                );
                with(row).write_dx(gradients.row(row), to, stores, self.ahead.row(row, len));
            }
        }
    }
}

/// Writing the results is all that is done, of one row.
impl<A, N, W, M> GradientVisitor<A> for InputGradient<N, W, M>
where
    A: Real,
    N: Coefficient<Normalizer<A>>,
    W: Coefficient<AffineMap<A>>,
    M: Coefficient<BackwardCoefficients<A>>,
{
    #[inline(always)]
    fn visit<T: Element<Acc = A>, G: Gradients<A>>(&mut self, gradients: G, results: Results<'_, T>) {
        self.write(gradients.row(0), results);
    }
}
