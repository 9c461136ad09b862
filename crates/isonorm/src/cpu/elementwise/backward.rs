use isonorm_math::activation::{Identity, Relu};
use isonorm_math::{Activation, Element, Normalizer, Pointwise, Real};

use super::input_gradient::Results;
use super::output::{Output, Route, Staging};
use super::{
    AffineMap, CHUNK, Chunks, Coefficient, Deactivate, Dest, Each, InPlaceOfZ, NoResidual, Residual, STRIP, Source,
};
use crate::cpu::isa::Vectors;
use crate::cpu::lookahead::Lookahead;
use crate::cpu::mask::Mask;

/// `x̂` and `g = dy·act′(z)` of each element of a stretch.
pub(in crate::cpu) trait Gradient<A>: Copy {
    /// `x̂` and `g` of the `index`-th element.
    fn at(&self, index: usize) -> (A, A);

    /// Those of elements `start..start + len`, as [`Coefficient::part`].
    fn part(self, start: usize, len: usize) -> Self;
}

/// The gradients of a chunk: those of some rows, or parts of rows, of one length.
pub(in crate::cpu) trait Gradients<A>: Copy {
    /// Those of a row.
    type Row: Gradient<A>;

    /// The number of rows.
    fn rows(&self) -> usize;

    /// Those of the `index`-th row.
    fn row(&self, index: usize) -> Self::Row;
}

