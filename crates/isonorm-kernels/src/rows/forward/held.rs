//! A row as a thread holds it: where its parts lie, and how they come.

use core::marker::PhantomData;

use super::{Args, PlaceOf, Spec};
use crate::rows::access::{Access, Data, Own, Span, Width, width};
use crate::rows::lanes::{Lanes, unrolled};
use crate::rows::parameters::{Map, Sharing};
use crate::rows::ring::{Ends, Ring};
use crate::rows::statistics::{Measured, Statistics};
use crate::rows::team::{Owner, Owns, Team};

/// What a thread has of a row, as it came.
pub(super) struct Loaded<T: Data, A: Access, const V: usize> {
    pub(super) x: [A::Raw<T>; V],
    pub(super) residual: [A::Raw<T>; V],
    pub(super) first: First<T, A>,
}

/// What lies at the start of a row, as it came: whoever computes with it waits for it.
pub(super) struct First<T: Data, A: Access> {
    /// The row's first element, and the residual's.
    elements: [T; 2],
    /// Of rows in segments, the first access, and what the row has of it.
    access: A::Raw<T>,
    own: Own,
}

impl<T: Data, A: Access> Clone for First<T, A> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Data, A: Access> Copy for First<T, A> {}

impl<T: Data, A: Access> First<T, A> {
    #[inline(always)]
    pub(super) fn nothing() -> Self {
        Self {
            elements: [T::default(); 2],
            access: A::nothing::<T>(),
            own: Own::all_of(width::<T, A>()),
        }
    }

    /// All of the first access.
    #[inline(always)]
    pub(super) fn of_access(access: A::Raw<T>) -> Self {
        Self {
            access,
            ..Self::nothing()
        }
    }

    /// The mean of the first access, with the row's first element instead of those that are others': nearer to the row's mean than that one.
    /// Of equal numbers exactly that number; the first, if the sum is no number.
    #[inline(always)]
    pub(super) fn mean_of_access(self) -> f32 {
        let numbers = A::unpack::<T>(self.access);
        let first = match A::WIDTH {
            Width::Ragged => self.elements[0].to_acc(),
            _ => {
                numbers
                    .fold((0, 0.0), |(n, first), x: f32| (n + 1, if n == 0 { x } else { first }))
                    .1
            }
        };
        let own = |n: u32, x: f32| if self.own.has(n) { x } else { first };
        let (_, sum) = numbers.fold((0, 0.0), |(n, sum), x: f32| (n + 1, sum + own(n, x)));
        let mean = sum * (1.0 / width::<T, A>() as f32);
        A::near::<T>(if mean.is_finite() { mean } else { first })
    }
}

impl<T: Data, A: Access, const V: usize> Clone for Loaded<T, A, V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Data, A: Access, const V: usize> Copy for Loaded<T, A, V> {}

impl<T: Data, A: Access, const V: usize> Loaded<T, A, V> {
    #[inline(always)]
    pub(super) fn nothing() -> Self {
        let nothing = A::nothing::<T>();
        Self {
            x: [nothing; V],
            residual: [nothing; V],
            first: First::nothing(),
        }
    }
}

/// A thread's parts of the rows.
pub(super) struct Walk<'a, T: Data, S: Spec, const V: usize> {
    pub(super) args: &'a Args<T>,
    pub(super) span: Span,
    of: PhantomData<S>,
}

impl<'a, T: Data, S: Spec<Team: Team>, const V: usize> Walk<'a, T, S, V> {
    /// Tensors whose rows come ahead in shared memory: also what is added, but to rows of the whole chip.
    pub(super) const TENSORS: u32 = if S::RESIDUAL && !matches!(S::Team::OWNER, Owner::Chip) {
        2
    } else {
        1
    };

    /// The same, see [`Span::anew`].
    #[inline(always)]
    pub(super) fn anew(&self) -> Self {
        Self {
            span: self.span.anew(),
            ..*self
        }
    }

