use isonorm_math::activation::{Identity, Relu};
use isonorm_math::normalize::{affine, normalized};
use isonorm_math::{Activation, Element, Normalizer, Pointwise, Real};

use super::output::{Output, OutputSpace, Route, rounds};
use super::{
    Activate, AffineMap, All, CHUNK, Chunks, Coefficient, Dest, Each, NoResidual, REGISTER_LANES, Residual, STRIP,
    Source,
};
use crate::cpu::isa::Vectors;
use crate::cpu::lookahead::Lookahead;
use crate::cpu::statistics::BATCH;

/// The tensors of a forward pass and what follows the affine map.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct ForwardElements<'a, T> {
    pub(in crate::cpu) x: Source<'a, T>,
    /// [`Dest::NONE`] where only statistics are taken.
    y: Dest<'a, T>,
    writes: bool,
    residual: Option<Source<'a, T>>,
    activation: Activation,
    route: Route,
    vectors: Vectors,
    /// How many elements further on the inputs are fetched meanwhile; 0: none.
    lookahead: usize,
}

impl<'a, T: Element> ForwardElements<'a, T> {
    /// `y` may be `x`, and says so by `in_place`, or nowhere; `streaming`: it goes past the caches.
    pub(in crate::cpu) fn new(
        (x, y, in_place): (Source<'a, T>, Option<Dest<'a, T>>, bool),
        residual: Option<Source<'a, T>>,
        activation: Activation,
        (streaming, lookahead): (bool, usize),
        vectors: Vectors,
    ) -> ForwardElements<'a, T> {
        ForwardElements {
            x,
            y: y.unwrap_or(Dest::NONE),
            writes: y.is_some(),
            residual,
            activation,
            route: Route::new(in_place, streaming),
            vectors,
            lookahead,
        }
    }

    /// Whether there is a `y`.
    #[inline(always)]
    pub(in crate::cpu) fn writes(&self) -> bool {
        self.writes
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

    /// Whether chunks of [`CHUNK`] elements from `offset` on need not be shifted to begin on cache lines of `y`.
    pub(in crate::cpu) fn begins_on_line(&self, offset: usize) -> bool {
        self.route != Route::Stream || self.y.past_line(offset) == 0
    }

    /// Computes `y` of the `len` elements at `offset`, whose coefficients repeat every [`REGISTER_LANES`]: loaded once for the lines of
    /// a chunk.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn run_repeating(
        &self,
        (offset, len): (usize, usize),
        n: Normalizer<Each<'_, T::Acc>>,
        a: AffineMap<Each<'_, T::Acc>>,
        space: &mut OutputSpace<T>,
    ) {
        for start in (0..len).step_by(CHUNK) {
            let len = CHUNK.min(len - start);
            // SAFETY: this function's contract.
            unsafe { self.fill((offset + start, len), Repeating { n, a }, space) };
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
        let ahead = Lookahead::new([Some(&self.x), self.residual.as_ref(), None], offset, self.lookahead);
        let rows = Rows {
            len,
            normalizers,
            a,
            ahead,
        };
        // SAFETY: this function's contract.
        unsafe { self.fill((offset, len * normalizers.len()), rows, space) };
    }

    /// Computes `y` of a chunk, [`CHUNK`] elements at most.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    unsafe fn fill<M: Map<T::Acc>>(&self, at: (usize, usize), map: M, space: &mut OutputSpace<T>) {
        let x = self.x.slice(at.0, at.1);
        let residual = self.residual.as_ref().map(|r| Each(r.slice(at.0, at.1)));
        let OutputSpace { computed, staging } = space;
        let in_stages = !matches!(self.activation, Activation::Identity | Activation::Relu);
        let mut y = Output::new(&self.y, self.route, at, !in_stages && map.in_strips(), staging);
        if !in_stages {
            let past_caches = y.is_past_caches();
            // SAFETY: this function's contract; in place the route is neither straight nor past the caches.
            let to = unsafe { y.rounded() };
            if past_caches {
                self.map::<_, _, true>(map, x, residual, to);
            } else {
                self.map::<_, _, false>(map, x, residual, to);
            }
            // SAFETY: this function's contract; no borrow of these elements is used any more.
            return unsafe { y.finish_rounded(self.vectors) };
        }
        // SAFETY: as above.
        let to = unsafe { y.place(computed) };
        self.map::<_, _, false>(map, x, residual, to);
        let activation = self.activation;
        self.vectors.run(Activate { activation, z: to });
        // SAFETY: as above.
        unsafe { y.finish(computed, self.vectors) };
    }

    /// `to = act(x̂·weight + bias + residual)` for ReLU; otherwise what `act` is yet to be applied to. `PAST_CACHES` as in
    /// [`Vectors::store`].
    #[inline(always)]
    fn map<M, O, const PAST_CACHES: bool>(&self, map: M, x: &[T], residual: Option<Each<'_, T>>, to: &mut [O])
    where
        M: Map<T::Acc>,
        O: Element<Acc = T::Acc>,
    {
        match (self.activation, residual) {
            (Activation::Relu, None) => map.run::<_, _, _, _, PAST_CACHES>(x, (NoResidual, Relu), to, self.vectors),
            (Activation::Relu, Some(residual)) => {
                map.run::<_, _, _, _, PAST_CACHES>(x, (residual, Relu), to, self.vectors)
            }
            (_, None) => map.run::<_, _, _, _, PAST_CACHES>(x, (NoResidual, Identity), to, self.vectors),
            (_, Some(residual)) => map.run::<_, _, _, _, PAST_CACHES>(x, (residual, Identity), to, self.vectors),
        }
    }
}

