//! Element types: what 16 bytes of them hold, or 8.

use isonorm_math::{Bf16, Element, F16};

use super::lanes::Lanes;
use crate::simt::{self, Word};

/// An element type that kernels read and write: `f32`, [`F16`], [`Bf16`].
pub trait Data: Element<Acc = f32> + Word {
    /// As many numbers as 16 bytes hold.
    type Lanes: Lanes;

    /// The numbers in 16 bytes.
    fn unpack(words: [u32; 4]) -> Self::Lanes;

    /// Numbers rounded to 16 bytes.
    fn pack(numbers: Self::Lanes) -> [u32; 4];

    /// As many numbers as 8 bytes hold.
    type Half: Lanes;

    /// The numbers in 8 bytes.
    fn unpack_half(words: [u32; 2]) -> Self::Half;

    /// Numbers rounded to 8 bytes.
    fn pack_half(numbers: Self::Half) -> [u32; 2];

    /// Of numbers that are not below 0, whether they are other than 0: a bit each, the first lowest. A NaN, which [`pack`](Self::pack) leaves
    /// without a sign, is.
    fn positive(words: [u32; 4]) -> u32;

    /// All bits of the numbers whose bit is set.
    fn masks(bits: u32) -> [u32; 4];

    /// The numbers whose bit is set, and 0 instead of others.
    #[inline(always)]
    fn masked([a, b, c, d]: [u32; 4], bits: u32) -> [u32; 4] {
        let masks = Self::masks(bits);
        [a & masks[0], b & masks[1], c & masks[2], d & masks[3]]
    }

    /// One element, read once.
    ///
    /// # Safety
    ///
    /// `place` may be read.
    unsafe fn load(place: *const Self) -> Self;

    /// One element that other threads read too and nothing writes during the kernel.
    ///
    /// # Safety
    ///
    /// `place` may be read.
    unsafe fn load_keep(place: *const Self) -> Self;

    /// Writes one element.
    ///
    /// # Safety
    ///
    /// `place` may be written.
    unsafe fn store(place: *mut Self, value: Self);

    /// Writes the elements in 16 bytes whose bit is set.
    ///
    /// # Safety
    ///
    /// `place` may be written there.
    unsafe fn store_some(place: *mut Self, words: [u32; 4], bits: u32);
}

impl Data for f32 {
    type Lanes = [f32; 4];

    #[inline(always)]
    fn unpack(words: [u32; 4]) -> [f32; 4] {
        let [a, b, c, d] = words;
        [
            f32::from_bits(a),
            f32::from_bits(b),
            f32::from_bits(c),
            f32::from_bits(d),
        ]
    }

    #[inline(always)]
    fn pack([a, b, c, d]: [f32; 4]) -> [u32; 4] {
        [a.to_bits(), b.to_bits(), c.to_bits(), d.to_bits()]
    }

    type Half = [f32; 2];

    #[inline(always)]
    fn unpack_half([a, b]: [u32; 2]) -> [f32; 2] {
        [f32::from_bits(a), f32::from_bits(b)]
    }

    #[inline(always)]
    fn pack_half([a, b]: [f32; 2]) -> [u32; 2] {
        [a.to_bits(), b.to_bits()]
    }

    #[inline(always)]
    fn positive([a, b, c, d]: [u32; 4]) -> u32 {
        let bit = |word: u32, lane: u32| u32::from(word != 0) << lane;
        bit(a, 0) | bit(b, 1) | bit(c, 2) | bit(d, 3)
    }

    #[inline(always)]
    fn masks(bits: u32) -> [u32; 4] {
        // The bit, everywhere.
        let all = |lane: u32| ((bits << (31 - lane)) as i32 >> 31) as u32;
        [all(0), all(1), all(2), all(3)]
    }

    #[inline(always)]
    unsafe fn load(place: *const f32) -> f32 {
        // SAFETY: the caller's.
        f32::from_bits(unsafe { simt::load_32(place.cast()) })
    }

    #[inline(always)]
    unsafe fn load_keep(place: *const f32) -> f32 {
        // SAFETY: the caller's.
        f32::from_bits(unsafe { simt::load_32_keep(place.cast()) })
    }

    #[inline(always)]
    unsafe fn store(place: *mut f32, value: f32) {
        // SAFETY: the caller's.
        unsafe { simt::store_32(place.cast(), value.to_bits()) };
    }

    #[inline(always)]
    unsafe fn store_some(place: *mut f32, words: [u32; 4], bits: u32) {
        // SAFETY: the caller's.
        unsafe { simt::store_32_some(place.cast(), words, bits) };
    }
}

