//! Weight and bias of a row: one a column, or one a run of columns.

use core::num::NonZero;

use isonorm_math::{Normalizer, Real};

use super::access::{Access, Data, Span};
pub use super::known::{Known, OfType, Usual};
use super::lanes::{Lanes, unrolled};
pub use super::run_of::RunOf;
use crate::simt;

/// Weight and bias as a kernel is told them: `f32`, or of the data's type. There are `runs` of each for each of `sets` sets, and
/// row `r` belongs to set `r mod sets`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Affine {
    /// `[columns]`, or `[sets, runs]`; or null for 1.
    pub weight: *const u8,
    /// As `weight`; or null for 0.
    pub bias: *const u8,
    /// Columns that share a parameter; at least 1.
    pub run: u64,
    /// Sets of parameters; at least 1.
    pub sets: u32,
    /// Parameters of a set, where they are by run.
    pub runs: u32,
    /// Whether parameters, and statistics that are given, have the data's type (1), or are `f32` (0).
    pub as_data: u32,
}

impl Affine {
    /// No weight and no bias.
    pub const NONE: Affine = Affine {
        weight: core::ptr::null(),
        bias: core::ptr::null(),
        run: 1,
        sets: 1,
        runs: 1,
        as_data: 0,
    };

    /// Whether parameters have to be turned into `f32`.
    #[inline(always)]
    pub(super) fn is_narrow<T>(&self) -> bool {
        size_of::<T>() < 4 && self.as_data != 0
    }

    /// The set of a row.
    #[inline(always)]
    pub(super) fn set_of<M: Map>(&self, row: u64) -> u32 {
        let sets = at_least_one(self.sets);
        // A division of 64 bits takes as long as a short row.
        match u32::try_from(row) {
            _ if matches!(M::SHARING, Sharing::ByColumn) => 0,
            Ok(row) => row % sets,
            Err(_) => (row % NonZero::<u64>::from(sets)) as u32,
        }
    }

    /// One parameter as it comes, in 32 bits.
    ///
    /// # Safety
    ///
    /// As for [`parameter`](Affine::parameter).
    #[inline(always)]
    pub(super) unsafe fn word<T: Data>(&self, base: *const u8, index: u32) -> u32 {
        // SAFETY: the caller's.
        unsafe {
            if self.is_narrow::<T>() {
                T::load_keep(base.cast::<T>().wrapping_add(index as usize)).to_word()
            } else {
                f32::load_keep(base.cast::<f32>().wrapping_add(index as usize)).to_bits()
            }
        }
    }

    /// Starts to load a parameter, which is [known](Affine::known) later; another number where there is none.
    ///
    /// # Safety
    ///
    /// `base` is null, or as for [`parameter`](Affine::parameter).
    #[inline(always)]
    pub(crate) unsafe fn ask<T: Data>(&self, base: *const u8, index: u32, otherwise: f32) -> u32 {
        match base.is_null() {
            true if self.is_narrow::<T>() => T::from_acc(otherwise).to_word(),
            true => otherwise.to_bits(),
            // SAFETY: the caller's.
            false => unsafe { self.word::<T>(base, index) },
        }
    }

    /// What was [asked](Affine::ask) for, as a number. It is waited for here: where it was asked for is a branch, and what a compiler computes
    /// of it there is waited for there.
    #[inline(always)]
    pub(crate) fn known<T: Data>(&self, word: u32) -> f32 {
        number::<T>(self.is_narrow::<T>(), simt::opaque(word))
    }

    /// One parameter as a number.
    ///
    /// # Safety
    ///
    /// `base` points to more than `index` parameters, in the type that `self` says.
    #[inline(always)]
    pub(crate) unsafe fn parameter<T: Data>(&self, base: *const u8, index: u32) -> f32 {
        // SAFETY: the caller's.
        unsafe {
            if self.is_narrow::<T>() {
                T::load_keep(base.cast::<T>().wrapping_add(index as usize)).to_acc()
            } else {
                f32::load_keep(base.cast::<f32>().wrapping_add(index as usize))
            }
        }
    }
}

/// The set `step` further on, around the end; both are below `sets`.
#[inline(always)]
pub(super) fn next_set(set: u32, step: u32, sets: NonZero<u32>) -> u32 {
    let left = sets.get() - set;
    if step >= left { step - left } else { set + step }
}

/// What a division may divide by, without a check that could fail.
#[inline(always)]
pub(crate) fn at_least_one(number: u32) -> NonZero<u32> {
    NonZero::new(number).unwrap_or(NonZero::<u32>::MIN)
}

/// Which parameter belongs to an element, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// [`ByColumn`](super::by_column::ByColumn)
    ByColumn,
    /// [`ByRun`]
    ByRun,
    /// [`Segmented`](super::segments::Segmented)
    Segmented,
    /// [`BySegment`](super::by_segment::BySegment)
    BySegment,
    /// [`AcrossRuns`](super::across_runs::AcrossRuns)
    AcrossRuns,
}

