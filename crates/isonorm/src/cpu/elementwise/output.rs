//! How results of a chunk are computed, rounded, and brought where they belong.

use isonorm_math::{Element, Real};

use super::{CHUNK, Dest};
use crate::cpu::isa::Vectors;
use crate::cpu::same::same_mut;

/// Working space for an output of a chunk: before it is rounded, and before it is moved where it belongs.
#[repr(align(64))]
pub(in crate::cpu) struct OutputSpace<T: Element> {
    computed: [T::Acc; CHUNK],
    stored: [T; CHUNK],
}

impl<T: Element> OutputSpace<T> {
    #[inline(always)]
    pub(in crate::cpu) fn new() -> OutputSpace<T> {
        OutputSpace {
            computed: [T::Acc::ZERO; CHUNK],
            stored: [T::default(); CHUNK],
        }
    }
}

/// An output of a chunk while it is computed.
pub(super) struct Output<'s, 'a, T: Element> {
    dest: &'s Dest<'a, T>,
    at: (usize, usize),
    route: Route,
    space: &'s mut OutputSpace<T>,
}

impl<'s, 'a, T: Element> Output<'s, 'a, T> {
    #[inline(always)]
    pub(super) fn new(
        dest: &'s Dest<'a, T>,
        route: Route,
        at: (usize, usize),
        space: &'s mut OutputSpace<T>,
    ) -> Output<'s, 'a, T> {
        Output {
            dest,
            at,
            route: route.of_chunk(dest, at),
            space,
        }
    }

    /// Where to compute it.
    ///
    /// # Safety
    /// As for [`Route::first`].
    #[inline(always)]
    pub(super) unsafe fn place(&mut self) -> &mut [T::Acc] {
        let OutputSpace { computed, stored } = &mut *self.space;
        // SAFETY: this function's contract.
        let to = unsafe { self.route.first(self.dest, self.at, stored) };
        match same_mut(to) {
            Some(to) => to,
            None => &mut computed[..self.at.1],
        }
    }

    /// Where to put it when it is rounded at once.
    ///
    /// # Safety
    /// As for [`Route::first`].
    #[inline(always)]
    pub(super) unsafe fn rounded(&mut self) -> &mut [T] {
        // SAFETY: this function's contract.
        unsafe { self.route.first(self.dest, self.at, &mut self.space.stored) }
    }

    /// Rounds what was computed, and moves it where it belongs.
    ///
    /// # Safety
    /// As for [`Output::finish_rounded`].
    #[inline(always)]
    pub(super) unsafe fn finish(self, vectors: Vectors) {
        let OutputSpace { computed, stored } = &mut *self.space;
        if rounds::<T>() {
            // SAFETY: this function's contract.
            let to = unsafe { self.route.first(self.dest, self.at, stored) };
            vectors.round(&computed[..self.at.1], to);
        }
        // SAFETY: this function's contract.
        unsafe { self.finish_rounded(vectors) };
    }

    /// Moves what is rounded where it belongs.
    ///
    /// # Safety
    /// No other task touches these elements, and this task holds no borrow of them.
    #[inline(always)]
    pub(super) unsafe fn finish_rounded(self, vectors: Vectors) {
        // SAFETY: this function's contract.
        unsafe { self.route.finish(self.dest, self.at, &self.space.stored, vectors) };
    }
}

/// Whether results are rounded to the type that is stored, by instructions of their own.
pub(in crate::cpu) const fn rounds<T: Element>() -> bool {
    size_of::<T>() < size_of::<T::Acc>()
}

/// Results shorter than this are not worth storing past the caches when they do not begin on a cache line: the pieces of lines
/// at both ends cost more than the whole lines between them save.
const SHORTEST_STREAM_BYTES: usize = 1024;

/// How results reach their destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Written where they belong.
    Straight,
    /// Collected, then copied over the input that they replace.
    InPlace,
    /// Collected, then stored past the caches.
    Stream,
}

impl Route {
    pub(super) fn new(in_place: bool, streaming: bool) -> Route {
        match (in_place, streaming) {
            (true, _) => Route::InPlace,
            (false, true) => Route::Stream,
            (false, false) => Route::Straight,
        }
    }

    /// The route of results for elements `offset..offset + len` of `to`.
    #[inline(always)]
    fn of_chunk<T: Element>(self, to: &Dest<'_, T>, (offset, len): (usize, usize)) -> Route {
        if self == Route::Stream && len * size_of::<T>() < SHORTEST_STREAM_BYTES && to.past_line(offset) != 0 {
            Route::Straight
        } else {
            self
        }
    }

    /// Where to write the results for elements `offset..offset + len` of `to` first.
    ///
    /// # Safety
    /// No other task touches these elements, and this task holds no other borrow of them unless the route is another than
    /// [`Route::Straight`].
    #[inline(always)]
    unsafe fn first<'s, T: Element>(
        self,
        to: &'s Dest<'_, T>,
        (offset, len): (usize, usize),
        staging: &'s mut [T; CHUNK],
    ) -> &'s mut [T] {
        match self {
            // SAFETY: this function's contract.
            Route::Straight => unsafe { to.slice(offset, len) },
            Route::InPlace | Route::Stream => &mut staging[..len],
        }
    }

    /// Moves on what was collected.
    ///
    /// # Safety
    /// No other task touches these elements, and this task holds no borrow of them.
    #[inline(always)]
    unsafe fn finish<T: Element>(
        self,
        to: &Dest<'_, T>,
        (offset, len): (usize, usize),
        staging: &[T; CHUNK],
        vectors: Vectors,
    ) {
        // SAFETY: this function's contract.
        let to = || unsafe { to.slice(offset, len) };
        match self {
            Route::Straight => {}
            Route::InPlace => to().copy_from_slice(&staging[..len]),
            Route::Stream => vectors.stream(&staging[..len], to()),
        }
    }
}
