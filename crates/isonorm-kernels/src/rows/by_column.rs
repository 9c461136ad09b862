//! A weight and a bias for each column: what a thread has of them.

use super::access::{Access, Data, Span, width};
use super::lanes::{Lanes, unrolled};
use super::parameters::{Affine, Known, Map, OfColumn, OfType, Parameters, Sharing};

/// A parameter each column, the same for all rows: LayerNorm, RMSNorm.
pub struct ByColumn;

impl Map for ByColumn {
    const SHARING: Sharing = Sharing::ByColumn;
    type Of<T: Data, A: Access, const V: usize, const KEPT: u32> = Columns<T, A, V, KEPT>;
}

impl OfColumn for ByColumn {
    type Lookup = ();

    #[inline(always)]
    fn lookup(_affine: &Affine) {}

    #[inline(always)]
    unsafe fn at<T: Data, A: Access, K: Known>(affine: &Affine, (): (), _set: u32, column: u64) -> [A::Numbers<T>; 2] {
        // SAFETY: the caller's.
        unsafe { read::<T, A, K>(affine, column) }
    }
}

impl ByColumn {
    /// The weight alone, from `column` on.
    ///
    /// # Safety
    ///
    /// As for [`at`](OfColumn::at).
    #[inline(always)]
    pub(super) unsafe fn weight<T: Data, A: Access, K: Known>(affine: &Affine, column: u64) -> A::Numbers<T> {
        // SAFETY: the caller's.
        unsafe { read_one::<T, A, K>(affine.weight, WEIGHT, column) }
    }
}

/// See [`ByColumn`].
pub struct Columns<T: Data, A: Access, const V: usize, const KEPT: u32> {
    weight: [A::Numbers<T>; V],
    bias: [A::Numbers<T>; V],
    /// Whether weight and bias are kept as they came, where they have the data's type.
    is_packed: bool,
    packed: [[A::Raw<T>; 2]; V],
}

impl<T: Data, A: Access, const V: usize, const KEPT: u32> Clone for Columns<T, A, V, KEPT> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Data, A: Access, const V: usize, const KEPT: u32> Copy for Columns<T, A, V, KEPT> {}

impl<T: Data, A: Access, const V: usize, const KEPT: u32> Parameters<T, A, V> for Columns<T, A, V, KEPT> {
    const READS: bool = V as u32 * width::<T, A>() > KEPT;

    #[inline(always)]
    fn is_packed(&self) -> bool {
        self.is_packed
    }

