use isonorm_math::activation::{Identity, Relu};
use isonorm_math::{Activation, Element, Normalizer, Pointwise, Real};

use super::{
    Activate, AffineMap, All, CHUNK, Chunks, Coefficient, Dest, Each, NoResidual, Residual, Route, Source, rounds,
    unrounded,
};
use crate::cpu::isa::Vectors;
use crate::cpu::statistics::BATCH;

/// Working space of a forward task, which its chunks use one after the other.
#[repr(align(64))]
pub(in crate::cpu) struct ForwardSpace<T: Element> {
    z: [T::Acc; CHUNK],
    out: [T; CHUNK],
}

impl<T: Element> ForwardSpace<T> {
    #[inline(always)]
    pub(in crate::cpu) fn new() -> ForwardSpace<T> {
        ForwardSpace {
            z: [T::Acc::ZERO; CHUNK],
            out: [T::default(); CHUNK],
        }
    }
}

/// The tensors of a forward pass and what follows the affine map.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct ForwardElements<'a, T> {
    pub(in crate::cpu) x: Source<'a, T>,
    y: Dest<'a, T>,
    residual: Option<Source<'a, T>>,
    activation: Activation,
    route: Route,
    vectors: Vectors,
}

impl<'a, T: Element> ForwardElements<'a, T> {
    /// `y` may be `x`, and says so by `in_place`; `streaming`: it goes past the caches.
    pub(in crate::cpu) fn new(
        (x, y, in_place): (Source<'a, T>, Dest<'a, T>, bool),
        residual: Option<Source<'a, T>>,
        activation: Activation,
        streaming: bool,
        vectors: Vectors,
    ) -> ForwardElements<'a, T> {
        ForwardElements {
            x,
            y,
            residual,
            activation,
            route: Route::new(in_place, streaming),
            vectors,
        }
    }

    /// Computes `y` of the `len` elements at `offset`.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn run<N, W>(
        &self,
        (offset, len): (usize, usize),
        n: N,
        a: W,
        space: &mut ForwardSpace<T>,
    ) where
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
        space: &mut ForwardSpace<T>,
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
    unsafe fn chunk<N, W>(&self, (offset, len): (usize, usize), normalizers: &[N], a: W, space: &mut ForwardSpace<T>)
    where
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
    {
        let ForwardSpace { z, out } = space;
        let at = (offset, len * normalizers.len());
        let x = self.x.slice(at.0, at.1);
        let residual = self.residual.as_ref().map(|r| Each(r.slice(at.0, at.1)));
        let route = self.route.of_chunk(&self.y, at);
        // SAFETY: this function's contract; only the straight route writes `y` here, and then it is not `x`.
        let to = unsafe { route.first(&self.y, at, out) };
        let fused = matches!(self.activation, Activation::Identity | Activation::Relu);
        let mapped = match unrounded(to) {
            Some(to) if fused => to,
            _ => &mut z[..at.1],
        };
        for (row, n) in normalizers.iter().enumerate() {
            let start = row * len;
            let residual = residual.map(|r| Coefficient::part(r, start, len));
            self.map(
                &x[start..start + len],
                (*n, a),
                residual,
                &mut mapped[start..start + len],
            );
        }
        if !fused || rounds::<T>() {
            let z = &mut z[..at.1];
            if !fused {
                let activation = self.activation;
                self.vectors.run(Activate { activation, z });
            }
            self.vectors.round(z, to);
        }
        // SAFETY: this function's contract; the borrow of `x` has ended.
        unsafe { route.finish(&self.y, at, out) };
    }

    /// `to = act(x̂·weight + bias + residual)` for ReLU; otherwise what `act` is yet to be applied to.
    #[inline(always)]
    fn map<N, W>(&self, x: &[T], (n, a): (N, W), residual: Option<Each<'_, T>>, to: &mut [T::Acc])
    where
        N: Coefficient<Normalizer<T::Acc>>,
        W: Coefficient<AffineMap<T::Acc>>,
    {
        match (self.activation, residual) {
            (Activation::Relu, None) => map(x, (n, a), NoResidual, Relu, to),
            (Activation::Relu, Some(residual)) => map(x, (n, a), residual, Relu, to),
            (_, None) => map(x, (n, a), NoResidual, Identity, to),
            (_, Some(residual)) => map(x, (n, a), residual, Identity, to),
        }
    }
}

/// `to = act(x̂·weight + bias + residual)`.
#[inline(always)]
fn map<T, N, W, R, P>(x: &[T], (n, a): (N, W), residual: R, activation: P, to: &mut [T::Acc])
where
    T: Element,
    N: Coefficient<Normalizer<T::Acc>>,
    W: Coefficient<AffineMap<T::Acc>>,
    R: Residual<T::Acc>,
    P: Pointwise,
{
    let len = to.len();
    let (x, n, a, residual) = (&x[..len], n.part(0, len), a.part(0, len), residual.part(0, len));
    for i in 0..len {
        let z = a.at(i).apply(n.at(i).apply(x[i].to_acc()));
        to[i] = activation.apply(residual.add(i, z));
    }
}
