//! Elementwise work on a few hundred elements at a time, in stages over buffers that stay in the first-level cache: each
//! stage is a loop that vectorizes by itself, and kinds of activation, residual and type add code instead of multiplying it.

use std::any::TypeId;

use isonorm_math::{Activation, BackwardCoefficients, Element, Real};

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

    /// Those of the first `len` elements. Right before a loop over `len` elements this moves the bounds check out of it: a
    /// loop that might stop early would be vectorized less well.
    fn first(self, len: usize) -> Self;
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

    #[inline(always)]
    fn first(self, _len: usize) -> Self {
        self
    }
}

impl<A: Copy> Coefficient<A> for Each<'_, A> {
    #[inline(always)]
    fn at(&self, index: usize) -> A {
        self.0[index]
    }

    #[inline(always)]
    fn first(self, len: usize) -> Self {
        Each(&self.0[..len])
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

impl<C> Normalizer<C> {
    /// That of the first `len` elements.
    #[inline(always)]
    fn first<A>(self, len: usize) -> Normalizer<C>
    where
        C: Coefficient<A>,
    {
        Normalizer {
            hi: self.hi.first(len),
            lo: self.lo.first(len),
            rstd: self.rstd.first(len),
        }
    }
}

impl<C> AffineMap<C> {
    /// That of the first `len` elements.
    #[inline(always)]
    fn first<A>(self, len: usize) -> AffineMap<C>
    where
        C: Coefficient<A>,
    {
        AffineMap {
            weight: self.weight.first(len),
            bias: self.bias.first(len),
        }
    }
}

#[inline(always)]
fn normalize<T: Element, C: Coefficient<T::Acc>>(x: &[T], n: Normalizer<C>, xhat: &mut [T::Acc]) {
    let n = n.first(x.len());
    for (i, (xhat, x)) in xhat[..x.len()].iter_mut().zip(x).enumerate() {
        *xhat = isonorm_math::normalize::normalized(x.to_acc(), n.hi.at(i), n.lo.at(i), n.rstd.at(i));
    }
}

#[inline(always)]
fn affine<A: Real, C: Coefficient<A>>(xhat: &[A], a: AffineMap<C>, z: &mut [A]) {
    let a = a.first(xhat.len());
    for (i, (z, xhat)) in z[..xhat.len()].iter_mut().zip(xhat).enumerate() {
        *z = isonorm_math::normalize::affine(*xhat, a.weight.at(i), a.bias.at(i));
    }
}

#[inline(always)]
fn add<T: Element>(z: &mut [T::Acc], residual: &[T]) {
    for (z, r) in z.iter_mut().zip(residual) {
        *z += r.to_acc();
    }
}

/// Writes a chunk; past the caches when there is space to prepare it in.
///
/// # Safety
/// As [`Dest::slice`].
#[inline(always)]
unsafe fn store<T: Element>(to: &Dest<'_, T>, offset: usize, from: &[T::Acc], staging: Option<&mut [T; CHUNK]>) {
    // SAFETY: this function's contract.
    let to = unsafe { to.slice(offset, from.len()) };
    match staging {
        Some(staging) => match same_type(from) {
            Some(from) => stream::copy(to, from),
            None => {
                convert(&mut staging[..from.len()], from);
                stream::copy(to, &staging[..from.len()]);
            }
        },
        None => convert(to, from),
    }
}

/// The same elements, when the accumulator's type is the data's.
#[inline(always)]
fn same_type<T: Element>(from: &[T::Acc]) -> Option<&[T]> {
    (TypeId::of::<T>() == TypeId::of::<T::Acc>()).then(|| {
        // SAFETY: the types are the same.
        unsafe { std::slice::from_raw_parts(from.as_ptr().cast(), from.len()) }
    })
}

#[inline(always)]
fn convert<T: Element>(to: &mut [T], from: &[T::Acc]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = T::from_acc(*from);
    }
}

/// Working space of a forward task, which its chunks use one after the other.
pub(super) struct ForwardSpace<T: Element> {
    z: Buffer<T::Acc>,
    out: [T; CHUNK],
}

impl<T: Element> ForwardSpace<T> {
    #[inline(always)]
    pub(super) fn new() -> ForwardSpace<T> {
        ForwardSpace {
            z: [T::Acc::ZERO; CHUNK],
            out: [T::default(); CHUNK],
        }
    }
}

