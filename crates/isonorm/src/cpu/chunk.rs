//! Elementwise work on a few hundred elements at a time, in stages over buffers that stay in the first-level cache: each
//! stage is a loop that vectorizes by itself, and kinds of activation, residual and type add code instead of multiplying it.

use isonorm_math::{Activation, BackwardCoefficients, Element, Real};

use super::lanes::LANES;
use super::memory::{Dest, Source};
use super::stream;

/// Elements of a chunk.
pub(super) const CHUNK: usize = 256;

/// A chunk in the accumulator's type.
pub(super) type Buffer<A> = [A; CHUNK];

/// A coefficient of each element of a chunk: one for all, or one each.
pub(super) trait Coefficient<A>: Copy {
    /// That of the `index`-th element.
    fn at(&self, index: usize) -> A;
}

/// The same for all elements.
#[derive(Clone, Copy)]
pub(super) struct All<A>(pub(super) A);

/// One for each element.
#[derive(Clone, Copy)]
pub(super) struct Each<'a, A>(pub(super) &'a [A]);

impl<A: Copy> Coefficient<A> for All<A> {
    #[inline(always)]
    fn at(&self, _index: usize) -> A {
        self.0
    }
}

impl<A: Copy> Coefficient<A> for Each<'_, A> {
    #[inline(always)]
    fn at(&self, index: usize) -> A {
        self.0[index]
    }
}

/// What turns `x` into `x̂ = ((x − hi) − lo)·rstd`.
#[derive(Clone, Copy)]
pub(super) struct Normalizer<C> {
    pub(super) hi: C,
    pub(super) lo: C,
    pub(super) rstd: C,
}

/// What turns `x̂` into `x̂·weight + bias`.
#[derive(Clone, Copy)]
pub(super) struct AffineMap<C> {
    pub(super) weight: C,
    pub(super) bias: C,
}

#[inline(always)]
fn normalize<T: Element, C: Coefficient<T::Acc>>(x: &[T], n: Normalizer<C>, xhat: &mut [T::Acc]) {
    for (i, (xhat, x)) in xhat.iter_mut().zip(x).enumerate() {
        *xhat = isonorm_math::normalize::normalized(x.to_acc(), n.hi.at(i), n.lo.at(i), n.rstd.at(i));
    }
}

#[inline(always)]
fn affine<A: Real, C: Coefficient<A>>(xhat: &[A], a: AffineMap<C>, z: &mut [A]) {
    for (i, (z, xhat)) in z.iter_mut().zip(xhat).enumerate() {
        *z = isonorm_math::normalize::affine(*xhat, a.weight.at(i), a.bias.at(i));
    }
}

#[inline(always)]
fn add<T: Element>(z: &mut [T::Acc], residual: &[T]) {
    for (z, r) in z.iter_mut().zip(residual) {
        *z += r.to_acc();
    }
}

/// Writes a chunk.
///
/// # Safety
/// As [`Dest::slice`].
#[inline(always)]
unsafe fn store<T: Element>(to: &Dest<'_, T>, offset: usize, from: &[T::Acc], streaming: bool) {
    // SAFETY: this function's contract.
    let to = unsafe { to.slice(offset, from.len()) };
    if streaming {
        let mut local = [T::default(); CHUNK];
        for (to, from) in local.iter_mut().zip(from) {
            *to = T::from_acc(*from);
        }
        stream::copy(to, &local[..from.len()]);
    } else {
        for (to, from) in to.iter_mut().zip(from) {
            *to = T::from_acc(*from);
        }
    }
}

/// The tensors of a forward pass and what follows the affine map.
#[derive(Clone, Copy)]
pub(super) struct ForwardChunks<'a, T> {
    pub(super) x: Source<'a, T>,
    pub(super) y: Dest<'a, T>,
    pub(super) residual: Option<Source<'a, T>>,
    pub(super) activation: Activation,
    /// Whether `y` goes past the caches.
    pub(super) streaming: bool,
}

