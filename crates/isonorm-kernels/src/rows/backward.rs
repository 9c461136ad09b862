//! The backward pass over rows that their team holds in registers: x and dy are read once, dx is written once.
//!
//! ```text
//! g  = dy · act′(z)                         z = x̂ · weight + bias + residual
//! dx = rstd · (g · weight − mean(g · weight) − x̂ · mean(g · weight · x̂))     dresidual = g
//! ```
//!
//! z is computed again from x, with the mean and rstd that the forward pass saved. Of a residual stream x is the stream, and the
//! gradient that comes in for it is added to dx, which is then that of both summands.
//!
//! The gradients of weight and bias are sums over rows: a team adds up its own in registers, and [`gather`](super::gather) adds
//! up the teams' in a fixed order.

use core::marker::PhantomData;

use isonorm_math::{BackwardCoefficients, Normalizer, Real, normalize};

use super::access::{Access, Data, Span, width};
use super::epilogue::{Class, Epilogue, Told};
use super::forward::Spec;
use super::lanes::{Lanes, unrolled};
use super::parameters::{Affine, Map, Parameters};
use super::statistics::{Op, Statistics};
use super::team::Team;
use crate::simt;

/// What a kernel is told at launch. Strides are from row to row, in elements; null pointers leave a part out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// `[rows, columns]`: what was normalized.
    pub x: *const T,
    /// `[rows, columns]`
    pub dy: *const T,
    /// `[rows, columns]`, what was added before the activation; or null.
    pub residual: *const T,
    /// `[rows, columns]`, the gradient of the residual stream, added to dx; or null.
    pub dstream: *const T,
    /// `[rows, columns]`; may be any of the inputs.
    pub dx: *mut T,
    /// `[rows, columns]`; or null. May be any of the inputs but that of dx.
    pub dresidual: *mut T,
    /// Weight and bias.
    pub affine: Affine,
    /// `[rows]`, as the forward pass saved it; or null for 0.
    pub mean: *const f32,
    /// `[rows]`, as the forward pass saved it.
    pub rstd: *const f32,
    /// `[teams of the grid, columns]`, where each team's share of the weight's gradient goes; or null.
    pub dweight: *mut f32,
    /// `[teams of the grid, columns]`, where each team's share of the bias's gradient goes; or null.
    pub dbias: *mut f32,
    /// How many rows.
    pub rows: u64,
    /// Elements of a row; at least 1, and what the kernel's key fits.
    pub columns: u64,
    /// From a row of `x` to the next.
    pub x_stride: u64,
    /// From a row of `dy` to the next.
    pub dy_stride: u64,
    /// From a row of `residual` to the next.
    pub residual_stride: u64,
    /// From a row of `dstream` to the next.
    pub dstream_stride: u64,
    /// From a row of `dx` to the next.
    pub dx_stride: u64,
    /// From a row of `dresidual` to the next.
    pub dresidual_stride: u64,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
}

/// Computes the gradients of the rows. For a grid of any size; with given statistics they are constants.
///
/// # Safety
///
/// As for [`forward`](super::forward::forward).
#[inline(always)]
pub unsafe fn backward<T: Data, S: Spec<Team: Team>, const V: usize>(args: &Args<T>) {
    let mut team = S::Team::new();
    let span = Span::new(
        team.rank(),
        team.threads(),
        width::<T, S::Access>(),
        args.columns as u32,
    );
    let (mut first_row, step) = (team.first_row(), team.row_step());
    let walk = Walk::<T, S, V> {
        args,
        span,
        of: PhantomData,
    };
    // SAFETY: the caller's.
    let parameters = unsafe { <S::Map as Map>::Of::<T, S::Access, V>::new(&args.affine, span) };
    let nothing = <S::Access as Access>::Numbers::<T>::splat(0.0);
    let mut sums = Sums {
        weight: [nothing; V],
        bias: [nothing; V],
    };
    while first_row < args.rows {
        // Opaque as in the forward pass.
        let row = simt::opaque_64(first_row) + u64::from(team.own_row());
        first_row = simt::opaque_64(first_row) + step;
        // SAFETY: the caller's.
        unsafe { walk.row(&mut team, &parameters, &mut sums, row) };
    }
    let teams = team.first_row() + u64::from(team.own_row());
    unrolled::<V>(|v| {
        if walk.has(v) {
            let place = |base: *mut f32| {
                base.wrapping_add((teams * args.columns) as usize)
                    .wrapping_add(span.start(v) as usize)
            };
            // SAFETY: the caller's: a row of numbers for each team.
            unsafe {
                if !args.dweight.is_null() {
                    sums.weight[v].store(place(args.dweight));
                }
                if !args.dbias.is_null() {
                    sums.bias[v].store(place(args.dbias));
                }
            }
        }
    });
}

