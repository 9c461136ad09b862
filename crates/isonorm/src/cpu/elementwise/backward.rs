use isonorm_math::activation::{Identity, Relu};
use isonorm_math::normalize::input_gradient;
use isonorm_math::{Activation, BackwardCoefficients, Element, Normalizer, Pointwise, Real};

use super::{
    AffineMap, CHUNK, Chunks, Coefficient, Deactivate, Dest, Each, NoResidual, Residual, Route, Source, rounds,
    unrounded,
};
use crate::cpu::isa::Vectors;

/// `x̂` and `g = dy·act′(z)` of each element of a stretch.
pub(in crate::cpu) trait Gradient<A>: Copy {
    /// `x̂` and `g` of the `index`-th element.
    fn at(&self, index: usize) -> (A, A);

    /// Those of elements `start..start + len`, as [`Coefficient::part`].
    fn part(self, start: usize, len: usize) -> Self;
}

/// What is done with the gradients of a chunk: compiled for each kind of [`Gradient`].
pub(in crate::cpu) trait GradientVisitor<A> {
    /// Does it for the chunk's `row`-th row.
    fn visit<G: Gradient<A>>(&mut self, row: usize, gradient: G, results: Results<'_, A>);
}

/// Where the results of a row go; `None` where they are not wanted.
pub(in crate::cpu) struct Results<'r, A> {
    dx: Option<&'r mut [A]>,
    dresidual: Option<&'r mut [A]>,
}

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
    dx: OutputSpace<T>,
    dresidual: OutputSpace<T>,
}

/// Results of a chunk: before they are rounded, and before they are moved where they belong.
struct OutputSpace<T: Element> {
    computed: [T::Acc; CHUNK],
    stored: [T; CHUNK],
}

impl<T: Element> BackwardSpace<T> {
    #[inline(always)]
    pub(in crate::cpu) fn new() -> BackwardSpace<T> {
        let zeros = [T::Acc::ZERO; CHUNK];
        let output = || OutputSpace {
            computed: zeros,
            stored: [T::default(); CHUNK],
        };
        BackwardSpace {
            xhat: zeros,
            g: zeros,
            z: zeros,
            dx: output(),
            dresidual: output(),
        }
    }
}

/// An output of a chunk while it is computed.
struct Output<'s, 'a, T: Element> {
    dest: &'s Dest<'a, T>,
    at: (usize, usize),
    route: Route,
    space: &'s mut OutputSpace<T>,
}

impl<'s, 'a, T: Element> Output<'s, 'a, T> {
    #[inline(always)]
    fn new(
        dest: Option<&'s Dest<'a, T>>,
        route: Route,
        at: (usize, usize),
        space: &'s mut OutputSpace<T>,
    ) -> Option<Output<'s, 'a, T>> {
        let dest = dest?;
        Some(Output {
            dest,
            at,
            route: route.of_chunk(dest, at),
            space,
        })
    }

    /// Where to compute it.
    ///
    /// # Safety
    /// As for [`Route::first`].
    #[inline(always)]
    unsafe fn place(&mut self) -> &mut [T::Acc] {
        let OutputSpace { computed, stored } = &mut *self.space;
        // SAFETY: this function's contract.
        let to = unsafe { self.route.first(self.dest, self.at, stored) };
        match unrounded(to) {
            Some(to) => to,
            None => &mut computed[..self.at.1],
        }
    }

