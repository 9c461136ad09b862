//! What is written for each element: the gradient of the input, and that of the residual.

use isonorm_math::normalize::input_gradient;
use isonorm_math::{BackwardCoefficients, Normalizer, Real};

use super::backward::{Gradient, GradientVisitor, Gradients};
use super::{AffineMap, Coefficient};
use crate::cpu::lookahead::Lookahead;

/// Where the results of a chunk go; `None` where they are not wanted.
pub(in crate::cpu) struct Results<'r, A> {
    pub(super) dx: Option<&'r mut [A]>,
    pub(super) dresidual: Option<&'r mut [A]>,
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
    pub(in crate::cpu) fn write<A, G>(self, gradient: G, results: Results<'_, A>)
    where
        A: Real,
        G: Gradient<A>,
        N: Coefficient<Normalizer<A>>,
        W: Coefficient<AffineMap<A>>,
        M: Coefficient<BackwardCoefficients<A>>,
    {
        if let Some(to) = results.dresidual {
            write_dresidual(gradient, to);
        }
        if let Some(to) = results.dx {
            self.write_dx(gradient, to, results.ahead);
        }
    }

    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "an iterator would leave bounds checks in the loop"
    )]
    fn write_dx<A, G>(self, gradient: G, to: &mut [A], ahead: Lookahead)
    where
        A: Real,
        G: Gradient<A>,
        N: Coefficient<Normalizer<A>>,
        W: Coefficient<AffineMap<A>>,
        M: Coefficient<BackwardCoefficients<A>>,
    {
        let InputGradient { n, a, means } = self;
        for (start, len) in ahead.steps(to.len()) {
            let (to, gradient) = (&mut to[start..start + len], gradient.part(start, len));
            let (n, a, means) = (n.part(start, len), a.part(start, len), means.part(start, len));
            for i in 0..len {
                let (xhat, g) = gradient.at(i);
                to[i] = input_gradient(g * a.at(i).weight, xhat, n.at(i).rstd, means.at(i));
            }
        }
    }
}

#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "as above")]
fn write_dresidual<A, G: Gradient<A>>(gradient: G, to: &mut [A]) {
    let gradient = gradient.part(0, to.len());
    for i in 0..to.len() {
        to[i] = gradient.at(i).1;
    }
}

impl<A> Results<'_, A> {
    /// Writes the results of every row of `len` elements; `with(index)` is what they are computed with.
    #[inline(always)]
    pub(in crate::cpu) fn write_rows<G, N, W, M>(
        self,
        (gradients, len): (G, usize),
        with: impl Fn(usize) -> InputGradient<N, W, M>,
    ) where
        A: Real,
        G: Gradients<A>,
        N: Coefficient<Normalizer<A>>,
        W: Coefficient<AffineMap<A>>,
        M: Coefficient<BackwardCoefficients<A>>,
    {
        if let Some(to) = self.dresidual {
            for row in 0..gradients.rows() {
                write_dresidual(gradients.row(row), &mut to[row * len..][..len]);
            }
        }
        if let Some(to) = self.dx {
            for row in 0..gradients.rows() {
                let to = &mut to[row * len..][..len];
                with(row).write_dx(gradients.row(row), to, self.ahead.row(row, len));
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
    fn visit<G: Gradients<A>>(&mut self, gradients: G, results: Results<'_, A>) {
        self.write(gradients.row(0), results);
    }
}
