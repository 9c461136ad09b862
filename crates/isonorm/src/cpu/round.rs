//! Rounding to 16 bits, by the processor's own instructions where it has them: as integer arithmetic it takes more of them than
//! all the rest of a normalization. The bits are the same either way.

use isonorm_math::Element;

use super::elementwise::STRIP;
use super::isa::{Kernel, Vectors};
use super::same::same_mut;

impl Vectors {
    /// Rounds a strip, which is in registers, to the type that a tensor stores. In a kernel that says so by
    /// [`Kernel::STORES_16_BITS`].
    #[inline(always)]
    pub(super) fn round_strip<T: Element>(self, from: &[T::Acc; STRIP], to: &mut [T; STRIP]) {
        if let Some(to) = same_mut::<T, T::Acc>(to) {
            to.copy_from_slice(from);
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if x86::round_strip(self, from, to) {
            return;
        }
        for i in 0..STRIP {
            to[i] = T::from_acc(from[i]);
        }
    }

    /// Rounds numbers to the type that a tensor stores.
    #[inline(always)]
    pub(super) fn round<T: Element>(self, from: &[T::Acc], to: &mut [T]) {
        assert_eq!(from.len(), to.len());
        #[cfg(target_arch = "x86_64")]
        if x86::round(self, from, to) {
            return;
        }
        self.run(Round { from, to });
    }
}

/// Rounds as `isonorm-math` does.
struct Round<'a, T: Element> {
    from: &'a [T::Acc],
    to: &'a mut [T],
}

