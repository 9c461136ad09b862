//! From the elements of a row, which its team holds, to what it is normalized with.
//!
//! The distances from the row's first element and their squares are added up in one pass; so a constant row gives exactly
//! its bias, and a large mean costs no digits. What is to be subtracted from the squares, `count·(mean − first)²`, is small
//! unless the first element lies far off; then, which all threads of the team see, the row is passed over once more, with the
//! distances from the mean. Their sum is what rounding left of the mean.
//!
//! Squares are taken in `f32`: distances from about 1.8e19 on overflow, and such a row has rstd 0. A NaN or an infinity stays
//! in its row.

use isonorm_math::{Moments, Normalizer, Real};

use super::access::{Access, Data, Place, Span};
use super::forward::Args;
use super::lanes::{FourPairs, Lanes, unrolled};
use super::parameters::{Affine, Known, Usual};
use super::team::Team;
use crate::simt;

/// The share of the squares about the first element that those about the mean must have, for what is left of their digits to
/// be enough.
const DIGITS_KEPT: f32 = 0.25;

/// A row as its team holds it: the thread's part.
pub(super) struct Held<'a, T: Data, A: Access, const V: usize> {
    /// What was loaded; zeros where the row has nothing.
    pub parts: &'a [A::Raw<T>; V],
    pub span: Span,
    /// Where it came from.
    pub place: Place<T, A>,
    /// What distances are from, at first: the row's first element, say.
    pub first: f32,
    /// Which of the sets of parameters belongs to the row.
    pub set: u32,
}

impl<T: Data, A: Access, const V: usize> Held<'_, T, A, V> {
    /// The sums of the thread's elements, about a number.
    #[inline(always)]
    fn sums<O: Summed>(&self, number: f32) -> [f32; 2] {
        let (mut apart, mut in_turn) = (FourPairs::ZERO, [0.0; 2]);
        unrolled::<V>(|v| {
            if self.span.has::<A, V>(v) {
                let part = A::filled::<T>(self.parts[v], self.place.own(self.span, v), number);
                match A::IS_OF_SEGMENTS {
                    true => apart = O::add_apart::<T, A>(apart, part, number),
                    false => in_turn = O::add::<T, A>(in_turn, part, number),
                }
            }
        });
        if A::IS_OF_SEGMENTS { apart.total() } else { in_turn }
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

    /// The parameters of most calls.
    type Usual: Known;

    /// The row's statistics; valid in all threads of the team.
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
    ) -> Measured;
}

/// What is known of a row.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub mean: f32,
    /// Biased; of [`Uncentred`] the mean square.
    pub variance: f32,
    pub normalizer: Normalizer<f32>,
}

impl Measured {
    /// Saves what there is a place for, in the number of the row.
    ///
    /// # Safety
    ///
    /// The pointers of `args` are as said there; one thread a row.
    #[inline(always)]
    pub(super) unsafe fn save<T>(&self, args: &Args<T>, row: u64) {
        let numbers = [
            (args.mean, self.mean),
            (args.rstd, self.normalizer.rstd),
            (args.variance, self.variance),
        ];
        for (place, number) in numbers {
            if !place.is_null() {
                // SAFETY: the caller's: there is a number for each row.
                unsafe { f32::store(place.wrapping_add(row as usize), number) };
            }
        }
    }
}

/// Mean and variance of the row: LayerNorm, GroupNorm, InstanceNorm.
pub struct Centred;

/// The mean square of the row: RMSNorm.
pub struct Uncentred;

/// Mean and variance are told, one for each set of parameters: InstanceNorm in evaluation mode.
pub struct Given;

/// What a pass over a row says, of distances from a number.
#[derive(Clone, Copy)]
struct About {
    /// How far the mean is from the number.
    rest: f32,
    /// The squares of the distances from the mean.
    m2: f32,
    /// Whether enough of the digits of those is left; not for a NaN either.
    kept: bool,
}

impl About {
    #[inline(always)]
    fn measure<T: Data, A: Access, G: Team, const V: usize>(
        row: &Held<'_, T, A, V>,
        number: f32,
        mean_of: MeanOf,
        team: &mut G,
    ) -> Self {
        Self::new(team.sum_pair(row.sums::<Centred>(number)), mean_of)
    }

