//! What kernels of a backward pass are told.

use crate::grid::Peers;
use crate::rows::access::Data;
use crate::rows::epilogue::Told;
use crate::rows::parameters::Affine;
use crate::rows::segments::Segments;

/// What a kernel is told at launch. Strides are from row to row, in elements; null pointers leave a part out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// `[rows, columns]`: what was normalized.
    pub x: *const T,
    /// `[rows, columns]`
    pub dy: *const T,
    /// `[rows, columns]`, what was added before the activation; or null.
    pub residual: *const T,
    /// `[rows, columns]`, the gradient of the residual stream, added to dx; or null, as always where rows begin anywhere.
    pub dstream: *const T,
    /// `[rows, columns]`; or null, with no `dresidual` either. May be any of the inputs.
    pub dx: *mut T,
    /// `[rows, columns]`; or null. May be any of the inputs but the one that dx is; or where dx is, which is lost then.
    pub dresidual: *mut T,
    /// Weight and bias.
    pub affine: Affine,
    /// `[rows]`, as the forward pass saved it; or null for 0.
    pub mean: *const f32,
    /// `[rows]`, as the forward pass saved it.
    pub rstd: *const f32,
    /// `[blocks of the grid, or its clusters, columns]`, where their shares of the weight's gradient go, or, by run,
    /// `[blocks that share a row, rows, runs]`, of pieces of runs `[pieces of a run, rows, runs]`, by segment `[parts, rows, segments]` of as many [`parts`](super::by_segment::parts) as there
    /// are; or the gradient itself in the parameters' type, of rows in segments `[rows]`, and `[columns]` where these go
    /// [`apart`](mod@super::apart) or the whole chip has one row at a time; or null.
    pub dweight: *mut f32,
    /// The same of the bias's gradient; or null.
    pub dbias: *mut f32,
    /// How many rows.
    pub rows: u64,
    /// Elements of a row; at least 1, and what the kernel's key fits.
    pub columns: u64,
    /// From a row of `x` to the next.
    pub x_stride: u64,
    /// From a row of `dy` to the next.
    pub dy_stride: u64,
    /// From a row of `residual` to the next.
    pub residual_stride: u64,
    /// From a row of `dstream` to the next.
    pub dstream_stride: u64,
    /// From a row of `dx` to the next.
    pub dx_stride: u64,
    /// From a row of `dresidual` to the next.
    pub dresidual_stride: u64,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
    /// Rows that shared memory has room for, where they come ahead: at least 1, at most [`MOST_SLOTS`](crate::rows::ring::MOST_SLOTS); of pieces, groups of
    /// accesses; of lines, places for an access of each thread.
    pub slots: u32,
    /// Blocks of the grid that share a row.
    pub blocks: u32,
    /// Where these leave messages for each other, see [`Messages`](crate::grid::Messages); or null.
    pub messages: *mut u32,
    /// Where rows lie in segments.
    pub segments: Segments,
    /// See [`Messages`](crate::grid::Messages).
    pub sent: u32,
    /// Blocks of the grid that have strips of columns, where rows and columns go [`apart`](mod@super::apart).
    pub column_blocks: u32,
    /// Threads of theirs that lie side by side in a strip, with an access each: a power of two, at most those of a warp, or, where clusters have
    /// rows, of a block.
    pub column_lanes: u32,
}

impl<T> Args<T> {
    #[inline(always)]
    pub(super) fn peers(&self) -> Peers {
        Peers::new(self.messages, self.sent, self.blocks)
    }

    /// Leaves sums of g and of g · x̂ in a place of their own.
    ///
    /// # Safety
    ///
    /// The place is among those that `dweight` and `dbias` say; one thread a place.
    #[inline(always)]
    pub(super) unsafe fn leave_sums(&self, place: u64, [of_g, of_gx]: [f32; 2]) {
        for (base, sum) in [(self.dweight, of_gx), (self.dbias, of_g)] {
            if !base.is_null() {
                // SAFETY: the caller's.
                unsafe { f32::store(base.wrapping_add(place as usize), sum) };
            }
        }
    }
}

impl<T: Data> Args<T> {
    /// Writes the gradients of the row's weight and bias.
    ///
    /// # Safety
    ///
    /// As said there; one thread a row.
    #[inline(always)]
    pub(super) unsafe fn leave_row(&self, row: u64, [of_g, of_gx]: [f32; 2]) {
        for (base, sum) in [(self.dweight, of_gx), (self.dbias, of_g)] {
            if !base.is_null() {
                // SAFETY: the caller's: a number for each row.
                unsafe { self.leave_gradient(base, row, sum) };
            }
        }
    }

    /// Writes a gradient of weight or bias, in the parameters' type.
    ///
    /// # Safety
    ///
    /// There are more than `index` at `base`, one of `dweight` and `dbias`; one thread an index.
    #[inline(always)]
    pub(super) unsafe fn leave_gradient(&self, base: *mut f32, index: u64, sum: f32) {
        // SAFETY: the caller's.
        unsafe {
            if self.affine.is_narrow::<T>() {
                T::store(base.cast::<T>().wrapping_add(index as usize), T::from_acc(sum));
            } else {
                f32::store(base.wrapping_add(index as usize), sum);
            }
        }
    }
}
