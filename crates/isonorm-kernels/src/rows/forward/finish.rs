//! What follows a row's statistics: scale and shift, residual, activation, and the store.

use isonorm_math::{Normalizer, normalize};

use super::held::{Loaded, Walk};
use super::{ParametersOf, PlaceOf, Spec, UsualOf};
use crate::rows::access::{Access, Data};
use crate::rows::epilogue::{Apart, Epilogue, Piecewise, Told, WrittenOut};
use crate::rows::lanes::{Lanes, rotated, unrolled};
use crate::rows::parameters::{Known, OfType, Parameters};
use crate::rows::team::{Owner, Owns, Team};
use crate::simt;

impl<T: Data, S: Spec<Team: Team>, const V: usize> Walk<'_, T, S, V> {
    /// Scale and shift, residual, activation, and the store.
    #[inline(always)]
    pub(super) unsafe fn finish(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
        row: u64,
    ) {
        let (told, normalizer) = (self.args.activation, parameters.joined(normalizer));
        let place = PlaceOf::<T, S>::new(self.args.y.cast_const(), row, self.args.y_stride);
        // SAFETY: the caller's, here and below.
        unsafe {
            let rolled = parameters.is_packed() && !self.args.affine.is_narrow::<T>();
            if Self::ROLLED {
                match told.written_out() {
                    Some(known) if self.has_usual() => {
                        self.finish_written_out(loaded, parameters, normalizer, known, place)
                    }
                    _ => self.finish_rolled(*loaded, parameters, normalizer, row),
                }
            } else if !S::Access::BY_SEGMENT && rolled {
                self.finish_rolled(*loaded, parameters, normalizer, row);
            } else if Self::IS_SHORT {
                match told.apart::<S::Epilogue>() {
                    Apart::Identity => self.finish_as(loaded, parameters, normalizer, Told::IDENTITY, place),
                    Apart::Relu => self.finish_as(loaded, parameters, normalizer, Told::RELU, place),
                    Apart::Other => self.finish_as(loaded, parameters, normalizer, told, place),
                }
            } else if S::Epilogue::LARGE && !Self::IN_TURN {
                let mut all = [<S::Access as Access>::Numbers::<T>::splat(0.0); V];
                self.preactivations(loaded, parameters, normalizer, |v, z| all[v] = z);
                let y = S::Epilogue::apply::<T, _, _>(all, told);
                unrolled::<V>(|v| {
                    if self.has(v) {
                        self.store(place, v, y[v]);
                    }
                });
            } else {
                self.finish_as(loaded, parameters, normalizer, told, place);
            }
        }
    }

    /// The same, one part after the other.
    #[inline(always)]
    unsafe fn finish_as(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
        told: Told,
        place: PlaceOf<T, S>,
    ) {
        // SAFETY: the caller's, here and below.
        unsafe {
            self.preactivations(loaded, parameters, normalizer, |v, z| {
                let y = match Self::IN_TURN {
                    true => Piecewise::apply_in_turn(z, told),
                    false => S::Epilogue::apply::<T, _, 1>([z], told)[0],
                };
                self.store(place, v, y);
            });
        }
    }

    /// Whether parameters are those of most calls, where they have to be those for code that is written out.
    #[inline(always)]
    fn has_usual(&self) -> bool {
        size_of::<T>() == 4 || UsualOf::<S>::holds::<T>(&self.args.affine)
    }

    /// The same with such an activation, and parameters of [most calls](Self::has_usual).
    #[inline(always)]
    unsafe fn finish_written_out(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
        known: WrittenOut,
        place: PlaceOf<T, S>,
    ) {
        let written_out = |f: WrittenOut| {
            // SAFETY: the caller's, here and below.
            let finish = |v, z| unsafe { self.store(place, v, f.apply(z)) };
            // SAFETY: the caller's.
            unsafe {
                match size_of::<T>() {
                    4 => self.preactivations_as::<OfType<false>>(loaded, parameters, normalizer, finish),
                    _ => self.preactivations_as::<UsualOf<S>>(loaded, parameters, normalizer, finish),
                }
            }
        };
        match known {
            WrittenOut::Silu => written_out(WrittenOut::Silu),
            WrittenOut::Gelu => written_out(WrittenOut::Gelu),
        }
    }

    /// The same, by code that is there once for all parts, and reads parameters also where they are kept as they came.
    #[inline(always)]
    unsafe fn finish_rolled(
        &self,
        mut left: Loaded<T, S::Access, V>,
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
        row: u64,
    ) {
        let (mut v, parts) = (0, simt::opaque(V as u32) as usize);
        let (parameters, narrow) = (&parameters.read_again(), self.args.affine.is_narrow::<T>());
        while v < parts {
            if self.has(v) {
                let raw = [left.x[0], left.residual[0]];
                // SAFETY: the caller's, for a part that the row has.
                unsafe {
                    let z = if narrow {
                        self.preactivation::<OfType<true>>(raw, parameters, normalizer, v)
                    } else {
                        self.preactivation::<OfType<false>>(raw, parameters, normalizer, v)
                    };
                    let [y] = S::Epilogue::apply::<T, _, _>([z], self.args.activation);
                    // Computed here: there are no registers for it.
                    let place = PlaceOf::<T, S>::new(self.args.y.cast_const(), row, self.args.y_stride);
                    self.store(place, v, y);
                }
            }
            left.x = rotated(left.x);
            left.residual = rotated(left.residual);
            v += 1;
        }
    }

    /// Hands out what the activation is applied to, of each part that the row has.
    #[inline(always)]
    unsafe fn preactivations(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
        take: impl FnMut(usize, <S::Access as Access>::Numbers<T>),
    ) {
        // One branch a row, not one a parameter.
        let affine = &self.args.affine;
        // SAFETY: the caller's.
        unsafe {
            if Self::HAS_USUAL && UsualOf::<S>::holds::<T>(affine) {
                self.preactivations_as::<UsualOf<S>>(loaded, parameters, normalizer, take);
            } else if Self::READS && (parameters.is_packed() || affine.is_narrow::<T>()) {
                self.preactivations_as::<OfType<true>>(loaded, parameters, normalizer, take);
            } else {
                self.preactivations_as::<OfType<false>>(loaded, parameters, normalizer, take);
            }
        }
    }

    /// The same with such parameters.
    #[inline(always)]
    unsafe fn preactivations_as<K: Known>(
        &self,
        loaded: &Loaded<T, S::Access, V>,
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
        mut take: impl FnMut(usize, <S::Access as Access>::Numbers<T>),
    ) {
        // The addresses of a block's parameters would be known, and kept, before the row is; those of lanes are one.
        let walk = match S::Team::OWNER {
            Owner::Block if Self::READS && !S::Access::BY_SEGMENT && size_of::<T>() < 4 => &self.anew(),
            _ => self,
        };
        unrolled::<V>(|v| {
            if self.has(v) {
                // SAFETY: the caller's, for a part that the row has.
                take(v, unsafe {
                    walk.preactivation::<K>([loaded.x[v], loaded.residual[v]], parameters, normalizer, v)
                });
            }
        });
    }

    #[inline(always)]
    pub(super) unsafe fn preactivation<K: Known>(
        &self,
        [x, residual]: [<S::Access as Access>::Raw<T>; 2],
        parameters: &ParametersOf<T, S, V>,
        normalizer: Normalizer<f32>,
        v: usize,
    ) -> <S::Access as Access>::Numbers<T> {
        let normalizer = match Self::JOINED_BY_PART {
            true => parameters.joined_at(normalizer, v),
            false => normalizer,
        };
        let normalized = || S::Access::unpack::<T>(x).map(|x| normalizer.apply(x));
        let z = match Self::JOINED || Self::JOINED_BY_PART {
            true => normalized(),
            false => {
                // SAFETY: the caller's.
                let [weight, bias] = unsafe { parameters.at::<K>(&self.args.affine, self.span, v) };
                normalized().zip3(weight, bias, normalize::affine)
            }
        };
        if self.has_residual() && !self.has_stream() {
            let residual = S::Access::unpack::<T>(residual);
            z.zip(residual, |z, residual| z + residual)
        } else {
            z
        }
    }

    #[inline(always)]
    pub(super) unsafe fn store(&self, row: PlaceOf<T, S>, v: usize, y: <S::Access as Access>::Numbers<T>) {
        let place = row.part(self.span, v).cast_mut();
        // SAFETY: the caller's; each part belongs to one thread.
        unsafe { S::Access::store_own(place, S::Access::pack(y), row.own(self.span, v)) };
    }
}
