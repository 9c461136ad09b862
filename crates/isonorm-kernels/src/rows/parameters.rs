//! Weight and bias of a row: one a column, or one a run of columns.

use super::access::{Access, Data, Span, width};
use super::forward::Args;
use super::lanes::{Lanes, unrolled};

/// The numbers of each kind that a thread keeps from row to row, at most; more are read again for each row.
const KEPT: u32 = 8;

/// Which parameter belongs to an element, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// [`ByColumn`]
    ByColumn,
    /// [`ByRun`]
    ByRun,
}

/// Which parameter belongs to an element.
pub trait Map {
    /// Which one.
    const SHARING: Sharing;

    /// A thread's share of the parameters.
    type Of<T: Data, A: Access, const V: usize>: Parameters<T, A, V>;
}

/// A parameter each column, the same for all rows: LayerNorm, RMSNorm.
pub struct ByColumn;

/// A parameter each run of columns, for a set of rows that repeats: GroupNorm, InstanceNorm. With [`Vectors`] the length of a
/// run is a multiple of the vector's.
///
/// [`Vectors`]: super::access::Vectors
pub struct ByRun;

impl Map for ByColumn {
    const SHARING: Sharing = Sharing::ByColumn;
    type Of<T: Data, A: Access, const V: usize> = Columns<T, A, V>;
}

impl Map for ByRun {
    const SHARING: Sharing = Sharing::ByRun;
    type Of<T: Data, A: Access, const V: usize> = Runs<V>;
}

/// Weight and bias as numbers, where there are any.
pub trait Parameters<T: Data, A: Access, const V: usize>: Copy {
    /// Whether [`at`](Parameters::at) reads memory, and has to know the type there.
    const READS: bool;

    /// What does not depend on the row; the pointers of `args` are as said there.
    ///
    /// # Safety
    ///
    /// See [`Args`].
    #[doc(hidden)]
    #[allow(private_interfaces)]
    unsafe fn new(args: &Args<T>, span: Span) -> Self;

    /// What depends on the row, early enough for the loads to take their time.
    ///
    /// # Safety
    ///
    /// See [`Args`].
    #[doc(hidden)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, args: &Args<T>, span: Span, set: u32);

    /// Weight and bias of part `v`, which the row has; `NARROW` where they have the data's type.
    ///
    /// # Safety
    ///
    /// See [`Args`].
    #[doc(hidden)]
    #[allow(private_interfaces)]
    unsafe fn at<const NARROW: bool>(&self, args: &Args<T>, span: Span, v: usize) -> [A::Numbers<T>; 2];
}

/// See [`ByColumn`].
pub struct Columns<T: Data, A: Access, const V: usize> {
    weight: [A::Numbers<T>; V],
    bias: [A::Numbers<T>; V],
}

impl<T: Data, A: Access, const V: usize> Clone for Columns<T, A, V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Data, A: Access, const V: usize> Copy for Columns<T, A, V> {}

impl<T: Data, A: Access, const V: usize> Parameters<T, A, V> for Columns<T, A, V> {
    const READS: bool = V as u32 * width::<T, A>() > KEPT;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn new(args: &Args<T>, span: Span) -> Self {
        let mut new = Self {
            weight: [A::Numbers::<T>::splat(1.0); V],
            bias: [A::Numbers::<T>::splat(0.0); V],
        };
        if !Self::READS {
            unrolled::<V>(|v| {
                if span.has::<A, V>(v) {
                    let start = span.start(v);
                    // SAFETY: the caller's, for a part that the row has.
                    [new.weight[v], new.bias[v]] = unsafe {
                        if args.has_narrow_parameters() {
                            read::<T, A, true>(args, start)
                        } else {
                            read::<T, A, false>(args, start)
                        }
                    };
                }
            });
        }
        new
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, _args: &Args<T>, _span: Span, _set: u32) {}

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn at<const NARROW: bool>(&self, args: &Args<T>, span: Span, v: usize) -> [A::Numbers<T>; 2] {
        if Self::READS {
            // SAFETY: the caller's.
            unsafe { read::<T, A, NARROW>(args, span.start(v)) }
        } else {
            [self.weight[v], self.bias[v]]
        }
    }
}

/// Weight and bias from `column` on: 1 and 0 where there are none.
#[inline(always)]
unsafe fn read<T: Data, A: Access, const NARROW: bool>(args: &Args<T>, column: u32) -> [A::Numbers<T>; 2] {
    let one = |base: *const u8, otherwise: f32| {
        if base.is_null() {
            return A::Numbers::<T>::splat(otherwise);
        }
        // SAFETY: the caller's: a number for each column, in the type that `args` says.
        unsafe {
            if NARROW {
                A::unpack::<T>(A::load_keep(base.cast::<T>().wrapping_add(column as usize)))
            } else {
                A::Numbers::<T>::load_keep(base.cast::<f32>().wrapping_add(column as usize))
            }
        }
    };
    [one(args.weight, 1.0), one(args.bias, 0.0)]
}

/// See [`ByRun`].
#[derive(Clone, Copy)]
pub struct Runs<const V: usize> {
    /// The run that part `v` lies in.
    run: [u32; V],
    weight: [f32; V],
    bias: [f32; V],
}

impl<T: Data, A: Access, const V: usize> Parameters<T, A, V> for Runs<V> {
    const READS: bool = false;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn new(args: &Args<T>, span: Span) -> Self {
        let mut run = [0; V];
        unrolled::<V>(|v| run[v] = span.start(v) / args.run());
        Self {
            run,
            weight: [1.0; V],
            bias: [0.0; V],
        }
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, args: &Args<T>, span: Span, set: u32) {
        let start = set * args.runs;
        unrolled::<V>(|v| {
            if span.has::<A, V>(v) {
                let one = |base: *const u8, otherwise: f32| {
                    if base.is_null() {
                        return otherwise;
                    }
                    // SAFETY: the caller's: a number for each run of each set.
                    unsafe { args.parameter(base, start + self.run[v]) }
                };
                (self.weight[v], self.bias[v]) = (one(args.weight, 1.0), one(args.bias, 0.0));
            }
        });
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn at<const NARROW: bool>(&self, _args: &Args<T>, _span: Span, v: usize) -> [A::Numbers<T>; 2] {
        [
            A::Numbers::<T>::splat(self.weight[v]),
            A::Numbers::<T>::splat(self.bias[v]),
        ]
    }
}
