use isonorm_math::activation::{Identity, Relu};
use isonorm_math::normalize::input_gradient;
use isonorm_math::{Activation, BackwardCoefficients, Element, Normalizer, Pointwise, Real};

use super::{
    AffineMap, CHUNK, Chunks, Coefficient, Deactivate, Dest, Each, NoResidual, Residual, Route, Source, rounds,
};
use crate::cpu::isa::Vectors;

/// `x̂` and `g = dy·act′(z)` of each element of a stretch.
pub(in crate::cpu) trait Gradient<A>: Copy {
    /// `x̂` and `g` of the `index`-th element.
    fn at(&self, index: usize) -> (A, A);

    /// Those of elements `start..start + len`, as [`Coefficient::part`].
    fn part(self, start: usize, len: usize) -> Self;
}

/// What is done with the gradient of a chunk: compiled for each kind of [`Gradient`].
pub(in crate::cpu) trait GradientVisitor<T: Element> {
    /// Does it.
    fn visit<G: Gradient<T::Acc>>(self, gradient: G, results: &mut Results<T>) -> Option<Replacement>;
}

/// Working space for the results of a chunk: as they are computed, and as they are stored. The latter may hold what replaces `dy`.
#[repr(align(64))]
pub(in crate::cpu) struct Results<T: Element> {
    computed: [T::Acc; CHUNK],
    stored: [T; CHUNK],
}

/// Results of a chunk have been collected and are to replace its `dy`, which its gradient may still borrow. Made by
/// [`InputGradient::write`] alone, so where no other task touches the chunk.
#[must_use]
pub(in crate::cpu) struct Replacement(());

/// Computed from the tensors wherever it is needed: cheaper than to store it, where the activation is.
#[derive(Clone, Copy)]
struct Computed<'a, T, N, W, R, P> {
    x: &'a [T],
    dy: &'a [T],
    n: N,
    a: W,
    residual: R,
    activation: P,
}

impl<T, N, W, R, P> Gradient<T::Acc> for Computed<'_, T, N, W, R, P>
where
    T: Element,
    N: Coefficient<Normalizer<T::Acc>>,
    W: Coefficient<AffineMap<T::Acc>>,
    R: Residual<T::Acc>,
    P: Pointwise,
{
    #[inline(always)]
    fn at(&self, index: usize) -> (T::Acc, T::Acc) {
        let xhat = self.n.at(index).apply(self.x[index].to_acc());
        let z = self.residual.add(index, self.a.at(index).apply(xhat));
        (xhat, self.dy[index].to_acc() * self.activation.derivative(z))
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        Computed {
            x: &self.x[start..start + len],
            dy: &self.dy[start..start + len],
            n: self.n.part(start, len),
            a: self.a.part(start, len),
            residual: self.residual.part(start, len),
            ..self
        }
    }
}

/// Computed in stages beforehand.
#[derive(Clone, Copy)]
struct Prepared<'a, A> {
    xhat: &'a [A],
    g: &'a [A],
}

impl<A: Real> Gradient<A> for Prepared<'_, A> {
    #[inline(always)]
    fn at(&self, index: usize) -> (A, A) {
        (self.xhat[index], self.g[index])
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        Prepared {
            xhat: &self.xhat[start..start + len],
            g: &self.g[start..start + len],
        }
    }
}

/// Working space of a backward task, which its chunks use one after the other.
#[repr(align(64))]
pub(in crate::cpu) struct BackwardSpace<T: Element> {
    xhat: [T::Acc; CHUNK],
    g: [T::Acc; CHUNK],
    z: [T::Acc; CHUNK],
    results: Results<T>,
}

impl<T: Element> BackwardSpace<T> {
    #[inline(always)]
    pub(in crate::cpu) fn new() -> BackwardSpace<T> {
        let zeros = [T::Acc::ZERO; CHUNK];
        BackwardSpace {
            xhat: zeros,
            g: zeros,
            z: zeros,
            results: Results {
                computed: zeros,
                stored: [T::default(); CHUNK],
            },
        }
    }
}

