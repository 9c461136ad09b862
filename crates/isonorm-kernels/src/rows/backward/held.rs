//! A row as a thread holds it: where its parts lie, and how they come, straight to registers or ahead of time.

use core::marker::PhantomData;

use isonorm_math::Normalizer;

use super::Args;
use crate::rows::access::{Access, Data, Own, Place, Span, width};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::forward::{PlaceOf, Spec};
use crate::rows::lanes::unrolled;
use crate::rows::parameters::{Map, Sharing};
use crate::rows::ring::{Ends, Ring, Slot};
use crate::rows::team::{Owner, Owns, Team};
use crate::simt::{self, Shared};

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
    pub(super) const IN_PLACE: bool = S::Access::IS_OF_SEGMENTS || matches!(S::Team::OWNER, Owner::Lanes(_));

    #[inline(always)]
    pub(super) fn new(args: &'a Args<T>, team: &S::Team) -> Self {
        let width = width::<T, S::Access>();
        let columns = args.columns as u32;
        let (rank, threads) = (team.rank(), team.threads());
        let span = match S::Map::SHARING {
            _ if S::Access::BY_SEGMENT => {
                let row = team.first_row() + u64::from(team.own_row());
                let lead = Own::first(row * args.x_stride, width).lead();
                Span::by_segment::<T, S::Access, V>(team.own_place(), lead, args.segments)
            }
            Sharing::Segmented => Span::of_segments::<T, S::Access>(rank, threads, args.segments),
            _ => Span::new(rank, threads, width, columns),
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

    /// A row of x, dy and the residual.
    #[inline(always)]
    fn tensors(&self, row: u64) -> (PlaceOf<T, S>, PlaceOf<T, S>, PlaceOf<T, S>) {
        let args = self.args;
        (
            Place::new(args.x, row, args.x_stride),
            Place::new(args.dy, row, args.dy_stride),
            Place::new(args.residual, row, args.residual_stride),
        )
    }

    /// Part `v` in a slot, with a number instead of elements that are others': of x, or of a tensor that adds nothing where it is 0.
    ///
    /// # Safety
    ///
    /// This thread has fetched it, and waited for it.
    #[inline(always)]
    unsafe fn part(
        (slot, tensor): (&Slot<S::Access, V>, u32),
        (v, own): (usize, Option<Own>),
        number: f32,
    ) -> <S::Access as Access>::Raw<T> {
        // SAFETY: the caller's.
        S::Access::filled::<T>(unsafe { slot.part::<T>(tensor, v) }, own, number)
    }

    /// The parts that are so many times as many behind these.
    #[inline(always)]
    pub(super) fn behind(&self, times: u32) -> Self {
        Self {
            span: self.span.anew().behind(times * V as u32),
            ..*self
        }
    }

    /// The same, see [`Span::anew`].
    #[inline(always)]
    pub(super) fn anew(&self) -> Self {
        Self {
            span: self.span.anew(),
            ..*self
        }
    }

    /// Where the parts are that segments may have a part of only.
    #[inline(always)]
    pub(super) fn ends(&self) -> Ends {
        self.span.ends(S::Team::OWNER)
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
        let (x, dy, residual) = self.tensors(row);
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the row has this part, here and below.
                unsafe {
                    loaded.x[v] = S::Access::load(x.part(self.span, v));
                    loaded.dy[v] = S::Access::load(dy.part(self.span, v));
                    if self.has_residual() {
                        loaded.residual[v] = S::Access::load(residual.part(self.span, v));
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
            let (x, dy, residual) = self.tensors(row);
            unrolled::<V>(|v| {
                let has = self.has(v);
                // SAFETY: the row has this part, or nothing is fetched.
                unsafe {
                    // Of segments of whole accesses the kernels that hold eight of each tensor are slower that way.
                    if S::Access::HAS_ENDS && S::Access::has_whole_part(v) {
                        ring.fetch_if(has, slot, 0, v, x.part(self.span, v));
                        ring.fetch_if(has, slot, 1, v, dy.part(self.span, v));
                        if self.has_residual() {
                            ring.fetch_if(has, slot, 2, v, residual.part(self.span, v));
                        }
                    } else if has {
                        let left = x.left(self.span, v);
                        ring.fetch(slot, 0, v, x.part(self.span, v), left);
                        ring.fetch(slot, 1, v, dy.part(self.span, v), left);
                        if self.has_residual() {
                            ring.fetch(slot, 2, v, residual.part(self.span, v), left);
                        }
                    }
                }
            });
        }
        ring.commit();
    }

    /// Sets part `v` of x and dy on its way to places of its own; nothing where there is none.
    #[inline(always)]
    pub(super) unsafe fn fetch_part(&self, row: u64, v: usize, to: [Shared<u32>; 2]) {
        if row < self.args.rows && self.has(v) {
            let (x, dy, _) = self.tensors(row);
            let left = x.left(self.span, v);
            // SAFETY: the row has this part; the places are this thread's.
            unsafe {
                S::Access::fetch_some(to[0], x.part(self.span, v), left);
                S::Access::fetch_some(to[1], dy.part(self.span, v), left);
            }
        }
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
        match S::Team::OWNER {
            Owner::Blocks if !S::Access::IS_OF_SEGMENTS => ring.wait_in_turn(),
            _ => ring.wait(),
        }
        let slot = ring.arrived();
        if row < self.args.rows {
            // SAFETY: it has come.
            loaded = unsafe { self.parts(row, &slot, normalizer) };
        }
        ring.advance();
        loaded
    }

    /// The row that is in a slot.
    ///
    /// # Safety
    ///
    /// This thread has fetched the parts that the row has, and waited for them.
    #[inline(always)]
    pub(super) unsafe fn parts(
        &self,
        row: u64,
        slot: &Slot<S::Access, V>,
        normalizer: Normalizer<f32>,
    ) -> Loaded<T, S::Access, V> {
        let mut loaded = Loaded::nothing();
        let x = PlaceOf::<T, S>::new(self.args.x, row, self.args.x_stride);
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's.
                unsafe {
                    let own = x.own(self.span, v);
                    loaded.x[v] = Self::part((slot, 0), (v, own), normalizer.centre);
                    loaded.dy[v] = Self::part((slot, 1), (v, own), 0.0);
                    if self.has_residual() {
                        loaded.residual[v] = Self::part((slot, 2), (v, own), 0.0);
                    }
                }
            }
        });
        loaded
    }
}
