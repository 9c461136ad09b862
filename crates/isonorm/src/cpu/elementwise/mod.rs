//! What is done to each element, over contiguous stretches of them: plain loops that vectorize by themselves.
//!
//! The common cases (no activation or ReLU, with or without a residual) are one loop from the tensors to the result. Other
//! activations go in stages over buffers that stay in the first-level cache, so that they add code instead of multiplying it.

mod backward;
mod forward;
mod input_gradient;
mod output;
mod residual_stream;

pub(super) use backward::{BackwardElements, BackwardSpace, Gradient, GradientVisitor, Gradients};
pub(super) use forward::ForwardElements;
pub(super) use input_gradient::{InputGradient, Results};
pub(super) use output::{OutputSpace, rounds};
pub(super) use residual_stream::ResidualStream;

use isonorm_math::normalize::affine;
use isonorm_math::{Activation, BackwardCoefficients, Element, Normalizer, Real};

use super::isa::Kernel;
use super::memory::{Dest, Source};

pub(super) use crate::plan::CHUNK;

/// Elements that loops work on at once, in registers.
pub(super) const STRIP: usize = 32;

/// Lanes whose sums, or coefficients, fit the registers of the widest vectors.
pub(super) const REGISTER_LANES: usize = 64;

/// Something that each element of a stretch has: the same for all, or one each.
pub(super) trait Coefficient<C>: Copy {
    /// That of the `index`-th element.
    fn at(&self, index: usize) -> C;

    /// Those of elements `start..start + len`. Right before a loop over `len` elements this moves the bounds checks out of it:
    /// a loop that might stop early would not be vectorized.
    fn part(self, start: usize, len: usize) -> Self;
}

/// The same for all elements.
#[derive(Clone, Copy)]
pub(super) struct All<C>(pub(super) C);

/// One for each element.
#[derive(Clone, Copy)]
pub(super) struct Each<'a, A>(pub(super) &'a [A]);

impl<C: Copy> Coefficient<C> for All<C> {
    #[inline(always)]
    fn at(&self, _index: usize) -> C {
        self.0
    }

    #[inline(always)]
    fn part(self, _start: usize, _len: usize) -> Self {
        self
    }
}

impl<A: Copy> Coefficient<A> for Each<'_, A> {
    #[inline(always)]
    fn at(&self, index: usize) -> A {
        self.0[index]
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        Each(&self.0[start..start + len])
    }
}

/// `x̂·weight + bias`.
#[derive(Clone, Copy)]
pub(super) struct AffineMap<A> {
    pub(super) weight: A,
    pub(super) bias: A,
}

impl<A: Real> AffineMap<A> {
    #[inline(always)]
    fn apply(self, xhat: A) -> A {
        affine(xhat, self.weight, self.bias)
    }
}

impl<A: Real> Coefficient<Normalizer<A>> for Normalizer<Each<'_, A>> {
    #[inline(always)]
    fn at(&self, index: usize) -> Normalizer<A> {
        Normalizer {
            centre: self.centre.at(index),
            rstd: self.rstd.at(index),
            offset: self.offset.at(index),
        }
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        Normalizer {
            centre: self.centre.part(start, len),
            rstd: self.rstd.part(start, len),
            offset: self.offset.part(start, len),
        }
    }
}

impl<A: Real> Coefficient<AffineMap<A>> for AffineMap<Each<'_, A>> {
    #[inline(always)]
    fn at(&self, index: usize) -> AffineMap<A> {
        AffineMap {
            weight: self.weight.at(index),
            bias: self.bias.at(index),
        }
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        AffineMap {
            weight: self.weight.part(start, len),
            bias: self.bias.part(start, len),
        }
    }
}

impl<A: Real> Coefficient<BackwardCoefficients<A>> for BackwardCoefficients<Each<'_, A>> {
    #[inline(always)]
    fn at(&self, index: usize) -> BackwardCoefficients<A> {
        BackwardCoefficients {
            mean_g: self.mean_g.at(index),
            mean_gx: self.mean_gx.at(index),
        }
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        BackwardCoefficients {
            mean_g: self.mean_g.part(start, len),
            mean_gx: self.mean_gx.part(start, len),
        }
    }
}

/// What is added before the activation.
trait Residual<A>: Copy {
    /// `z` with the `index`-th element added.
    fn add(&self, index: usize, z: A) -> A;

    /// Those of elements `start..start + len`, as [`Coefficient::part`].
    fn part(self, start: usize, len: usize) -> Self;
}

/// Nothing is.
#[derive(Clone, Copy)]
struct NoResidual;

impl<A> Residual<A> for NoResidual {
    #[inline(always)]
    fn add(&self, _index: usize, z: A) -> A {
        z
    }

    #[inline(always)]
    fn part(self, _start: usize, _len: usize) -> Self {
        self
    }
}

impl<T: Element> Residual<T::Acc> for Each<'_, T> {
    #[inline(always)]
    fn add(&self, index: usize, z: T::Acc) -> T::Acc {
        z + self.0[index].to_acc()
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        Coefficient::part(self, start, len)
    }
}

/// In the place of z: what ReLU made of it, whose derivative is the same.
#[derive(Clone, Copy)]
struct InPlaceOfZ<'a, T>(Each<'a, T>);

impl<T: Element> Residual<T::Acc> for InPlaceOfZ<'_, T> {
    #[inline(always)]
    fn add(&self, index: usize, _z: T::Acc) -> T::Acc {
        self.0.0[index].to_acc()
    }

    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        Self(Coefficient::part(self.0, start, len))
    }
}

/// The chunks of a stretch: where each starts, and how long it is.
pub(super) struct Chunks {
    start: usize,
    end: usize,
    len: usize,
}

impl Chunks {
    /// Of `len` elements, the first one shorter by `missing`.
    #[inline(always)]
    fn new(len: usize, missing: usize) -> Chunks {
        Chunks {
            start: 0,
            end: CHUNK - missing,
            len,
        }
    }
}

impl Iterator for Chunks {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let start = self.start;
        if start >= self.len {
            return None;
        }
        let len = self.end.min(self.len) - start;
        self.start = self.end;
        self.end += CHUNK;
        Some((start, len))
    }
}

/// Replaces every z by act(z). A kernel of its own: compiled once, called for each chunk.
struct Activate<'a, A> {
    activation: Activation,
    z: &'a mut [A],
}

impl<A: Real> Kernel for Activate<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.activation.apply_slice(self.z);
    }
}

/// Multiplies every gradient by act′(z). A kernel of its own: compiled once, called for each chunk.
struct Deactivate<'a, A> {
    activation: Activation,
    z: &'a [A],
    g: &'a mut [A],
}

impl<A: Real> Kernel for Deactivate<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.activation.backward_slice(self.z, self.g);
    }
}
