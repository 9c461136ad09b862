//! Statistics that are told, of channels that lie side by side: nobody waits for anything, and each element is read and written once.
//!
//! A thread has the same columns of all of its rows. Its first accesses are under way before anything else is read; meanwhile the block works out
//! what makes z of x in each column, a thread for each, and leaves it in shared memory.

use isonorm_math::Real;

use super::Args;
use crate::rows::access::{Access, Data, Width, width};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::at_least_one;
use crate::rows::quotient::Divisor;
use crate::simt::{self, Shared};
use crate::tiles::columns::Map;
use crate::tiles::tiling::Tiling;
use crate::tiles::{Spec, THREADS};

/// Numbers of a column: what is taken off, what then is multiplied, and what is added.
const OF_COLUMN: u32 = 3;

/// Bytes of shared memory of a block.
#[inline(always)]
pub fn shared_bytes(tiling: &Tiling) -> u32 {
    OF_COLUMN * tiling.width.next_multiple_of(4) * size_of::<f32>() as u32
}

type Numbers<T, S> = <<S as Spec>::Access as Access>::Numbers<T>;

/// Normalizes the tiles: a block for each of `blocks` parts of each of them, of so many rows that follow each other that a thread has
/// `accesses` of them, `N` at once.
///
/// # Safety
///
/// As for [`forward`](super::forward), of groups of one column each, with [`shared_bytes`] of shared memory.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn given<T: Data, S: Spec, const N: usize>(args: &Args<T>) {
    let tiling = &args.tiling;
    let (tile, part) = match tiling.tiles {
        1 => (0, simt::block_index()),
        tiles => {
            let tiles = at_least_one(tiles);
            (simt::block_index() % tiles, simt::block_index() / tiles)
        }
    };
    let before = tile * tiling.width;
    let block = Block {
        args,
        before,
        // The last tile may have fewer.
        width: tiling.width.min(tiling.line as u32 - before),
        at: Place::new(tiling, part, width::<T, S::Access>()),
    };
    // SAFETY: the caller's.
    unsafe { block.apply::<S, N>() };
}

/// Where a thread's accesses lie.
struct Place {
    /// The column of all of them in the tile; beyond it where the thread has none.
    column: u32,
    /// The first of the block's rows that is the thread's, and how far the next one is.
    row: u32,
    step: u32,
    /// Rows that the block has.
    rows: u32,
    /// The block's first row.
    first: u64,
}

impl Place {
    #[inline(always)]
    fn new(tiling: &Tiling, part: u32, elements: u32) -> Self {
        let lanes = Divisor::new(at_least_one(tiling.lanes));
        let (step, _) = lanes.divide(THREADS);
        let (row, lane) = lanes.divide(simt::thread_index());
        let most = step * tiling.accesses;
        let first = u64::from(part) * u64::from(most);
        Self {
            // Threads beyond the last whole row have nothing.
            column: if row < step { lane * elements } else { u32::MAX },
            row,
            step,
            rows: tiling.rows.saturating_sub(first).min(most.into()) as u32,
            first,
        }
    }
}

/// Accesses of a thread that are under way at once, by the first of them.
#[derive(Clone, Copy)]
struct Turn {
    access: u32,
    /// How many elements behind the tensor's first that one is.
    offset: u64,
}

/// What a block has of a tile.
struct Block<'a, T> {
    args: &'a Args<T>,
    /// Columns before the tile's first.
    before: u32,
    /// Columns of the tile.
    width: u32,
    at: Place,
}