    #[inline(always)]
    fn read_again(&self) -> Self {
        Self {
            is_packed: false,
            ..*self
        }
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn new(affine: &Affine, span: Span, packed: bool) -> Self {
        let mut new = Self {
            weight: [A::Numbers::<T>::splat(1.0); V],
            bias: [A::Numbers::<T>::splat(0.0); V],
            // Where rows begin anywhere, others are read number by number.
            is_packed: Self::READS
                && packed
                && V <= MOST_PACKED
                && size_of::<T>() < 4
                && (!A::BY_SEGMENT || affine.is_narrow::<T>()),
            packed: [[A::nothing::<T>(); 2]; V],
        };
        if new.is_packed && affine.is_narrow::<T>() {
            unrolled::<V>(|v| {
                if span.has::<A, V>(v) {
                    // SAFETY: the caller's, for a part that the row has.
                    new.packed[v] = unsafe {
                        [
                            read_packed::<T, A>(affine.weight, WEIGHT, span, v),
                            read_packed::<T, A>(affine.bias, BIAS, span, v),
                        ]
                    };
                }
            });
        }
        if !Self::READS {
            unrolled::<V>(|v| {
                if span.has::<A, V>(v) {
                    // SAFETY: the caller's, for a part that the row has.
                    [new.weight[v], new.bias[v]] = unsafe {
                        if affine.is_narrow::<T>() {
                            read_part::<T, A, OfType<true>>(affine, span, v)
                        } else {
                            read_part::<T, A, OfType<false>>(affine, span, v)
                        }
                    };
                }
            });
        }
        new
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, _affine: &Affine, _span: Span, _set: u32) {}

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn at<K: Known>(&self, affine: &Affine, span: Span, v: usize) -> [A::Numbers<T>; 2] {
        if K::NARROW && self.is_packed {
            let [weight, bias] = self.packed[v];
            let bias = match K::THERE[BIAS] {
                Some(false) => A::Numbers::<T>::splat(OTHERWISE[BIAS]),
                _ => A::unpack::<T>(bias),
            };
            [A::unpack::<T>(weight), bias]
        } else if Self::READS {
            // SAFETY: the caller's.
            unsafe { read_part::<T, A, K>(affine, span, v) }
        } else {
            [self.weight[v], self.bias[v]]
        }
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn weight_at<K: Known>(&self, affine: &Affine, span: Span, v: usize) -> A::Numbers<T> {
        if K::NARROW && self.is_packed {
            A::unpack::<T>(self.packed[v][WEIGHT])
        } else if Self::READS {
            // SAFETY: the caller's.
            unsafe { read_one_part::<T, A, K>(affine.weight, WEIGHT, span, v) }
        } else {
            self.weight[v]
        }
    }
}

/// Which of the two a parameter is.
const WEIGHT: usize = 0;
const BIAS: usize = 1;

/// What weight and bias are where there are none.
const OTHERWISE: [f32; 2] = [1.0, 0.0];

/// Accesses of a thread, at most, whose parameters are kept as they came.
const MOST_PACKED: usize = 8;

/// Weight and bias of part `v`: 1 and 0 where there are none.
#[inline(always)]
unsafe fn read_part<T: Data, A: Access, K: Known>(affine: &Affine, span: Span, v: usize) -> [A::Numbers<T>; 2] {
    // SAFETY: the caller's.
    unsafe {
        [
            read_one_part::<T, A, K>(affine.weight, WEIGHT, span, v),
            read_one_part::<T, A, K>(affine.bias, BIAS, span, v),
        ]
    }
}

/// One of them: where rows begin anywhere, number by number.
#[inline(always)]
unsafe fn read_one_part<T: Data, A: Access, K: Known>(
    base: *const u8,
    which: usize,
    span: Span,
    v: usize,
) -> A::Numbers<T> {
    if !A::BY_SEGMENT {
        // SAFETY: the caller's.
        return unsafe { read_one::<T, A, K>(base, which, span.start(v).into()) };
    }
    let otherwise = OTHERWISE[which];
    if !K::THERE[which].unwrap_or(!base.is_null()) {
        return A::Numbers::<T>::splat(otherwise);
    }
    let (start, own) = span.columns_of::<T, A>(v);
    A::Numbers::<T>::each(|element| {
        if !own.has(element) {
            return otherwise;
        }
        let column = (start + element as i32) as usize;
        // SAFETY: the caller's: a number for each column, which the row has.
        unsafe {
            if K::NARROW {
                T::load_keep(base.cast::<T>().wrapping_add(column)).to_acc()
            } else {
                f32::load_keep(base.cast::<f32>().wrapping_add(column))
            }
        }
    })
}

/// Weight and bias from `column` on: 1 and 0 where there are none.
#[inline(always)]
unsafe fn read<T: Data, A: Access, K: Known>(affine: &Affine, column: u64) -> [A::Numbers<T>; 2] {
    // SAFETY: the caller's.
    unsafe {
        [
            read_one::<T, A, K>(affine.weight, WEIGHT, column),
            read_one::<T, A, K>(affine.bias, BIAS, column),
        ]
    }
}

/// Parameters of the data's type as they come; 1 or 0 where there are none.
#[inline(always)]
unsafe fn read_packed<T: Data, A: Access>(base: *const u8, which: usize, span: Span, v: usize) -> A::Raw<T> {
    if base.is_null() {
        return A::pack(A::Numbers::<T>::splat(OTHERWISE[which]));
    }
    if A::BY_SEGMENT {
        // SAFETY: the caller's.
        return A::pack(unsafe { read_one_part::<T, A, OfType<true>>(base, which, span, v) });
    }
    // SAFETY: the caller's: a number for each column.
    unsafe { A::load_keep(base.cast::<T>().wrapping_add(span.start(v) as usize)) }
}

#[inline(always)]
unsafe fn read_one<T: Data, A: Access, K: Known>(base: *const u8, which: usize, column: u64) -> A::Numbers<T> {
    if !K::THERE[which].unwrap_or(!base.is_null()) {
        return A::Numbers::<T>::splat(OTHERWISE[which]);
    }
    // SAFETY: the caller's: a number for each column, in the type that `affine` says.
    unsafe {
        if K::NARROW {
            A::unpack::<T>(A::load_keep(base.cast::<T>().wrapping_add(column as usize)))
        } else {
            A::Numbers::<T>::load_keep(base.cast::<f32>().wrapping_add(column as usize))
        }
    }
}
