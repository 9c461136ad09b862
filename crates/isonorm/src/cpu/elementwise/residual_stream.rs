//! The residual stream of a pre-norm transformer: `x + residual`, rounded to the data's type, which is an output and is what is
//! normalized.

use isonorm_math::Element;

use super::output::{Output, OutputSpace, Route};
use super::{Chunks, Dest, Source};
use crate::cpu::isa::Vectors;

/// What is added, and where the sum goes.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct ResidualStream<'a, T> {
    x: Source<'a, T>,
    residual: Source<'a, T>,
    to: Dest<'a, T>,
    route: Route,
    vectors: Vectors,
}

impl<'a, T: Element> ResidualStream<'a, T> {
    /// `to` may be `residual`, and says so by `in_place`.
    pub(in crate::cpu) fn new(
        x: Source<'a, T>,
        (residual, to, in_place): (Source<'a, T>, Dest<'a, T>, bool),
        vectors: Vectors,
    ) -> ResidualStream<'a, T> {
        ResidualStream {
            x,
            residual,
            to,
            // Not past the caches: it is read again at once.
            route: Route::new(in_place, false),
            vectors,
        }
    }

    /// Adds the `len` elements at `offset`.
    ///
    /// # Safety
    /// No other task touches these elements.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn add(&self, (offset, len): (usize, usize), space: &mut OutputSpace<T>) {
        for (start, len) in Chunks::new(len, 0) {
            let at = (offset + start, len);
            let (x, residual) = (self.x.slice(at.0, len), self.residual.slice(at.0, len));
            let OutputSpace { computed, staging } = &mut *space;
            let mut stream = Output::new(&self.to, self.route, at, false, staging);
            // SAFETY: this function's contract; in place the route is another than straight.
            let to = &mut unsafe { stream.place(computed) }[..len];
            for i in 0..len {
                to[i] = x[i].to_acc() + residual[i].to_acc();
            }
            // SAFETY: this function's contract; no borrow of these elements is used any more.
            unsafe { stream.finish(computed, self.vectors) };
        }
    }
}
