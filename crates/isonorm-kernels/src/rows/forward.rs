//! LayerNorm and RMSNorm, forward: a row stays in the registers of its team between the statistics and the result.
//!
//! ```text
//! y = act(x̂ · weight + bias + residual)        x̂ = (x − mean) · rstd
//! ```
//!
//! Each element is read once and written once. With the row at hand the variance is exact: the mean first, then the squared
//! distances from it. The mean is taken about the row's first element, so that a constant row gives exactly its bias, and
//! the second pass adds up the distances too, which is what rounding left of the mean; see [`Normalizer`].
//!
//! Squares are taken in `f32`: distances from about 1.8e19 on overflow, and such a row has rstd 0. A NaN or an infinity stays
//! in its row.

use isonorm_math::activation::{Gelu, GeluTanh, HardSwish, Identity, LeakyRelu, Pointwise, Relu, Sigmoid, Silu, Tanh};
use isonorm_math::{Moments, Normalizer, Real, normalize};

use super::registers::{Chunk, Data, Part, unrolled};
use super::team::Team;
use crate::block;
use crate::simt;

/// What a kernel is specialised on, besides the element type and the activation, which are types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Whether the mean is taken off: LayerNorm, not RMSNorm.
    pub centred: bool,
    /// Whether a block owns a row; otherwise a warp does.
    pub block: bool,
    /// Vectors of 16 bytes that a thread holds: one of [`Key::VECTORS`].
    pub vectors: u32,
}

impl Key {
    /// Threads of a block, at most; the registers are divided for that many.
    pub const MAX_THREADS: u32 = 512;

    /// The numbers of vectors a thread that there are kernels for.
    pub const VECTORS: [u32; 3] = [1, 2, 4];

    /// The longest row, in elements of `element_bytes`, that a team of `threads` threads holds.
    pub fn max_columns(&self, threads: u32, element_bytes: u32) -> u32 {
        self.vectors * threads * (16 / element_bytes)
    }

    /// Bytes of dynamic shared memory of a block.
    pub fn shared_bytes(&self) -> u32 {
        if self.block { block::SCRATCH_BYTES } else { 0 }
    }
}

/// A kind of activation that a kernel is compiled for; what it has of parameters is told at launch.
pub trait Activate: Pointwise {
    /// With this factor for negative z, where there is one.
    fn with_slope(slope: f32) -> Self;
}

macro_rules! activate {
    ($($kind:ident)*) => {$(
        impl Activate for $kind {
            #[inline(always)]
            fn with_slope(_slope: f32) -> Self {
                $kind
            }
        }
    )*};
}

activate!(Identity Relu Silu Gelu GeluTanh Sigmoid Tanh HardSwish);

impl Activate for LeakyRelu {
    #[inline(always)]
    fn with_slope(slope: f32) -> Self {
        Self {
            slope: f64::from(slope),
        }
    }
}

/// What a kernel is told at launch. Strides are from row to row, in elements; null pointers leave a part out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    /// `[rows, columns]`
    pub x: *const T,
    /// `[rows, columns]`, added before the activation; or null.
    pub residual: *const T,
    /// `[columns]`; or null for 1.
    pub weight: *const f32,
    /// `[columns]`; or null for 0.
    pub bias: *const f32,
    /// `[rows, columns]`; may be `x`.
    pub y: *mut T,
    /// `[rows]`, where the mean is saved; or null.
    pub mean: *mut f32,
    /// `[rows]`, where 1 / √(variance + eps) is saved; or null.
    pub rstd: *mut f32,
    /// How many rows.
    pub rows: u64,
    /// From a row of `x` to the next.
    pub x_stride: u64,
    /// From a row of `residual` to the next.
    pub residual_stride: u64,
    /// From a row of `y` to the next.
    pub y_stride: u64,
    /// Elements of a row; at least 1, and at most [`Key::max_columns`].
    pub columns: u32,
    /// Added to the variance.
    pub eps: f32,
    /// The factor for negative z of [`LeakyRelu`].
    pub slope: f32,
}

/// Normalizes the rows. For a grid of any size; a block needs [`Key::shared_bytes`] of shared memory.
///
/// # Safety
///
/// The pointers of `args` are null where that is allowed, or point to what is said there, aligned to their elements.
#[inline(always)]
pub unsafe fn forward<T: Data, A: Activate, const V: usize, const CENTRED: bool, const BLOCK: bool>(args: &Args<T>) {
    let mut team = Team::<BLOCK>::new();
    let mut row = team.first_row();
    while row < args.rows {
        // SAFETY: the caller's, for a row that there is.
        unsafe { one_row::<T, A, V, CENTRED, BLOCK>(args, &mut team, row) };
        row += team.row_step();
    }
}

/// The `v`th part of a row that this thread holds.
#[inline(always)]
fn part<T: Data, const BLOCK: bool>(team: &Team<BLOCK>, columns: u32, v: usize) -> Part {
    let start = (v as u32 * team.threads() + team.rank()) * T::Chunk::LANES;
    let left = columns.saturating_sub(start);
    Part { start, left }
}

