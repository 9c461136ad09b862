//! How results of a chunk are computed, rounded, and brought where they belong.

use isonorm_math::{Element, Real};

use super::{CHUNK, Dest};
use crate::cpu::isa::Vectors;
use crate::cpu::same::same_mut;
use crate::cpu::stream::Stores;

/// Working space for an output of a chunk, where it is collected before it is moved where it belongs.
pub(in crate::cpu) type Staging<T> = [T; CHUNK];

/// Working space for an output that is computed in stages: before it is rounded, and before it is moved where it belongs.
#[repr(align(64))]
pub(in crate::cpu) struct OutputSpace<T: Element> {
    pub(super) computed: [T::Acc; CHUNK],
    pub(super) staging: Staging<T>,
}

impl<T: Element> OutputSpace<T> {
    #[inline(always)]
    pub(in crate::cpu) fn new() -> OutputSpace<T> {
        OutputSpace {
            computed: [T::Acc::ZERO; CHUNK],
            staging: [T::default(); CHUNK],
        }
    }
}

/// An output of a chunk while it is computed.
pub(super) struct Output<'s, 'a, T: Element> {
    dest: &'s Dest<'a, T>,
    at: (usize, usize),
    route: Route,
    staging: &'s mut Staging<T>,
}

impl<'s, 'a, T: Element> Output<'s, 'a, T> {
    /// `in_strips`: it will be stored from registers, all but the chunk's last elements by strips that begin where the chunk does.
    #[inline(always)]
    pub(super) fn new(
        dest: &'s Dest<'a, T>,
        route: Route,
        at: (usize, usize),
        in_strips: bool,
        staging: &'s mut Staging<T>,
    ) -> Output<'s, 'a, T> {
        Output {
            dest,
            at,
            route: route.of_chunk(dest, at, in_strips),
            staging,
        }
    }

    /// Where to compute it, in stages.
    ///
    /// # Safety
    /// As for [`Route::first`].
    #[inline(always)]
    pub(super) unsafe fn place<'c>(&'c mut self, computed: &'c mut [T::Acc; CHUNK]) -> &'c mut [T::Acc] {
        let len = self.at.1;
        // SAFETY: this function's contract.
        match same_mut(unsafe { self.rounded() }) {
            Some(to) => to,
            None => &mut computed[..len],
        }
    }

    /// Where to put it when it is rounded at once.
    ///
    /// # Safety
    /// As for [`Route::first`].
    #[inline(always)]
    pub(super) unsafe fn rounded(&mut self) -> &mut [T] {
        // SAFETY: this function's contract.
        unsafe { self.route.first(self.dest, self.at, self.staging) }
    }

    /// Whether to put it there past the caches.
    #[inline(always)]
    pub(super) fn is_past_caches(&self) -> bool {
        self.route.is_past_caches::<T>()
    }

    /// How to put it there, as a value.
    #[inline(always)]
    pub(super) fn stores(&self, vectors: Vectors) -> Stores {
        Stores {
            vectors,
            past_caches: self.is_past_caches(),
        }
    }

    /// Rounds what was computed in stages, and moves it where it belongs.
    ///
    /// # Safety
    /// As for [`Output::finish_rounded`].
    #[inline(always)]
    pub(super) unsafe fn finish(mut self, computed: &[T::Acc; CHUNK], vectors: Vectors) {
        if rounds::<T>() {
            let len = self.at.1;
            // SAFETY: this function's contract.
            vectors.round(&computed[..len], unsafe { self.rounded() });
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
        unsafe { self.route.finish(self.dest, self.at, self.staging, vectors) };
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
    /// Stored past the caches from registers. Numbers that are rounded take the instructions that this would save.
    PastCaches,
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
    fn of_chunk<T: Element>(self, to: &Dest<'_, T>, (offset, len): (usize, usize), in_strips: bool) -> Route {
        if self != Route::Stream {
            return self;
        }
        match to.past_line(offset) {
            0 if in_strips && !rounds::<T>() => Route::PastCaches,
            0 => Route::Stream,
            _ if len * size_of::<T>() < SHORTEST_STREAM_BYTES => Route::Straight,
            _ => Route::Stream,
        }
    }

    /// Whether results go past the caches from registers.
    #[inline(always)]
    fn is_past_caches<T: Element>(self) -> bool {
        !rounds::<T>() && self == Route::PastCaches
    }

    /// Where to write the results for elements `offset..offset + len` of `to` first.
    ///
    /// # Safety
    /// No other task touches these elements, and this task holds no other borrow of them unless the route is another than
    /// [`Route::Straight`] or [`Route::PastCaches`].
    #[inline(always)]
    unsafe fn first<'s, T: Element>(
        self,
        to: &'s Dest<'_, T>,
        (offset, len): (usize, usize),
        staging: &'s mut Staging<T>,
    ) -> &'s mut [T] {
        match self {
            // SAFETY: this function's contract.
            Route::Straight | Route::PastCaches => unsafe { to.slice(offset, len) },
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
        staging: &Staging<T>,
        vectors: Vectors,
    ) {
        // SAFETY: this function's contract.
        let to = || unsafe { to.slice(offset, len) };
        match self {
            Route::Straight | Route::PastCaches => {}
            Route::InPlace => to().copy_from_slice(&staging[..len]),
            Route::Stream => vectors.stream(&staging[..len], to()),
        }
    }
}
