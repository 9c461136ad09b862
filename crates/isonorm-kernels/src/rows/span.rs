//! Where a row lies, and which parts of it a thread holds.

use core::marker::PhantomData;

use super::access::{Access, Data, Own, Width, width};
use super::lanes::unrolled;
use super::parameters::at_least_one;
use super::ring::{Ends, end_places};
use super::segments::Segments;
use super::team::Owner;
use super::turns::{MOST_PARTS, Part, Turns};
use crate::simt;

/// Where a row of a tensor lies, for accesses of a kind.
pub(super) struct Place<T, A> {
    /// The tensor's start; where each segment has accesses of its own, the row's.
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
        let base = match A::BY_SEGMENT {
            // The start of the row, once for all parts.
            true => base
                .wrapping_add((row * stride) as usize)
                .map_addr(|address| simt::opaque_64(address as u64) as usize),
            false => base,
        };
        Self {
            base,
            row,
            stride,
            before: match A::IS_OF_SEGMENTS {
                true if A::BY_SEGMENT => 0,
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
            true if A::BY_SEGMENT => {
                // From the start of the row, before which an access may begin.
                let (column, _) = span.columns_of::<T, A>(v);
                self.base.wrapping_offset(column as isize)
            }
            true => self.base.wrapping_add(span.element::<T, A>(self.before, v) as usize),
            false => {
                let row = self.base.wrapping_add((self.row * self.stride) as usize);
                row.wrapping_add(span.start(v) as usize)
            }
        }
    }

    /// How many elements the tensor has from part `v` on, or a segment of a contiguous row, if fewer than an access.
    #[inline(always)]
    pub(super) fn left(self, span: Span, v: usize) -> Option<u32> {
        match A::WIDTH {
            Width::Ragged if A::BY_SEGMENT => {
                let Own { to, .. } = span.part_of(v).own;
                (to < width::<T, A>()).then_some(to)
            }
            Width::Ragged if v == 0 => {
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
            Width::Ragged if A::BY_SEGMENT && span.is_whole => None,
            Width::Ragged if A::BY_SEGMENT || v == 0 => {
                let own = match A::BY_SEGMENT {
                    true => span.part_of(v).own,
                    false => span.own_of_end::<T, A>(self.before),
                };
                (!own.is_whole(width::<T, A>())).then_some(own)
            }
            _ => None,
        }
    }
}

/// Which parts of a row a thread holds: neighbouring threads access neighbouring memory.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Where the first part starts; of [`Ragged`](super::access::Ragged) accesses, where its segment does, or, where each has accesses of its own,
    /// how far behind the start of an access rows start.
    own: u32,
    step: u32,
    columns: u32,
    /// Of segments, parts that the thread has, but for an end.
    parts: u32,
    /// Of [`Ragged`](super::access::Ragged) accesses, how far behind the start of its segment, rounded down to an access, each part is.
    within: u32,
    /// Of [`Ragged`](super::access::Ragged) accesses, elements of a segment.
    length: u32,
    /// Of [`Ragged`](super::access::Ragged) accesses, part 0.
    end: End,
    /// Where each segment has accesses of its own, whether the row has all of every part.
    is_whole: bool,
    /// Where each segment has accesses of its own.
    turns: Turns,
}

/// An access that may begin before its segment, or end behind it.
#[derive(Clone, Copy)]
struct End {
    /// Where the segment starts.
    segment: u32,
    /// How far behind that, rounded down to an access, it is.
    within: u32,
    /// Threads for each such access.
    apart: u32,
}

