//! Sums whose rounding errors are kept.

/// A sum in two numbers (D. E. Knuth's exact addition, carried along): about twice the precision of `f64`.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    hi: f64,
    lo: f64,
    /// Σ |t| over the terms t.
    pub magnitude: f64,
    /// The number of terms.
    pub count: usize,
    /// The weight of the lowest bit that any term has, as a power of two; infinite while all terms are 0.
    grain: f64,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            hi: 0.0,
            lo: 0.0,
            magnitude: 0.0,
            count: 0,
            grain: f64::INFINITY,
        }
    }
}

impl Sum {
    /// Adds a term.
    pub fn add(&mut self, term: f64) {
        let hi = self.hi + term;
        let rounded = hi - self.hi;
        self.lo += (self.hi - (hi - rounded)) + (term - rounded);
        self.hi = hi;
        self.magnitude += term.abs();
        self.count += 1;
        self.grain = self.grain.min(lowest_bit(term));
    }

    /// The sum. Where it is not finite, what plain addition gives.
    pub fn value(&self) -> f64 {
        if self.hi.is_finite() {
            self.hi + self.lo
        } else {
            self.hi
        }
    }

    /// The sum divided by `n`: the nearest number, and what is left of it.
    pub fn over(&self, n: usize) -> (f64, f64) {
        let (sum, n) = (self.value(), n as f64);
        let hi = sum / n;
        if !hi.is_finite() {
            return (hi, 0.0);
        }
        let rest = ((-hi).mul_add(n, self.hi) + self.lo) / n;
        let nearest = hi + rest;
        (nearest, rest - (nearest - hi))
    }

    /// Whether every order of summation gives the exact sum in a type of this many significant bits: all partial sums are
    /// multiples of the terms' lowest bit, and none is longer than that.
    pub fn is_exact_in(&self, bits: i32) -> bool {
        self.magnitude == 0.0 || self.magnitude <= self.grain * 2f64.powi(bits)
    }
}

impl Extend<f64> for Sum {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, terms: I) {
        terms.into_iter().for_each(|t| self.add(t));
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Sum {
        let mut sum = Sum::default();
        sum.extend(terms);
        sum
    }
}

/// The weight of the lowest set bit of a number; infinite for 0, NaN for what is not finite.
pub(crate) fn lowest_bit(v: f64) -> f64 {
    if v == 0.0 {
        return f64::INFINITY;
    }
    if !v.is_finite() {
        return f64::NAN;
    }
    // Without its lowest bit the number is the next smaller multiple of twice that bit.
    let bits = v.abs().to_bits();
    let fraction = bits & ((1 << 52) - 1);
    if fraction == 0 {
        return v.abs();
    }
    v.abs() - f64::from_bits(bits & (bits - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounding_drops_is_kept() {
        let sum: Sum = [1e16, 1.0, -1e16, 0.5].into_iter().collect();
        assert_eq!(sum.value(), 1.5);
        assert_eq!(sum.over(3).0, 0.5);
        let third: Sum = [1.0, 0.0, 0.0].into_iter().collect();
        let (hi, lo) = third.over(3);
        assert_eq!(hi, 1.0 / 3.0);
        assert!(lo != 0.0 && (lo / hi).abs() < f64::EPSILON);
        let constant: Sum = std::iter::repeat_n(7.155607127305931, 640).collect();
        assert_eq!(constant.over(640), (7.155607127305931, 0.0));
    }

    #[test]
    fn infinities_stay_themselves() {
        let sum: Sum = [1.0, f64::INFINITY, 2.0].into_iter().collect();
        assert_eq!(sum.value(), f64::INFINITY);
    }

    #[test]
    fn exactness_follows_from_lowest_bits() {
        let sum: Sum = [3.0, -5.0, 0.5].into_iter().collect();
        assert!(sum.is_exact_in(5));
        assert!(!sum.is_exact_in(4));
        assert!(Sum::from_iter([0.0, 0.0]).is_exact_in(1));
        assert!(!Sum::from_iter([f64::NAN]).is_exact_in(53));
        assert_eq!(lowest_bit(12.0), 4.0);
        assert_eq!(lowest_bit(-5e-324), 5e-324);
        assert_eq!(lowest_bit(0.75), 0.25);
    }
}