impl<T: Element> ForwardChunks<'_, T> {
    /// Computes `y` of the `len <= CHUNK` elements at `offset`.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    pub(super) unsafe fn run<N, W>(&self, offset: usize, len: usize, n: Normalizer<N>, a: AffineMap<W>)
    where
        N: Coefficient<T::Acc>,
        W: Coefficient<T::Acc>,
    {
        let mut buffer: Buffer<T::Acc> = [T::Acc::ZERO; CHUNK];
        let z = &mut buffer[..len];
        for (i, (z, x)) in z.iter_mut().zip(self.x.slice(offset, len)).enumerate() {
            let xhat = isonorm_math::normalize::normalized(x.to_acc(), n.hi.at(i), n.lo.at(i), n.rstd.at(i));
            *z = isonorm_math::normalize::affine(xhat, a.weight.at(i), a.bias.at(i));
        }
        if let Some(residual) = &self.residual {
            add(z, residual.slice(offset, len));
        }
        if self.activation != Activation::Identity {
            self.activation.apply_slice(z);
        }
        // SAFETY: this function's contract; the borrow of `x` has ended.
        unsafe { store(&self.y, offset, z, self.streaming) };
    }
}

/// The tensors of a backward pass.
#[derive(Clone, Copy)]
pub(super) struct BackwardChunks<'a, T> {
    pub(super) x: Source<'a, T>,
    pub(super) dy: Source<'a, T>,
    pub(super) residual: Option<Source<'a, T>>,
    pub(super) dx: Option<Dest<'a, T>>,
    pub(super) dresidual: Option<Dest<'a, T>>,
    pub(super) activation: Activation,
    /// Whether the results go past the caches.
    pub(super) streaming: bool,
}

/// `x̂` and the gradient `g` of the pre-activation, zero beyond the chunk's end.
pub(super) struct Gradient<A> {
    pub(super) xhat: Buffer<A>,
    pub(super) g: Buffer<A>,
}

impl<A: Real> Gradient<A> {
    /// A length that covers the chunk in whole lanes; what is beyond the chunk adds zeros.
    #[inline(always)]
    pub(super) fn padded(len: usize) -> usize {
        len.next_multiple_of(LANES)
    }
}

impl<T: Element> BackwardChunks<'_, T> {
    /// Whether anything is written for each element.
    pub(super) fn writes(&self) -> bool {
        self.dx.is_some() || self.dresidual.is_some()
    }

    /// `x̂` and `g = dy·act′(z)` of the `len <= CHUNK` elements at `offset`.
    #[inline(always)]
    pub(super) fn gradient<N, W>(
        &self,
        offset: usize,
        len: usize,
        n: Normalizer<N>,
        a: AffineMap<W>,
    ) -> Gradient<T::Acc>
    where
        N: Coefficient<T::Acc>,
        W: Coefficient<T::Acc>,
    {
        let zeros = [T::Acc::ZERO; CHUNK];
        let mut out = Gradient { xhat: zeros, g: zeros };
        normalize(self.x.slice(offset, len), n, &mut out.xhat[..len]);
        for (g, dy) in out.g[..len].iter_mut().zip(self.dy.slice(offset, len)) {
            *g = dy.to_acc();
        }
        if self.activation != Activation::Identity {
            let mut z = zeros;
            affine(&out.xhat[..len], a, &mut z[..len]);
            if let Some(residual) = &self.residual {
                add(&mut z[..len], residual.slice(offset, len));
            }
            self.activation.backward_slice(&z[..len], &mut out.g[..len]);
        }
        out
    }

    /// Writes `dx = rstd·(w·g − mean_g − x̂·mean_gx)` and the residual's gradient `g`.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    pub(super) unsafe fn write<N, W, C>(
        &self,
        (offset, len): (usize, usize),
        gradient: &mut Gradient<T::Acc>,
        rstd: N,
        weight: W,
        means: BackwardCoefficients<C>,
    ) where
        N: Coefficient<T::Acc>,
        W: Coefficient<T::Acc>,
        C: Coefficient<T::Acc>,
    {
        if let Some(dresidual) = &self.dresidual {
            // SAFETY: this function's contract.
            unsafe { store(dresidual, offset, &gradient.g[..len], self.streaming) };
        }
        let Some(dx) = &self.dx else { return };
        for (i, (xhat, g)) in gradient.xhat[..len].iter_mut().zip(&gradient.g[..len]).enumerate() {
            let of_element = BackwardCoefficients {
                mean_g: means.mean_g.at(i),
                mean_gx: means.mean_gx.at(i),
            };
            *xhat = isonorm_math::normalize::input_gradient(*g * weight.at(i), *xhat, rstd.at(i), of_element);
        }
        // SAFETY: this function's contract; the borrow of `dy` has ended.
        unsafe { store(dx, offset, &gradient.xhat[..len], self.streaming) };
    }
}
