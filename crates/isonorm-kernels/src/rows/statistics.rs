//! From the elements of a row, which its team holds, to what it is normalized with.
//!
//! The distances from the row's first element and their squares are added up in one pass; so a constant row gives exactly
//! its bias, and a large mean costs no digits. What is to be subtracted from the squares, `count·(mean − first)²`, is small
//! unless the first element lies far off; then, which all threads of the team see, the row is passed over once more, with the
//! distances from the mean.
//!
//! Squares are taken in `f32`: distances from about 1.8e19 on overflow, and such a row has rstd 0. A NaN or an infinity stays
//! in its row.

use isonorm_math::{Moments, Normalizer, Real};

use super::access::{Access, Data, Span};
use super::forward::Args;
use super::lanes::{Lanes, unrolled};
use super::parameters::Affine;
use super::team::Team;

/// The share of the squares about the first element that those about the mean must have, for what is left of their digits to
/// be enough.
const DIGITS_KEPT: f32 = 0.25;

/// A row as its team holds it: the thread's part.
pub(super) struct Held<'a, T: Data, A: Access, const V: usize> {
    /// What was loaded; zeros where the row has nothing.
    pub parts: &'a [A::Raw<T>; V],
    pub span: Span,
    /// The row's first element.
    pub first: f32,
    /// Which of the sets of parameters belongs to the row.
    pub set: u32,
}

impl<T: Data, A: Access, const V: usize> Held<'_, T, A, V> {
    /// Folds over the thread's elements.
    #[inline(always)]
    fn fold<S: Copy>(&self, start: S, mut step: impl FnMut(S, f32) -> S) -> S {
        let mut state = start;
        unrolled::<V>(|v| {
            if self.span.has::<A, V>(v) {
                state = A::unpack::<T>(self.parts[v]).fold(state, &mut step);
            }
        });
        state
    }
}

/// Where mean and rstd come from, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// [`Centred`]
    Layer,
    /// [`Uncentred`]
    Rms,
    /// [`Given`]
    Given,
}

/// Where mean and rstd come from.
pub trait Statistics {
    /// Which one.
    const OP: Op;

    /// Whether the row's first element is needed.
    const ABOUT_FIRST: bool;

    /// The mean that is saved, and what normalizes; valid in all threads of the team.
    ///
    /// # Safety
    ///
    /// The pointers of `args` are as said there.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    unsafe fn measure<T: Data, A: Access, G: Team, const V: usize>(
        row: &Held<'_, T, A, V>,
        args: &Args<T>,
        team: &mut G,
    ) -> (f32, Normalizer<f32>);
}

/// Mean and variance of the row: LayerNorm, GroupNorm, InstanceNorm.
pub struct Centred;

/// The mean square of the row: RMSNorm.
pub struct Uncentred;

/// Mean and variance are told, one for each set of parameters: InstanceNorm in evaluation mode.
pub struct Given;

impl Statistics for Centred {
    const OP: Op = Op::Layer;
    const ABOUT_FIRST: bool = true;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn measure<T: Data, A: Access, G: Team, const V: usize>(
        row: &Held<'_, T, A, V>,
        args: &Args<T>,
        team: &mut G,
    ) -> (f32, Normalizer<f32>) {
        let count = args.columns as f32;
        let shift = row.first;
        // Registers that are full have no room for two ways.
        let (mean, mut m2, kept) = if V <= 4 {
            let (sum, squares) = row.fold((0.0, 0.0), |(sum, squares), x| {
                let d = x - shift;
                (sum + d, d.mul_add(d, squares))
            });
            let [sum, squares] = team.sum_pair([sum, squares]);
            let mean = sum / count;
            let m2 = (-mean).mul_add(sum, squares);
            // Not for a NaN either.
            (mean, m2, m2 >= DIGITS_KEPT * squares)
        } else {
            let sum = row.fold(0.0, |sum, x| sum + (x - shift));
            (team.sum(sum) / count, 0.0, false)
        };
        let [mut centre, mut rest] = two_sum(shift, mean);
        if V > 4 || team.any(!kept) {
            // Once more, about the mean. The distances are added up too, which is what rounding left of the mean.
            let about = shift + mean;
            let (first, second) = row.fold((0.0, 0.0), |(first, second), x| {
                let d = x - about;
                (first + d, d.mul_add(d, second))
            });
            let [first, second] = team.sum_pair([first, second]);
            if !kept {
                (centre, rest) = (about, first / count);
                m2 = (-rest).mul_add(first, second);
            }
        }
        let moments = Moments {
            count,
            mean: centre + rest,
            m2: not_below_zero(m2),
        };
        let rstd = moments.rstd(args.eps);
        let offset = if rest == 0.0 { 0.0 } else { -rest * rstd };
        (moments.mean, Normalizer { centre, rstd, offset })
    }
}

impl Statistics for Uncentred {
    const OP: Op = Op::Rms;
    const ABOUT_FIRST: bool = false;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn measure<T: Data, A: Access, G: Team, const V: usize>(
        row: &Held<'_, T, A, V>,
        args: &Args<T>,
        team: &mut G,
    ) -> (f32, Normalizer<f32>) {
        let sum = row.fold(0.0, |sum, x: f32| x.mul_add(x, sum));
        let moments = Moments {
            count: args.columns as f32,
            mean: 0.0,
            m2: team.sum(sum),
        };
        (0.0, uncentred(moments.rstd(args.eps)))
    }
}

/// A normalizer that takes no mean off.
#[inline(always)]
pub(super) fn uncentred(rstd: f32) -> Normalizer<f32> {
    Normalizer {
        centre: 0.0,
        rstd,
        offset: 0.0,
    }
}

impl Statistics for Given {
    const OP: Op = Op::Given;
    const ABOUT_FIRST: bool = false;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn measure<T: Data, A: Access, G: Team, const V: usize>(
        row: &Held<'_, T, A, V>,
        args: &Args<T>,
        _team: &mut G,
    ) -> (f32, Normalizer<f32>) {
        // SAFETY: the caller's.
        unsafe { given::<T>(&args.affine, [args.given_mean, args.given_variance], row.set, args.eps) }
    }
}

/// The mean that is told for a set of parameters, and what normalizes; from where means and variances are told.
///
/// # Safety
///
/// There is a mean and a variance for each set, in the type that `affine` says.
#[inline(always)]
pub(super) unsafe fn given<T: Data>(
    affine: &Affine,
    [means, variances]: [*const u8; 2],
    set: u32,
    eps: f32,
) -> (f32, Normalizer<f32>) {
    // SAFETY: the caller's.
    let (mean, variance) = unsafe { (affine.parameter::<T>(means, set), affine.parameter::<T>(variances, set)) };
    let moments = Moments {
        count: 1.0,
        mean,
        m2: variance,
    };
    let rstd = moments.rstd(eps);
    let normalizer = Normalizer {
        centre: mean,
        rstd,
        offset: 0.0,
    };
    (mean, normalizer)
}

/// The sum as two numbers, without any error (D. E. Knuth, *Seminumerical Algorithms*, section 4.2.2, theorem B).
#[inline(always)]
pub(super) fn two_sum(a: f32, b: f32) -> [f32; 2] {
    let sum = a + b;
    let of_b = sum - a;
    [sum, (a - (sum - of_b)) + (b - of_b)]
}

/// The number, or 0 if it is negative; a NaN stays one.
#[inline(always)]
pub(super) fn not_below_zero(m2: f32) -> f32 {
    if m2 < f32::ZERO { f32::ZERO } else { m2 }
}
