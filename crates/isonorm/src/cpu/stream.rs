//! Stores that go past the caches: a result larger than the caches would only push out what is still needed, and an
//! ordinary store reads each line from memory before it writes it.

use isonorm_math::Element;

use super::elementwise::STRIP;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::isa::Isa;
use super::isa::Vectors;
use super::memory::LINE_BYTES;

/// How results that are in registers are stored.
#[derive(Clone, Copy)]
pub(super) struct Stores {
    pub(super) vectors: Vectors,
    /// Whether strips go past the caches. Call [`fence`] before another thread may read them.
    pub(super) past_caches: bool,
}

impl Vectors {
    /// Rounds a strip, which is in registers, to the type that a tensor stores, as [`Vectors::round_strip`] does; with `PAST_CACHES` it
    /// begins on a line. Loops are compiled for either: a branch each strip would cost a tenth of them.
    #[inline(always)]
    pub(super) fn store<T: Element, const PAST_CACHES: bool>(self, from: &[T::Acc; STRIP], to: &mut [T; STRIP]) {
        const { assert!((STRIP * size_of::<T>()).is_multiple_of(LINE_BYTES)) };
        if PAST_CACHES {
            let mut strip = [T::default(); STRIP];
            self.round_strip(from, &mut strip);
            stream_strip(&strip, to);
        } else {
            self.round_strip(from, to);
        }
    }
}

/// Copies a strip, which is in registers, past the caches. By stores that every processor of this architecture has: wider ones
/// save instructions where memory is what is waited for.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn stream_strip<T: Element>(from: &[T; STRIP], to: &mut [T; STRIP]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    assert!(to.as_ptr().addr().is_multiple_of(size_of::<__m128i>()));
    for at in (0..size_of_val(from)).step_by(size_of::<__m128i>()) {
        // SAFETY: SSE2 is part of x86-64; both have as many bytes, a multiple of the vector's, and the destination is aligned
        // (just checked).
        unsafe {
            _mm_stream_si128(
                to.as_mut_ptr().byte_add(at).cast(),
                _mm_loadu_si128(from.as_ptr().byte_add(at).cast()),
            );
        }
    }
}

/// Copies a strip. (Miri knows no non-temporal stores.)
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn stream_strip<T: Element>(from: &[T; STRIP], to: &mut [T; STRIP]) {
    *to = *from;
}

impl Vectors {
    /// Copies a local buffer to its destination by non-temporal stores where there are such. Call [`fence`] before another
    /// thread may read the destination.
    #[inline(always)]
    pub(super) fn stream<T: Element>(self, from: &[T], to: &mut [T]) {
        assert_eq!(from.len(), to.len());
        // Whole lines only: a partly streamed line costs a read and a write of its own.
        let head = to.as_ptr().align_offset(LINE_BYTES).min(to.len());
        let body = (to.len() - head) / (LINE_BYTES / size_of::<T>()) * (LINE_BYTES / size_of::<T>());
        let (from_head, from) = from.split_at(head);
        let (to_head, to) = to.split_at_mut(head);
        let (from, from_tail) = from.split_at(body);
        let (to, to_tail) = to.split_at_mut(body);
        to_head.copy_from_slice(from_head);
        lines(self, from, to);
        to_tail.copy_from_slice(from_tail);
    }
}

/// Copies whole lines past the caches; both slices are of one length.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn lines<T: Element>(vectors: Vectors, from: &[T], to: &mut [T]) {
    use std::arch::x86_64::*;

    /// A function that copies lines by stores of some width.
    macro_rules! stream {
        ($name:ident: $features:literal, $vector:ty, $load:ident, $store:ident) => {
            /// # Safety
            /// Both have `bytes` bytes and do not overlap; that is a multiple of a line, and a line begins at `to`.
            #[target_feature(enable = $features)]
            unsafe fn $name(from: *const u8, to: *mut u8, bytes: usize) {
                for at in (0..bytes).step_by(size_of::<$vector>()) {
                    // SAFETY: this function's contract.
                    unsafe { $store(to.add(at).cast(), $load(from.add(at).cast())) };
                }
            }
        };
    }
    stream!(sse2: "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128);
    stream!(avx2: "avx2", __m256i, _mm256_loadu_si256, _mm256_stream_si256);
    stream!(avx512: "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512);

    let stream = match vectors.isa() {
        Isa::Baseline => sse2,
        Isa::Avx2 => avx2,
        Isa::Avx512 => avx512,
    };
    // SAFETY: this machine has these instructions; whole lines of two slices, one of them exclusive, were asked for.
    unsafe { stream(from.as_ptr().cast(), to.as_mut_ptr().cast(), size_of_val(from)) };
}

/// Copies lines. (Miri knows no non-temporal stores.)
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn lines<T: Element>(_vectors: Vectors, from: &[T], to: &mut [T]) {
    to.copy_from_slice(from);
}

/// Makes this thread's streamed stores visible before its later stores.
#[inline(always)]
pub(super) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