/// The tensors of a backward pass.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct BackwardElements<'a, T> {
    x: Source<'a, T>,
    dy: Source<'a, T>,
    residual: Option<Source<'a, T>>,
    dx: Option<Dest<'a, T>>,
    dresidual: Option<Dest<'a, T>>,
    activation: Activation,
    route: Route,
    vectors: Vectors,
}

impl<'a, T: Element> BackwardElements<'a, T> {
    /// `dx` may be `dy`, and says so by `in_place`; `streaming`: results go past the caches.
    pub(in crate::cpu) fn new(
        x: Source<'a, T>,
        (dy, dx, in_place): (Source<'a, T>, Option<Dest<'a, T>>, bool),
        (residual, dresidual): (Option<Source<'a, T>>, Option<Dest<'a, T>>),
        activation: Activation,
        streaming: bool,
        vectors: Vectors,
    ) -> BackwardElements<'a, T> {
        BackwardElements {
            x,
            dy,
            residual,
            dx,
            dresidual,
            activation,
            route: Route::new(in_place, streaming),
            vectors,
        }
    }

    /// Whether anything is written for each element.
    pub(in crate::cpu) fn writes(&self) -> bool {
        self.dx.is_some() || self.dresidual.is_some()
    }

    /// The chunks of the `len` elements at `offset`. Where nothing is added up, all but the first begin on a cache line of `dx`;
    /// the order of summation may not depend on addresses.
    #[inline(always)]
    pub(in crate::cpu) fn chunks(&self, (offset, len): (usize, usize), sums: bool) -> Chunks {
        match &self.dx {
            Some(dx) if !sums => Chunks::new(len, dx.past_line(offset)),
            _ => Chunks::new(len, 0),
        }
    }

    /// Shows the gradient of the `len <= CHUNK` elements at `offset` to a visitor.
    #[inline(always)]
    pub(in crate::cpu) fn chunk<N, W, V>(
        &self,
        (offset, len): (usize, usize),
        n: N,
        a: W,
        space: &mut BackwardSpace<T>,
        visitor: V,
    ) where
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
        V: GradientVisitor<T>,
    {
        let BackwardSpace { xhat, g, z, results } = space;
        let (n, a) = (n.part(0, len), a.part(0, len));
        let (x, dy) = (self.x.slice(offset, len), self.dy.slice(offset, len));
        let residual = self.residual.as_ref().map(|r| Each(r.slice(offset, len)));
        macro_rules! computed {
            ($residual:expr, $activation:expr) => {
                Computed {
                    x,
                    dy,
                    n,
                    a,
                    residual: $residual,
                    activation: $activation,
                }
            };
        }
        let replacement = match (self.activation, residual) {
            (Activation::Identity, _) => visitor.visit(computed!(NoResidual, Identity), results),
            (Activation::Relu, None) => visitor.visit(computed!(NoResidual, Relu), results),
            (Activation::Relu, Some(residual)) => visitor.visit(computed!(residual, Relu), results),
            (activation, residual) => {
                let (xhat, g, z) = (&mut xhat[..len], &mut g[..len], &mut z[..len]);
                for i in 0..len {
                    xhat[i] = n.at(i).apply(x[i].to_acc());
                }
                match residual {
                    None => preactivation(xhat, a, NoResidual, z),
                    Some(residual) => preactivation(xhat, a, residual, z),
                }
                for i in 0..len {
                    g[i] = dy[i].to_acc();
                }
                self.vectors.run(Deactivate { activation, z, g });
                visitor.visit(Prepared { xhat, g }, results)
            }
        };
        if let (Some(Replacement(())), Some(dx)) = (replacement, &self.dx) {
            // SAFETY: by the contract of `InputGradient::new` no other task touches this chunk, and its borrows have ended.
            unsafe { Route::InPlace.finish(dx, (offset, len), &results.stored) };
        }
    }
}

