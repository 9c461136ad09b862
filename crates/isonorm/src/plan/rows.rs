//! Rows: a group is `outer` segments of `inner` contiguous elements; vector lanes go along a segment.

use super::{Candidate, CpuProperties, Regions, SHORTEST_ROW, choose};
use crate::{Geometry, NormDesc};

pub(super) const NAMES: [&str; 3] = ["rows/resident", "rows/split", "rows/streaming"];

/// Elements of a chunk, the longest stretch that a loop runs over.
pub(crate) const CHUNK: usize = 1024;
/// Elements of a block: a second pass over it, if any, finds it in the first-level cache.
const BLOCK: usize = if cfg!(miri) { 64 } else { 4096 };
/// At most this many groups are worked on side by side.
pub(crate) const MOST_BATCHED: usize = 16;
/// How many tasks a phase is cut into when groups are few and large, whatever the number of threads.
const PARTS: usize = 256;
/// A part has at least this many elements, so that handing it to a thread pays.
const SHORTEST_PART: usize = if cfg!(miri) { 64 } else { 32 << 10 };
/// At most this many accumulators for parameter gradients in all, so that they stay O(channels) beside the tensor.
const GRADIENT_ACCUMULATORS: usize = 1 << 19;
/// At most this many chunks of groups with accumulators of their own.
const CHUNKS: usize = 64;
/// A chunk has at least this many groups, so that adding the chunks up costs little beside filling them.
const SHORTEST_CHUNK: usize = 8;
/// With this many rows or more, parameter gradients of single elements are summed by rows, else by ranges of elements.
const FEW_ROWS: usize = 32;

/// Tiles of the `rows` kernels. A group is cut into blocks, blocks are collected into parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowsPlan {
    /// How the tensor is walked: the problem's geometry; or, where no statistics are to be computed and no sums, that with every
    /// segment a group of its own, in the order of memory.
    pub(crate) walk: Geometry,
    /// Whole segments in a block, when a segment is no longer than one.
    pub(crate) block_segments: usize,
    /// Elements of a segment in a block.
    pub(crate) block_inner: usize,
    /// Blocks of a segment.
    pub(crate) blocks_per_segment: usize,
    /// Blocks of a group.
    pub(crate) blocks: usize,
    /// Groups that are worked on side by side, because each is short.
    pub(crate) batch: usize,
    /// Parts of a group. Fixes the order of summation, so it follows from the geometry alone.
    pub(crate) parts: usize,
    /// Whether the parts of a group go to different tasks.
    pub(crate) split: bool,
    /// Elements of a segment that share weight and bias (1: none do).
    pub(crate) run: usize,
    /// Chunks of groups, each with its own accumulators of parameter gradients. Fixed by the geometry alone.
    pub(crate) chunks: usize,
    /// Whether a group's second pass finds it in the second-level cache.
    pub(crate) resident: bool,
    /// How many elements further on the inputs are fetched while results are written: those of the next groups that one task works
    /// on. 0: none are, for the cache has no room for both.
    pub(crate) lookahead: usize,
}

impl RowsPlan {
    /// The blocks of a part of a group.
    #[inline(always)]
    pub(crate) fn part_blocks(&self, part: usize) -> std::ops::Range<usize> {
        share(self.blocks, self.parts, part)
    }

    /// Whether every element of a group has a weight and bias of its own.
    pub(crate) fn per_element(&self, g: &Geometry) -> bool {
        per_element(g, self.run)
    }

    /// Runs of a group that weight and bias are constant on, when a run is longer than one element.
    pub(crate) fn runs(&self, g: &Geometry) -> usize {
        g.inner / self.run
    }
}

/// As in LayerNorm and RMSNorm: a group is one row, and all groups share the parameters. A GroupNorm of single positions or
/// of channels-last also has runs of one element, but groups with parameters of their own.
fn per_element(g: &Geometry, run: usize) -> bool {
    run == 1 && g.affine.inner_divisor.is_some() && g.affine.kept_stride == 0 && g.outer == 1
}

/// The `index`-th of `parts` nearly equal shares of `0..total`.
#[inline(always)]
pub(crate) fn share(total: usize, parts: usize, index: usize) -> std::ops::Range<usize> {
    if parts == 1 {
        return 0..total;
    }
    let at = |i: usize| (total as u128 * i as u128 / parts as u128) as usize;
    at(index)..at(index + 1)
}

/// Why the rows kernels do not fit this geometry.
pub(super) fn declined(g: &Geometry) -> Option<String> {
    if g.kept > 1 && g.outer > 1 && g.inner < SHORTEST_ROW {
        return Some(format!(
            "segments of {} elements are shorter than {SHORTEST_ROW}",
            g.inner
        ));
    }
    (g.affine.outer_stride != 0).then(|| "the affine parameters differ from segment to segment".into())
}

