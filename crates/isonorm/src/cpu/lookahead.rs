//! Asking memory for what is read next while results are computed: a sweep that only reads waits for memory, one that finds its
//! inputs in a cache does not, and by themselves the two would take turns.

use isonorm_math::Element;

use super::memory::{LINE_BYTES, Source};

/// Elements that a loop runs over between two requests: many requests at once would only wait for each other.
const STEP: usize = 256;

/// Where the elements are that will be read soon, of the tensors that are read.
#[derive(Clone, Copy)]
pub(super) struct Lookahead {
    /// Addresses that are asked for, never read. Null: nothing is.
    tensors: [*const u8; 3],
    /// Bytes to ask for with each element.
    bytes: usize,
}

impl Lookahead {
    /// Nothing is asked for.
    const NONE: Lookahead = Lookahead {
        tensors: [std::ptr::null(); 3],
        bytes: 0,
    };

    /// Asks for elements `distance` after `at` and on, whether a tensor has them or not; for nothing, if `distance` is 0.
    #[inline(always)]
    pub(super) fn new<T: Element>(tensors: [Option<&Source<'_, T>>; 3], at: usize, distance: usize) -> Lookahead {
        if distance == 0 {
            return Lookahead::NONE;
        }
        let from = |tensor: Option<&Source<'_, T>>| match tensor {
            Some(tensor) => tensor.address(at.wrapping_add(distance)).cast(),
            None => std::ptr::null(),
        };
        Lookahead {
            tensors: [from(tensors[0]), from(tensors[1]), from(tensors[2])],
            bytes: size_of::<T>(),
        }
    }

    /// What is asked for with the `index`-th row of `len` elements. With the first of some short rows that for all of them.
    #[inline(always)]
    pub(super) fn row(self, index: usize, len: usize) -> Lookahead {
        if self.bytes == 0 {
            return Lookahead::NONE;
        }
        let together = if len < STEP { STEP / len } else { 1 };
        if !index.is_multiple_of(together) {
            return Lookahead::NONE;
        }
        let start = index * len * self.bytes;
        Lookahead {
            tensors: self.tensors.map(|tensor| match tensor.is_null() {
                true => tensor,
                false => tensor.wrapping_add(start),
            }),
            bytes: self.bytes * together,
        }
    }

    /// The stretches, where each starts and how long it is, that a loop over `len` elements is to be cut into. Each asks for its
    /// share.
    #[inline(always)]
    pub(super) fn steps(self, len: usize) -> Steps {
        Steps {
            ahead: self,
            start: 0,
            len,
        }
    }

    #[inline(always)]
    fn fetch(self, start: usize, len: usize) {
        for tensor in self.tensors {
            if !tensor.is_null() {
                for at in (start * self.bytes..(start + len) * self.bytes).step_by(LINE_BYTES) {
                    prefetch(tensor.wrapping_add(at));
                }
            }
        }
    }
}

/// The steps of a loop.
pub(super) struct Steps {
    ahead: Lookahead,
    start: usize,
    len: usize,
}

impl Iterator for Steps {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let (start, mut len) = (self.start, self.len - self.start);
        if len == 0 {
            return None;
        }
        if self.ahead.bytes != 0 {
            len = len.min(STEP);
            self.ahead.fetch(start, len);
        }
        self.start += len;
        Some((start, len))
    }
}

/// Asks for the cache line at an address, whatever is there.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every processor of this architecture has the instruction. It is a hint: it reads nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_the_whole_loop_whether_anything_is_asked_for_or_not() {
        let memory = [0u8; 1];
        let asking = Lookahead {
            tensors: [memory.as_ptr(), std::ptr::null(), memory.as_ptr()],
            bytes: 4,
        };
        for len in [0, 1, STEP - 1, STEP, STEP + 1, 5 * STEP + 3] {
            for ahead in [Lookahead::NONE, asking, asking.row(0, 3), asking.row(7, 3)] {
                let mut end = 0;
                for (start, len) in ahead.steps(len) {
                    assert_eq!(start, end);
                    assert!(len > 0);
                    end += len;
                }
                assert_eq!(end, len);
            }
        }
    }

    #[test]
    fn every_row_is_asked_for_once() {
        let memory = [0u8; 1];
        let asking = Lookahead {
            tensors: [memory.as_ptr(); 3],
            bytes: 2,
        };
        for len in [1, 3, 64, 100, STEP, 1000] {
            let mut asked = 0;
            for row in 0..2 * STEP {
                let of_row = asking.row(row, len);
                if of_row.bytes != 0 {
                    assert_eq!(asked, row * len * 2, "rows of {len}");
                    assert_eq!(of_row.tensors[0].addr() - memory.as_ptr().addr(), asked);
                    asked += of_row.bytes * len;
                }
            }
            assert!(asked >= 2 * STEP * len * 2);
        }
    }
}
