//! The forward pass over rows that their team holds in registers: each element is read once and written once.
//!
//! ```text
//! y = act(x̂ · weight + bias + residual)        x̂ = (x − mean) · rstd
//! ```
//!
//! Or, as a pre-norm transformer has it, `stream = x + residual` is written too, and is what is normalized.
//!
//! A team walks over its rows; it may have just one, as the multiprocessor has other teams to go on with while one waits. What all rows share stays
//! in its registers, and with [`Spec::AHEAD`] the next row is on its way while this one is reduced: to registers, or, where the blocks of a cluster
//! wait for each other, several to shared memory. Where blocks of the whole chip do, see [`later`]; longer rows of runs stay in shared memory, see [`lines`](mod@lines).

mod finish;
mod held;
mod kind;
pub mod later;
pub mod lines;
pub mod pieces;

use core::marker::PhantomData;

use self::held::{First, Loaded, Walk};
use super::access::{Access, Data, Place};
use super::epilogue::{Epilogue, Told};
use super::lanes::unrolled;
use super::parameters::{Affine, Map, Parameters, at_least_one, next_set};
use super::ring::Ring;
use super::running::Running;
use super::segments::Segments;
use super::statistics::{Held, Statistics};
use super::team::{Owns, Team};
use crate::grid::Peers;
use crate::simt;

/// Weight and bias as a thread has them.
type ParametersOf<T, S, const V: usize> =
    <<S as Spec>::Team as Team>::Parameters<<S as Spec>::Map, T, <S as Spec>::Access, V>;

/// The parameters of most calls.
pub(super) type UsualOf<S> = <<S as Spec>::Statistics as Statistics>::Usual;

/// What a kernel is specialised on, besides the element type and the number of accesses.
pub trait Spec {
    /// Where mean and rstd come from.
    type Statistics: Statistics;
    /// Who owns a row: a [`Team`], or, of long rows, a [`Spread`](super::spread::Spread).
    type Team: Owns;
    /// The width of an access.
    type Access: Access;
    /// Which parameter belongs to an element.
    type Map: Map;
    /// The class of the activation.
    type Epilogue: Epilogue;
    /// Whether there may be a residual; it is then loaded with the row.
    const RESIDUAL: bool;
    /// Whether rows are on their way before they are needed: the next one, to registers; elsewhere those that shared memory has room for.
    const AHEAD: bool;
}

/// A [`Spec`], spelled out.
pub struct Of<S, G, A, M, E, const RESIDUAL: bool, const AHEAD: bool>(PhantomData<(S, G, A, M, E)>);

impl<S: Statistics, G: Owns, A: Access, M: Map, E: Epilogue, const RESIDUAL: bool, const AHEAD: bool> Spec
    for Of<S, G, A, M, E, RESIDUAL, AHEAD>
{
    type Statistics = S;
    type Team = G;
    type Access = A;
    type Map = M;
    type Epilogue = E;
    const RESIDUAL: bool = RESIDUAL;
    const AHEAD: bool = AHEAD;
}

/// Where a row of a tensor lies.
pub(super) type PlaceOf<T, S> = Place<T, <S as Spec>::Access>;

/// What a kernel is told at launch. Strides are from row to row, in elements; null pointers leave a part out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args<T> {
    // What the first loads need comes first: one line of the constant cache, of which each is waited for once.
    /// `[rows, columns]`
    pub x: *const T,
    /// How many rows.
    pub rows: u64,
    /// Elements of a row; at least 1, and what the kernel's key fits.
    pub columns: u64,
    /// From a row of `x` to the next.
    pub x_stride: u64,
    /// Weight and bias.
    pub affine: Affine,
    /// `[rows, columns]`: added before the activation, or, with `stream`, to `x`; or null.
    pub residual: *const T,
    /// `[rows, columns]`, where x + residual is written, which is then normalized; or null. May be `x` or `residual`.
    pub stream: *mut T,
    /// `[rows, columns]`; may be `x` or `residual`.
    pub y: *mut T,
    /// `[sets]`, in the parameters' type: the mean, where statistics are given.
    pub given_mean: *const u8,
    /// `[sets]`, in the parameters' type: the variance, where statistics are given.
    pub given_variance: *const u8,
    /// `[rows]`, where the mean is saved; or null.
    pub mean: *mut f32,
    /// `[rows]`, where 1 / √(variance + eps) is saved; or null.
    pub rstd: *mut f32,
    /// `[rows]`, where the variance is saved; or null.
    pub variance: *mut f32,
    /// From a row of `residual` to the next.
    pub residual_stride: u64,
    /// From a row of `stream` to the next.
    pub stream_stride: u64,
    /// From a row of `y` to the next.
    pub y_stride: u64,
    /// Added to the variance.
    pub eps: f32,
    /// The activation, of the class that the kernel is for.
    pub activation: Told,
    /// Blocks of the grid that share a row.
    pub blocks: u32,
    /// Tiles of its share that a block keeps in shared memory, or rows that it has room for there, where they come ahead.
    pub kept: u32,
    /// `[grid / blocks, 2, blocks, 3]`: where a grid exchanges moments; or null.
    pub moments: *mut f32,
    /// `[grid / blocks]`, 0 before the launch: how many blocks have written theirs; or null.
    pub arrived: *mut u32,
    /// Where blocks of the grid that hold a row leave messages for each other, see [`Messages`](crate::grid::Messages); or null.
    pub messages: *mut u32,
    /// Where rows lie in segments.
    pub segments: Segments,
    /// Of rows in segments: their running statistics.
    pub running: Running,
    /// See [`Messages`](crate::grid::Messages).
    pub sent: u32,
    /// Where statistics are given: a byte for each 16 bytes of `y`, of which the tensor has a whole number, in kernels that access as many at once:
    /// bit k is set where element k of them is not 0; or null. Behind a ReLU.
    pub mask: *mut u8,
}