macro_rules! data_16 {
    ($type:ident) => {
        impl Word for $type {
            #[inline(always)]
            fn to_word(self) -> u32 {
                self.0.into()
            }

            #[inline(always)]
            fn from_word(bits: u32) -> Self {
                $type(bits as u16)
            }
        }

        impl Data for $type {
            type Lanes = [f32; 8];

            #[inline(always)]
            fn unpack(words: [u32; 4]) -> [f32; 8] {
                let [a, b, c, d] = Self::unpack_half([words[0], words[1]]);
                let [e, f, g, h] = Self::unpack_half([words[2], words[3]]);
                [a, b, c, d, e, f, g, h]
            }

            #[inline(always)]
            fn pack([a, b, c, d, e, f, g, h]: [f32; 8]) -> [u32; 4] {
                let word = $type::pair_from_f32;
                [word(a, b), word(c, d), word(e, f), word(g, h)]
            }

            type Half = [f32; 4];

            #[inline(always)]
            fn unpack_half(words: [u32; 2]) -> [f32; 4] {
                let numbers = |word: u32| {
                    // Unpacked again each time: numbers that were kept would take twice the registers of the words.
                    let word = simt::opaque(word);
                    ($type(word as u16).to_acc(), $type((word >> 16) as u16).to_acc())
                };
                let [(a, b), (c, d)] = [numbers(words[0]), numbers(words[1])];
                [a, b, c, d]
            }

            #[inline(always)]
            fn pack_half([a, b, c, d]: [f32; 4]) -> [u32; 2] {
                let word = $type::pair_from_f32;
                [word(a, b), word(c, d)]
            }

            #[inline(always)]
            fn positive([a, b, c, d]: [u32; 4]) -> u32 {
                // The highest bit of each half, which no number has that is not below 0, is set by adding to one that is not 0.
                let halves = |word: u32| word.wrapping_add(0x7fff_7fff) & 0x8000_8000;
                let pairs = halves(a) >> 15 | halves(b) >> 13 | halves(c) >> 11 | halves(d) >> 9;
                (pairs | pairs >> 15) & 0xff
            }

            #[inline(always)]
            fn masks(bits: u32) -> [u32; 4] {
                // Neighbouring bits 16 apart, and each everywhere in its half.
                let apart = bits | bits << 15;
                let halves = |pair: u32| (apart >> (2 * pair) & 0x0001_0001).wrapping_mul(0xffff);
                [halves(0), halves(1), halves(2), halves(3)]
            }

            #[inline(always)]
            unsafe fn load(place: *const $type) -> $type {
                // SAFETY: the caller's.
                $type(unsafe { simt::load_16(place.cast()) })
            }

            #[inline(always)]
            unsafe fn load_keep(place: *const $type) -> $type {
                // SAFETY: the caller's.
                $type(unsafe { simt::load_16_keep(place.cast()) })
            }

            #[inline(always)]
            unsafe fn store(place: *mut $type, value: $type) {
                // SAFETY: the caller's.
                unsafe { simt::store_16(place.cast(), value.0) };
            }

            #[inline(always)]
            unsafe fn store_some(place: *mut $type, words: [u32; 4], bits: u32) {
                // SAFETY: the caller's.
                unsafe { simt::store_16_some(place.cast(), words, bits) };
            }
        }
    };
}

data_16!(F16);
data_16!(Bf16);

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that are 0 where a bit is not set, the sign of which no sum of them would show.
    fn check<T: Data<Lanes = [f32; N]>, const N: usize>(values: [f32; N]) {
        for bits in 0..1u32 << N {
            let kept: [f32; N] = std::array::from_fn(|k| if bits >> k & 1 == 1 { values[k] } else { 0.0 });
            assert_eq!(T::masked(T::pack(values), bits), T::pack(kept), "{bits:b}");
            assert_eq!(T::positive(T::pack(kept)), bits);
        }
    }

    #[test]
    fn masks_are_made_of_numbers_and_numbers_pass_masks() {
        let values = [1.0, 6e-8, f32::INFINITY, 65504.0];
        check::<f32, 4>(values);
        let values = [1.0, 6e-8, f32::INFINITY, 65504.0, -f32::NAN, 2.5, 3e-5, 7.0];
        check::<F16, 8>(values);
        check::<Bf16, 8>(values);
        let negative = [-1.0, -0.0, 1.0, -f32::INFINITY, 2.0, -3.0, 4.0, -5.0];
        let kept = [-1.0, 0.0, 0.0, -f32::INFINITY, 0.0, 0.0, 4.0, -5.0];
        assert_eq!(Bf16::masked(Bf16::pack(negative), 0b1100_1001), Bf16::pack(kept));
        assert_eq!(F16::masked(F16::pack(negative), 0b1100_1001), F16::pack(kept));
    }
}