    /// From the sums over the row.
    #[inline(always)]
    fn new([sum, squares]: [f32; 2], mean_of: MeanOf) -> Self {
        let rest = mean_of.all(sum);
        let m2 = (-rest).mul_add(sum, squares);
        Self {
            rest,
            m2,
            kept: m2 >= DIGITS_KEPT * squares,
        }
    }

    /// The row's statistics, where distances are from this number.
    #[inline(always)]
    fn conclude(self, number: f32, mean_of: MeanOf, eps: f32) -> Measured {
        let variance = mean_of.all(not_below_zero(self.m2));
        centred([number, self.rest], variance, 1.0 / (variance + eps).sqrt())
    }
}

/// Statistics by sums that come some time after they were sent.
pub trait Summed: Statistics {
    /// Adds a part of a row to the thread's sums, about a number: one element after the other, for kernels that have more threads to wait for,
    /// and fewer registers.
    #[doc(hidden)]
    fn add<T: Data, A: Access>(sums: [f32; 2], part: A::Raw<T>, number: f32) -> [f32; 2];

    /// The same, to sums in parts.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn add_apart<T: Data, A: Access>(sums: FourPairs, part: A::Raw<T>, number: f32) -> FourPairs;

    /// The row's statistics, from the sums over it; with the number that the sums should be taken about once more instead, where
    /// digits were lost.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn conclude<T: Data, const V: usize>(sums: [f32; 2], number: f32, args: &Args<T>) -> (Measured, Option<f32>);
}

