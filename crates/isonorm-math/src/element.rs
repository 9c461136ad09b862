//! [`Element`]: what a tensor stores, and the type it is accumulated in.

use core::fmt::Debug;

use crate::{Bf16, F16, Real};

/// A type that tensors store.
///
/// | stored | accumulated in |
/// |---|---|
/// | `f32`, [`F16`], [`Bf16`] | `f32` |
/// | `f64` | `f64` |
///
/// ```
/// use isonorm_math::{Bf16, Element};
///
/// fn sum<T: Element>(data: &[T]) -> T {
///     let mut total = T::Acc::default();
///     for &value in data {
///         total += value.to_acc();
///     }
///     T::from_acc(total)
/// }
///
/// assert_eq!(sum(&[Bf16::from_f32(1.5); 4]), Bf16::from_f32(6.0));
/// ```
pub trait Element: Copy + Send + Sync + 'static + PartialEq + Debug + Default {
    /// The type that sums of these elements are kept in.
    type Acc: Real + Element<Acc = Self::Acc>;

    /// The same number in the accumulator's type; exact.
    fn to_acc(self) -> Self::Acc;

    /// The nearest element, ties to even; overflows to ±∞.
    fn from_acc(acc: Self::Acc) -> Self;
}

impl Element for f32 {
    type Acc = f32;

    #[inline(always)]
    fn to_acc(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_acc(acc: f32) -> Self {
        acc
    }
}

impl Element for f64 {
    type Acc = f64;

    #[inline(always)]
    fn to_acc(self) -> f64 {
        self
    }

    #[inline(always)]
    fn from_acc(acc: f64) -> Self {
        acc
    }
}

impl Element for F16 {
    type Acc = f32;

    #[inline(always)]
    fn to_acc(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn from_acc(acc: f32) -> Self {
        Self::from_f32(acc)
    }
}

impl Element for Bf16 {
    type Acc = f32;

    #[inline(always)]
    fn to_acc(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn from_acc(acc: f32) -> Self {
        Self::from_f32(acc)
    }
}