impl<T> Args<T> {
    #[inline(always)]
    fn peers(&self) -> Peers {
        Peers::new(self.messages, self.sent, self.blocks)
    }
}

/// Normalizes the rows. For a grid of any size, or a multiple of the blocks that share a row.
///
/// # Safety
///
/// The pointers of `args` are null where that is allowed, or point to what is said there, aligned to the accesses. Blocks have
/// the shared memory that the team needs, and rows are not longer than the team holds.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn forward<T: Data, S: Spec<Team: Team>, const V: usize>(args: &Args<T>) {
    // SAFETY: the caller's.
    let mut team = unsafe { S::Team::unprepared(args.peers()) };
    // While the first row is on its way, or else here, before anything else takes registers.
    if !Walk::<T, S, V>::EARLY {
        team.prepare();
    }
    let walk = Walk::<T, S, V>::new(args, &team);
    let (mut first_row, step) = (team.first_row(), team.row_step());
    let own_row = u64::from(team.own_row());
    let sets = at_least_one(args.affine.sets);
    // The set of the team's first row, and how many sets further its next row is.
    let set_of = |row| args.affine.set_of::<S::Map>(row);
    let (mut set, set_step) = (set_of(first_row + own_row), set_of(step));
    let mut ring = Ring::new(
        S::Team::SHARED_BYTES,
        walk.ends(),
        Walk::<T, S, V>::TENSORS,
        args.kept,
        0,
    );
    // The row that comes next: on its way before anything else is read.
    let (mut next, mut first) = (Loaded::nothing(), First::nothing());
    if Walk::<T, S, V>::RING {
        ring.settle();
        first = walk.first(first_row + own_row);
        let mut rows = 0;
        while rows < args.kept {
            walk.fetch(&ring, first_row + own_row + u64::from(rows) * step, rows);
            rows += 1;
        }
    } else if Walk::<T, S, V>::EARLY {
        next = walk.load(first_row + own_row);
        team.prepare();
    }
    // SAFETY: the caller's.
    let mut parameters = unsafe { ParametersOf::<T, S, V>::new(&args.affine, walk.span, Walk::<T, S, V>::KEEPS) };
    while first_row < args.rows {
        // Opaque, for otherwise every address becomes a variable of the loop, with registers of its own.
        let row = simt::opaque_64(first_row) + own_row;
        first_row = simt::opaque_64(first_row) + step;
        let mut loaded;
        if Walk::<T, S, V>::RING {
            let slot = ring.slot(0);
            loaded = walk.arrived(&mut ring, row, first);
            // In its place, now that the row is in registers.
            walk.fetch(&ring, row + u64::from(args.kept) * step, slot);
            first = walk.first(first_row + own_row);
        } else if Walk::<T, S, V>::EARLY {
            loaded = next;
            if S::AHEAD {
                next = walk.load(first_row + own_row);
            }
        } else {
            loaded = walk.load(row);
        }
        // SAFETY: the caller's.
        unsafe { walk.normalize(&mut loaded, &mut team, &mut parameters, row, set) };
        if Walk::<T, S, V>::EARLY && !S::AHEAD {
            next = walk.load(first_row + own_row);
        }
        set = next_set(set, set_step, sets);
    }
}

impl<T: Data, S: Spec<Team: Team>, const V: usize> Walk<'_, T, S, V> {
    /// All that is done with a row, once it is there; every thread of the team takes part.
    #[inline(always)]
    unsafe fn normalize(
        &self,
        loaded: &mut Loaded<T, S::Access, V>,
        team: &mut S::Team,
        parameters: &mut ParametersOf<T, S, V>,
        row: u64,
        set: u32,
    ) {
        let args = self.args;
        // SAFETY: the caller's.
        unsafe { parameters.fetch(&args.affine, self.span, set) };
        let updates = Self::RUNNING && team.rank() == 0 && row < args.rows;
        // SAFETY: the caller's.
        let running = unsafe { self.running(updates, row) };
        if self.has_stream() {
            self.add_residual(loaded);
        }
        let held = Held::<T, S::Access, V> {
            parts: &loaded.x,
            span: self.span,
            place: PlaceOf::<T, S>::new(args.x, row, args.x_stride),
            first: self.shift(loaded.first),
            set,
        };
        // SAFETY: the caller's.
        let measured = unsafe { S::Statistics::measure(&held, args, team) };
        if row >= args.rows {
            return;
        }
        if team.rank() == 0 {
            // SAFETY: the caller's; one thread a row.
            unsafe { measured.save(args, row) };
        }
        // SAFETY: the caller's.
        unsafe {
            if self.has_stream() {
                self.store_stream(loaded, row);
            }
            self.finish(loaded, parameters, measured.normalizer, row);
            self.update(updates, row, running, &measured);
        }
    }

    /// Writes x + residual: only now, for while others may still have to load the row's first element, `stream` may be `x`.
    #[inline(always)]
    unsafe fn store_stream(&self, loaded: &Loaded<T, S::Access, V>, row: u64) {
        let args = self.args;
        let stream = PlaceOf::<T, S>::new(args.stream.cast_const(), row, args.stream_stride);
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's; each part belongs to one thread.
                unsafe { S::Access::store(stream.part(self.span, v).cast_mut(), loaded.x[v]) };
            }
        });
    }
}