/// Which parameter belongs to an element.
pub trait Map {
    /// Which one.
    const SHARING: Sharing;

    /// A thread's share of the parameters. Those of columns are kept from row to row if they are not more than `KEPT` numbers of
    /// each kind; more are read again for each row.
    type Of<T: Data, A: Access, const V: usize, const KEPT: u32>: Parameters<T, A, V>;
}

/// Finds the parameters of any column: for rows that are longer than what a thread has of one.
pub trait OfColumn: Map {
    /// What finds the parameter of a column.
    type Lookup: Copy;

    /// That of some parameters.
    fn lookup(affine: &Affine) -> Self::Lookup;

    /// Weight and bias from `column` on, for a row of set `set`.
    ///
    /// # Safety
    ///
    /// See [`Affine`]; `lookup` is of the same.
    unsafe fn at<T: Data, A: Access, K: Known>(
        affine: &Affine,
        lookup: Self::Lookup,
        set: u32,
        column: u64,
    ) -> [A::Numbers<T>; 2];
}

/// A parameter each run of columns, for a set of rows that repeats: GroupNorm, InstanceNorm. With [`Vectors`] the length of a
/// run is a multiple of the vector's.
///
/// [`Vectors`]: super::access::Vectors
pub struct ByRun;

impl Map for ByRun {
    const SHARING: Sharing = Sharing::ByRun;
    type Of<T: Data, A: Access, const V: usize, const KEPT: u32> = Runs<V>;
}

impl OfColumn for ByRun {
    type Lookup = RunOf;

    #[inline(always)]
    fn lookup(affine: &Affine) -> RunOf {
        RunOf::new(affine)
    }

    #[inline(always)]
    unsafe fn at<T: Data, A: Access, K: Known>(
        affine: &Affine,
        lookup: RunOf,
        set: u32,
        column: u64,
    ) -> [A::Numbers<T>; 2] {
        let index = set * affine.runs + lookup.at(affine, column);
        // SAFETY: the caller's.
        let [weight, bias] = unsafe { one_of_run::<T>(affine, index) };
        [A::Numbers::<T>::splat(weight), A::Numbers::<T>::splat(bias)]
    }
}

/// Weight and bias as numbers, where there are any.
pub trait Parameters<T: Data, A: Access, const V: usize>: Copy {
    /// Whether [`at`](Parameters::at) reads memory, and has to know the type there.
    const READS: bool;

    /// Whether parameters are kept as they came, if they have the data's type; others are read.
    fn is_packed(&self) -> bool {
        false
    }

    /// The same parameters, none of which is kept as it came: for a part that is not known when the kernel is compiled.
    #[doc(hidden)]
    #[inline(always)]
    fn read_again(&self) -> Self {
        *self
    }

    /// What does not depend on the row; the pointers of `affine` are as said there. With `packed`, parameters of 16 bits that are
    /// too many to be kept as numbers are kept as they came.
    ///
    /// # Safety
    ///
    /// See [`Affine`].
    #[doc(hidden)]
    #[allow(private_interfaces)]
    unsafe fn new(affine: &Affine, span: Span, packed: bool) -> Self;

    /// What depends on the row, early enough for the loads to take their time.
    ///
    /// # Safety
    ///
    /// See [`Affine`].
    #[doc(hidden)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, affine: &Affine, span: Span, set: u32);

    /// Weight and bias of part `v`, which the row has.
    ///
    /// # Safety
    ///
    /// See [`Affine`].
    #[doc(hidden)]
    #[allow(private_interfaces)]
    unsafe fn at<K: Known>(&self, affine: &Affine, span: Span, v: usize) -> [A::Numbers<T>; 2];

    /// Whether all of a row has the same weight and bias, which are joined with what normalizes it.
    const JOINED: bool = false;

    /// What makes z of x as a [`Normalizer`] makes x̂ of it, where that is [`JOINED`](Parameters::JOINED); else the same normalizer.
    #[doc(hidden)]
    #[inline(always)]
    fn joined(&self, normalizer: Normalizer<f32>) -> Normalizer<f32> {
        normalizer
    }

    /// Whether a part has the same weight and bias, which can be joined with what normalizes the row.
    const JOINED_BY_PART: bool = false;

    /// What makes z of part `v` of x, where that is [`JOINED_BY_PART`](Parameters::JOINED_BY_PART).
    #[doc(hidden)]
    #[inline(always)]
    fn joined_at(&self, normalizer: Normalizer<f32>, _v: usize) -> Normalizer<f32> {
        normalizer
    }

