//! Stores that go past the caches: a result larger than the caches would only push out what is still needed, and an
//! ordinary store reads each line from memory before it writes it.

/// Copies a local buffer to its destination by non-temporal stores where there are such. Call [`fence`] before another
/// thread may read the destination.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(super) fn copy<T: Copy>(to: &mut [T], from: &[T]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    const LINE: usize = 64;
    const STORE: usize = size_of::<__m128i>();
    assert_eq!(to.len(), from.len());
    let bytes = size_of_val(from);
    let (to, from) = (to.as_mut_ptr().cast::<u8>(), from.as_ptr().cast::<u8>());
    // Whole lines only: a partly streamed line costs a read and a write of its own.
    let head = to.align_offset(LINE).min(bytes);
    let body = (bytes - head) / LINE * LINE;
    // SAFETY: head + body <= bytes, both buffers have `bytes` bytes and, one being exclusive, do not overlap; stores are to
    // multiples of 16 from a line's start, and SSE2 is part of x86-64.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for at in (head..head + body).step_by(STORE) {
            _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(from.add(at).cast()));
        }
        std::ptr::copy_nonoverlapping(from.add(head + body), to.add(head + body), bytes - head - body);
    }
}

/// Copies a local buffer to its destination. (Miri knows no non-temporal stores.)
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
pub(super) fn copy<T: Copy>(to: &mut [T], from: &[T]) {
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