impl End {
    /// None.
    const NONE: End = End {
        segment: 0,
        within: u32::MAX,
        apart: 1,
    };
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
            end: End::NONE,
            is_whole: true,
            turns: Turns::NONE,
        }
    }

    /// Of thread `rank` of `threads`, to whole segments, as many at once as there are threads for. Elements are counted with those that lie
    /// between. Where segments begin anywhere, part 0 is what they may have a part of only.
    #[inline(always)]
    pub fn of_segments<T: Data, A: Access>(rank: u32, threads: u32, segments: Segments) -> Self {
        let (end_of_row, bytes) = (segments.count * segments.stride, size_of::<T>() as u32);
        let at_once = segments.at_once(threads, A::WIDTH, bytes);
        let (segment, access) = segments.whole_of::<T, A>(rank);
        // What a thread beyond the segments has here is not used.
        let (start, within) = (segment.wrapping_mul(segments.stride), access * width::<T, A>());
        let has_whole = !A::HAS_ENDS || segments.whole_accesses(A::WIDTH, bytes) > 0;
        let end = match A::HAS_ENDS {
            true => segments.end_of::<T, A>(rank, threads),
            false => None,
        };
        Self {
            own: match A::WIDTH {
                Width::Ragged => start,
                _ => start.wrapping_add(within),
            },
            step: at_once.wrapping_mul(segments.stride),
            columns: end_of_row,
            parts: match segment < at_once && has_whole {
                true => segments
                    .count
                    .saturating_sub(segment)
                    .div_ceil(at_least_one(at_once).get()),
                false => 0,
            },
            within,
            length: segments.length,
            end: end.map_or(End::NONE, |(segment, access)| End {
                segment: segment * segments.stride,
                within: access * width::<T, A>(),
                apart: segments.ends_apart::<T, A>(threads),
            }),
            is_whole: true,
            turns: Turns::NONE,
        }
    }

    /// Of the `block`th of those that share a contiguous row, of segments with accesses of their own: part `v` of `V` of thread `rank` of the `threads`
    /// that the block has for it has access `(block · V + v) · threads + rank` of all. Rows start `lead` elements behind the start of an access.
    #[inline(always)]
    pub fn by_segment<T: Data, A: Access, const V: usize>(
        (block, rank, threads): (u32, u32, u32),
        lead: u32,
        segments: Segments,
    ) -> Self {
        const { assert!(!A::BY_SEGMENT || V <= MOST_PARTS) };
        let (bytes, width) = (size_of::<T>() as u32, width::<T, A>());
        let mut turns = Turns::new(segments.threads_of_each(A::WIDTH, bytes));
        turns.first = block * V as u32 * threads + rank;
        turns.step = threads;
        unrolled::<V>(|v| {
            let (segment, within) = turns.at(v);
            let start = lead + segment * segments.length;
            // Of the segment, behind the start of the access.
            let (before, behind) = (start % width, within * width);
            let to = (before + segments.length).saturating_sub(behind).min(width);
            if segment < segments.count && to > 0 {
                let part = Part {
                    access: start / width + within,
                    own: Own {
                        from: if within == 0 { before } else { 0 },
                        to,
                    },
                };
                turns.parts[v % MOST_PARTS] = part.packed();
            }
        });
        Self {
            own: lead,
            is_whole: segments.length.is_multiple_of(width),
            turns,
            ..Self::new(0, 0, 0, segments.count * segments.length)
        }
    }

    /// Part `v` of what a thread has of segments with accesses of their own. Unpacked here: what follows from it is the same for all rows, and
    /// would be kept in registers.
    #[inline(always)]
    fn part_of(self, v: usize) -> Part {
        Part::unpacked(simt::opaque(self.turns.parts[v % MOST_PARTS]))
    }

    /// The first column of part `v` of a contiguous row that begins anywhere, before the row's first perhaps, and which of them the row has.
    #[inline(always)]
    pub fn columns_of<T: Data, A: Access>(self, v: usize) -> (i32, Own) {
        let Part { access, own } = self.part_of(v);
        ((access * width::<T, A>()) as i32 - self.own as i32, own)
    }

    /// What a row of segments with accesses of their own has of its first access.
    #[inline(always)]
    pub fn first_own<T: Data, A: Access>(self) -> Own {
        Own {
            from: self.own,
            ..Own::all_of(width::<T, A>())
        }
    }

    /// Of segments with accesses of their own, which one part `v` belongs to, and which of its accesses it is.
    #[inline(always)]
    pub fn turn(self, v: usize) -> (u32, u32) {
        self.turns.at(v)
    }

    /// The element of a tensor where part `v` of a row in segments is, with so many before the row.
    #[inline(always)]
    fn element<T: Data, A: Access>(self, before: u32, v: usize) -> u32 {
        let (segment, within) = match A::WIDTH {
            Width::Ragged if v == 0 => (simt::opaque(self.end.segment), self.end.within),
            Width::Ragged => (self.start_here(v - 1), self.within),
            _ => return before.wrapping_add(self.start_here(v)),
        };
        let start = before.wrapping_add(segment);
        (start - start % width::<T, A>()).wrapping_add(within)
    }

    /// Where a block keeps the part 0 of its threads: the first threads that have one before others.
    #[inline(always)]
    pub(super) fn ends(self, owner: Owner) -> Ends {
        Ends {
            places: end_places(simt::block_threads(), owner),
            own: simt::thread_index() / at_least_one(self.end.apart),
        }
    }

    /// Which elements the row has of part 0, with so many elements of a tensor before it.
    #[inline(always)]
    fn own_of_end<T: Data, A: Access>(self, before: u32) -> Own {
        let (elements, End { segment, within, .. }) = (width::<T, A>(), self.end);
        // Of its segment, behind the start of an access.
        let lead = before.wrapping_add(simt::opaque(segment)) % elements;
        Own {
            from: if within == 0 { lead } else { 0 },
            to: (lead + self.length).saturating_sub(within).min(elements),
        }
    }

    /// The first element of part `v`, computed here: addresses that are variables of a loop over rows take two registers each. Of a part that
    /// the row does not have it is any number.
    #[inline(always)]
    pub fn start_here(self, v: usize) -> u32 {
        simt::opaque(self.own).wrapping_add((v as u32).wrapping_mul(simt::opaque(self.step)))
    }

    /// The parts behind so many.
    #[inline(always)]
    pub fn behind(self, parts: u32) -> Self {
        Self {
            own: self.own + parts * self.step,
            ..self
        }
    }

    /// The same, of which the compiler does not know that: what is computed from it is computed again instead of kept in registers.
    #[inline(always)]
    pub fn anew(self) -> Self {
        Self {
            own: simt::opaque(self.own),
            step: simt::opaque(self.step),
            ..self
        }
    }

    /// The first element of part `v`.
    #[inline(always)]
    pub fn start(self, v: usize) -> u32 {
        self.own + v as u32 * self.step
    }

    /// Whether a row in segments that begin anywhere has part `v`.
    #[inline(always)]
    fn has_with_end(self, v: usize) -> bool {
        match v {
            0 => self.end.within != End::NONE.within,
            _ => (v as u32) <= self.parts,
        }
    }

    /// Whether the row has part `v` of `V`.
    #[inline(always)]
    pub fn has<A: Access, const V: usize>(self, v: usize) -> bool {
        match A::IS_OF_SEGMENTS {
            true if A::BY_SEGMENT => self.turns.parts[v % MOST_PARTS] != 0,
            true if A::HAS_ENDS => self.has_with_end(v),
            true => (v as u32) < self.parts,
            false => (!A::SPARSE && v + 1 < V) || self.start(v) < self.columns,
        }
    }
}
