//! Rows: a group is `outer` segments of `inner` contiguous elements; vector lanes go along a segment.
//!
//! A group is cut into *blocks* of at most a few thousand elements (whole segments, or a piece of one), and the blocks are
//! collected into *parts*. A second pass over a block, if any, finds it in the first-level cache; blocks and parts are merged by Chan's
//! formula in a fixed order, whoever computes them.

mod backward;
mod forward;
mod moments;

pub(super) use backward::{RowsBackward, backward};
pub(super) use forward::{RowsForward, forward};

use isonorm_math::Element;

use super::memory::Source;
use crate::Geometry;
use crate::plan::RowsPlan;

/// Where the elements of a group are.
#[derive(Clone, Copy)]
struct GroupLayout<'p> {
    plan: &'p RowsPlan,
    geometry: &'p Geometry,
    kept: usize,
    /// The offset of the group's first element.
    first: usize,
}

/// Contiguous elements of a segment.
#[derive(Clone, Copy)]
struct Piece {
    /// Offset in the tensor.
    offset: usize,
    /// Position in the segment.
    inner: usize,
    len: usize,
}

impl<'p> GroupLayout<'p> {
    #[inline(always)]
    fn new(plan: &'p RowsPlan, geometry: &'p Geometry, group: usize) -> GroupLayout<'p> {
        // A division costs as much as a short row: most often there is one batch entry.
        let batch = if group < geometry.kept {
            0
        } else {
            group / geometry.kept
        };
        let kept = group - batch * geometry.kept;
        GroupLayout {
            plan,
            geometry,
            kept,
            first: geometry.segment(batch, 0, kept),
        }
    }

    /// The group's first nine elements, which are about to be read anyway; some of them twice where there are fewer.
    #[inline(always)]
    fn samples<T: Element>(&self, x: &Source<'_, T>) -> [T::Acc; 9] {
        let g = self.geometry;
        match x.slice(self.first, g.inner.min(9)).first_chunk::<9>() {
            Some(nine) => nine.map(Element::to_acc),
            None => [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| {
                let i = i % g.group_size();
                x.at(self.first + i / g.inner * g.row() + i % g.inner)
            }),
        }
    }

    /// The index of the group's first affine parameter.
    #[inline(always)]
    fn parameter(&self) -> usize {
        self.geometry.affine.of_segment(self.kept, 0)
    }

    /// The number of pieces of a block.
    #[inline(always)]
    fn pieces(&self, block: usize) -> usize {
        let segments = self.plan.block_segments;
        if segments == 1 {
            1
        } else {
            segments.min(self.geometry.outer - block * segments)
        }
    }

    /// A piece of a block.
    #[inline(always)]
    fn piece(&self, block: usize, index: usize) -> Piece {
        let (plan, g) = (self.plan, self.geometry);
        let (segment, in_segment) = match plan.blocks_per_segment {
            1 => (block * plan.block_segments, 0),
            blocks => (block / blocks, block % blocks),
        };
        let (outer, inner) = (segment + index, in_segment * plan.block_inner);
        let len = plan.block_inner.min(g.inner - inner);
        Piece {
            offset: self.first + outer * g.row() + inner,
            inner,
            len,
        }
    }
}

impl Piece {
    /// The stretches of the piece that lie within one run of `run` elements.
    #[inline(always)]
    fn stretches(self, run: usize) -> Stretches {
        Stretches { rest: self, run }
    }
}

/// The stretches of a piece. (An iterator, and loops over it, rather than a closure: a closure is a function of its own,
/// which need not be inlined into code that has been given wider vectors.)
struct Stretches {
    rest: Piece,
    run: usize,
}

/// Contiguous elements of a run.
struct Stretch {
    /// Which run of the segment.
    run: usize,
    /// Offset in the tensor.
    offset: usize,
    len: usize,
}

impl Iterator for Stretches {
    type Item = Stretch;

    #[inline(always)]
    fn next(&mut self) -> Option<Stretch> {
        let Stretches { rest, run } = self;
        if rest.len == 0 {
            return None;
        }
        let len = (*run - rest.inner % *run).min(rest.len);
        let stretch = Stretch {
            run: rest.inner / *run,
            offset: rest.offset,
            len,
        };
        *rest = Piece {
            offset: rest.offset + len,
            inner: rest.inner + len,
            len: rest.len - len,
        };
        Some(stretch)
    }
}