    /// The weight alone.
    ///
    /// # Safety
    ///
    /// See [`Affine`].
    #[doc(hidden)]
    #[allow(private_interfaces)]
    unsafe fn weight_at<K: Known>(&self, affine: &Affine, span: Span, v: usize) -> A::Numbers<T>;
}

/// Weight and bias of a run: 1 and 0 where there are none.
#[inline(always)]
pub(super) unsafe fn one_of_run<T: Data>(affine: &Affine, index: u32) -> [f32; 2] {
    let one = |base: *const u8, otherwise: f32| {
        if base.is_null() {
            return otherwise;
        }
        // SAFETY: the caller's: a number for each run of each set.
        unsafe { affine.parameter::<T>(base, index) }
    };
    [one(affine.weight, 1.0), one(affine.bias, 0.0)]
}

/// The number that a parameter is which came so, of the data's type where it is narrow.
#[inline(always)]
pub(super) fn number<T: Data>(is_narrow: bool, word: u32) -> f32 {
    if size_of::<T>() < 4 && is_narrow {
        T::from_word(word).to_acc()
    } else {
        f32::from_bits(word)
    }
}

/// What makes z of x where all of it has one weight and bias, as the normalizer makes x̂ of it.
#[inline(always)]
pub(super) fn joined(normalizer: Normalizer<f32>, [weight, bias]: [f32; 2]) -> Normalizer<f32> {
    Normalizer {
        centre: normalizer.centre,
        rstd: normalizer.rstd * weight,
        offset: Real::mul_add(normalizer.offset, weight, bias),
    }
}

/// See [`ByRun`]. Weights and biases are as they came: whoever turns them into numbers waits for them.
#[derive(Clone, Copy)]
pub struct Runs<const V: usize> {
    /// The run that part `v` lies in.
    run: [u32; V],
    weight: [u32; V],
    bias: [u32; V],
    is_narrow: bool,
}

impl<const V: usize> Runs<V> {
    /// Where all parts lie in one run.
    #[inline(always)]
    pub(super) fn of_one([weight, bias]: [f32; 2]) -> Self {
        Self {
            run: [0; V],
            weight: [weight.to_bits(); V],
            bias: [bias.to_bits(); V],
            is_narrow: false,
        }
    }

    /// A number for each part, from that of a set's first run on: with no branch between, so that all are on their way at once.
    #[inline(always)]
    unsafe fn load<U: Data, A: Access>(&self, base: *const U, span: Span, start: u32) -> [u32; V] {
        let mut words = [0; V];
        unrolled::<V>(|v| {
            if span.has::<A, V>(v) {
                // SAFETY: the caller's: a number for each run of each set.
                words[v] = unsafe { U::load_keep(base.wrapping_add((start + self.run[v]) as usize)) }.to_word();
            }
        });
        words
    }

    /// Weight and bias of part `v`.
    #[inline(always)]
    fn numbers<T: Data>(&self, v: usize) -> [f32; 2] {
        [self.weight[v], self.bias[v]].map(|word| number::<T>(self.is_narrow, word))
    }
}

impl<T: Data, A: Access, const V: usize> Parameters<T, A, V> for Runs<V> {
    const READS: bool = false;

    const JOINED_BY_PART: bool = true;

    #[inline(always)]
    fn joined_at(&self, normalizer: Normalizer<f32>, v: usize) -> Normalizer<f32> {
        joined(normalizer, self.numbers::<T>(v))
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn new(affine: &Affine, span: Span, _packed: bool) -> Self {
        let mut run = [0; V];
        let length = at_least_one(affine.run as u32);
        unrolled::<V>(|v| run[v] = span.start(v) / length);
        Self {
            run,
            ..Self::of_one([1.0, 0.0])
        }
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, affine: &Affine, span: Span, set: u32) {
        let start = set * affine.runs;
        self.is_narrow = affine.is_narrow::<T>();
        let words = |base: *const u8, otherwise: f32| {
            // SAFETY: the caller's.
            unsafe {
                match (base.is_null(), self.is_narrow) {
                    (true, true) => [T::from_acc(otherwise).to_word(); V],
                    (true, false) => [otherwise.to_bits(); V],
                    (false, true) => self.load::<T, A>(base.cast::<T>(), span, start),
                    (false, false) => self.load::<f32, A>(base.cast::<f32>(), span, start),
                }
            }
        };
        (self.weight, self.bias) = (words(affine.weight, 1.0), words(affine.bias, 0.0));
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn at<K: Known>(&self, _affine: &Affine, _span: Span, v: usize) -> [A::Numbers<T>; 2] {
        self.numbers::<T>(v).map(A::Numbers::<T>::splat)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn weight_at<K: Known>(&self, _affine: &Affine, _span: Span, v: usize) -> A::Numbers<T> {
        A::Numbers::<T>::splat(number::<T>(self.is_narrow, self.weight[v]))
    }
}