/// `z = x̂·weight + bias + residual`.
#[inline(always)]
fn preactivation<A: Real, W: Coefficient<AffineMap<A>>, R: Residual<A>>(xhat: &[A], a: W, residual: R, z: &mut [A]) {
    let len = z.len();
    let (xhat, a, residual) = (&xhat[..len], a.part(0, len), residual.part(0, len));
    for i in 0..len {
        z[i] = residual.add(i, a.at(i).apply(xhat[i]));
    }
}

/// Writes the gradients of a chunk: `dx = rstd·(w·g − mean_g − x̂·mean_gx)` and that of the residual, `g`.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct InputGradient<'e, 'a, T, N, W, M> {
    elements: &'e BackwardElements<'a, T>,
    at: (usize, usize),
    n: N,
    a: W,
    means: M,
}

impl<'e, 'a, T, N, W, M> InputGradient<'e, 'a, T, N, W, M>
where
    T: Element,
    N: Coefficient<Normalizer<T::Acc>>,
    W: Coefficient<AffineMap<T::Acc>>,
    M: Coefficient<BackwardCoefficients<T::Acc>>,
{
    /// For the `len` elements at `offset`, whose gradient it will be given.
    ///
    /// # Safety
    /// While this value lives, no other task touches these elements.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn new(
        elements: &'e BackwardElements<'a, T>,
        (offset, len): (usize, usize),
        n: N,
        a: W,
        means: M,
    ) -> InputGradient<'e, 'a, T, N, W, M> {
        InputGradient {
            elements,
            at: (offset, len),
            n: n.part(0, len),
            a: a.part(0, len),
            means: means.part(0, len),
        }
    }

    /// Writes; where `dx` goes over `dy`, which `gradient` borrows, leaves it in `results` and says so.
    #[inline(always)]
    pub(in crate::cpu) fn write<G: Gradient<T::Acc>>(
        self,
        gradient: G,
        results: &mut Results<T>,
    ) -> Option<Replacement> {
        let InputGradient {
            elements,
            at,
            n,
            a,
            means,
        } = self;
        let BackwardElements {
            dx, dresidual, route, ..
        } = elements;
        let len = at.1;
        let gradient = gradient.part(0, len);
        let Results { computed, stored } = results;
        if let Some(dresidual) = dresidual {
            let route = route.of_chunk(dresidual, at);
            // SAFETY: `new`'s contract; only the straight route writes here, and then nothing is in place.
            let to = unsafe { route.first(dresidual, at, stored) };
            if rounds::<T>() {
                let computed = &mut computed[..len];
                for (i, g) in computed.iter_mut().enumerate() {
                    *g = gradient.at(i).1;
                }
                elements.vectors.round(computed, to);
            } else {
                let to = &mut to[..len];
                for (i, to) in to.iter_mut().enumerate() {
                    *to = T::from_acc(gradient.at(i).1);
                }
            }
            // SAFETY: `new`'s contract; the residual's gradient is memory of its own.
            unsafe { route.finish(dresidual, at, stored) };
        }
        if let Some(dx) = dx {
            let route = route.of_chunk(dx, at);
            // SAFETY: as above.
            let to = unsafe { route.first(dx, at, stored) };
            let (n, a, means) = (n.part(0, len), a.part(0, len), means.part(0, len));
            if rounds::<T>() {
                let computed = &mut computed[..len];
                for (i, dx) in computed.iter_mut().enumerate() {
                    let (xhat, g) = gradient.at(i);
                    *dx = input_gradient(g * a.at(i).weight, xhat, n.at(i).rstd, means.at(i));
                }
                elements.vectors.round(computed, to);
            } else {
                let to = &mut to[..len];
                for (i, to) in to.iter_mut().enumerate() {
                    let (xhat, g) = gradient.at(i);
                    *to = T::from_acc(input_gradient(g * a.at(i).weight, xhat, n.at(i).rstd, means.at(i)));
                }
            }
            if route == Route::InPlace {
                return Some(Replacement(()));
            }
            // SAFETY: `new`'s contract; out of place `dx` is memory of its own.
            unsafe { route.finish(dx, at, stored) };
        }
        None
    }
}
