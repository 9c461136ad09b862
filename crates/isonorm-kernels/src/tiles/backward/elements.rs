//! What is done with the accesses of a thread: how they come, what they add to sums, and what becomes of them.

use isonorm_math::Real;

use super::{Numbers, Pass, Raw};
use crate::rows::access::{Access, Data, width};
use crate::rows::epilogue::{Class, Epilogue};
use crate::rows::lanes::{Lanes, unrolled};
use crate::simt;
use crate::tiles::Spec;
use crate::tiles::columns::Map;
use crate::tiles::row::Row;
use crate::tiles::tiling::{Cursor, Tile};

/// Some accesses to each tensor, as they came.
pub(super) struct Loaded<R, const N: usize> {
    x: [R; N],
    dy: [R; N],
    residual: [R; N],
}

impl<R: Copy, const N: usize> Loaded<R, N> {
    #[inline(always)]
    fn nothing(nothing: R) -> Self {
        Self {
            x: [nothing; N],
            dy: [nothing; N],
            residual: [nothing; N],
        }
    }
}

impl<T: Data, S: Spec, const N: usize> Pass<'_, T, S, N> {
    /// Whether z is needed, and a residual is part of it.
    #[inline(always)]
    fn has_residual(&self) -> bool {
        matches!(S::Epilogue::CLASS, Class::Piecewise | Class::Any) && !self.args.residual.is_null()
    }

    /// dy as it passes the mask, of some accesses from a place on.
    #[inline(always)]
    pub(super) unsafe fn mask<const M: usize>(&self, loaded: &mut Loaded<Raw<T, S>, M>, tile: Tile, at: Cursor) {
        if S::Epilogue::CLASS != Class::Masked {
            return;
        }
        let (mut bits, mut at) = ([0; M], at);
        unrolled::<M>(|k| {
            let byte = (tile.start + at.offset) / u64::from(width::<T, S::Access>());
            // SAFETY: the caller's: the tile has these places.
            bits[k] = unsafe { simt::load_8(self.args.mask.wrapping_add(byte as usize)) };
            at = self.walk.next(at);
        });
        unrolled::<M>(|k| loaded.dy[k] = S::Access::masked::<T>(loaded.dy[k], bits[k]));
    }

    #[inline(always)]
    fn place(&self, base: *const T, tile: Tile, at: Cursor) -> *const T {
        base.wrapping_add((tile.start + at.offset) as usize)
    }

    /// Sets an access on its way to a slot.
    #[inline(always)]
    pub(super) unsafe fn fetch_one(&self, tile: Tile, at: Cursor, (slot, access): (u32, u32)) {
        let args = self.args;
        // SAFETY: the caller's: the tile has this place, and what was in the slot has been used.
        unsafe {
            self.slots.fetch(slot, 0, access, self.place(args.x, tile, at));
            self.slots.fetch(slot, 1, access, self.place(args.dy, tile, at));
            if self.has_residual() {
                self.slots.fetch(slot, 2, access, self.place(args.residual, tile, at));
            }
        }
    }

    #[inline(always)]
    pub(super) unsafe fn fetch_tile(&self, tile: Tile, slot: u32) {
        let ([kept, _], mut at, mut access) = (self.walk.own(tile), self.walk.start(), 0);
        while access < kept {
            // SAFETY: the caller's.
            unsafe { self.fetch_one(tile, at, (slot, access)) };
            at = self.walk.next(at);
            access += 1;
        }
    }

    /// Some accesses that have come to a slot.
    #[inline(always)]
    pub(super) unsafe fn kept<const M: usize>(&self, (slot, access): (u32, u32)) -> Loaded<Raw<T, S>, M> {
        let mut loaded = Loaded::nothing(S::Access::nothing::<T>());
        unrolled::<M>(|k| {
            let access = access + k as u32;
            // SAFETY: the caller's.
            unsafe {
                loaded.x[k] = self.slots.part::<T>(slot, 0, access);
                loaded.dy[k] = self.slots.part::<T>(slot, 1, access);
                if self.has_residual() {
                    loaded.residual[k] = self.slots.part::<T>(slot, 2, access);
                }
            }
        });
        loaded
    }

    /// Loads some accesses from a place on, which is moved behind them.
    #[inline(always)]
    pub(super) unsafe fn load<const M: usize>(&self, tile: Tile, at: &mut Cursor) -> Loaded<Raw<T, S>, M> {
        let (args, first) = (self.args, *at);
        let mut loaded = Loaded::nothing(S::Access::nothing::<T>());
        unrolled::<M>(|k| {
            // SAFETY: the caller's: the tile has these places.
            unsafe {
                loaded.x[k] = S::Access::load(self.place(args.x, tile, *at));
                loaded.dy[k] = S::Access::load(self.place(args.dy, tile, *at));
                if self.has_residual() {
                    loaded.residual[k] = S::Access::load(self.place(args.residual, tile, *at));
                }
            }
            *at = self.walk.next(*at);
        });
        // SAFETY: the caller's.
        unsafe { self.mask(&mut loaded, tile, first) };
        loaded
    }

    /// g of an access.
    #[inline(always)]
    fn gradient<const M: usize>(
        &self,
        loaded: &Loaded<Raw<T, S>, M>,
        (map, row): (&Map<Numbers<T, S>>, &Row),
        k: usize,
    ) -> Numbers<T, S> {
        let dy = S::Access::unpack::<T>(loaded.dy[k]);
        if matches!(S::Epilogue::CLASS, Class::Plain | Class::Masked) {
            return dy;
        }
        let mut z = row.apply::<_, S>(map.apply(S::Access::unpack::<T>(loaded.x[k])));
        if self.has_residual() {
            z = z.zip(S::Access::unpack::<T>(loaded.residual[k]), |z, residual| {
                self.args.sum(z, residual)
            });
        }
        let [slope] = S::Epilogue::derivative::<T, _, _>([z], self.args.activation);
        dy.zip(slope, |dy, slope| dy * slope)
    }

    /// Adds some accesses, from one on, to the thread's sums.
    #[inline(always)]
    pub(super) unsafe fn add<const M: usize>(
        &self,
        sums: &mut [Numbers<T, S>; 2],
        access: u32,
        loaded: &Loaded<Raw<T, S>, M>,
        map: &Map<Numbers<T, S>>,
    ) {
        // SAFETY: the caller's.
        unsafe {
            match M {
                // A closure that is used twice might stay a function of its own.
                1 => self.add_one(sums, access, loaded, map, 0),
                _ => unrolled::<M>(|k| self.add_one(sums, access, loaded, map, k)),
            }
        }
    }

    /// Adds g · (x − mean) and g of one of them; where parameters belong to rows, times their weight, and those without it to the
    /// row's sums.
    #[inline(always)]
    unsafe fn add_one<const M: usize>(
        &self,
        sums: &mut [Numbers<T, S>; 2],
        access: u32,
        loaded: &Loaded<Raw<T, S>, M>,
        map: &Map<Numbers<T, S>>,
        k: usize,
    ) {
        let access = access + k as u32;
        // SAFETY: the caller's.
        let row = unsafe { self.row(access) };
        let mut g = self.gradient(loaded, (map, &row), k);
        let distance = S::Access::unpack::<T>(loaded.x[k]).zip(map.centre, |x, centre| x - centre);
        if S::BY_ROW {
            let of_gx = g.zip(distance, |g, d| g * d).zip(map.scale, |gd, rstd| gd * rstd);
            let own = [of_gx, g].map(|own| own.fold(0.0, |sum, own| sum + own));
            // SAFETY: the caller's.
            unsafe { self.sums_of_rows().add(access, own) };
            g = g.map(|g| g * row.weight);
        }
        sums[0] = sums[0].zip3(g, distance, |sum, g, d| Real::mul_add(g, d, sum));
        sums[1] = sums[1].zip(g, |sum, g| sum + g);
    }

    /// Weight and bias of the row of an access; the bias is part of z only.
    #[inline(always)]
    unsafe fn row(&self, access: u32) -> Row {
        // SAFETY: the caller's.
        unsafe {
            match S::Epilogue::CLASS {
                Class::Plain | Class::Masked => self.rows.weight_of::<S>(access),
                _ => self.rows.of::<S>(access),
            }
        }
    }

    /// dx and dresidual of an access, at a place: the latter last, as it may be where dx is.
    #[inline(always)]
    pub(super) unsafe fn store(
        &self,
        (tile, access): (Tile, u32),
        at: Cursor,
        loaded: &Loaded<Raw<T, S>, 1>,
        map: &Map<Numbers<T, S>>,
        [slope, constant]: [Numbers<T, S>; 2],
    ) {
        let args = self.args;
        if args.dx.is_null() {
            return;
        }
        // SAFETY: the caller's; each place belongs to one thread.
        unsafe {
            let row = self.row(access);
            let g = self.gradient(loaded, (map, &row), 0);
            let of_x = S::Access::unpack::<T>(loaded.x[0])
                .zip(map.centre, |x, centre| x - centre)
                .zip3(slope, constant, Real::mul_add);
            let weighted = match S::BY_ROW {
                true => g.map(|g| g * row.weight),
                false => g,
            };
            let dx = weighted.zip3(map.scale, of_x, Real::mul_add);
            let place = self.place(args.dx, tile, at).cast_mut();
            S::Access::store(place, S::Access::pack::<T>(dx));
            if !args.dresidual.is_null() {
                let place = self.place(args.dresidual, tile, at).cast_mut();
                // As it came, where that is the gradient: numbers would take registers till now.
                let of_residual = match S::Epilogue::CLASS {
                    Class::Plain | Class::Masked => loaded.dy[0],
                    _ => S::Access::pack::<T>(g),
                };
                S::Access::store(place, of_residual);
            }
        }
    }
}
