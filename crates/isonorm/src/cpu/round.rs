//! Rounding to 16 bits, by the processor's own instructions where it has them: as integer arithmetic it takes more of them than
//! all the rest of a normalization. The bits are the same either way.

use isonorm_math::Element;

use super::isa::{Kernel, Vectors};

impl Vectors {
    /// Rounds numbers to the type that a tensor stores.
    #[inline(always)]
    pub(super) fn round<T: Element>(self, from: &[T::Acc], to: &mut [T]) {
        assert_eq!(from.len(), to.len());
        #[cfg(target_arch = "x86_64")]
        if x86::round(self.isa(), from, to) {
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

    use crate::cpu::isa::Isa;
    use crate::cpu::same::{same, same_mut};

    /// Rounds, if there are instructions for it; both slices are of one length.
    #[inline(always)]
    pub(super) fn round<T: Element>(isa: Isa, from: &[T::Acc], to: &mut [T]) -> bool {
        let Some(from) = same(from) else {
            return false;
        };
        if let Some(to) = same_mut::<T, F16>(to) {
            match isa {
                Isa::Baseline => return false,
                // SAFETY: this machine has these instructions, or `isa` would be another.
                Isa::Avx2 => unsafe { f16_avx2(from, to) },
                // SAFETY: as above.
                Isa::Avx512 => unsafe { f16_avx512(from, to) },
            }
            return true;
        }
        match same_mut::<T, Bf16>(to) {
            Some(to) if isa == Isa::Avx512 && is_x86_feature_detected!("avx512bf16") => {
                // SAFETY: as above, and the one that is not part of `isa` was just detected.
                unsafe { bf16_avx512(from, to) };
                true
            }
            _ => false,
        }
    }

    /// A function that rounds all numbers, some at once; the last ones beside zeros.
    macro_rules! round_all {
        ($name:ident: $features:literal, $type:ident, $step:literal, $round:expr) => {
            #[target_feature(enable = $features)]
            fn $name(from: &[f32], to: &mut [$type]) {
                let round = $round;
                let (from, from_rest) = from.as_chunks::<$step>();
                let (to, to_rest) = to.as_chunks_mut::<$step>();
                for (from, to) in from.iter().zip(to) {
                    round(from, to);
                }
                if !from_rest.is_empty() {
                    let (mut numbers, mut rounded) = ([0.0; $step], [$type(0); $step]);
                    numbers[..from_rest.len()].copy_from_slice(from_rest);
                    round(&numbers, &mut rounded);
                    to_rest.copy_from_slice(&rounded[..to_rest.len()]);
                }
            }
        };
    }

    round_all!(f16_avx2: "avx2,f16c", F16, 8, |from: &[f32; 8], to: &mut [F16; 8]| {
        // SAFETY: each has as many elements as are loaded or stored.
        unsafe {
            let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
            _mm_storeu_si128(to.as_mut_ptr().cast(), rounded);
        }
    });

    round_all!(f16_avx512: "avx512f", F16, 16, |from: &[f32; 16], to: &mut [F16; 16]| {
        // SAFETY: as above.
        unsafe {
            let rounded = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(from.as_ptr()));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), rounded);
        }
    });

    round_all!(bf16_avx512: "avx512f,avx512bw,avx512dq,avx512bf16", Bf16, 32, |from: &[f32; 32], to: &mut [Bf16; 32]| {
        /// Which numbers are subnormal: the instruction takes these for zeros.
        const SUBNORMAL: i32 = 1 << 5;
        // SAFETY: as above.
        let (low, high) = unsafe { (_mm512_loadu_ps(from.as_ptr()), _mm512_loadu_ps(from.as_ptr().add(16))) };
        let subnormal = _mm512_fpclass_ps_mask::<SUBNORMAL>(low) | _mm512_fpclass_ps_mask::<SUBNORMAL>(high);
        if subnormal == 0 {
            // SAFETY: as above.
            unsafe { to.as_mut_ptr().cast::<__m512bh>().write_unaligned(_mm512_cvtne2ps_pbh(high, low)) };
        } else {
            *to = from.map(Bf16::from_f32);
        }
    });
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