impl<T: Data> Block<'_, T> {
    #[inline(always)]
    unsafe fn apply<S: Spec, const N: usize>(&self) {
        let (args, nothing) = (self.args, Numbers::<T, S>::splat(0.0));
        let has_residual = !args.residual.is_null();
        let mut turn = Turn {
            access: 0,
            offset: self.offset(),
        };
        let mut map = Map {
            centre: nothing,
            scale: nothing,
            shift: nothing,
        };
        while turn.access < args.tiling.accesses {
            // SAFETY: the caller's, here and below.
            unsafe {
                let x = self.load::<S, N>(args.x, turn);
                let residual = match has_residual {
                    true => self.load::<S, N>(args.residual, turn),
                    false => [S::Access::nothing::<T>(); N],
                };
                if turn.access == 0 {
                    self.find_columns();
                    simt::block_barrier();
                    if self.at.column < self.width {
                        map = self.map::<S>();
                    }
                }
                let z = |k: usize| {
                    let z = map.apply(S::Access::unpack::<T>(x[k]));
                    match has_residual {
                        true => z.zip(S::Access::unpack::<T>(residual[k]), |z, residual| z + residual),
                        false => z,
                    }
                };
                if S::Epilogue::CLASS == Class::Any {
                    // Code for activations is there once for all accesses.
                    let mut all = [nothing; N];
                    unrolled::<N>(|k| all[k] = z(k));
                    let y = S::Epilogue::apply::<T, _, N>(all, args.activation);
                    unrolled::<N>(|k| self.store::<S>(turn, k, y[k]));
                } else {
                    unrolled::<N>(|k| {
                        let [y] = S::Epilogue::apply::<T, _, 1>([z(k)], args.activation);
                        self.store::<S>(turn, k, y);
                    });
                }
            }
            turn = Turn {
                access: turn.access + N as u32,
                offset: turn.offset + N as u64 * self.stride(),
            };
        }
    }

    /// Whether the thread has this access.
    #[inline(always)]
    fn has(&self, access: u32) -> bool {
        self.at.column < self.width && self.at.row + access * self.at.step < self.at.rows
    }

    /// How many elements behind the tensor's first the thread's first access is.
    #[inline(always)]
    fn offset(&self) -> u64 {
        let row = self.at.first + u64::from(self.at.row);
        row * self.args.tiling.line + u64::from(self.before) + u64::from(self.at.column)
    }

    /// From an access of the thread to the next.
    #[inline(always)]
    fn stride(&self) -> u64 {
        u64::from(self.at.step) * u64::from(self.args.tiling.line as u32)
    }

    /// Some accesses; nothing where the thread has none.
    #[inline(always)]
    unsafe fn load<S: Spec, const N: usize>(&self, tensor: *const T, turn: Turn) -> [<S::Access as Access>::Raw<T>; N] {
        let mut loaded = [S::Access::nothing::<T>(); N];
        unrolled::<N>(|k| {
            if self.has(turn.access + k as u32) {
                let offset = turn.offset + k as u64 * self.stride();
                // SAFETY: the tensor has it.
                loaded[k] = unsafe { S::Access::load(tensor.wrapping_add(offset as usize)) };
            }
        });
        loaded
    }

    /// Stores the result of an access, and its mask, if one is wanted; nothing where the thread has none.
    #[inline(always)]
    unsafe fn store<S: Spec>(&self, turn: Turn, k: usize, y: Numbers<T, S>) {
        let args = self.args;
        if self.has(turn.access + k as u32) {
            let offset = turn.offset + k as u64 * self.stride();
            let raw = S::Access::pack::<T>(y);
            // SAFETY: the caller's; each place belongs to one thread.
            unsafe {
                S::Access::store(args.y.wrapping_add(offset as usize), raw);
                if S::Epilogue::CLASS == Class::Piecewise && !args.mask.is_null() {
                    let byte = offset / u64::from(width::<T, S::Access>());
                    simt::store_8(args.mask.wrapping_add(byte as usize), S::Access::positive::<T>(raw));
                }
            }
        }
    }

    /// Where the tile's columns have their numbers of a kind.
    #[inline(always)]
    fn numbers(&self, kind: u32) -> Shared<f32> {
        Shared::at(0).offset(kind * self.args.tiling.width.next_multiple_of(4))
    }

    /// Leaves what makes z of x in each column of the tile.
    #[inline(always)]
    unsafe fn find_columns(&self) {
        let (args, affine) = (self.args, &self.args.affine);
        let mut column = simt::thread_index();
        while column < self.width {
            let number = |base: *const u8, otherwise: f32| match base.is_null() {
                true => otherwise,
                // SAFETY: the caller's: a number for each column.
                false => unsafe { affine.parameter::<T>(base, self.before + column) },
            };
            let bases = [affine.weight, affine.bias, args.given_mean, args.given_variance];
            // All on their way before one is waited for.
            let [weight, bias, mean, variance] = [
                number(bases[0], 1.0),
                number(bases[1], 0.0),
                number(bases[2], 0.0),
                number(bases[3], 0.0),
            ];
            let scale = weight / Real::sqrt(variance + args.eps);
            for (kind, told) in [mean, scale, bias].into_iter().enumerate() {
                // SAFETY: shared memory has a place for it.
                unsafe { simt::shared_store(self.numbers(kind as u32).offset(column), told) };
            }
            column += THREADS;
        }
    }

    /// What was left of the thread's columns.
    #[inline(always)]
    unsafe fn map<S: Spec>(&self) -> Map<Numbers<T, S>> {
        let told = |kind: u32| {
            let place = self.numbers(kind).offset(self.at.column);
            let mut four = [0.0; 4];
            Numbers::<T, S>::each(|lane| {
                // SAFETY: it was left before a barrier, and columns of an access are a multiple of four, or one.
                unsafe {
                    match S::Access::WIDTH {
                        Width::Element => simt::shared_load(place),
                        _ => {
                            if lane.is_multiple_of(4) {
                                four = simt::shared_load_128(place.offset(lane));
                            }
                            four[lane as usize % 4]
                        }
                    }
                }
            })
        };
        Map {
            centre: told(0),
            scale: told(1),
            shift: told(2),
        }
    }
}
