//! Where a row lies, and which parts of it a thread holds.

use core::marker::PhantomData;

use super::access::{Access, Data, Own, Width, width};
use super::parameters::at_least_one;
use super::segments::{Segments, Taken};
use crate::simt::{self, WARP};

/// Where a row of a tensor lies, for accesses of a kind.
pub(super) struct Place<T, A> {
    base: *const T,
    row: u64,
    stride: u64,
    /// Of rows in segments, elements of the tensor before it. Computed once, here: there may be no registers for the addresses of all parts, but
    /// for this. Otherwise the compiler sees to that, where parts are used.
    before: u32,
    of: PhantomData<A>,
}

impl<T, A> Clone for Place<T, A> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, A> Copy for Place<T, A> {}

impl<T: Data, A: Access> Place<T, A> {
    /// Of a tensor with so many elements from a row to the next.
    #[inline(always)]
    pub(super) fn new(base: *const T, row: u64, stride: u64) -> Self {
        Self {
            base,
            row,
            stride,
            before: match A::IS_OF_SEGMENTS {
                true => simt::opaque((row as u32).wrapping_mul(stride as u32)),
                false => 0,
            },
            of: PhantomData,
        }
    }

    /// Part `v` of what a thread holds.
    #[inline(always)]
    pub(super) fn part(self, span: Span, v: usize) -> *const T {
        match A::IS_OF_SEGMENTS {
            true => self.base.wrapping_add(span.element::<T, A>(self.before, v) as usize),
            false => {
                let row = self.base.wrapping_add((self.row * self.stride) as usize);
                row.wrapping_add(span.start(v) as usize)
            }
        }
    }

    /// How many elements the tensor has from part `v` on, if fewer than an access.
    #[inline(always)]
    pub(super) fn left(self, span: Span, v: usize) -> Option<u32> {
        match A::WIDTH {
            Width::Ragged => {
                let left = span.columns.saturating_sub(span.element::<T, A>(self.before, v));
                (left < width::<T, A>()).then_some(left)
            }
            _ => None,
        }
    }

    /// Which elements of part `v` the row has, if not all.
    #[inline(always)]
    pub(super) fn own(self, span: Span, v: usize) -> Option<Own> {
        match A::WIDTH {
            Width::Ragged if !span.is_whole => {
                let own = span.own::<T, A>(self.before, v);
                (!own.is_whole(width::<T, A>())).then_some(own)
            }
            _ => None,
        }
    }
}

/// Which parts of a row a thread holds: neighbouring threads access neighbouring memory.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Where the first part starts; of [`Ragged`](super::access::Ragged) accesses, where its segment does.
    own: u32,
    step: u32,
    columns: u32,
    /// Of segments, parts that the thread has.
    parts: u32,
    /// Of [`Ragged`](super::access::Ragged) accesses, how far behind the start of its segment, rounded down to an access, each part is.
    within: u32,
    /// Of [`Ragged`](super::access::Ragged) accesses, elements of a segment.
    length: u32,
    /// Whether the row has all of every part, wherever segments begin.
    is_whole: bool,
}

impl Span {
    /// Of thread `rank` of `threads`, in accesses of `width` elements: part `v` of thread `t` starts at element
    /// `(v · threads + t) · width`.
    #[inline(always)]
    pub fn new(rank: u32, threads: u32, width: u32, columns: u32) -> Self {
        Self {
            own: rank * width,
            step: threads * width,
            columns,
            parts: 0,
            within: 0,
            length: columns,
            is_whole: true,
        }
    }

    /// The same threads, where each warp has a stretch of the row: part `v` of lane `l` of warp `w` of those starts at element
    /// `((w · parts + v) · 32 + l) · width`.
    #[inline(always)]
    pub fn of_stretches(rank: u32, parts: u32, width: u32, columns: u32) -> Self {
        Self {
            own: (rank / WARP * parts * WARP + rank % WARP) * width,
            ..Self::new(rank, WARP, width, columns)
        }
    }

    /// Of thread `rank` of `threads`, to whole segments, as many at once as there are threads for. Elements are counted with those that lie
    /// between.
    #[inline(always)]
    pub fn of_segments<T: Data, A: Access>(rank: u32, threads: u32, segments: Segments) -> Self {
        let (end, bytes) = (segments.count * segments.stride, size_of::<T>() as u32);
        let at_once = segments.at_once(threads, A::WIDTH, bytes);
        let Taken {
            segment,
            access,
            is_whole,
        } = segments.taken::<T, A>(rank, at_once);
        // What a thread beyond the segments has here is not used.
        let (start, within) = (segment.wrapping_mul(segments.stride), access * width::<T, A>());
        Self {
            own: match A::WIDTH {
                Width::Ragged => start,
                _ => start.wrapping_add(within),
            },
            step: at_once.wrapping_mul(segments.stride),
            columns: end,
            parts: match segment < at_once {
                true => segments
                    .count
                    .saturating_sub(segment)
                    .div_ceil(at_least_one(at_once).get()),
                false => 0,
            },
            within,
            length: segments.length,
            is_whole,
        }
    }

    /// The element of a tensor where part `v` of a row in segments is, with so many before the row.
    #[inline(always)]
    fn element<T: Data, A: Access>(self, before: u32, v: usize) -> u32 {
        let start = before.wrapping_add(self.start_here(v));
        match A::WIDTH {
            Width::Ragged => start - start % width::<T, A>() + self.within,
            _ => start,
        }
    }

    /// Which elements the row has of part `v`.
    #[inline(always)]
    fn own<T: Data, A: Access>(self, before: u32, v: usize) -> Own {
        let elements = width::<T, A>();
        // Of its segment, behind the start of an access.
        let lead = before.wrapping_add(self.start_here(v)) % elements;
        Own {
            from: if self.within == 0 { lead } else { 0 },
            to: (lead + self.length).saturating_sub(self.within).min(elements),
        }
    }

    /// The first element of part `v`, computed here: addresses that are variables of a loop over rows take two registers each. Of a part that
    /// the row does not have it is any number.
    #[inline(always)]
    pub fn start_here(self, v: usize) -> u32 {
        simt::opaque(self.own).wrapping_add((v as u32).wrapping_mul(simt::opaque(self.step)))
    }

    /// The first element of part `v`.
    #[inline(always)]
    pub fn start(self, v: usize) -> u32 {
        self.own + v as u32 * self.step
    }

    /// Whether the row has part `v` of `V`.
    #[inline(always)]
    pub fn has<A: Access, const V: usize>(self, v: usize) -> bool {
        match A::IS_OF_SEGMENTS {
            true => (v as u32) < self.parts,
            false => (!A::SPARSE && v + 1 < V) || self.start(v) < self.columns,
        }
    }
}
