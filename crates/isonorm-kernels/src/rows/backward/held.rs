//! A row as a thread holds it: where its parts lie, and how they come, straight to registers or ahead of time.

use core::marker::PhantomData;

use isonorm_math::Normalizer;

use super::Args;
use crate::rows::access::{Access, Data, Own, Place, Span, width};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::forward::Spec;
use crate::rows::lanes::unrolled;
use crate::rows::parameters::{Map, Sharing};
use crate::rows::ring::{Ring, Slot};
use crate::rows::team::{Owner, Owns, Team};
use crate::simt;

/// What a thread has of a row, as it came.
pub(super) struct Loaded<T: Data, A: Access, const V: usize> {
    pub(super) x: [A::Raw<T>; V],
    pub(super) dy: [A::Raw<T>; V],
    pub(super) residual: [A::Raw<T>; V],
}

impl<T: Data, A: Access, const V: usize> Loaded<T, A, V> {
    #[inline(always)]
    fn nothing() -> Self {
        let nothing = A::nothing::<T>();
        Self {
            x: [nothing; V],
            dy: [nothing; V],
            residual: [nothing; V],
        }
    }
}

/// A thread's parts of the rows.
pub(super) struct Walk<'a, T: Data, S: Spec, const V: usize> {
    pub(super) args: &'a Args<T>,
    pub(super) span: Span,
    /// See [`simt::zero`].
    pub(super) zero: u32,
    of: PhantomData<S>,
}

impl<'a, T: Data, S: Spec<Team: Team>, const V: usize> Walk<'a, T, S, V> {
    /// Tensors whose rows come ahead in shared memory.
    pub(super) const TENSORS: u32 = if S::RESIDUAL { S::Epilogue::CLASS.tensors() } else { 2 };

    /// Whether a row comes to where the one was that has just gone to registers, and so all slots are on their way while that one is worked
    /// on; otherwise to a slot that is free before that one is waited for.
    pub(super) const IN_PLACE: bool =
        matches!(S::Map::SHARING, Sharing::Segmented) || matches!(S::Team::OWNER, Owner::Lanes(_));

    #[inline(always)]
    pub(super) fn new(args: &'a Args<T>, team: &S::Team) -> Self {
        let width = width::<T, S::Access>();
        let columns = args.columns as u32;
        let (rank, threads) = (team.rank(), team.threads());
        let span = match S::Map::SHARING {
            Sharing::ByColumn => Span::new(rank, threads, width, columns),
            Sharing::ByRun => Span::of_stretches(rank, V as u32, width, columns),
            Sharing::Segmented => Span::of_segments::<T, S::Access>(rank, threads, args.segments),
        };
        Self {
            args,
            span,
            zero: match S::Team::OWNER {
                // Threads of a block have rows of their own.
                Owner::Lanes(_) => 0,
                _ => simt::zero(),
            },
            of: PhantomData,
        }
    }

    /// A row of some tensor.
    #[inline(always)]
    pub(super) fn row(&self, base: *const T, row: u64, stride: u64) -> Place<T> {
        Place::new(base, (row, stride), matches!(S::Map::SHARING, Sharing::Segmented))
    }

    /// Where part `v` of a row is.
    #[inline(always)]
    pub(super) fn at(&self, row: Place<T>, v: usize) -> *const T {
        row.element(match S::Map::SHARING {
            Sharing::Segmented => self.span.of_row::<T, S::Access>(row.before(), v),
            _ => self.span.start(v).into(),
        })
    }

    /// Part `v` of a row of some tensor.
    #[inline(always)]
    pub(super) fn place(&self, base: *const T, row: u64, stride: u64, v: usize) -> *const T {
        self.at(self.row(base, row, stride), v)
    }

    /// Which elements of part `v` a row has.
    #[inline(always)]
    pub(super) fn own(&self, row: u64, v: usize) -> Own {
        self.span.own::<T, S::Access>(row * self.args.x_stride, v)
    }

    /// A part of a row in a slot, with a number instead of elements that are others': of x, or of a tensor that adds nothing where it is 0.
    ///
    /// # Safety
    ///
    /// This thread has fetched it, and waited for it.
    #[inline(always)]
    pub(super) unsafe fn part(
        &self,
        (slot, tensor): (&Slot<S::Access, V>, u32),
        (row, v): (u64, usize),
        number: f32,
    ) -> <S::Access as Access>::Raw<T> {
        // SAFETY: the caller's.
        S::Access::filled::<T>(unsafe { slot.part::<T>(tensor, v) }, self.own(row, v), number)
    }

    #[inline(always)]
    pub(super) fn has(&self, v: usize) -> bool {
        self.span.has::<S::Access, V>(v)
    }

    /// Whether z is needed, and a residual is part of it.
    #[inline(always)]
    pub(super) fn has_residual(&self) -> bool {
        S::RESIDUAL && S::Epilogue::CLASS != Class::Plain && !self.args.residual.is_null()
    }

    /// Loads a row; nothing where there is none.
    #[inline(always)]
    pub(super) unsafe fn load(&self, row: u64) -> Loaded<T, S::Access, V> {
        let args = self.args;
        let mut loaded = Loaded::nothing();
        if row >= args.rows {
            return loaded;
        }
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the row has this part, here and below.
                unsafe {
                    loaded.x[v] = S::Access::load(self.place(args.x, row, args.x_stride, v));
                    loaded.dy[v] = S::Access::load(self.place(args.dy, row, args.dy_stride, v));
                    if self.has_residual() {
                        loaded.residual[v] = S::Access::load(self.place(args.residual, row, args.residual_stride, v));
                    }
                }
            }
        });
        loaded
    }

    /// Sets a row on its way to a slot; nothing where there is none.
    #[inline(always)]
    pub(super) unsafe fn fetch(&self, ring: &Ring<S::Access, V>, row: u64, slot: u32) {
        let args = self.args;
        if row < args.rows {
            let x = self.row(args.x, row, args.x_stride);
            let dy = self.row(args.dy, row, args.dy_stride);
            let residual = self.row(args.residual, row, args.residual_stride);
            unrolled::<V>(|v| {
                if self.has(v) {
                    // SAFETY: the row has this part.
                    unsafe {
                        let own = self.own(row, v);
                        ring.fetch(slot, 0, v, self.at(x, v), own);
                        ring.fetch(slot, 1, v, self.at(dy, v), own);
                        if self.has_residual() {
                            ring.fetch(slot, 2, v, self.at(residual, v), own);
                        }
                    }
                }
            });
        }
        ring.commit();
    }

    /// The row that has come; nothing where there is none.
    #[inline(always)]
    pub(super) unsafe fn arrived(
        &self,
        ring: &mut Ring<S::Access, V>,
        row: u64,
        normalizer: Normalizer<f32>,
    ) -> Loaded<T, S::Access, V> {
        let mut loaded = Loaded::nothing();
        ring.wait();
        let slot = ring.arrived();
        if row < self.args.rows {
            unrolled::<V>(|v| {
                if self.has(v) {
                    // SAFETY: this thread has fetched it.
                    unsafe {
                        loaded.x[v] = self.part((&slot, 0), (row, v), normalizer.centre);
                        loaded.dy[v] = self.part((&slot, 1), (row, v), 0.0);
                        if self.has_residual() {
                            loaded.residual[v] = self.part((&slot, 2), (row, v), 0.0);
                        }
                    }
                }
            });
        }
        ring.advance();
        loaded
    }
}
