//! Where a row lies, and which parts of it a thread holds.

use super::access::{Access, Data, Own, Width, width};
use super::parameters::at_least_one;
use super::segments::Segments;
use crate::simt::{self, WARP};

/// Where a row of a tensor lies.
#[derive(Clone, Copy)]
pub(super) struct Place<T> {
    /// Its first element, or, where that is computed for each part, the tensor's.
    start: *const T,
    row: u64,
    stride: u64,
    is_segmented: bool,
}

impl<T> Place<T> {
    /// A row that is one of many. Where it lies in segments its address is computed once, here: there may be no registers for all parts',
    /// but for this one. Otherwise the compiler sees to that, where parts are used.
    #[inline(always)]
    pub(super) fn new(base: *const T, (row, stride): (u64, u64), is_segmented: bool) -> Self {
        let start = base.wrapping_add((row * stride) as usize);
        Self {
            start: match is_segmented {
                true => start.with_addr(simt::opaque_64(start.addr() as u64) as usize),
                false => base,
            },
            row,
            stride,
            is_segmented,
        }
    }

    /// Elements of the tensor before it.
    #[inline(always)]
    pub(super) fn before(self) -> u64 {
        self.row * self.stride
    }

    /// The element so many behind the first.
    #[inline(always)]
    pub(super) fn element(self, index: i64) -> *const T {
        let start = match self.is_segmented {
            true => self.start,
            false => self.start.wrapping_add(self.before() as usize),
        };
        start.wrapping_offset(index as isize)
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
        }
    }

    /// The same threads, where each warp has a stretch of the row: part `v` of lane `l` of warp `w` of those starts at element
    /// `((w · parts + v) · 32 + l) · width`.
    #[inline(always)]
    pub fn of_stretches(rank: u32, parts: u32, width: u32, columns: u32) -> Self {
        Self {
            own: (rank / WARP * parts * WARP + rank % WARP) * width,
            step: WARP * width,
            columns,
            parts: 0,
            within: 0,
            length: columns,
        }
    }

    /// Of thread `rank` of `threads`, to whole segments, as many at once as there are threads for. Elements are counted with those that lie
    /// between.
    #[inline(always)]
    pub fn of_segments<T: Data, A: Access>(rank: u32, threads: u32, segments: Segments) -> Self {
        let (end, bytes) = (segments.count * segments.stride, size_of::<T>() as u32);
        let accesses = at_least_one(A::WIDTH.of_segment(segments.length, bytes));
        let (at_once, segment) = (segments.at_once(threads, A::WIDTH, bytes), rank / accesses);
        // What a thread beyond the segments has here is not used.
        let (start, within) = (segment.wrapping_mul(segments.stride), rank % accesses * width::<T, A>());
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
        }
    }

    /// Where part `v` is of the segments of a row, behind the row's start, which is `row` elements behind a tensor's.
    #[inline(always)]
    pub fn of_row<T: Data, A: Access>(self, row: u64, v: usize) -> i64 {
        let start = i64::from(self.start_here(v));
        match A::WIDTH {
            Width::Ragged => start + i64::from(self.within) - i64::from(self.lead::<T, A>(row, v)),
            _ => start,
        }
    }

    /// Elements of part `v`'s segment that lie behind the start of an access.
    #[inline(always)]
    fn lead<T: Data, A: Access>(self, row: u64, v: usize) -> u32 {
        (row as u32).wrapping_add(self.start_here(v)) % width::<T, A>()
    }

    /// Which elements of part `v` the row has.
    #[inline(always)]
    pub fn own<T: Data, A: Access>(self, row: u64, v: usize) -> Own {
        let elements = width::<T, A>();
        match A::WIDTH {
            Width::Ragged => {
                let lead = self.lead::<T, A>(row, v);
                Own {
                    from: if self.within == 0 { lead } else { 0 },
                    to: (lead + self.length).saturating_sub(self.within).min(elements),
                }
            }
            _ => Own::all_of(elements),
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
