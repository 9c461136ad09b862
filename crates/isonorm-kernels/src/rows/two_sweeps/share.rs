//! What a block has of the rows, and what a thread has of that: where it lies, how it comes to shared memory, and from there.

use core::marker::PhantomData;
use core::num::NonZero;

use super::{Args, HEAD_BYTES};
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::forward::Spec;
use crate::rows::lanes::unrolled;
use crate::rows::parameters::{Map, OfColumn, Sharing, at_least_one};
use crate::simt::{self, Shared, WARP};

/// What a thread has of a tile, as it came.
pub(super) struct Loaded<T: Data, A: Access, const V: usize> {
    pub(super) x: [A::Raw<T>; V],
    pub(super) dy: [A::Raw<T>; V],
    pub(super) residual: [A::Raw<T>; V],
}

/// A stretch of a run, or all of it.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub(super) row: u64,
    pub(super) set: u32,
    /// The run's number in its row.
    pub(super) run: u32,
    /// The column that it starts at, and the element of the tensor.
    pub(super) column: u64,
    pub(super) start: u64,
    pub(super) len: u32,
}

/// A block's way over its share of the rows.
pub(super) struct Walk<'a, T: Data, S: Spec<Map: OfColumn>, const V: usize> {
    pub(super) args: &'a Args<T>,
    /// Blocks that share a row, which of them this is, and of which team.
    pub(super) blocks: u32,
    pub(super) part: u32,
    pub(super) first_run: u32,
    pub(super) team: u32,
    pub(super) teams: u32,
    pub(super) lookup: <S::Map as OfColumn>::Lookup,
    of: PhantomData<S>,
}

pub(super) type Numbers<T, S> = <<S as Spec>::Access as Access>::Numbers<T>;

impl<'a, T: Data, S: Spec<Map: OfColumn>, const V: usize> Walk<'a, T, S, V> {
    pub(super) const BY_COLUMN: bool = matches!(S::Map::SHARING, Sharing::ByColumn);
    /// Tensors that are kept.
    const TENSORS: u32 = S::Epilogue::CLASS.tensors();

    #[inline(always)]
    pub(super) fn new(args: &'a Args<T>) -> Self {
        let blocks = at_least_one(args.blocks());
        let parts = at_least_one(args.parts);
        let rank = simt::block_index() % blocks;
        Self {
            args,
            blocks: blocks.get(),
            part: rank % parts,
            first_run: rank / parts * args.runs_at_once,
            team: simt::block_index() / blocks,
            teams: simt::grid_blocks() / blocks,
            lookup: S::Map::lookup(&args.affine),
            of: PhantomData,
        }
    }

    #[inline(always)]
    pub(super) fn first_row(&self) -> u64 {
        u64::from(self.team) * u64::from(self.args.rows_at_once)
    }

    #[inline(always)]
    pub(super) fn step(&self) -> u64 {
        u64::from(self.teams) * u64::from(self.args.rows_at_once)
    }

    /// Warps that share a stretch: their number, and which of them this one is.
    #[inline(always)]
    pub(super) fn warps(&self) -> (NonZero<u32>, u32) {
        let warps = at_least_one(self.args.warps);
        (warps, simt::warp_index() % warps)
    }

    /// The warp's stretch; none beyond the rows, or the runs.
    #[inline(always)]
    pub(super) fn own_stretch(&self, first_row: u64) -> Option<Stretch> {
        self.stretch(first_row, simt::warp_index() / self.warps().0)
    }

    /// The block's stretches, by number.
    #[inline(always)]
    pub(super) fn stretch(&self, first_row: u64, number: u32) -> Option<Stretch> {
        let args = self.args;
        // By column there is one run: the compiler should know.
        let (row, run) = match Self::BY_COLUMN {
            true => (first_row, 0),
            false => {
                let at_once = at_least_one(args.runs_at_once);
                let (rows, runs) = (number / at_once, number % at_once);
                if rows >= args.rows_at_once {
                    return None;
                }
                (first_row + u64::from(rows), self.first_run + runs)
            }
        };
        if row >= args.rows || run >= args.runs() {
            return None;
        }
        let set = args.affine.set_of::<S::Map>(row);
        let start = (u64::from(self.part) * args.part).min(args.run);
        let column = u64::from(run) * args.run + start;
        Some(Stretch {
            row,
            set,
            run,
            column,
            start: row * args.columns + column,
            len: (args.run - start).min(args.part) as u32,
        })
    }