    #[inline(always)]
    pub(super) fn new(args: &'a Args<T>, team: &S::Team) -> Self {
        let width = width::<T, S::Access>();
        let (rank, threads) = (team.rank(), team.threads());
        let span = match S::Map::SHARING {
            _ if S::Access::BY_SEGMENT => {
                let row = team.first_row() + u64::from(team.own_row());
                let lead = Own::first(row * args.x_stride, width).lead();
                Span::by_segment::<T, S::Access, V>(team.own_place(), lead, args.segments)
            }
            Sharing::Segmented => Span::of_segments::<T, S::Access>(rank, threads, args.segments),
            _ => Span::new(rank, threads, width, args.columns as u32),
        };
        Self {
            args,
            span,
            of: PhantomData,
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

    /// Whether the residual is added before the statistics.
    #[inline(always)]
    pub(super) fn has_stream(&self) -> bool {
        S::RESIDUAL && !self.args.stream.is_null()
    }

    #[inline(always)]
    pub(super) fn has_residual(&self) -> bool {
        S::RESIDUAL && !self.args.residual.is_null()
    }

    /// The row's first element, and the residual's, where they are needed; nothing where there is no row.
    #[inline(always)]
    pub(super) fn first(&self, row: u64) -> First<T, S::Access> {
        let mut first = First::nothing();
        if row < self.args.rows {
            self.load_first(&mut first, row);
        }
        first
    }

    /// Whether rows come ahead to shared memory.
    pub(super) const RING: bool = S::AHEAD && (S::Team::RING || S::Access::IS_OF_SEGMENTS);

    /// Whether the kernel updates running statistics.
    pub(super) const RUNNING: bool = matches!(S::Map::SHARING, Sharing::Segmented);

    /// Those of the row before it, if they will be updated.
    #[inline(always)]
    pub(super) unsafe fn running(&self, updates: bool, row: u64) -> [f32; 2] {
        match updates {
            // SAFETY: the caller's.
            true => unsafe { self.args.running.before::<T>(row, self.args.affine.as_data) },
            false => [0.0; 2],
        }
    }

    /// Takes the row's statistics into the running ones: last, for nobody waits for them.
    #[inline(always)]
    pub(super) unsafe fn update(&self, updates: bool, row: u64, before: [f32; 2], measured: &Measured) {
        if updates {
            let batch = [measured.mean, measured.variance];
            // SAFETY: the caller's.
            unsafe {
                self.args
                    .running
                    .update::<T>(row, before, batch, self.args.affine.as_data)
            };
        }
    }

    /// What distances in the row are from: its first element, or, in segments, the mean of some.
    #[inline(always)]
    pub(super) fn shift(&self, first: First<T, S::Access>) -> f32 {
        match S::Access::IS_OF_SEGMENTS {
            true if S::Access::BY_SEGMENT => {
                // The same for all rows of the team, and not kept for each.
                let own = self.span.first_own::<T, S::Access>();
                First { own, ..first }.mean_of_access()
            }
            true => first.mean_of_access(),
            false => first.elements[0].to_acc(),
        }
    }

    #[inline(always)]
    fn load_first(&self, first: &mut First<T, S::Access>, row: u64) {
        let args = self.args;
        if S::Statistics::ABOUT_FIRST {
            let place = args.x.wrapping_add((row * args.x_stride) as usize);
            // SAFETY: a row has an element; in segments, an access.
            unsafe {
                match S::Access::WIDTH {
                    Width::Ragged => {
                        let own = Own::first(row * args.x_stride, width::<T, S::Access>());
                        first.own = own;
                        first.elements[0] = T::load(place);
                        first.access = S::Access::load(place.wrapping_sub(own.lead() as usize));
                    }
                    _ if S::Access::IS_OF_SEGMENTS => first.access = S::Access::load(place),
                    _ => first.elements[0] = T::load(place),
                }
            }
            if self.has_stream() {
                let place = args.residual.wrapping_add((row * args.residual_stride) as usize);
                // SAFETY: with a stream there is a residual.
                first.elements[1] = unsafe { T::load(place) };
            }
        }
    }

    /// Starts to load a row; nothing where there is none.
    #[inline(always)]
    pub(super) fn load(&self, row: u64) -> Loaded<T, S::Access, V> {
        let args = self.args;
        let mut loaded = Loaded::nothing();
        if row >= args.rows {
            return loaded;
        }
        self.load_first(&mut loaded.first, row);
        let x = PlaceOf::<T, S>::new(args.x, row, args.x_stride);
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the row has this part.
                loaded.x[v] = unsafe { S::Access::load_some(x.part(self.span, v), x.left(self.span, v)) };
            }
        });
        loaded.residual = self.residual(row);
        loaded
    }

    /// Starts to load a row of what is added; nothing where there is none.
    #[inline(always)]
    pub(super) fn residual(&self, row: u64) -> [<S::Access as Access>::Raw<T>; V] {
        let (args, mut parts) = (self.args, [S::Access::nothing::<T>(); V]);
        if self.has_residual() {
            let residual = PlaceOf::<T, S>::new(args.residual, row, args.residual_stride);
            unrolled::<V>(|v| {
                if self.has(v) {
                    let left = residual.left(self.span, v);
                    // SAFETY: the row has this part.
                    parts[v] = unsafe { S::Access::load_some(residual.part(self.span, v), left) };
                }
            });
        }
        parts
    }

    /// Sets a row on its way to a slot; nothing where there is none.
    #[inline(always)]
    pub(super) fn fetch(&self, ring: &Ring<S::Access, V>, row: u64, slot: u32) {
        let args = self.args;
        if row < args.rows {
            let x = PlaceOf::<T, S>::new(args.x, row, args.x_stride);
            let residual = PlaceOf::<T, S>::new(args.residual, row, args.residual_stride);
            unrolled::<V>(|v| {
                let has = self.has(v);
                // SAFETY: the row has this part, or nothing is fetched.
                unsafe {
                    if S::Access::has_whole_part(v) {
                        ring.fetch_if(has, slot, 0, v, x.part(self.span, v));
                        if Self::TENSORS > 1 && self.has_residual() {
                            ring.fetch_if(has, slot, 1, v, residual.part(self.span, v));
                        }
                    } else if has {
                        let left = x.left(self.span, v);
                        ring.fetch(slot, 0, v, x.part(self.span, v), left);
                        if Self::TENSORS > 1 && self.has_residual() {
                            ring.fetch(slot, 1, v, residual.part(self.span, v), left);
                        }
                    }
                }
            });
        }
        ring.commit();
    }

    /// The row that has come, but for what is known of its first element; nothing where there is none.
    #[inline(always)]
    pub(super) fn arrived(
        &self,
        ring: &mut Ring<S::Access, V>,
        row: u64,
        first: First<T, S::Access>,
    ) -> Loaded<T, S::Access, V> {
        let mut loaded = Loaded {
            first,
            ..Loaded::nothing()
        };
        match S::Team::OWNER {
            Owner::Blocks if !S::Access::IS_OF_SEGMENTS => ring.wait_in_turn(),
            _ => ring.wait(),
        }
        let slot = ring.arrived();
        if row < self.args.rows {
            unrolled::<V>(|v| {
                if self.has(v) {
                    // SAFETY: this thread has fetched it.
                    unsafe {
                        loaded.x[v] = slot.part::<T>(0, v);
                        if self.has_residual() {
                            loaded.residual[v] = slot.part::<T>(1, v);
                        }
                    }
                }
            });
        }
        ring.advance();
        loaded
    }

    /// Replaces x by x + residual, rounded to the data's type.
    #[inline(always)]
    pub(super) fn add_residual(&self, loaded: &mut Loaded<T, S::Access, V>) {
        let [first, residual] = loaded.first.elements;
        loaded.first.elements[0] = T::from_acc(first.to_acc() + residual.to_acc());
        unrolled::<V>(|v| {
            let x = S::Access::unpack::<T>(loaded.x[v]);
            let residual = S::Access::unpack::<T>(loaded.residual[v]);
            loaded.x[v] = S::Access::pack::<T>(x.zip(residual, |x, residual| x + residual));
        });
    }
}
