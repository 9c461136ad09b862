//! Where a row lies, and which parts of it a thread holds.

use core::marker::PhantomData;

use super::access::{Access, Data, Own, Width, width};
use super::lanes::unrolled;
use super::parameters::at_least_one;
use super::segments::{Segments, Taken};
use crate::simt::{self, WARP};

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
                let own = match A::BY_SEGMENT {
                    true => span.part_of(v).own,
                    false => span.own::<T, A>(self.before, v),
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
    /// Of segments, parts that the thread has.
    parts: u32,
    /// Of [`Ragged`](super::access::Ragged) accesses, how far behind the start of its segment, rounded down to an access, each part is.
    within: u32,
    /// Of [`Ragged`](super::access::Ragged) accesses, elements of a segment.
    length: u32,
    /// Whether the row has all of every part, wherever segments begin.
    is_whole: bool,
    /// Where each segment has accesses of its own.
    turns: Turns,
}

/// Accesses of a thread, at most, where each segment has its own.
const MOST_PARTS: usize = 8;

/// What a thread has of a row of segments with accesses of their own.
#[derive(Clone, Copy)]
struct Turns {
    /// Accesses of a segment.
    of_segment: u32,
    /// 2³² divided by that, rounded up.
    reciprocal: u32,
    /// Of part 0 if accesses are counted segment by segment, and how many further each next one is.
    first: u32,
    step: u32,
    /// Each part, packed: 0 for none.
    parts: [u32; MOST_PARTS],
}

/// A part of a row of segments with accesses of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// Which access of the row it is, if they are counted as they lie in memory; less than 2²⁴.
    access: u32,
    own: Own,
}

impl Part {
    #[inline(always)]
    fn packed(self) -> u32 {
        self.access << 8 | self.own.from << 4 | self.own.to
    }

    #[inline(always)]
    fn unpacked(packed: u32) -> Part {
        Part {
            access: packed >> 8,
            own: Own {
                from: packed >> 4 & 15,
                to: packed & 15,
            },
        }
    }
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
            turns: Turns::NONE,
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

    /// Whether the row has part `v` of `V`.
    #[inline(always)]
    pub fn has<A: Access, const V: usize>(self, v: usize) -> bool {
        match A::IS_OF_SEGMENTS {
            true if A::BY_SEGMENT => self.turns.parts[v % MOST_PARTS] != 0,
            true => (v as u32) < self.parts,
            false => (!A::SPARSE && v + 1 < V) || self.start(v) < self.columns,
        }
    }
}

impl Turns {
    /// For other rows.
    const NONE: Turns = Turns {
        of_segment: 1,
        reciprocal: 0,
        first: 0,
        step: 0,
        parts: [0; MOST_PARTS],
    };

    /// Of segments of at least two accesses, and fewer than 2¹⁶.
    #[inline(always)]
    fn new(of_segment: u32) -> Self {
        Self {
            of_segment,
            reciprocal: u32::MAX / at_least_one(of_segment) + 1,
            ..Self::NONE
        }
    }

    /// The segment of part `v`, and which of its accesses it is.
    #[inline(always)]
    fn at(self, v: usize) -> (u32, u32) {
        self.of_access(simt::opaque(self.first) + v as u32 * simt::opaque(self.step))
    }

    /// The segment of one of fewer than 2¹⁶ accesses, and which one of its own it is. The upper half of the product is the quotient, as what
    /// rounding adds to it is less than 2³² in all.
    #[inline(always)]
    fn of_access(self, access: u32) -> (u32, u32) {
        let segment = ((u64::from(access) * u64::from(self.reciprocal)) >> 32) as u32;
        (segment, access - segment * self.of_segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_half_of_a_product_is_the_quotient() {
        for of_segment in [2, 4, 8, 16, 32, 64, 96, 416, 4096, 16_288, 65_504] {
            let turns = Turns::new(of_segment);
            for access in 0..1 << 16 {
                let expected = (access / of_segment, access % of_segment);
                assert_eq!(turns.of_access(access), expected);
            }
        }
    }

    #[test]
    fn parts_are_what_was_packed() {
        for (access, from, to) in [(0, 0, 1), (1, 7, 8), ((1 << 24) - 1, 3, 4)] {
            let part = Part {
                access,
                own: Own { from, to },
            };
            assert_eq!(Part::unpacked(part.packed()), part);
        }
    }
}