/// What is done with the gradients of a chunk: compiled for each kind of them.
pub(in crate::cpu) trait GradientVisitor<A: Real> {
    /// Does it.
    fn visit<T: Element<Acc = A>, G: Gradients<A>>(&mut self, gradients: G, results: Results<'_, T>);
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

/// Rows of them.
#[derive(Clone, Copy)]
struct ComputedRows<'a, T, N, W, R, P> {
    x: &'a [T],
    dy: &'a [T],
    /// One for each row.
    normalizers: &'a [N],
    /// Elements of a row.
    len: usize,
    a: W,
    residual: R,
    activation: P,
}

impl<'a, T, N, W, R, P> Gradients<T::Acc> for ComputedRows<'a, T, N, W, R, P>
where
    T: Element,
    N: Coefficient<Normalizer<T::Acc>>,
    W: Coefficient<AffineMap<T::Acc>>,
    R: Residual<T::Acc>,
    P: Pointwise,
{
    type Row = Computed<'a, T, N, W, R, P>;

    #[inline(always)]
    fn rows(&self) -> usize {
        self.normalizers.len()
    }

    #[inline(always)]
    fn row(&self, index: usize) -> Self::Row {
        let (start, len) = (index * self.len, self.len);
        Computed {
            x: &self.x[start..start + len],
            dy: &self.dy[start..start + len],
            n: self.normalizers[index].part(0, len),
            a: self.a.part(0, len),
            residual: self.residual.part(start, len),
            activation: self.activation,
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

/// Rows of `len` elements of them.
#[derive(Clone, Copy)]
struct PreparedRows<'a, A> {
    all: Prepared<'a, A>,
    len: usize,
}

impl<'a, A: Real> Gradients<A> for PreparedRows<'a, A> {
    type Row = Prepared<'a, A>;

    #[inline(always)]
    fn rows(&self) -> usize {
        self.all.g.len() / self.len
    }

    #[inline(always)]
    fn row(&self, index: usize) -> Self::Row {
        self.all.part(index * self.len, self.len)
    }
}

/// Working space of a backward task, which its chunks use one after the other.
#[repr(align(64))]
pub(in crate::cpu) struct BackwardSpace<T: Element> {
    xhat: [T::Acc; CHUNK],
    g: [T::Acc; CHUNK],
    z: [T::Acc; CHUNK],
    dx: Staging<T>,
    dresidual: Staging<T>,
}

impl<T: Element> BackwardSpace<T> {
    #[inline(always)]
    pub(in crate::cpu) fn new() -> BackwardSpace<T> {
        let zeros = [T::Acc::ZERO; CHUNK];
        BackwardSpace {
            xhat: zeros,
            g: zeros,
            z: zeros,
            dx: [T::default(); CHUNK],
            dresidual: [T::default(); CHUNK],
        }
    }
}

/// The tensors of a backward pass.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct BackwardElements<'a, T> {
    x: Source<'a, T>,
    dy: Source<'a, T>,
    residual: Option<Source<'a, T>>,
    /// What the activation made of z. Then there is no residual.
    result: Option<Source<'a, T>>,
    /// What `dy` passes, in place of the activation.
    mask: Option<Mask<'a>>,
    /// What is added to `dx`.
    dstream: Option<Source<'a, T>>,
    dx: Option<Dest<'a, T>>,
    dresidual: Option<Dest<'a, T>>,
    activation: Activation,
    route: Route,
    vectors: Vectors,
    /// How many elements further on the inputs are fetched while results are written; 0: none.
    lookahead: usize,
}

impl<'a, T: Element> BackwardElements<'a, T> {
    /// `dx` may be `dy`, and says so by `in_place`; `streaming`: results go past the caches.
    pub(in crate::cpu) fn new(
        x: Source<'a, T>,
        (dy, dx, in_place): (Source<'a, T>, Option<Dest<'a, T>>, bool),
        (residual, dresidual): (Option<Source<'a, T>>, Option<Dest<'a, T>>),
        dstream: Option<Source<'a, T>>,
        activation: Activation,
        (streaming, lookahead): (bool, usize),
        vectors: Vectors,
    ) -> BackwardElements<'a, T> {
        BackwardElements {
            x,
            dy,
            residual,
            result: None,
            mask: None,
            dstream,
            dx,
            dresidual,
            activation,
            route: Route::new(in_place, streaming),
            vectors,
            lookahead,
        }
    }

    /// With a mask that `dy` passes, in place of the activation.
    pub(in crate::cpu) fn masked(self, mask: Option<Mask<'a>>) -> BackwardElements<'a, T> {
        BackwardElements { mask, ..self }
    }

    /// With what a ReLU made of z.
    pub(in crate::cpu) fn of_result(self, result: Option<Source<'a, T>>) -> BackwardElements<'a, T> {
        BackwardElements { result, ..self }
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
        let result = self.result.as_ref().map(|y| InPlaceOfZ(Each(y.slice(at.0, at.1))));
        let in_strips = len.is_multiple_of(STRIP) || normalizers.len() == 1;
        let mut dx = match &self.dx {
            Some(to) if writes => Some(Output::new(to, self.route, at, in_strips, dx)),
            _ => None,
        };
        let mut dresidual = match &self.dresidual {
            Some(to) if writes => Some(Output::new(to, self.route, at, in_strips, dresidual)),
            _ => None,
        };
        // SAFETY: this function's contract; in place the route is neither straight nor past the caches.
        let to_dx = dx.as_mut().map(|dx| (dx.stores(self.vectors), unsafe { dx.rounded() }));
        let to_dresidual = dresidual
            .as_mut()
            // SAFETY: as above.
            .map(|dresidual| (dresidual.stores(self.vectors), unsafe { dresidual.rounded() }));
        let third = self
            .residual
            .as_ref()
            .or(self.result.as_ref())
            .or(self.dstream.as_ref());
        let inputs = [Some(&self.x), Some(&self.dy), third];
        let ahead = Lookahead::new(inputs, at.0, self.lookahead);
        let results = Results {
            dx: to_dx,
            dstream: self.dstream.as_ref().map(|dstream| dstream.slice(at.0, at.1)),
            dresidual: to_dresidual,
            ahead,
        };
        macro_rules! computed {
            ($residual:expr, $activation:expr) => {
                ComputedRows {
                    x,
                    dy,
                    normalizers,
                    len,
                    a,
                    residual: $residual,
                    activation: $activation,
                }
            };
        }
        match (self.activation, residual, result, &self.mask) {
            // It is a ReLU's.
            (_, _, Some(result), _) => visitor.visit(computed!(result, Relu), results),
            (Activation::Identity, ..) => visitor.visit(computed!(NoResidual, Identity), results),
            (Activation::Relu, None, _, None) => visitor.visit(computed!(NoResidual, Relu), results),
            (Activation::Relu, Some(residual), _, None) => visitor.visit(computed!(residual, Relu), results),
            (activation, residual, _, mask) => {
                let (xhat, g, z) = (&mut xhat[..at.1], &mut g[..at.1], &mut z[..at.1]);
                for (row, n) in normalizers.iter().enumerate() {
                    let start = row * len;
                    let (x, n) = (&x[start..start + len], n.part(0, len));
                    for (i, xhat) in xhat[start..start + len].iter_mut().enumerate() {
                        *xhat = n.at(i).apply(x[i].to_acc());
                    }
                    let (xhat, z) = (&xhat[start..start + len], &mut z[start..start + len]);
                    match residual {
                        _ if mask.is_some() => {}
                        None => preactivation(xhat, a, NoResidual, z),
                        Some(residual) => preactivation(xhat, a, Residual::<T::Acc>::part(residual, start, len), z),
                    }
                }
                match mask {
                    Some(mask) => mask.pass(at.0, dy, g),
                    None => {
                        for (g, dy) in g.iter_mut().zip(dy) {
                            *g = dy.to_acc();
                        }
                        self.vectors.run(Deactivate { activation, z, g });
                    }
                }
                let all = Prepared { xhat, g };
                visitor.visit(PreparedRows { all, len }, results);
            }
        }
        // SAFETY: this function's contract; no borrow of these elements is used any more.
        unsafe {
            for output in [dresidual, dx].into_iter().flatten() {
                output.finish_rounded(self.vectors);
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
