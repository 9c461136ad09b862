//! [`Moments`]: count, mean and sum of squared distances of a set of numbers, and how two sets merge.

use crate::Real;

/// The first two moments of a set of numbers, in the form that merges without cancellation.
///
/// The sum of squared distances `m2 = Σ (x − mean)²` stays accurate where `Σ x² − n · mean²` loses every digit (mean
/// 100, deviation 10⁻³, in `f32`).
///
/// ```
/// use isonorm_math::Moments;
///
/// let left = Moments { count: 2.0f32, mean: 1.5, m2: 0.5 }; // 1, 2
/// let right = Moments { count: 1.0, mean: 6.0, m2: 0.0 }; // 6
/// let all = left.merge(right);
/// assert_eq!(all, Moments { count: 3.0, mean: 3.0, m2: 14.0 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments<R> {
    /// How many numbers.
    pub count: R,
    /// Their mean; 0 where there are none.
    pub mean: R,
    /// Σ (x − mean)², the sum of their squared distances from the mean.
    pub m2: R,
}

impl<R: Real> Moments<R> {
    /// The moments of no numbers: the neutral element of [`merge`](Moments::merge).
    pub const EMPTY: Self = Self {
        count: R::ZERO,
        mean: R::ZERO,
        m2: R::ZERO,
    };

    /// The moments of no numbers, [`EMPTY`](Moments::EMPTY).
    #[inline(always)]
    pub fn empty() -> Self {
        Self::EMPTY
    }

    /// The moments of two disjoint sets together.
    ///
    /// With δ = mean_b − mean_a and n = n_a + n_b:
    ///
    /// ```text
    /// mean = mean_a + δ · n_b / n
    /// m2   = m2_a + m2_b + δ² · n_a · n_b / n
    /// ```
    ///
    /// An empty side changes nothing, exactly. Counts must be exact in `R`: below 2²⁴ in `f32`.
    ///
    /// Source: T. F. Chan, G. H. Golub, R. J. LeVeque, *Updating formulae and a pairwise algorithm for computing
    /// sample variances*, Stanford report STAN-CS-79-773, 1979, equation (2.1).
    #[inline(always)]
    pub fn merge(self, other: Self) -> Self {
        let count = self.count + other.count;
        // Both selects only matter for an empty side: 0/0 there, and ∞ − 0 where the other mean is not finite.
        let share = if count > R::ZERO { other.count / count } else { R::ZERO };
        let delta = if other.count > R::ZERO {
            other.mean - self.mean
        } else {
            R::ZERO
        };
        Self {
            count,
            mean: delta.mul_add(share, self.mean),
            m2: delta.mul_add(delta * (self.count * share), self.m2 + other.m2),
        }
    }

    /// [`merge`](Moments::merge) for two sets of the same count: no division, and symmetric, so that both threads of
    /// a butterfly exchange compute the same bits.
    ///
    /// ```text
    /// mean = mean_a / 2 + mean_b / 2
    /// m2   = m2_a + m2_b + δ² · n_a / 2
    /// ```
    ///
    /// ```
    /// use isonorm_math::Moments;
    ///
    /// let one = Moments { count: 1.0f32, mean: 1.0, m2: 0.0 };
    /// let five = Moments { count: 1.0f32, mean: 5.0, m2: 0.0 };
    /// assert_eq!(one.merge_equal(five), one.merge(five));
    /// ```
    #[inline(always)]
    pub fn merge_equal(self, other: Self) -> Self {
        let delta = other.mean - self.mean;
        let half_mean = self.mean * R::HALF;
        Self {
            count: self.count + other.count,
            mean: half_mean + other.mean * R::HALF,
            m2: delta.mul_add(delta * (self.count * R::HALF), self.m2 + other.m2),
        }
    }

    /// The set with one number more, for streams: `merge` with a set of one.
    ///
    /// ```text
    /// mean' = mean + (x − mean) / n'
    /// m2'   = m2 + (x − mean) · (x − mean')
    /// ```
    ///
    /// One division a number: where the data can be read twice, the mean first and the distances then is faster and
    /// more accurate.
    ///
    /// Source: B. P. Welford, *Note on a method for calculating corrected sums of squares and products*,
    /// Technometrics 4(3), 1962, pages 419–420.
    ///
    /// ```
    /// use isonorm_math::Moments;
    ///
    /// let mut moments = Moments::EMPTY;
    /// for x in [1.0f64, 2.0, 6.0] {
    ///     moments = moments.push(x);
    /// }
    /// assert_eq!(moments.mean, 3.0);
    /// assert_eq!(moments.m2, 14.0);
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn push(self, x: R) -> Self {
        let count = self.count + R::ONE;
        let delta = x - self.mean;
        let mean = self.mean + delta / count;
        Self {
            count,
            mean,
            m2: delta.mul_add(x - mean, self.m2),
        }
    }

    /// The biased variance `m2 / count`, by which normalization divides; NaN where there are no numbers.
    #[inline(always)]
    pub fn variance(self) -> R {
        self.m2 / self.count
    }

    /// `1 / √(variance + eps)`.
    ///
    /// ```
    /// use isonorm_math::Moments;
    ///
    /// let moments = Moments { count: 4.0f32, mean: 0.0, m2: 15.0 };
    /// assert_eq!(moments.rstd(0.25), 0.5);
    /// ```
    #[inline(always)]
    pub fn rstd(self, eps: R) -> R {
        R::ONE / (self.variance() + eps).sqrt()
    }
}
