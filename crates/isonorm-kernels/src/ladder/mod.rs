//! The ladder: kernels as they were published, rung by rung, to be measured beside the product's own and learnt from. No plan takes one.
//!
//! Each file is one rung and says what it does, what holds it back, and what the next one changes. A rung is faithful to its design, also
//! where that is slow or inexact; its indices are right for every size that is accepted (`f32` data, channels first, fewer than 2³² elements
//! a channel or a row).
//!
//! | BatchNorm | |
//! |---|---|
//! | [`bn_tile_nc`] | `[N, C]`: tiles of 32 channels, E\[x²\] − E\[x\]² |
//! | [`bn_naive`] | a thread a channel, three kernels |
//! | [`bn_welford_block`] | a block a channel, Welford, a tree in shared memory |
//! | [`bn_welford_warp`] | the same with shuffles |
//! | [`bn_welford_fused`] | the same with running statistics, and scale and shift made once |
//! | [`bn_relu_train`] | the same with the ReLU in the store |
//! | [`bn_relu_eval`] | running statistics, a thread walks the batch |
//! | [`bn_eval_vec4`] | scale and shift from a small kernel, accesses of 16 bytes |
//! | [`bn_relu_backward`] | dx, dweight, dbias through the ReLU |
//!
//! | LayerNorm | |
//! |---|---|
//! | [`ln_naive`] | a thread a row, three loops |
//! | [`ln_shared`] | a block a row, a tree in shared memory, E\[x²\] − E\[x\]² |
//! | [`ln_shuffle`] | the same with shuffles |
//! | [`ln_vec4`] | the same with accesses of 16 bytes |

pub mod bn_eval_vec4;
pub mod bn_naive;
pub mod bn_relu_backward;
pub mod bn_relu_eval;
pub mod bn_relu_train;
pub mod bn_tile_nc;
pub mod bn_welford_block;
pub mod bn_welford_fused;
pub mod bn_welford_warp;
pub mod list;
pub mod ln_naive;
pub mod ln_shared;
pub mod ln_shuffle;
pub mod ln_vec4;

use core::num::NonZero;

use isonorm_math::{Moments, Real};

use crate::simt::{self, Shared, WARP};

/// Threads of a block of every rung but [`bn_tile_nc`].
pub const THREADS: u32 = 256;

/// What a rung of BatchNorm is told: `x` is `[batch, channels, spatial]`. Tensors that it has no use for are null.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BatchNorm {
    /// The input.
    pub x: *const f32,
    /// The output.
    pub y: *mut f32,
    /// `[channels]`
    pub weight: *const f32,
    /// `[channels]`
    pub bias: *const f32,
    /// `[channels]`: the mean, to be saved or, by a backward pass, read; or null.
    pub mean: *mut f32,
    /// `[channels]`: 1 / √(variance + eps), likewise.
    pub rstd: *mut f32,
    /// `[channels]`: to be updated in training, used in evaluation; or null.
    pub running_mean: *mut f32,
    /// `[channels]`
    pub running_variance: *mut f32,
    /// `[2, channels]`: what one kernel leaves for the next.
    pub between: *mut f32,
    /// The gradient of `y`.
    pub dy: *const f32,
    /// The gradient of `x`.
    pub dx: *mut f32,
    /// `[channels]`, or null.
    pub dweight: *mut f32,
    /// `[channels]`, or null.
    pub dbias: *mut f32,
    /// N
    pub batch: u32,
    /// C
    pub channels: u32,
    /// Positions of an image.
    pub spatial: u32,
    /// Whether statistics are the batch's (1) or the running ones (0).
    pub training: u32,
    /// `running = (1 − factor)·running + factor·batch`
    pub factor: f32,
    /// What is added to the variance.
    pub eps: f32,
}

/// What a rung of LayerNorm is told: `x` is `[rows, columns]`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LayerNorm {
    /// The input.
    pub x: *const f32,
    /// The output.
    pub y: *mut f32,
    /// How many rows there are.
    pub rows: u32,
    /// Elements of a row.
    pub columns: u32,
    /// What is added to the variance.
    pub eps: f32,
}

impl LayerNorm {
    /// Where a row begins.
    #[inline(always)]
    fn start(&self, row: u32) -> u64 {
        u64::from(row) * u64::from(self.columns)
    }
}

/// Where the elements of a channel are.
#[derive(Clone, Copy)]
struct Channel {
    /// The first one's place.
    first: u64,
    /// From one image to the next.
    image: u64,
    spatial: NonZero<u32>,
    /// How many there are.
    elements: u32,
}

