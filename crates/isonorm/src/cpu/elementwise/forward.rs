use isonorm_math::activation::{Identity, Relu};
use isonorm_math::{Activation, Element, Normalizer, Pointwise};

use super::output::{Output, OutputSpace, Route};
use super::{Activate, AffineMap, All, CHUNK, Chunks, Coefficient, Dest, Each, NoResidual, Residual, Source};
use crate::cpu::isa::Vectors;
use crate::cpu::lookahead::Lookahead;
use crate::cpu::statistics::BATCH;

/// The tensors of a forward pass and what follows the affine map.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct ForwardElements<'a, T> {
    pub(in crate::cpu) x: Source<'a, T>,
    y: Dest<'a, T>,
    residual: Option<Source<'a, T>>,
    activation: Activation,
    route: Route,
    vectors: Vectors,
    /// How many elements further on the inputs are fetched meanwhile; 0: none.
    lookahead: usize,
}

impl<'a, T: Element> ForwardElements<'a, T> {
    /// `y` may be `x`, and says so by `in_place`; `streaming`: it goes past the caches.
    pub(in crate::cpu) fn new(
        (x, y, in_place): (Source<'a, T>, Dest<'a, T>, bool),
        residual: Option<Source<'a, T>>,
        activation: Activation,
        (streaming, lookahead): (bool, usize),
        vectors: Vectors,
    ) -> ForwardElements<'a, T> {
        ForwardElements {
            x,
            y,
            residual,
            activation,
            route: Route::new(in_place, streaming),
            vectors,
            lookahead,
        }
    }

    /// Computes `y` of the `len` elements at `offset`.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn run<N, W>(&self, (offset, len): (usize, usize), n: N, a: W, space: &mut OutputSpace<T>)
    where
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
    {
        // All chunks but the first begin on a cache line.
        for (start, len) in Chunks::new(len, self.y.past_line(offset)) {
            let n = [n.part(start, len)];
            // SAFETY: this function's contract.
            unsafe { self.chunk((offset + start, len), &n, a.part(start, len), space) };
        }
    }

    /// Computes `y` of consecutive short rows of `len` elements, the first at `offset`: each has a normalizer of its own, all
    /// have the same weight and bias.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn run_rows<W>(
        &self,
        (offset, len): (usize, usize),
        normalizers: &[Normalizer<T::Acc>],
        a: W,
        space: &mut OutputSpace<T>,
    ) where
        W: Coefficient<AffineMap<T::Acc>>,
    {
        let rows = CHUNK / len;
        for (i, normalizers) in normalizers.chunks(rows).enumerate() {
            let mut each = [All(Normalizer::default()); BATCH];
            let each = &mut each[..normalizers.len()];
            for (n, normalizer) in each.iter_mut().zip(normalizers) {
                *n = All(*normalizer);
            }
            // SAFETY: this function's contract.
            unsafe { self.chunk((offset + i * rows * len, len), each, a, space) };
        }
    }

    /// Computes `y` of a chunk: as many rows of `len` elements as there are normalizers, from `offset` on.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    unsafe fn chunk<N, W>(&self, (offset, len): (usize, usize), normalizers: &[N], a: W, space: &mut OutputSpace<T>)
    where
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
    {
        let at = (offset, len * normalizers.len());
        let x = self.x.slice(at.0, at.1);
        let residual = self.residual.as_ref().map(|r| Each(r.slice(at.0, at.1)));
        let ahead = Lookahead::new([Some(&self.x), self.residual.as_ref(), None], at.0, self.lookahead);
        let mut y = Output::new(&self.y, self.route, at, space);
        // SAFETY: this function's contract; in place the route is another than straight.
        let to = unsafe { y.place() };
        for (row, n) in normalizers.iter().enumerate() {
            let start = row * len;
            let residual = residual.map(|r| Coefficient::part(r, start, len));
            let (x, to) = (&x[start..start + len], &mut to[start..start + len]);
            self.map(x, (*n, a), residual, to, ahead.row(row, len));
        }
        let activation = self.activation;
        if !matches!(activation, Activation::Identity | Activation::Relu) {
            self.vectors.run(Activate { activation, z: to });
        }
        // SAFETY: this function's contract; no borrow of these elements is used any more.
        unsafe { y.finish(self.vectors) };
    }

    /// `to = act(x̂·weight + bias + residual)` for ReLU; otherwise what `act` is yet to be applied to.
    #[inline(always)]
    fn map<N, W>(&self, x: &[T], (n, a): (N, W), residual: Option<Each<'_, T>>, to: &mut [T::Acc], ahead: Lookahead)
    where
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
    {
        match (self.activation, residual) {
            (Activation::Relu, None) => map(x, (n, a), (NoResidual, Relu), to, ahead),
            (Activation::Relu, Some(residual)) => map(x, (n, a), (residual, Relu), to, ahead),
            (_, None) => map(x, (n, a), (NoResidual, Identity), to, ahead),
            (_, Some(residual)) => map(x, (n, a), (residual, Identity), to, ahead),
        }
    }
}

/// `to = act(x̂·weight + bias + residual)`.
#[inline(always)]
fn map<T, N, W, R, P>(x: &[T], (n, a): (N, W), (residual, activation): (R, P), to: &mut [T::Acc], ahead: Lookahead)
where
    T: Element,
    N: Coefficient<Normalizer<T::Acc>>,
    W: Coefficient<AffineMap<T::Acc>>,
    R: Residual<T::Acc>,
    P: Pointwise,
{
    for (start, len) in ahead.steps(to.len()) {
        let (x, to) = (&x[start..start + len], &mut to[start..start + len]);
        let (n, a, residual) = (n.part(start, len), a.part(start, len), residual.part(start, len));
        for i in 0..len {
            let z = a.at(i).apply(n.at(i).apply(x[i].to_acc()));
            to[i] = activation.apply(residual.add(i, z));
        }
    }
}