    /// Rounds it, and moves it where it belongs.
    ///
    /// # Safety
    /// No other task touches these elements, and this task holds no borrow of them.
    #[inline(always)]
    unsafe fn finish(self, vectors: Vectors) {
        let OutputSpace { computed, stored } = self.space;
        if rounds::<T>() {
            // SAFETY: this function's contract.
            let to = unsafe { self.route.first(self.dest, self.at, stored) };
            vectors.round(&computed[..self.at.1], to);
        }
        // SAFETY: this function's contract.
        unsafe { self.route.finish(self.dest, self.at, stored) };
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

    /// Shows the gradients of a chunk to a visitor: as many rows of `len` elements as there are normalizers, from `offset` on,
    /// [`CHUNK`] elements at most in all. If it `writes`, the visitor is to fill its results.
    ///
    /// # Safety
    /// If it writes: no other task touches these elements.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn chunk<N, W, V>(
        &self,
        (offset, len): (usize, usize),
        writes: bool,
        (normalizers, a): (&[N], W),
        space: &mut BackwardSpace<T>,
        visitor: &mut V,
    ) where
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
        V: GradientVisitor<T::Acc>,
    {
        let BackwardSpace {
            xhat,
            g,
            z,
            dx,
            dresidual,
        } = space;
        let at = (offset, len * normalizers.len());
        let (x, dy) = (self.x.slice(at.0, at.1), self.dy.slice(at.0, at.1));
        let residual = self.residual.as_ref().map(|r| Each(r.slice(at.0, at.1)));
        let mut dx = Output::new(self.dx.as_ref().filter(|_| writes), self.route, at, dx);
        let mut dresidual = Output::new(self.dresidual.as_ref().filter(|_| writes), self.route, at, dresidual);
        // SAFETY: this function's contract; in place the route is another than straight.
        let mut to_dx = dx.as_mut().map(|dx| unsafe { dx.place() });
        // SAFETY: as above.
        let mut to_dresidual = dresidual.as_mut().map(|dresidual| unsafe { dresidual.place() });
        macro_rules! visit_rows {
            (|$start:ident, $n:ident| $gradient:expr) => {
                for (row, n) in normalizers.iter().enumerate() {
                    let ($start, $n) = (row * len, *n);
                    let results = Results {
                        dx: match &mut to_dx {
                            Some(to) => Some(&mut to[$start..$start + len]),
                            None => None,
                        },
                        dresidual: match &mut to_dresidual {
                            Some(to) => Some(&mut to[$start..$start + len]),
                            None => None,
                        },
                    };
                    visitor.visit(row, $gradient, results);
                }
            };
        }
        macro_rules! computed {
            ($residual:expr, $activation:expr) => {
                visit_rows!(|start, n| Computed {
                    x: &x[start..start + len],
                    dy: &dy[start..start + len],
                    n: n.part(0, len),
                    a: a.part(0, len),
                    residual: Residual::<T::Acc>::part($residual, start, len),
                    activation: $activation,
                })
            };
        }
        match (self.activation, residual) {
            (Activation::Identity, _) => computed!(NoResidual, Identity),
            (Activation::Relu, None) => computed!(NoResidual, Relu),
            (Activation::Relu, Some(residual)) => computed!(residual, Relu),
            (activation, residual) => {
                let (xhat, g, z) = (&mut xhat[..at.1], &mut g[..at.1], &mut z[..at.1]);
                for (row, n) in normalizers.iter().enumerate() {
                    let start = row * len;
                    let (x, n) = (&x[start..start + len], n.part(0, len));
                    for (i, xhat) in xhat[start..start + len].iter_mut().enumerate() {
                        *xhat = n.at(i).apply(x[i].to_acc());
                    }
                    let (xhat, z) = (&xhat[start..start + len], &mut z[start..start + len]);
                    match residual {
                        None => preactivation(xhat, a, NoResidual, z),
                        Some(residual) => preactivation(xhat, a, Residual::<T::Acc>::part(residual, start, len), z),
                    }
                }
                for (g, dy) in g.iter_mut().zip(dy) {
                    *g = dy.to_acc();
                }
                self.vectors.run(Deactivate { activation, z, g });
                let prepared = Prepared { xhat, g };
                visit_rows!(|start, _n| prepared.part(start, len));
            }
        }
        // SAFETY: this function's contract; no borrow of these elements is used any more.
        unsafe {
            for output in [dresidual, dx].into_iter().flatten() {
                output.finish(self.vectors);
            }
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

/// What the gradient of the input is computed with, besides that of the normalized.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct InputGradient<N, W, M> {
    pub(in crate::cpu) n: N,
    pub(in crate::cpu) a: W,
    pub(in crate::cpu) means: M,
}

impl<N, W, M> InputGradient<N, W, M> {
    /// Writes `dx = rstd·(w·g − mean_g − x̂·mean_gx)`, and the gradient of the residual, `g`, where they are wanted.
    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "with an iterator the bounds checks of the coefficients would stay in the loop"
    )]
    pub(in crate::cpu) fn write<A, G>(self, gradient: G, results: Results<'_, A>)
    where
        A: Real,
        G: Gradient<A>,
        N: Coefficient<Normalizer<A>>,
        W: Coefficient<AffineMap<A>>,
        M: Coefficient<BackwardCoefficients<A>>,
    {
        if let Some(to) = results.dresidual {
            let gradient = gradient.part(0, to.len());
            for i in 0..to.len() {
                to[i] = gradient.at(i).1;
            }
        }
        if let Some(to) = results.dx {
            let InputGradient { n, a, means } = self;
            let len = to.len();
            let (gradient, n, a, means) = (
                gradient.part(0, len),
                n.part(0, len),
                a.part(0, len),
                means.part(0, len),
            );
            for i in 0..len {
                let (xhat, g) = gradient.at(i);
                to[i] = input_gradient(g * a.at(i).weight, xhat, n.at(i).rstd, means.at(i));
            }
        }
    }
}