/// Working space of a backward task, which its chunks use one after the other: after [`BackwardChunks::gradient`], `x̂` and
/// the gradient `g` of the pre-activation.
pub(super) struct BackwardSpace<T: Element> {
    pub(super) xhat: Buffer<T::Acc>,
    pub(super) g: Buffer<T::Acc>,
    z: Buffer<T::Acc>,
    out: [T; CHUNK],
}

impl<T: Element> BackwardSpace<T> {
    #[inline(always)]
    pub(super) fn new() -> BackwardSpace<T> {
        let zeros = [T::Acc::ZERO; CHUNK];
        BackwardSpace {
            xhat: zeros,
            g: zeros,
            z: zeros,
            out: [T::default(); CHUNK],
        }
    }

    /// `g` and `x̂` of a chunk of `len`.
    #[inline(always)]
    pub(super) fn lanes(&self, len: usize) -> (&[T::Acc], &[T::Acc]) {
        (&self.g[..len], &self.xhat[..len])
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
    pub(super) unsafe fn run<N, W>(
        &self,
        (offset, len): (usize, usize),
        n: Normalizer<N>,
        a: AffineMap<W>,
        space: &mut ForwardSpace<T>,
    ) where
        N: Coefficient<T::Acc>,
        W: Coefficient<T::Acc>,
    {
        let z = &mut space.z[..len];
        let (n, a) = (n.first(len), a.first(len));
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
        unsafe { store(&self.y, offset, z, self.streaming.then_some(&mut space.out)) };
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

impl<T: Element> BackwardChunks<'_, T> {
    /// Whether anything is written for each element.
    pub(super) fn writes(&self) -> bool {
        self.dx.is_some() || self.dresidual.is_some()
    }

    /// `x̂` and `g = dy·act′(z)` of the `len <= CHUNK` elements at `offset`, into `space`.
    #[inline(always)]
    pub(super) fn gradient<N, W>(
        &self,
        (offset, len): (usize, usize),
        n: Normalizer<N>,
        a: AffineMap<W>,
        space: &mut BackwardSpace<T>,
    ) where
        N: Coefficient<T::Acc>,
        W: Coefficient<T::Acc>,
    {
        let BackwardSpace { xhat, g, z, .. } = space;
        normalize(self.x.slice(offset, len), n, &mut xhat[..len]);
        for (g, dy) in g[..len].iter_mut().zip(self.dy.slice(offset, len)) {
            *g = dy.to_acc();
        }
        if self.activation != Activation::Identity {
            affine(&xhat[..len], a, &mut z[..len]);
            if let Some(residual) = &self.residual {
                add(&mut z[..len], residual.slice(offset, len));
            }
            self.activation.backward_slice(&z[..len], &mut g[..len]);
        }
    }

    /// Writes `dx = rstd·(w·g − mean_g − x̂·mean_gx)` and the residual's gradient `g`.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    pub(super) unsafe fn write<N, W, C>(
        &self,
        (offset, len): (usize, usize),
        rstd: N,
        weight: W,
        means: BackwardCoefficients<C>,
        space: &mut BackwardSpace<T>,
    ) where
        N: Coefficient<T::Acc>,
        W: Coefficient<T::Acc>,
        C: Coefficient<T::Acc>,
    {
        let BackwardSpace { xhat, g, z, out } = space;
        if let Some(dresidual) = &self.dresidual {
            // SAFETY: this function's contract.
            unsafe { store(dresidual, offset, &g[..len], self.streaming.then_some(&mut *out)) };
        }
        let Some(dx) = &self.dx else { return };
        let means = BackwardCoefficients {
            mean_g: means.mean_g.first(len),
            mean_gx: means.mean_gx.first(len),
        };
        let (rstd, weight) = (rstd.first(len), weight.first(len));
        for (i, ((dx, xhat), g)) in z[..len].iter_mut().zip(&xhat[..len]).zip(&g[..len]).enumerate() {
            let of_element = BackwardCoefficients {
                mean_g: means.mean_g.at(i),
                mean_gx: means.mean_gx.at(i),
            };
            *dx = isonorm_math::normalize::input_gradient(*g * weight.at(i), *xhat, rstd.at(i), of_element);
        }
        // SAFETY: this function's contract; the borrow of `dy` has ended.
        unsafe { store(dx, offset, &z[..len], self.streaming.then_some(out)) };
    }
}
