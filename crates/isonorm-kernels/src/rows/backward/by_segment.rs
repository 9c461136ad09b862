//! The backward pass over contiguous rows of segments that each have a weight and a bias, and accesses of their own
//! ([`by_segment`](crate::rows::by_segment)).
//!
//! What a warp has of an access belongs to one segment, or its neighbouring lanes do; so their sums of g and g · x̂ are those of segments, or of
//! pieces of them, which a block adds up in shared memory. Weighted, they add up to those of the row.

use isonorm_math::{Normalizer, Real};

pub use super::Args;
use super::Work;
use super::held::{Loaded, Walk};
use super::segmented::{OfX, Preactivation, Rows, normalized, slope};
use super::sums::Numbers;
use crate::rows::access::{Access, Data, Span, Width};
use crate::rows::by_segment::{BySegment, OfSegments};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::forward::Spec;
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::segments::Segments;
use crate::rows::team::{Owner, Owns, Team};
use crate::simt::{self, Shared, WARP};
use crate::warp;

/// Bytes of shared memory for sums of pieces, of which rows take turns with two halves: a block has a piece for each warp and access.
#[inline(always)]
pub const fn sums_bytes(threads: u32, accesses: u32) -> u32 {
    2 * threads / WARP * accesses * PAIR_BYTES
}

const PAIR_BYTES: u32 = 8;

/// How many sums there are of each gradient of a segment of a row: of blocks that share the row, each leaves those of its pieces, if there may be
/// several.
#[inline(always)]
pub fn parts(segments: &Segments, width: Width, bytes: u32, blocks: u32) -> u32 {
    match segments.count > 1 && segments.threads_of_each(width, bytes) >= WARP {
        true => blocks,
        false => 1,
    }
}

/// Computes the gradients of the rows. For a grid of any size, or a multiple of the blocks that share a row.
///
/// # Safety
///
/// As for [`backward`](super::backward); shared memory has [`sums_bytes`] behind the rows that come ahead.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn by_segment<T: Data, S: Spec<Team: Team, Map = BySegment>, const V: usize>(args: &Args<T>) {
    // SAFETY: the caller's.
    let mut team = unsafe { S::Team::new(args.peers()) };
    let walk = Walk::<T, S, V>::new(args, &team);
    let slots = Walk::<T, S, V>::TENSORS * args.slots * V as u32 * S::Access::KEPT_BYTES;
    let mut own = Own {
        rows: Rows::new(args, &team),
        parameters: OfSegments::NONE,
        of_each: args.segments.threads_of_each(S::Access::WIDTH, size_of::<T>() as u32),
        sums: Shared::at(S::Team::SHARED_BYTES + slots * simt::block_threads()),
        half: 0,
    };
    // SAFETY: the caller's.
    unsafe { walk.each_row(&mut team, &mut own) };
}

/// Those of the row that a team works on.
struct Own<const V: usize> {
    rows: Rows,
    parameters: OfSegments<V>,
    /// Threads that each segment takes.
    of_each: u32,
    /// Where the sums of pieces are.
    sums: Shared<f32>,
    /// Which half of them is the row's.
    half: u32,
}

impl<T: Data, S: Spec<Team: Team, Map = BySegment>, const V: usize> Work<T, S, V> for Own<V> {
    #[inline(always)]
    unsafe fn fetch(&mut self, walk: &Walk<'_, T, S, V>, _row: u64) {
        let affine = &walk.args.affine;
        let set = self.rows.next_set(affine);
        // SAFETY: the caller's.
        self.parameters = unsafe { OfSegments::of::<T, S::Access>(affine, walk.span, set) };
    }

    #[inline(always)]
    unsafe fn row(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        team: &mut S::Team,
        (row, loaded, normalizer): (u64, &Loaded<T, S::Access, V>, Normalizer<f32>),
    ) {
        let (args, parameters) = (walk.args, self.parameters);
        let distance = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| x - normalizer.centre);
        let xhat = |v: usize| S::Access::unpack::<T>(loaded.x[v]).map(|x| normalizer.apply(x));
        let behind_activation = match S::Epilogue::CLASS {
            // SAFETY: the caller's.
            Class::Any => unsafe { walk.behind_activation(loaded, &parameters, xhat) },
            _ => [Numbers::<T, S>::splat(0.0); V],
        };
        let z = |v: usize| Preactivation {
            scale: normalizer.rstd * parameters.weight::<T>(v),
            bias: parameters.bias::<T>(v),
        };
        let g = |v: usize| match S::Epilogue::CLASS {
            Class::Any => behind_activation[v],
            _ => {
                let (distance, dy) = (distance(v), S::Access::unpack::<T>(loaded.dy[v]));
                slope::<T, S>(walk.z(z(v), distance, loaded.residual[v]), dy, args.activation)
            }
        };
        // A single segment has the sums of the row, before they are weighted.
        let is_one = args.segments.count == 1;
        let (mut pairs, mut own) = ([[0.0; 2]; V], [0.0; 2]);
        unrolled::<V>(|v| {
            if walk.has(v) {
                let (distance, g) = (distance(v), g(v));
                pairs[v] = [g.fold(0.0, |sum, g| sum + g), g.dot(distance, 0.0)];
                let weight = if is_one { 1.0 } else { parameters.weight::<T>(v) };
                own = [
                    Real::mul_add(pairs[v][0], weight, own[0]),
                    Real::mul_add(pairs[v][1], weight, own[1]),
                ];
            }
        });
        let leaves = !is_one && (!args.dweight.is_null() || !args.dbias.is_null());
        let is_piecewise = self.of_each >= WARP;
        if leaves {
            // SAFETY: the caller's.
            unsafe {
                match is_piecewise {
                    true => self.keep_pieces(pairs),
                    false => self.leave_segments(walk, (row, normalizer.rstd), pairs),
                }
            }
        }
        let sums = normalized(team.sum_pair(own), normalizer.rstd);
        let weight = if is_one { parameters.weight::<T>(0) } else { 1.0 };
        let coefficients = walk.coefficients(sums.map(|sum| sum * weight));
        let of_x = |v: usize| OfX::new(coefficients, normalizer.rstd, parameters.weight::<T>(v));
        // SAFETY: the caller's.
        unsafe {
            match S::Epilogue::CLASS {
                Class::Any => walk.finish_row(distance, |v| behind_activation[v], of_x, row),
                _ => walk.finish_apart(loaded, normalizer, z, of_x, row),
            }
            if leaves && is_piecewise {
                self.leave_pieces(walk, team, (row, normalizer.rstd));
            }
            if is_one && team.rank() == 0 {
                walk.args.leave_sums(row, sums);
            }
        }
    }
}