impl<T: Element> Kernel for Round<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = T::from_acc(*from);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use isonorm_math::{Bf16, Element, F16};

    use super::STRIP;
    use crate::cpu::isa::{Isa, Vectors};
    use crate::cpu::same::{same, same_mut};

    /// Rounds, if there are instructions for it; both slices are of one length.
    #[inline(always)]
    pub(super) fn round<T: Element>(vectors: Vectors, from: &[T::Acc], to: &mut [T]) -> bool {
        let Some(from) = same(from) else {
            return false;
        };
        if let Some(to) = same_mut::<T, F16>(to) {
            match vectors.isa() {
                Isa::Baseline => return false,
                // SAFETY: this machine has these instructions, or `isa` would be another.
                Isa::Avx2 => unsafe { f16_avx2(from, to) },
                // SAFETY: as above.
                Isa::Avx512 => unsafe { f16_avx512(from, to) },
            }
            return true;
        }
        match same_mut::<T, Bf16>(to) {
            Some(to) if vectors.round_bf16() => {
                // SAFETY: this machine has these instructions.
                unsafe { bf16_avx512(from, to) };
                true
            }
            _ => false,
        }
    }

    /// Rounds a strip, if there are instructions for it. Kernels that are compiled for them have these functions inlined.
    #[inline(always)]
    pub(super) fn round_strip<T: Element>(vectors: Vectors, from: &[T::Acc; STRIP], to: &mut [T; STRIP]) -> bool {
        let Some(from) = same(from).and_then(<[f32]>::first_chunk) else {
            return false;
        };
        if let Some(to) = same_mut::<T, F16>(to).and_then(<[F16]>::first_chunk_mut) {
            match vectors.isa() {
                Isa::Baseline => return false,
                // SAFETY: this machine has these instructions, or `isa` would be another.
                Isa::Avx2 => unsafe { f16_strip_avx2(from, to) },
                // SAFETY: as above.
                Isa::Avx512 => unsafe { f16_strip_avx512(from, to) },
            }
            return true;
        }
        match same_mut::<T, Bf16>(to).and_then(<[Bf16]>::first_chunk_mut) {
            Some(to) if vectors.round_bf16() => {
                // SAFETY: this machine has these instructions.
                unsafe { bf16_strip_avx512(from, to) };
                true
            }
            _ => false,
        }
    }

    /// A function that rounds all numbers, strip by strip; the last ones beside zeros.
    macro_rules! round_all {
        ($name:ident: $features:literal, $type:ident, $strip:ident) => {
            #[target_feature(enable = $features)]
            fn $name(from: &[f32], to: &mut [$type]) {
                let (from, from_rest) = from.as_chunks::<STRIP>();
                let (to, to_rest) = to.as_chunks_mut::<STRIP>();
                for (from, to) in from.iter().zip(to) {
                    $strip(from, to);
                }
                if !from_rest.is_empty() {
                    let (mut numbers, mut rounded) = ([0.0; STRIP], [$type(0); STRIP]);
                    numbers[..from_rest.len()].copy_from_slice(from_rest);
                    $strip(&numbers, &mut rounded);
                    to_rest.copy_from_slice(&rounded[..to_rest.len()]);
                }
            }
        };
    }

    round_all!(f16_avx2: "avx2,f16c", F16, f16_strip_avx2);
    round_all!(f16_avx512: "avx512f", F16, f16_strip_avx512);
    round_all!(bf16_avx512: "avx512f,avx512bw,avx512dq,avx512bf16", Bf16, bf16_strip_avx512);

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn f16_strip_avx2(from: &[f32; STRIP], to: &mut [F16; STRIP]) {
        for i in (0..STRIP).step_by(8) {
            // SAFETY: eight elements of each are left.
            unsafe {
                let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr().add(i)));
                _mm_storeu_si128(to.as_mut_ptr().add(i).cast(), rounded);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn f16_strip_avx512(from: &[f32; STRIP], to: &mut [F16; STRIP]) {
        for i in (0..STRIP).step_by(16) {
            // SAFETY: sixteen elements of each are left.
            unsafe {
                let rounded = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(from.as_ptr().add(i)));
                _mm256_storeu_si256(to.as_mut_ptr().add(i).cast(), rounded);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
    fn bf16_strip_avx512(from: &[f32; STRIP], to: &mut [Bf16; STRIP]) {
        /// Which numbers are subnormal: the instruction takes these for zeros.
        const SUBNORMAL: i32 = 1 << 5;
        const { assert!(STRIP == 32) };
        // SAFETY: each half has sixteen elements.
        let (low, high) = unsafe { (_mm512_loadu_ps(from.as_ptr()), _mm512_loadu_ps(from.as_ptr().add(16))) };
        let subnormal = _mm512_fpclass_ps_mask::<SUBNORMAL>(low) | _mm512_fpclass_ps_mask::<SUBNORMAL>(high);
        if subnormal == 0 {
            // SAFETY: there is room for as many.
            unsafe {
                to.as_mut_ptr()
                    .cast::<__m512bh>()
                    .write_unaligned(_mm512_cvtne2ps_pbh(high, low))
            };
        } else {
            by_integers(low, high, to);
        }
    }

    /// Takes the numbers by value: an array that is pointed to would not be kept in registers, wherever this is inlined.
    #[cold]
    #[inline(never)]
    #[target_feature(enable = "avx512f")]
    fn by_integers(low: __m512, high: __m512, to: &mut [Bf16; STRIP]) {
        let mut numbers = [0.0; STRIP];
        // SAFETY: each half has sixteen elements.
        unsafe {
            _mm512_storeu_ps(numbers.as_mut_ptr(), low);
            _mm512_storeu_ps(numbers.as_mut_ptr().add(16), high);
        }
        *to = numbers.map(Bf16::from_f32);
    }
}

#[cfg(test)]
mod tests {
    use isonorm_math::{Bf16, F16};

    use super::*;
    use crate::Isa;

    /// Every kind of number: all exponents and signs with fractions on, below and above ties; NaNs, infinities, zeros.
    fn numbers() -> Vec<f32> {
        let fractions = (0..23).flat_map(|bit| [0u32, 1 << bit, (1 << bit) - 1, 0x007f_ffff ^ (1 << bit), 3 << bit]);
        let fractions: Vec<u32> = fractions.map(|f| f & 0x007f_ffff).collect();
        let bits = (0..512u32).flat_map(|top| fractions.iter().map(move |f| (top << 23) | f));
        bits.map(f32::from_bits).collect()
    }

    fn check<T: Element<Acc = f32>>() {
        let numbers = numbers();
        let want: Vec<T> = numbers.iter().map(|v| T::from_acc(*v)).collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for len in [0, 1, 7, 31, 33, numbers.len()] {
                for (numbers, want) in numbers.chunks(len.max(1)).zip(want.chunks(len.max(1))).take(4000) {
                    let mut got = vec![T::default(); numbers.len()];
                    isa.vectors().round(numbers, &mut got);
                    assert_eq!(got, want, "{isa}, {numbers:?}");
                    let (strips, _) = numbers.as_chunks::<STRIP>();
                    for (strip, want) in strips.iter().zip(want.chunks(STRIP)) {
                        let mut got = [T::default(); STRIP];
                        isa.vectors().round_strip(strip, &mut got);
                        assert_eq!(got, want, "{isa}, {strip:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn f16_has_the_same_bits_for_every_isa() {
        check::<F16>();
    }

    #[test]
    fn bf16_has_the_same_bits_for_every_isa() {
        check::<Bf16>();
    }
}