/// How a chunk is walked. Compiled for each kind of residual, activation and result.
trait Map<A: Real>: Copy {
    /// Whether all but the last elements may be stored by strips that begin where the chunk does: past the caches, that saves a
    /// buffer for long rows; short ones it delays.
    fn in_strips(&self) -> bool;

    /// `to = act(x̂·weight + bias + residual)`.
    fn run<T, R, P, O, const PAST_CACHES: bool>(self, x: &[T], then: (R, P), to: &mut [O], vectors: Vectors)
    where
        T: Element<Acc = A>,
        R: Residual<A>,
        P: Pointwise,
        O: Element<Acc = A>;
}

/// Rows one after the other, each with a normalizer of its own.
#[derive(Clone, Copy)]
struct Rows<'n, N, W> {
    /// Elements of a row.
    len: usize,
    normalizers: &'n [N],
    a: W,
    ahead: Lookahead,
}

impl<A, N, W> Map<A> for Rows<'_, N, W>
where
    A: Real,
    N: Coefficient<Normalizer<A>>,
    W: Coefficient<AffineMap<A>>,
{
    #[inline(always)]
    fn in_strips(&self) -> bool {
        self.normalizers.len() == 1
    }

    #[inline(always)]
    fn run<T, R, P, O, const PAST_CACHES: bool>(
        self,
        x: &[T],
        (residual, activation): (R, P),
        to: &mut [O],
        vectors: Vectors,
    ) where
        T: Element<Acc = A>,
        R: Residual<A>,
        P: Pointwise,
        O: Element<Acc = A>,
    {
        let len = self.len;
        for (row, n) in self.normalizers.iter().enumerate() {
            let start = row * len;
            let (x, to, residual) = (
                &x[start..start + len],
                &mut to[start..start + len],
                residual.part(start, len),
            );
            for (start, len) in self.ahead.row(row, len).steps(len) {
                let (x, to, residual) = (
                    &x[start..start + len],
                    &mut to[start..start + len],
                    residual.part(start, len),
                );
                let coefficients = (n.part(start, len), self.a.part(start, len));
                step::<_, _, _, _, _, _, PAST_CACHES>(x, coefficients, (residual, activation), to, vectors);
            }
        }
    }
}

