//! What a thread has of a row of segments with accesses of their own.

use super::access::Own;
use super::parameters::at_least_one;
use crate::simt;

/// Accesses of a thread, at most, where each segment has its own.
pub(super) const MOST_PARTS: usize = 8;

/// What a thread has of a row of segments with accesses of their own.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    /// Accesses of a segment.
    of_segment: u32,
    /// 2³² divided by that, rounded up.
    reciprocal: u32,
    /// Of part 0 if accesses are counted segment by segment, and how many further each next one is.
    pub(super) first: u32,
    pub(super) step: u32,
    /// Each part, packed: 0 for none.
    pub(super) parts: [u32; MOST_PARTS],
}

/// A part of a row of segments with accesses of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Which access of the row it is, if they are counted as they lie in memory; less than 2²⁴.
    pub(super) access: u32,
    pub(super) own: Own,
}

impl Part {
    #[inline(always)]
    pub(super) fn packed(self) -> u32 {
        self.access << 8 | self.own.from << 4 | self.own.to
    }

    #[inline(always)]
    pub(super) fn unpacked(packed: u32) -> Part {
        Part {
            access: packed >> 8,
            own: Own {
                from: packed >> 4 & 15,
                to: packed & 15,
            },
        }
    }
}

impl Turns {
    /// For other rows.
    pub(super) const NONE: Turns = Turns {
        of_segment: 1,
        reciprocal: 0,
        first: 0,
        step: 0,
        parts: [0; MOST_PARTS],
    };

    /// Of segments of at least two accesses, and fewer than 2¹⁶.
    #[inline(always)]
    pub(super) fn new(of_segment: u32) -> Self {
        Self {
            of_segment,
            reciprocal: u32::MAX / at_least_one(of_segment) + 1,
            ..Self::NONE
        }
    }

    /// The segment of part `v`, and which of its accesses it is.
    #[inline(always)]
    pub(super) fn at(self, v: usize) -> (u32, u32) {
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