impl Summed for Centred {
    #[inline(always)]
    fn add<T: Data, A: Access>([sum, squares]: [f32; 2], part: A::Raw<T>, number: f32) -> [f32; 2] {
        let sums = A::unpack::<T>(part).fold((sum, squares), |(sum, squares), x| {
            let distance = x - number;
            (sum + distance, distance.mul_add(distance, squares))
        });
        sums.into()
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn add_apart<T: Data, A: Access>(sums: FourPairs, part: A::Raw<T>, number: f32) -> FourPairs {
        let distances = A::unpack::<T>(part).map(|x| x - number);
        FourPairs {
            first: distances.add_to(sums.first),
            second: distances.dot_to(distances, sums.second),
        }
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn conclude<T: Data, const V: usize>(sums: [f32; 2], number: f32, args: &Args<T>) -> (Measured, Option<f32>) {
        let mean_of = MeanOf::new::<V>(args.columns);
        let about = About::new(sums, mean_of);
        let measured = about.conclude(number, mean_of, args.eps);
        (measured, (!about.kept).then_some(number + about.rest))
    }
}

impl Summed for Uncentred {
    #[inline(always)]
    fn add<T: Data, A: Access>([squares, _]: [f32; 2], part: A::Raw<T>, _number: f32) -> [f32; 2] {
        [A::unpack::<T>(part).fold(squares, |sum, x: f32| x.mul_add(x, sum)), 0.0]
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn add_apart<T: Data, A: Access>(sums: FourPairs, part: A::Raw<T>, _number: f32) -> FourPairs {
        let numbers = A::unpack::<T>(part);
        FourPairs {
            first: numbers.dot_to(numbers, sums.first),
            ..sums
        }
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn conclude<T: Data, const V: usize>(
        [squares, _]: [f32; 2],
        _number: f32,
        args: &Args<T>,
    ) -> (Measured, Option<f32>) {
        let mean_square = MeanOf::new::<V>(args.columns).all(squares);
        (uncentred(mean_square, args.eps), None)
    }
}

impl Statistics for Centred {
    const OP: Op = Op::Layer;
    const ABOUT_FIRST: bool = true;
    type Usual = Usual<true>;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn measure<T: Data, A: Access, G: Team, const V: usize>(
        row: &Held<'_, T, A, V>,
        args: &Args<T>,
        team: &mut G,
    ) -> Measured {
        let mean_of = MeanOf::new::<V>(args.columns);
        let (mut shift, mut repeated) = (row.first, false);
        let about = loop {
            let about = About::measure(row, shift, mean_of, team);
            if repeated || !team.any(!about.kept) {
                break about;
            }
            // Teams that go together repeat together; those that need not, with the same result.
            if !about.kept {
                shift = A::near::<T>(shift + about.rest);
            }
            repeated = true;
            // Written out, as what a loop needs in every turn is kept in registers; unless it would take them all.
            if V <= 4 {
                break About::measure(row, shift, mean_of, team);
            }
        };
        about.conclude(shift, mean_of, args.eps)
    }
}

impl Statistics for Uncentred {
    const OP: Op = Op::Rms;
    const ABOUT_FIRST: bool = false;
    type Usual = Usual<false>;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn measure<T: Data, A: Access, G: Team, const V: usize>(
        row: &Held<'_, T, A, V>,
        args: &Args<T>,
        team: &mut G,
    ) -> Measured {
        let [squares, _] = row.sums::<Uncentred>(0.0);
        let squares = team.sum(squares);
        uncentred(MeanOf::new::<V>(args.columns).all(squares), args.eps)
    }
}

/// The statistics of a row whose mean is the sum of these two numbers.
#[inline(always)]
pub(super) fn centred([number, rest]: [f32; 2], variance: f32, rstd: f32) -> Measured {
    let [centre, rest] = two_sum(number, rest);
    let offset = if rest == 0.0 { 0.0 } else { -rest * rstd };
    Measured {
        mean: centre + rest,
        variance,
        normalizer: Normalizer { centre, rstd, offset },
    }
}

/// The statistics of a row of which no mean is taken off.
#[inline(always)]
pub(super) fn uncentred(mean_square: f32, eps: f32) -> Measured {
    Measured {
        mean: 0.0,
        variance: mean_square,
        normalizer: Normalizer {
            centre: 0.0,
            rstd: 1.0 / (mean_square + eps).sqrt(),
            offset: 0.0,
        },
    }
}

impl Statistics for Given {
    const OP: Op = Op::Given;
    const ABOUT_FIRST: bool = false;
    type Usual = Usual<true>;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn measure<T: Data, A: Access, G: Team, const V: usize>(
        row: &Held<'_, T, A, V>,
        args: &Args<T>,
        _team: &mut G,
    ) -> Measured {
        // SAFETY: the caller's.
        unsafe { given::<T>(&args.affine, [args.given_mean, args.given_variance], row.set, args.eps) }
    }
}

/// What is told of a row for its set of parameters, from where means and variances are told.
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
) -> Measured {
    // SAFETY: the caller's.
    let (mean, variance) = unsafe { (affine.parameter::<T>(means, set), affine.parameter::<T>(variances, set)) };
    let moments = Moments {
        count: 1.0,
        mean,
        m2: variance,
    };
    Measured {
        mean,
        variance,
        normalizer: Normalizer {
            centre: mean,
            rstd: moments.rstd(eps),
            offset: 0.0,
        },
    }
}

/// Divides by the number of a row's elements: by its reciprocal, which is the same for all rows, and one step of correction, as that
/// leads to the nearest number (as in `isonorm-math`'s `division`).
#[derive(Clone, Copy)]
pub(super) struct MeanOf {
    count: f32,
    reciprocal: f32,
}

impl MeanOf {
    /// For rows of so many elements, at least one, of which a thread makes `V` accesses: registers that are full have no room for what
    /// is the same for all rows.
    #[inline(always)]
    pub(super) fn new<const V: usize>(columns: u64) -> Self {
        let columns = if V <= 2 { columns } else { simt::opaque_64(columns) };
        // Rows that are held are short: a conversion of 32 bits is exact, and an instruction.
        let count = columns as u32 as f32;
        Self {
            count,
            reciprocal: 1.0 / count,
        }
    }

    /// What each element has of all.
    #[inline(always)]
    pub(super) fn all(&self, sum: f32) -> f32 {
        let about = sum * self.reciprocal;
        let rest = (-about).mul_add(self.count, sum);
        // Infinity less infinity.
        if rest.is_nan() {
            about
        } else {
            rest.mul_add(self.reciprocal, about)
        }
    }
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
pub(crate) fn not_below_zero(m2: f32) -> f32 {
    if m2 < f32::ZERO { f32::ZERO } else { m2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_rounded_once() {
        for columns in (1..2000).chain([3125, 4096, 16_383, 65_535, 65_537, 131_072]) {
            let mean_of = MeanOf::new::<1>(columns);
            let same = |sum: f32| assert_eq!(mean_of.all(sum), sum / columns as f32, "{sum} / {columns}");
            (0..200).for_each(|step| same((step as f32 - 77.0) * 1.234_567 * 1.5f32.powi(step % 40)));
            let ends = [0.0, columns as f32, 1e30, f32::MAX, f32::INFINITY, f32::NEG_INFINITY];
            ends.into_iter().for_each(same);
        }
        assert!(MeanOf::new::<8>(3).all(f32::NAN).is_nan());
    }
}