impl Channel {
    /// `None` where there are no elements.
    #[inline(always)]
    fn of(args: &BatchNorm, channel: u32) -> Option<Channel> {
        Some(Channel {
            first: u64::from(channel) * u64::from(args.spatial),
            image: u64::from(args.channels) * u64::from(args.spatial),
            spatial: NonZero::new(args.spatial)?,
            elements: args.batch * args.spatial,
        })
    }

    /// The place of its `i`th element: a division for each, as the published kernels have it.
    #[inline(always)]
    fn place(&self, i: u32) -> u64 {
        u64::from(i / self.spatial) * self.image + self.first + u64::from(i % self.spatial)
    }
}

/// The thread's number in the grid.
#[inline(always)]
fn thread() -> u64 {
    u64::from(simt::block_index()) * u64::from(simt::block_threads()) + u64::from(simt::thread_index())
}

/// # Safety
/// It has so many elements, and nothing writes it while the kernel runs.
#[inline(always)]
unsafe fn load(tensor: *const f32, place: u64) -> f32 {
    // SAFETY: the caller's.
    f32::from_bits(unsafe { simt::load_32_keep(tensor.cast::<u32>().wrapping_add(place as usize)) })
}

/// # Safety
/// It has so many elements, and this one is the thread's.
#[inline(always)]
unsafe fn store(tensor: *mut f32, place: u64, value: f32) {
    // SAFETY: the caller's.
    unsafe { simt::store_32(tensor.cast::<u32>().wrapping_add(place as usize), value.to_bits()) };
}

/// Stores where there is a tensor.
///
/// # Safety
/// As [`store`], or null.
#[inline(always)]
unsafe fn save(tensor: *mut f32, place: u64, value: f32) {
    if !tensor.is_null() {
        // SAFETY: the caller's.
        unsafe { store(tensor, place, value) };
    }
}

/// `1 / √(variance + eps)`
#[inline(always)]
fn rstd(variance: f32, eps: f32) -> f32 {
    1.0 / Real::sqrt(variance + eps)
}

/// Sums of two numbers over a block of [`THREADS`], halving what is left from step to step in shared memory; in every thread. Takes
/// `2 * THREADS` words from the start.
#[inline(always)]
fn tree_sums(own: [f32; 2]) -> [f32; 2] {
    let place = |thread: u32, which: u32| Shared::<f32>::at(0).offset(which * THREADS + thread);
    let thread = simt::thread_index();
    // SAFETY: each thread has a place of its own; half of them read those of the other half behind a barrier.
    unsafe {
        simt::shared_store(place(thread, 0), own[0]);
        simt::shared_store(place(thread, 1), own[1]);
        simt::block_barrier();
        let mut left = THREADS / 2;
        while left > 0 {
            if thread < left {
                for which in [0, 1] {
                    let (mine, other) = (place(thread, which), place(thread + left, which));
                    simt::shared_store(mine, simt::shared_load(mine) + simt::shared_load(other));
                }
            }
            simt::block_barrier();
            left /= 2;
        }
        [simt::shared_load(place(0, 0)), simt::shared_load(place(0, 1))]
    }
}

/// The same by shuffles in each warp; then one place a warp in shared memory, which the first warp adds up. Takes 16 words from the start.
#[inline(always)]
fn shuffle_sums(own: [f32; 2]) -> [f32; 2] {
    const WARPS: u32 = THREADS / WARP;
    let place = |warp: u32, which: u32| Shared::<f32>::at(0).offset(which * WARPS + warp);
    let warp_sum = |value: f32| {
        let mut value = value;
        let mut lanes = WARP / 2;
        while lanes > 0 {
            value += simt::shuffle_down(value, lanes);
            lanes /= 2;
        }
        value
    };
    let [first, second] = own.map(warp_sum);
    // SAFETY: the first lane of each warp has a place of its own, the first warp reads them behind a barrier and writes the first behind
    // another.
    unsafe {
        if simt::lane() == 0 {
            simt::shared_store(place(simt::warp_index(), 0), first);
            simt::shared_store(place(simt::warp_index(), 1), second);
        }
        simt::block_barrier();
        if simt::warp_index() == 0 {
            let is_one = simt::lane() < WARPS;
            let lane = if is_one { simt::lane() } else { 0 };
            let of_warp = |which| {
                let sum: f32 = simt::shared_load(place(lane, which));
                if is_one { sum } else { 0.0 }
            };
            let [first, second] = [of_warp(0), of_warp(1)].map(warp_sum);
            simt::warp_barrier();
            if simt::lane() == 0 {
                simt::shared_store(place(0, 0), first);
                simt::shared_store(place(0, 1), second);
            }
        }
        simt::block_barrier();
        [simt::shared_load(place(0, 0)), simt::shared_load(place(0, 1))]
    }
}