/// The thread's sums over rows: of g · x̂ and of g.
struct Sums<N, const V: usize> {
    weight: [N; V],
    bias: [N; V],
}

/// What a thread has of a row, as it came.
struct Loaded<T: Data, A: Access, const V: usize> {
    x: [A::Raw<T>; V],
    dy: [A::Raw<T>; V],
    residual: [A::Raw<T>; V],
}

/// A thread's way over its rows.
struct Walk<'a, T: Data, S: Spec, const V: usize> {
    args: &'a Args<T>,
    span: Span,
    of: PhantomData<S>,
}

impl<T: Data, S: Spec<Team: Team>, const V: usize> Walk<'_, T, S, V> {
    #[inline(always)]
    fn place(&self, base: *const T, row: u64, stride: u64, v: usize) -> *const T {
        base.wrapping_add((row * stride) as usize)
            .wrapping_add(self.span.start(v) as usize)
    }

    #[inline(always)]
    fn has(&self, v: usize) -> bool {
        self.span.has::<S::Access, V>(v)
    }

    /// Whether z is needed, and a residual is part of it.
    #[inline(always)]
    fn has_residual(&self) -> bool {
        S::Epilogue::CLASS != Class::Plain && !self.args.residual.is_null()
    }

    /// Loads a row; nothing where there is none.
    #[inline(always)]
    unsafe fn load(&self, row: u64) -> Loaded<T, S::Access, V> {
        let args = self.args;
        let nothing = S::Access::nothing::<T>();
        let mut loaded = Loaded {
            x: [nothing; V],
            dy: [nothing; V],
            residual: [nothing; V],
        };
        if row >= args.rows {
            return loaded;
        }
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the row has this part, here and below.
                unsafe {
                    loaded.x[v] = S::Access::load(self.place(args.x, row, args.x_stride, v));
                    loaded.dy[v] = S::Access::load(self.place(args.dy, row, args.dy_stride, v));
                    if self.has_residual() {
                        loaded.residual[v] = S::Access::load(self.place(args.residual, row, args.residual_stride, v));
                    }
                }
            }
        });
        loaded
    }

    /// What normalized the row.
    #[inline(always)]
    unsafe fn normalizer(&self, row: u64) -> Normalizer<f32> {
        let args = self.args;
        let mut normalizer = Normalizer {
            centre: 0.0,
            rstd: 0.0,
            offset: 0.0,
        };
        if row < args.rows {
            // SAFETY: there is a number for each row.
            unsafe {
                normalizer.rstd = f32::load(args.rstd.wrapping_add(row as usize));
                if !args.mean.is_null() {
                    normalizer.centre = f32::load(args.mean.wrapping_add(row as usize));
                }
            }
        }
        normalizer
    }

    /// All that is done with a row; every thread of the team takes part.
    #[inline(always)]
    unsafe fn row(
        &self,
        team: &mut S::Team,
        parameters: &<S::Map as Map>::Of<T, S::Access, V>,
        sums: &mut Sums<<S::Access as Access>::Numbers<T>, V>,
        row: u64,
    ) {
        let args = self.args;
        // SAFETY: the caller's.
        let (loaded, normalizer) = unsafe { (self.load(row), self.normalizer(row)) };
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        let mut g = [<S::Access as Access>::Numbers::<T>::splat(0.0); V];
        // SAFETY: the caller's.
        unsafe { self.preactivation_gradient(&loaded, parameters, xhat, &mut g) };
        let (mut of_g, mut of_gx) = (0.0, 0.0);
        unrolled::<V>(|v| {
            if self.has(v) {
                let xhat = xhat(v);
                sums.weight[v] = sums.weight[v].zip3(g[v], xhat, |sum, g, xhat| Real::mul_add(g, xhat, sum));
                sums.bias[v] = sums.bias[v].zip(g[v], |sum, g| sum + g);
                // SAFETY: the caller's.
                let [weight, _] = unsafe { self.parameters(parameters, v) };
                let wg = g[v].zip(weight, |g, weight| g * weight);
                of_g = wg.fold(of_g, |sum, wg| sum + wg);
                of_gx = wg
                    .zip(xhat, |wg, xhat| wg * xhat)
                    .fold(of_gx, |sum, product| sum + product);
            }
        });
        let count = args.columns as f32;
        let [of_g, of_gx] = team.sum_pair([of_g, of_gx]);
        let coefficients = match S::Statistics::OP {
            Op::Layer => BackwardCoefficients {
                mean_g: of_g / count,
                mean_gx: of_gx / count,
            },
            Op::Rms => BackwardCoefficients {
                mean_g: 0.0,
                mean_gx: of_gx / count,
            },
            Op::Given => BackwardCoefficients::default(),
        };
        if row < args.rows {
            // SAFETY: the caller's.
            unsafe { self.finish(parameters, xhat, &g, normalizer.rstd, coefficients, row) };
        }
    }

    /// Weight and bias of part `v`.
    #[inline(always)]
    unsafe fn parameters(
        &self,
        parameters: &<S::Map as Map>::Of<T, S::Access, V>,
        v: usize,
    ) -> [<S::Access as Access>::Numbers<T>; 2] {
        // SAFETY: the caller's, for a part that the row has.
        unsafe {
            if self.args.affine.is_narrow::<T>() {
                parameters.at::<true>(&self.args.affine, self.span, v)
            } else {
                parameters.at::<false>(&self.args.affine, self.span, v)
            }
        }
    }

    /// g = dy · act′(z), of the parts that the row has.
    #[inline(always)]
    unsafe fn preactivation_gradient(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &<S::Map as Map>::Of<T, S::Access, V>,
        xhat: impl Fn(usize) -> <S::Access as Access>::Numbers<T>,
        g: &mut [<S::Access as Access>::Numbers<T>; V],
    ) {
        if S::Epilogue::CLASS == Class::Plain {
            unrolled::<V>(|v| g[v] = S::Access::unpack::<T>(loaded.dy[v]));
            return;
        }
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's.
                let [weight, bias] = unsafe { self.parameters(parameters, v) };
                let z = xhat(v).zip3(weight, bias, normalize::affine);
                let residual = S::Access::unpack::<T>(loaded.residual[v]);
                g[v] = if self.has_residual() {
                    z.zip(residual, |z, residual| z + residual)
                } else {
                    z
                };
            }
        });
        *g = S::Epilogue::derivative(*g, self.args.activation);
        unrolled::<V>(|v| {
            g[v] = g[v].zip(S::Access::unpack::<T>(loaded.dy[v]), |slope, dy| slope * dy);
        });
    }

    /// dresidual and dx.
    #[inline(always)]
    unsafe fn finish(
        &self,
        parameters: &<S::Map as Map>::Of<T, S::Access, V>,
        xhat: impl Fn(usize) -> <S::Access as Access>::Numbers<T>,
        g: &[<S::Access as Access>::Numbers<T>; V],
        rstd: f32,
        coefficients: BackwardCoefficients<f32>,
        row: u64,
    ) {
        let args = self.args;
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's, here and below; each part belongs to one thread.
                unsafe {
                    let [weight, _] = self.parameters(parameters, v);
                    let mut dx = g[v].zip3(weight, xhat(v), |g, weight, xhat| {
                        normalize::input_gradient(g * weight, xhat, rstd, coefficients)
                    });
                    if !args.dstream.is_null() {
                        let more = S::Access::load(self.place(args.dstream, row, args.dstream_stride, v));
                        dx = dx.zip(S::Access::unpack::<T>(more), |dx, more| dx + more);
                    }
                    if !args.dresidual.is_null() {
                        let place = self.place(args.dresidual, row, args.dresidual_stride, v);
                        S::Access::store(place.cast_mut(), S::Access::pack::<T>(g[v]));
                    }
                    let place = self.place(args.dx, row, args.dx_stride, v);
                    S::Access::store(place.cast_mut(), S::Access::pack::<T>(dx));
                }
            }
        });
    }
}