pub(super) fn plan(
    desc: &NormDesc,
    g: &Geometry,
    p: &CpuProperties,
    regions: &mut Regions,
    candidates: &mut Vec<Candidate>,
) -> RowsPlan {
    let backward = desc.get_pass().is_backward();
    let walk = if !backward && desc.uses_running_statistics() {
        Geometry {
            batch: g.batch * g.outer,
            outer: 1,
            ..*g
        }
    } else {
        *g
    };
    let g = &walk;
    let run = g.affine.inner_divisor.map_or(g.inner, |d| d.get());
    let block_inner = g.inner.min(BLOCK);
    let block_segments = if g.inner >= BLOCK {
        1
    } else {
        (BLOCK / g.inner).clamp(1, g.outer)
    };
    let blocks_per_segment = g.inner.div_ceil(block_inner);
    let groups = g.groups();
    let per_element = per_element(g, run);
    let by_rows = backward && per_element && groups >= FEW_ROWS;
    let parts_wanted = if by_rows {
        1
    } else {
        let parts = PARTS.div_ceil(groups).min(g.group_size() / SHORTEST_PART);
        if backward && !per_element {
            // Each part of each group has sums of all runs.
            parts.min(GRADIENT_ACCUMULATORS / (groups * (g.inner / run)))
        } else {
            parts
        }
    };
    // A backward pass has two or three tensors of them to keep in the cache, and sums of the parameters' gradients.
    let side_by_side = if backward { CHUNK } else { BLOCK };
    let blocks = g.outer.div_ceil(block_segments) * blocks_per_segment;
    let mut plan = RowsPlan {
        walk,
        block_segments,
        block_inner,
        blocks_per_segment,
        blocks,
        batch: match blocks {
            1 => (side_by_side / g.group_size()).clamp(1, MOST_BATCHED),
            _ => 1,
        },
        parts: 1,
        split: false,
        run,
        chunks: 1,
        resident: false,
        lookahead: 0,
    };
    plan.parts = parts_wanted.clamp(1, plan.blocks);

    let second = desc.has_residual() && desc.backward_needs_preactivation() || desc.has_stream();
    let tensors = 1 + usize::from(backward) + usize::from(second);
    let group_bytes = g.group_size() * desc.get_dtype().bytes() * tensors;
    let fits = group_bytes <= p.l2_bytes;
    plan.resident = fits;
    // With fewer groups than this the last ones leave threads idle.
    let enough = p.threads * if fits { 2 } else { 8 };
    let few = plan.parts > 1 && groups < enough;
    plan.split = plan.parts > 1 && ((few && p.threads > 1) || (backward && per_element));
    // Tensors that fit the caches of the threads are there already.
    let cached = groups * group_bytes <= p.l2_bytes * p.threads;
    if !plan.split && !cached && 2 * plan.batch * group_bytes <= p.l2_bytes {
        plan.lookahead = if g.outer == 1 { plan.batch * g.inner } else { g.inner };
    }
    choose(
        candidates,
        vec![
            (
                NAMES[0],
                if plan.split {
                    Some(format!("{groups} groups are too few for {} threads", p.threads))
                } else {
                    (!fits).then(|| {
                        format!(
                            "a group of {group_bytes} bytes does not fit the second-level cache of {}",
                            p.l2_bytes
                        )
                    })
                },
            ),
            (
                NAMES[1],
                (!plan.split).then(|| {
                    if plan.parts == 1 {
                        "a group is too small to be shared by threads".into()
                    } else {
                        format!("{groups} groups are enough for {} threads", p.threads)
                    }
                }),
            ),
            (NAMES[2], None),
        ],
    );
    if backward {
        plan_gradients(desc, g, &mut plan, regions);
    } else if plan.split {
        // Count, mean, squared distances and shift of each part.
        regions.parts = regions.append(groups * plan.parts * 4, size_of::<f64>());
    }
    plan
}

fn plan_gradients(desc: &NormDesc, g: &Geometry, plan: &mut RowsPlan, regions: &mut Regions) {
    let groups = g.groups();
    let per_element = plan.per_element(g);
    // A parameter that belongs to one group only needs one accumulator.
    let one_group_each = g.affine.kept_modulus.get() == groups;
    if !one_group_each {
        plan.chunks = (groups / SHORTEST_CHUNK)
            .min(GRADIENT_ACCUMULATORS / g.parameters)
            .clamp(1, CHUNKS);
    }
    if plan.split {
        plan.chunks = if per_element { 1 } else { plan.chunks };
        let sums = if per_element { 2 } else { 2 * plan.runs(g) };
        regions.parts = regions.append(groups * plan.parts * sums, size_of::<f64>());
    } else if !per_element {
        // The sums of one group's runs and of one part's, for each task.
        let tasks = if one_group_each { groups } else { plan.chunks };
        regions.parts = regions.append(tasks * 4 * plan.runs(g), size_of::<f64>());
    }
    regions.gradients = regions.append(plan.chunks * 2 * g.parameters, size_of::<f64>());
    if per_element {
        regions.staging = regions.append(plan.chunks * 2 * g.parameters, desc.get_dtype().accumulator().bytes());
    }
}
