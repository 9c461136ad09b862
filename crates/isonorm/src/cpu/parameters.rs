//! Affine parameters in the accumulator's type, and their gradients.

use isonorm_math::Real;

use super::crew::Crew;
use super::memory::{Numbers, Scratch};
use super::statistics::accumulator;
use crate::plan::Region;
use crate::{Geometry, View, ViewMut};

/// Weight and bias: always there (ones and zeros where the description has none), always in the accumulator's type.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'a, A> {
    pub(super) weight: &'a [A],
    pub(super) bias: &'a [A],
}

impl<'a, A: Real> Parameters<'a, A> {
    pub(super) fn new(
        g: &Geometry,
        weight: Option<View<'a>>,
        bias: Option<View<'a>>,
        (scratch, region): (Scratch<'a>, Region),
    ) -> Parameters<'a, A> {
        let get = |view: Option<View<'a>>, default: f64, index: usize| -> &'a [A] {
            match view {
                Some(view) if view.dtype() == accumulator::<A>() => {
                    // SAFETY: the view's elements are of type `A` and aligned for it (checked with the arguments), and stay
                    // unwritten for 'a.
                    unsafe { std::slice::from_raw_parts(view.as_ptr().cast(), view.len()) }
                }
                _ => {
                    let stride = g.parameters.next_multiple_of(8);
                    // SAFETY: the region is this function's, and each of the two calls has its own half.
                    let copy = unsafe { scratch.slice::<A>(region, index * stride, g.parameters) };
                    match view.map(Numbers::read_only) {
                        Some(v) => copy
                            .iter_mut()
                            .enumerate()
                            .for_each(|(i, c)| *c = A::from_f64(v.get(i))),
                        None => copy.fill(A::from_f64(default)),
                    }
                    copy
                }
            }
        };
        Parameters {
            weight: get(weight, 1.0, 0),
            bias: get(bias, 0.0, 1),
        }
    }
}

/// Accumulators of parameter gradients: `chunks` pairs of `len` numbers, first `Σ g·x̂` (the weight's), then `Σ g` (the
/// bias's).
#[derive(Clone, Copy)]
pub(super) struct GradientSums<'a> {
    scratch: Scratch<'a>,
    region: Region,
    chunks: usize,
    len: usize,
}

/// Accumulators that one task adds up over the chunks.
const SLICE: usize = 512;

impl<'a> GradientSums<'a> {
    pub(super) fn new(
        scratch: Scratch<'a>,
        region: Region,
        chunks: usize,
        len: usize,
        crew: &Crew,
    ) -> GradientSums<'a> {
        let sums = GradientSums {
            scratch,
            region,
            chunks,
            len,
        };
        crew.for_each(chunks, |chunks| {
            for chunk in chunks {
                // SAFETY: a chunk is one task's.
                let [weight, bias] = unsafe { sums.of_chunk(chunk, 0, len) };
                weight.fill(0.0);
                bias.fill(0.0);
            }
        });
        sums
    }

    /// Numbers `start..start + count` of both accumulators of a chunk: those of the weight, those of the bias.
    ///
    /// # Safety
    /// Nobody else holds a borrow of these numbers.
    pub(super) unsafe fn of_chunk(&self, chunk: usize, start: usize, count: usize) -> [&'a mut [f64]; 2] {
        assert!(start + count <= self.len);
        // SAFETY: this function's contract; the two stretches are disjoint.
        [0, 1].map(|k| unsafe {
            self.scratch
                .slice(self.region, (chunk * 2 + k) * self.len + start, count)
        })
    }

    /// Adds up the chunks and writes the gradients; `columns` neighbouring accumulators belong to one parameter. Once, after
    /// all tasks.
    pub(super) fn finish(&self, dweight: Option<ViewMut<'_>>, dbias: Option<ViewMut<'_>>, columns: usize, crew: &Crew) {
        if self.chunks > 1 {
            crew.for_each(self.len.div_ceil(SLICE), |slices| {
                for slice in slices {
                    self.add_up(slice * SLICE, SLICE.min(self.len - slice * SLICE));
                }
            });
        }
        // SAFETY: all tasks have ended.
        let sums = unsafe { self.of_chunk(0, 0, self.len) };
        for (gradient, sums) in [dweight, dbias].into_iter().zip(sums) {
            let Some(gradient) = gradient else { continue };
            let gradient = Numbers::new(gradient);
            for (i, sums) in sums.chunks_exact(columns).enumerate() {
                // SAFETY: this is the only task.
                unsafe { gradient.set(i, sums.iter().sum()) };
            }
        }
    }

    /// Adds up some accumulators over the chunks, leaving the totals in the first.
    fn add_up(&self, start: usize, count: usize) {
        // SAFETY: these accumulators are one task's, in all chunks.
        let mut totals = unsafe { self.of_chunk(0, start, count) };
        for chunk in 1..self.chunks {
            // SAFETY: as above; this chunk is not the first.
            let more = unsafe { self.of_chunk(chunk, start, count) };
            for (totals, more) in totals.iter_mut().zip(more) {
                totals.iter_mut().zip(more).for_each(|(total, more)| *total += *more);
            }
        }
    }
}