/// The place of a row; 64 bits.
#[inline(always)]
fn row_of<T>(base: *const T, row: u64, stride: u64) -> *const T {
    base.wrapping_add((row * stride) as usize)
}

#[inline(always)]
unsafe fn one_row<T: Data, A: Activate, const V: usize, const CENTRED: bool, const BLOCK: bool>(
    args: &Args<T>,
    team: &mut Team<BLOCK>,
    row: u64,
) {
    let source = row_of(args.x, row, args.x_stride);
    let mut held = [T::Chunk::from_lanes(|_| 0.0); V];
    unrolled::<V>(|v| {
        // SAFETY: the row has `columns` elements.
        held[v] = unsafe { part::<T, BLOCK>(team, args.columns, v).load(source, 0.0) };
    });
    let (mean, normalizer) = if CENTRED {
        // SAFETY: a row has an element.
        let shift = unsafe { T::load(source) };
        centred::<T, V, BLOCK>(&held, shift, args, team)
    } else {
        (0.0, uncentred::<T, V, BLOCK>(&held, args, team))
    };
    if team.rank() == 0 {
        // SAFETY: the caller's; one thread a row.
        unsafe {
            save(args.mean, row, mean);
            save(args.rstd, row, normalizer.rstd);
        }
    }
    unrolled::<V>(|v| {
        let part = part::<T, BLOCK>(team, args.columns, v);
        if part.has(0) {
            // SAFETY: the caller's.
            unsafe { finish::<T, A>(args, row, part, held[v], normalizer) };
        }
    });
}

/// Mean and normalizer of LayerNorm; valid in all threads of the team.
#[inline(always)]
fn centred<T: Data, const V: usize, const BLOCK: bool>(
    held: &[T::Chunk; V],
    shift: f32,
    args: &Args<T>,
    team: &mut Team<BLOCK>,
) -> (f32, Normalizer<f32>) {
    let count = args.columns as f32;
    let mut sum = 0.0;
    unrolled::<V>(|v| {
        sum = part::<T, BLOCK>(team, args.columns, v).fold(held[v], sum, |sum, x| sum + (x - shift));
    });
    let centre = shift + team.sum(sum) / count;
    let mut sums = [0.0; 2];
    unrolled::<V>(|v| {
        sums = part::<T, BLOCK>(team, args.columns, v).fold(held[v], sums, |[first, second], x| {
            let d = x - centre;
            [first + d, d.mul_add(d, second)]
        });
    });
    let [first, second] = team.sum_pair(sums);
    let rest = first / count;
    let moments = Moments {
        count,
        mean: centre + rest,
        m2: f32::ZERO.max((-rest).mul_add(first, second)),
    };
    let rstd = moments.rstd(args.eps);
    let offset = if rest == 0.0 { 0.0 } else { -rest * rstd };
    (moments.mean, Normalizer { centre, rstd, offset })
}

/// The normalizer of RMSNorm; valid in all threads of the team.
#[inline(always)]
fn uncentred<T: Data, const V: usize, const BLOCK: bool>(
    held: &[T::Chunk; V],
    args: &Args<T>,
    team: &mut Team<BLOCK>,
) -> Normalizer<f32> {
    let mut sum = 0.0;
    unrolled::<V>(|v| {
        sum = part::<T, BLOCK>(team, args.columns, v).fold(held[v], sum, |sum, x: f32| x.mul_add(x, sum));
    });
    let moments = Moments {
        count: args.columns as f32,
        mean: 0.0,
        m2: team.sum(sum),
    };
    Normalizer {
        centre: 0.0,
        rstd: moments.rstd(args.eps),
        offset: 0.0,
    }
}

#[inline(always)]
unsafe fn save(place: *mut f32, row: u64, value: f32) {
    if !place.is_null() {
        // SAFETY: the caller's: there is a number for each row.
        unsafe { simt::store_32(place.wrapping_add(row as usize).cast(), value.to_bits()) };
    }
}

/// Scale and shift, residual, activation, and the store.
#[inline(always)]
unsafe fn finish<T: Data, A: Activate>(
    args: &Args<T>,
    row: u64,
    part: Part,
    held: T::Chunk,
    normalizer: Normalizer<f32>,
) {
    let mut weight = T::Chunk::from_lanes(|_| 1.0);
    let mut bias = T::Chunk::from_lanes(|_| 0.0);
    // SAFETY: the caller's, here and below; what is null is left out.
    unsafe {
        if !args.weight.is_null() {
            weight = part.load_parameters(args.weight);
        }
        if !args.bias.is_null() {
            bias = part.load_parameters(args.bias);
        }
    }
    let mut y = weight.zip(bias, held, |weight, bias, x| {
        normalize::affine(normalizer.apply(x), weight, bias)
    });
    if !args.residual.is_null() {
        let residual = row_of(args.residual, row, args.residual_stride);
        // SAFETY: as above.
        let residual = unsafe { part.load(residual, 0.0) };
        y = y.zip(residual, held, |y, residual, _| y + residual);
    }
    let activation = A::with_slope(args.slope);
    let y = y.map(|z| activation.apply(z));
    // SAFETY: as above; each part belongs to one thread.
    unsafe { part.store(row_of(args.y, row, args.y_stride).cast_mut(), y) };
}