impl<const V: usize> Own<V> {
    /// Keeps the sums of the warps' pieces in shared memory: piece `v · warps + w` is part `v` of warp `w`.
    #[inline(always)]
    unsafe fn keep_pieces(&self, pairs: [[f32; 2]; V]) {
        let place = self.place();
        let (warps, lane) = (simt::block_threads() / WARP, simt::lane());
        unrolled::<V>(|v| {
            if v % 4 == 0 {
                let of = |k: usize| if v + k < V { pairs[(v + k) % V] } else { [0.0; 2] };
                let [[a, b], [c, d], [e, f], [g, h]] = [of(0), of(1), of(2), of(3)];
                let sum = warp::eight_sums([a, b, c, d, e, f, g, h]);
                let part = v as u32 + lane / 8;
                if lane.is_multiple_of(4) && part < V as u32 {
                    let piece = part * warps + simt::warp_index();
                    // SAFETY: inside of the sums; they were last read before a barrier.
                    unsafe { simt::shared_store(place.offset(2 * piece + lane / 4 % 2), sum) };
                }
            }
        });
    }

    /// The row's half of the sums.
    #[inline(always)]
    fn place(&self) -> Shared<f32> {
        self.sums.offset(self.half)
    }

    /// Adds up the pieces that the block has of each segment, and leaves that.
    #[inline(always)]
    unsafe fn leave_pieces<T: Data, S: Spec<Team: Team, Map = BySegment>>(
        &mut self,
        walk: &Walk<'_, T, S, V>,
        team: &S::Team,
        (row, rstd): (u64, f32),
    ) {
        if matches!(S::Team::OWNER, Owner::Blocks | Owner::Chip) {
            // The blocks' sums are no barrier.
            simt::block_barrier();
        }
        let (place, args) = (self.place(), walk.args);
        let threads = simt::block_threads();
        let (of_each, of_block) = (self.of_each / WARP, V as u32 * (threads / WARP));
        let (first, count) = (team.block() * of_block, args.segments.count);
        let mut segment = simt::thread_index();
        while segment < count {
            let before = (segment * of_each).max(first);
            let end = ((segment + 1) * of_each).min(first + of_block);
            let (mut sums, mut piece) = ([0.0; 2], before);
            while piece < end {
                let of_piece = place.offset(2 * (piece - first));
                // SAFETY: kept before the barrier.
                let [g, gx] = unsafe { [simt::shared_load(of_piece), simt::shared_load(of_piece.offset(1))] };
                sums = [sums[0] + g, sums[1] + gx];
                piece += 1;
            }
            let part = u64::from(team.block()) * args.rows + row;
            // SAFETY: the caller's.
            unsafe {
                walk.args
                    .leave_sums(part * u64::from(count) + u64::from(segment), normalized(sums, rstd))
            };
            segment += threads;
        }
        // Whoever keeps something in this half again has passed the barrier of the row between.
        self.half = of_block * 2 - self.half;
    }

    /// Adds up what neighbouring lanes have of a segment, all of it, and leaves that.
    #[inline(always)]
    unsafe fn leave_segments<T: Data, S: Spec<Team: Team, Map = BySegment>>(
        &self,
        walk: &Walk<'_, T, S, V>,
        (row, rstd): (u64, f32),
        mut pairs: [[f32; 2]; V],
    ) {
        let mut lanes = self.of_each / 2;
        while lanes > 0 {
            unrolled::<V>(|v| pairs[v] = pairs[v].map(|sum| sum + simt::shuffle_xor(sum, lanes)));
            lanes /= 2;
        }
        let start = row * u64::from(walk.args.segments.count);
        unrolled::<V>(|v| {
            let (segment, access) = Span::turn(walk.span, v);
            if walk.has(v) && access == 0 {
                // SAFETY: the caller's.
                unsafe {
                    walk.args
                        .leave_sums(start + u64::from(segment), normalized(pairs[v], rstd))
                };
            }
        });
    }
}
