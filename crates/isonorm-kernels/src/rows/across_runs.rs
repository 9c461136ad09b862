//! Contiguous rows whose runs of columns have a weight and a bias each, and are no whole number of accesses: the channels of a group, of small images or
//! of odd ones.
//!
//! Rows are, and runs are no shorter than an access; so an access belongs to one run or lies across the border of two, and a thread has two weights
//! and two biases for it, and where the second ones begin. Unlike [`by_segment`](super::by_segment) nothing of an access is anybody else's.

use super::access::{Access, Data, Span, width};
use super::lanes::{Lanes, unrolled};
use super::parameters::{Affine, Known, Map, Parameters, Sharing, at_least_one, number};
use crate::simt;

/// See [`across_runs`](self).
pub struct AcrossRuns;

impl Map for AcrossRuns {
    const SHARING: Sharing = Sharing::AcrossRuns;
    type Of<T: Data, A: Access, const V: usize, const KEPT: u32> = OfRuns<V>;
}

/// Weights and biases of each part of a row, as they came: whoever turns them into numbers waits for them.
#[derive(Clone, Copy)]
pub struct OfRuns<const V: usize> {
    /// The run that a part begins in.
    run: [u32; V],
    /// Elements of a part before the next run.
    before: [u32; V],
    weight: [[u32; 2]; V],
    bias: [[u32; 2]; V],
    is_narrow: bool,
}

impl<const V: usize> OfRuns<V> {
    /// Of the parts of such a row, without their parameters.
    #[inline(always)]
    pub(super) fn new(affine: &Affine, span: Span) -> Self {
        let length = at_least_one(affine.run as u32);
        let (mut run, mut before) = ([0; V], [0; V]);
        unrolled::<V>(|v| {
            run[v] = span.start(v) / length;
            before[v] = length.get() - span.start(v) % length;
        });
        Self {
            run,
            before,
            weight: [[0; 2]; V],
            bias: [[0; 2]; V],
            is_narrow: false,
        }
    }

    /// Starts to load those of a set.
    ///
    /// # Safety
    ///
    /// See [`Affine`].
    #[inline(always)]
    pub(super) unsafe fn load<T: Data, A: Access>(&mut self, affine: &Affine, span: Span, set: u32) {
        self.is_narrow = affine.is_narrow::<T>();
        let (run, before, is_narrow) = (self.run, self.before, self.is_narrow);
        let start = set * affine.runs;
        let words = |base: *const u8, otherwise: f32| {
            let none = match is_narrow {
                true => T::from_acc(otherwise).to_word(),
                false => otherwise.to_bits(),
            };
            let mut words = [[none; 2]; V];
            if !base.is_null() {
                unrolled::<V>(|v| {
                    if span.has::<A, V>(v) {
                        let first = start + run[v];
                        // The same one, if the part is all of its run.
                        let second = first + u32::from(before[v] < width::<T, A>());
                        // SAFETY: the caller's: a number for each run of each set.
                        words[v] = unsafe { [affine.word::<T>(base, first), affine.word::<T>(base, second)] };
                    }
                });
            }
            words
        };
        (self.weight, self.bias) = (words(affine.weight, 1.0), words(affine.bias, 0.0));
    }

    /// The weights of the two runs that part `v` belongs to.
    #[inline(always)]
    pub(super) fn weights<T: Data>(&self, v: usize) -> [f32; 2] {
        self.weight[v].map(|word| number::<T>(self.is_narrow, word))
    }

    /// What part `v` has of each of the two runs, with 0 for what is the other's.
    #[inline(always)]
    pub(super) fn apart<L: Lanes>(&self, numbers: L, v: usize) -> [L; 2] {
        let first = self.each(v, [1.0, 0.0]);
        [
            numbers.zip(first, |number, first: f32| if first != 0.0 { number } else { 0.0 }),
            numbers.zip(first, |number, first: f32| if first != 0.0 { 0.0 } else { number }),
        ]
    }

    /// For each element of part `v` the number of its run.
    #[inline(always)]
    fn each<L: Lanes>(&self, v: usize, numbers: [f32; 2]) -> L {
        by_run(self.before[v], numbers)
    }
}

/// The first number for so many elements, and the second one for others.
#[inline(always)]
fn by_run<L: Lanes>(before: u32, [first, second]: [f32; 2]) -> L {
    L::each(|lane| if lane < before { first } else { second })
}

impl<T: Data, A: Access, const V: usize> Parameters<T, A, V> for OfRuns<V> {
    const READS: bool = false;

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn new(affine: &Affine, span: Span, _packed: bool) -> Self {
        Self::new(affine, span)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn fetch(&mut self, affine: &Affine, span: Span, set: u32) {
        // SAFETY: the caller's.
        unsafe { self.load::<T, A>(affine, span, set) };
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn at<K: Known>(&self, _affine: &Affine, _span: Span, v: usize) -> [A::Numbers<T>; 2] {
        // Found here: in a backward pass, which needs them twice, as many numbers would be kept in registers.
        let before = simt::opaque(self.before[v]);
        [self.weight[v], self.bias[v]].map(|words| by_run(before, words.map(|word| number::<T>(self.is_narrow, word))))
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    unsafe fn weight_at<K: Known>(&self, _affine: &Affine, _span: Span, v: usize) -> A::Numbers<T> {
        self.each(v, self.weights::<T>(v))
    }
}