    /// Whether gradients of weight and bias are added up by column.
    #[inline(always)]
    pub(super) fn has_sums(&self) -> bool {
        Self::BY_COLUMN && !(self.args.dweight.is_null() && self.args.dbias.is_null())
    }

    /// Whether z is needed, and a residual is part of it.
    #[inline(always)]
    pub(super) fn has_residual(&self) -> bool {
        S::Epilogue::CLASS != Class::Plain && !self.args.residual.is_null()
    }

    /// The tiles of a stretch: where the thread's first access of one starts, how far its accesses lie apart, and how far tiles.
    #[inline(always)]
    pub(super) fn tile(&self) -> (u32, u32, u32) {
        let (apart, first) = match Self::BY_COLUMN {
            true => (simt::block_threads(), simt::thread_index()),
            false => {
                let (warps, own) = self.warps();
                (warps.get() * WARP, own * WARP + simt::lane())
            }
        };
        let width = width::<T, S::Access>();
        (first * width, apart * width, apart * width * V as u32)
    }

    /// The warp's tiles of a stretch: all lanes count alike.
    #[inline(always)]
    pub(super) fn tiles(&self, stretch: Stretch) -> u32 {
        stretch.len.div_ceil(at_least_one(self.tile().2).get().max(1))
    }

    /// Where access `v` to a tensor is kept, of the warp's tile `tile`, in one of the two buffers.
    #[inline(always)]
    pub(super) fn kept_at(&self, buffer: u32, tile: u32, tensor: u32, v: usize) -> Shared<u32> {
        let sums = match self.has_sums() {
            true => self.args.kept * 2 * V as u32 * width::<T, S::Access>() * 4,
            false => 0,
        };
        let access = ((buffer * self.args.kept + tile) * Self::TENSORS + tensor) * V as u32 + v as u32;
        let threads = simt::block_threads();
        Shared::at(HEAD_BYTES + sums * threads + (access * threads + simt::thread_index()) * S::Access::KEPT_BYTES)
    }

    /// Starts to copy what is kept of some rows.
    #[inline(always)]
    pub(super) unsafe fn fetch(&self, first_row: u64, buffer: u32) {
        let args = self.args;
        if let Some(stretch) = self.own_stretch(first_row) {
            let (mut at, apart, step) = self.tile();
            let tiles = self.tiles(stretch).min(args.kept);
            let mut tile = 0;
            while tile < tiles {
                unrolled::<V>(|v| {
                    let at = at + v as u32 * apart;
                    if at < stretch.len {
                        let element = stretch.start as usize + at as usize;
                        // SAFETY: the stretch has these elements, and the places are this thread's.
                        unsafe {
                            S::Access::fetch(self.kept_at(buffer, tile, 0, v), args.x.wrapping_add(element));
                            S::Access::fetch(self.kept_at(buffer, tile, 1, v), args.dy.wrapping_add(element));
                            if self.has_residual() {
                                let place = self.kept_at(buffer, tile, 2, v);
                                S::Access::fetch(place, args.residual.wrapping_add(element));
                            }
                        }
                    }
                });
                (at, tile) = (at + step, tile + 1);
            }
        }
        simt::copy_commit();
    }

    /// The warp's tile `tile`, from where it is.
    #[inline(always)]
    pub(super) unsafe fn load(
        &self,
        stretch: Stretch,
        (at, apart): (u32, u32),
        (buffer, tile): (u32, u32),
    ) -> Loaded<T, S::Access, V> {
        let args = self.args;
        let nothing = S::Access::nothing::<T>();
        let mut loaded = Loaded {
            x: [nothing; V],
            dy: [nothing; V],
            residual: [nothing; V],
        };
        let is_kept = tile < args.kept;
        unrolled::<V>(|v| {
            let at = at + v as u32 * apart;
            if at < stretch.len {
                let element = stretch.start as usize + at as usize;
                // SAFETY: this thread has kept it there, or the stretch has these elements.
                let one = |tensor: u32, base: *const T| unsafe {
                    if is_kept {
                        S::Access::kept(self.kept_at(buffer, tile, tensor, v))
                    } else {
                        S::Access::load(base.wrapping_add(element))
                    }
                };
                loaded.x[v] = one(0, args.x);
                loaded.dy[v] = one(1, args.dy);
                if self.has_residual() {
                    loaded.residual[v] = one(2, args.residual);
                }
            }
        });
        loaded
    }
}
