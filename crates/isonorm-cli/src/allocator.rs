//! Memory as frameworks hand it out: long stretches begin on a cache line. (An ordinary allocation begins 16 bytes into one, and
//! then every 64-byte vector of a loop straddles two lines.)

use std::alloc::{GlobalAlloc, Layout, System};

/// The alignment of long stretches, in bytes: a cache line's, and the widest vector's.
const LINE: usize = 64;

/// Stretches of at least this many bytes are long.
const LONG: usize = 4096;

/// The system's allocator, but for the alignment of long stretches.
pub struct LineAllocator;

/// What is asked of the system for `layout`: follows from it alone, so that memory goes back as it came.
fn aligned(layout: Layout) -> Layout {
    let align = if layout.size() >= LONG {
        layout.align().max(LINE)
    } else {
        layout.align()
    };
    // Only sizes within a line of half the address space cannot be aligned further; the system refuses them.
    Layout::from_size_align(layout.size(), align).unwrap_or(layout)
}

// SAFETY: memory comes from the system's allocator and goes back to it with the same layout, which has the size that was asked
// for and at least the alignment. Reallocation is what the trait makes of the others.
unsafe impl GlobalAlloc for LineAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: this function's contract.
        unsafe { System.alloc(aligned(layout)) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: this function's contract.
        unsafe { System.alloc_zeroed(aligned(layout)) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: this function's contract; `alloc` asked for the same layout.
        unsafe { System.dealloc(ptr, aligned(layout)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stretches_begin_on_a_line_and_short_ones_are_left_alone() {
        for (size, align, want) in [
            (LONG, 4, LINE),
            (LONG + 1, 256, 256),
            (LONG - 1, 4, 4),
            (isize::MAX as usize, 1, 1),
        ] {
            let layout = Layout::from_size_align(size, align).unwrap();
            let got = aligned(layout);
            assert_eq!((got.size(), got.align()), (size, want));
        }
        let layout = Layout::from_size_align(LONG, 2).unwrap();
        // SAFETY: the layout is not empty; the memory is zero, as asked, and goes back with the layout it came with.
        unsafe {
            let ptr = LineAllocator.alloc_zeroed(layout);
            assert!(!ptr.is_null() && ptr.addr().is_multiple_of(LINE));
            assert!(std::slice::from_raw_parts(ptr, LONG).iter().all(|&b| b == 0));
            LineAllocator.dealloc(ptr, layout);
        }
    }
}