/// The part of a row between two requests.
#[inline(always)]
fn step<T, N, W, R, P, O, const PAST_CACHES: bool>(
    x: &[T],
    (n, a): (N, W),
    (residual, activation): (R, P),
    to: &mut [O],
    vectors: Vectors,
) where
    T: Element,
    N: Coefficient<Normalizer<T::Acc>>,
    W: Coefficient<AffineMap<T::Acc>>,
    R: Residual<T::Acc>,
    P: Pointwise,
    O: Element<Acc = T::Acc>,
{
    let strips = if rounds::<O>() || PAST_CACHES {
        to.len() / STRIP * STRIP
    } else {
        0
    };
    for (strip, to) in to[..strips].as_chunks_mut().0.iter_mut().enumerate() {
        let start = strip * STRIP;
        let (x, n, a) = (&x[start..start + STRIP], n.part(start, STRIP), a.part(start, STRIP));
        let residual = residual.part(start, STRIP);
        let mut y = [T::Acc::ZERO; STRIP];
        for i in 0..STRIP {
            let z = a.at(i).apply(n.at(i).apply(x[i].to_acc()));
            y[i] = activation.apply(residual.add(i, z));
        }
        vectors.store::<O, PAST_CACHES>(&y, to);
    }
    let len = to.len() - strips;
    let (n, a, residual) = (n.part(strips, len), a.part(strips, len), residual.part(strips, len));
    elements(&x[strips..], (n, a), (residual, activation), &mut to[strips..]);
}

/// One element after the other; as the compiler vectorizes it.
#[inline(always)]
fn elements<T, N, W, R, P, O>(x: &[T], (n, a): (N, W), (residual, activation): (R, P), to: &mut [O])
where
    T: Element,
    N: Coefficient<Normalizer<T::Acc>>,
    W: Coefficient<AffineMap<T::Acc>>,
    R: Residual<T::Acc>,
    P: Pointwise,
    O: Element<Acc = T::Acc>,
{
    let len = to.len();
    let (x, n, a, residual) = (&x[..len], n.part(0, len), a.part(0, len), residual.part(0, len));
    for i in 0..len {
        let z = a.at(i).apply(n.at(i).apply(x[i].to_acc()));
        to[i] = O::from_acc(activation.apply(residual.add(i, z)));
    }
}

/// Lines of [`REGISTER_LANES`] elements, which all have the same coefficients; the last one may be shorter.
#[derive(Clone, Copy)]
struct Repeating<'a, A> {
    n: Normalizer<Each<'a, A>>,
    a: AffineMap<Each<'a, A>>,
}

impl<A: Real> Map<A> for Repeating<'_, A> {
    #[inline(always)]
    fn in_strips(&self) -> bool {
        false
    }

    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "an iterator would leave bounds checks in the loops"
    )]
    fn run<T, R, P, O, const PAST_CACHES: bool>(
        self,
        x: &[T],
        (residual, activation): (R, P),
        to: &mut [O],
        vectors: Vectors,
    ) where
        T: Element<Acc = A>,
        R: Residual<A>,
        P: Pointwise,
        O: Element<Acc = A>,
    {
        // Local copies, which nothing else can point to, are kept in registers.
        let local = |numbers: Each<'_, A>| {
            let mut copy = [A::ZERO; REGISTER_LANES];
            copy.copy_from_slice(&numbers.0[..REGISTER_LANES]);
            copy
        };
        let Repeating { n, a } = self;
        let (centre, rstd, offset) = (local(n.centre), local(n.rstd), local(n.offset));
        let (weight, bias) = (local(a.weight), local(a.bias));
        let (lines, rest) = x.as_chunks::<REGISTER_LANES>();
        let (to_lines, to_rest) = to[..x.len()].as_chunks_mut::<REGISTER_LANES>();
        for (line, (&x, to)) in lines.iter().zip(to_lines).enumerate() {
            let residual = residual.part(line * REGISTER_LANES, REGISTER_LANES);
            for (strip, to) in to.as_chunks_mut().0.iter_mut().enumerate() {
                let mut y = [A::ZERO; STRIP];
                for i in 0..STRIP {
                    let lane = strip * STRIP + i;
                    let xhat = normalized(x[lane].to_acc(), centre[lane], rstd[lane], offset[lane]);
                    y[i] = activation.apply(residual.add(lane, affine(xhat, weight[lane], bias[lane])));
                }
                vectors.store::<O, PAST_CACHES>(&y, to);
            }
        }
        let residual = residual.part(x.len() - rest.len(), rest.len());
        elements(rest, (n, a), (residual, activation), to_rest);
    }
}