/// Three words of shared memory for the moments of one of `count` threads or warps.
#[inline(always)]
fn moments_place(index: u32, count: u32) -> [Shared<f32>; 3] {
    [0, 1, 2].map(|which| Shared::<f32>::at(0).offset(which * count + index))
}

/// # Safety
/// The three words are the caller's.
#[inline(always)]
unsafe fn leave([count, mean, m2]: [Shared<f32>; 3], moments: Moments<f32>) {
    // SAFETY: the caller's.
    unsafe {
        simt::shared_store(count, moments.count);
        simt::shared_store(mean, moments.mean);
        simt::shared_store(m2, moments.m2);
    }
}

/// # Safety
/// Somebody has written the three words, behind a barrier.
#[inline(always)]
unsafe fn left([count, mean, m2]: [Shared<f32>; 3]) -> Moments<f32> {
    // SAFETY: the caller's.
    unsafe {
        Moments {
            count: simt::shared_load(count),
            mean: simt::shared_load(mean),
            m2: simt::shared_load(m2),
        }
    }
}

/// Moments of all threads' by a tree in shared memory, by Chan's formula at each step; in every thread. Takes `3 * THREADS` words.
#[inline(always)]
fn tree_moments(own: Moments<f32>) -> Moments<f32> {
    let thread = simt::thread_index();
    let place = |thread| moments_place(thread, THREADS);
    // SAFETY: as in `tree_sums`.
    unsafe {
        leave(place(thread), own);
        simt::block_barrier();
        let mut half = THREADS / 2;
        while half > 0 {
            if thread < half {
                leave(place(thread), left(place(thread)).merge(left(place(thread + half))));
            }
            simt::block_barrier();
            half /= 2;
        }
        left(place(0))
    }
}

/// The same by shuffles, one place a warp, and the first warp. Takes 24 words.
#[inline(always)]
fn shuffle_moments(own: Moments<f32>) -> Moments<f32> {
    const WARPS: u32 = THREADS / WARP;
    let of_warp = |own: Moments<f32>| {
        let mut all = own;
        let mut lanes = WARP / 2;
        while lanes > 0 {
            all = all.merge(Moments {
                count: simt::shuffle_down(all.count, lanes),
                mean: simt::shuffle_down(all.mean, lanes),
                m2: simt::shuffle_down(all.m2, lanes),
            });
            lanes /= 2;
        }
        all
    };
    let place = |warp| moments_place(warp, WARPS);
    let own = of_warp(own);
    // SAFETY: as in `shuffle_sums`.
    unsafe {
        if simt::lane() == 0 {
            leave(place(simt::warp_index()), own);
        }
        simt::block_barrier();
        if simt::warp_index() == 0 {
            let is_one = simt::lane() < WARPS;
            let lane = if is_one { simt::lane() } else { 0 };
            let some = left(place(lane));
            let all = of_warp(if is_one { some } else { Moments::EMPTY });
            simt::warp_barrier();
            if simt::lane() == 0 {
                leave(place(0), all);
            }
        }
        simt::block_barrier();
        left(place(0))
    }
}

/// The moments of the elements of a channel that are the thread's, one by one as Welford has it.
///
/// # Safety
/// The pointers of `args` are as said there.
#[inline(always)]
unsafe fn own_moments(args: &BatchNorm, channel: Channel) -> Moments<f32> {
    let mut own = Moments::EMPTY;
    let mut i = simt::thread_index();
    while i < channel.elements {
        // SAFETY: the caller's.
        own = own.push(unsafe { load(args.x, channel.place(i)) });
        i += THREADS;
    }
    own
}

/// Saves the statistics of a channel, by one thread.
///
/// # Safety
/// As [`own_moments`].
#[inline(always)]
unsafe fn save_statistics(args: &BatchNorm, channel: u32, mean: f32, rstd: f32) {
    if simt::thread_index() == 0 {
        // SAFETY: the caller's.
        unsafe {
            save(args.mean, channel.into(), mean);
            save(args.rstd, channel.into(), rstd);
        }
    }
}
