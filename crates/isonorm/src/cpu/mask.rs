//! The mask of a ReLU: which elements of its result are not 0. A byte for each 16 bytes of the result, of which bit k is of element k.

use isonorm_math::{Element, Real};

use super::crew::Crew;
use super::memory::{Dest, Source};
use crate::desc::MASK_SHARE;
use crate::{View, ViewMut};

/// Bytes of a mask that are written at a time.
const AT_ONCE: usize = 1 << 10;

/// Elements that a byte is of.
const fn elements<T>() -> usize {
    MASK_SHARE / size_of::<T>()
}

/// A mask that is read.
#[derive(Clone, Copy)]
pub(super) struct Mask<'a>(Source<'a, u8>);

impl<'a> Mask<'a> {
    /// The view's bytes.
    pub(super) fn new(view: View<'a>) -> Mask<'a> {
        Mask(Source::bytes(view))
    }

    /// Of the elements from `first` on: those of `dy` that have a bit, and 0 instead of others.
    #[inline(never)]
    pub(super) fn pass<T: Element>(&self, first: usize, dy: &[T], g: &mut [T::Acc]) {
        let of_byte = elements::<T>();
        let (start, end) = (first / of_byte, (first + dy.len()).div_ceil(of_byte));
        let bytes = self.0.slice(start, end - start);
        let before = first - start * of_byte;
        for (i, (g, dy)) in g.iter_mut().zip(dy).enumerate() {
            let bit = bytes[(before + i) / of_byte] >> ((before + i) % of_byte) & 1;
            *g = if bit == 0 { T::Acc::ZERO } else { dy.to_acc() };
        }
    }
}

/// Writes the mask of `len` elements, which nobody writes any more.
pub(super) fn write<T: Element>(y: Source<'_, T>, len: usize, mask: ViewMut<'_>, crew: &Crew) {
    let (mask, of_byte) = (Dest::bytes(mask), elements::<T>());
    let used = len.div_ceil(of_byte);
    crew.for_each(used.div_ceil(AT_ONCE), |tasks| {
        for task in tasks {
            let start = task * AT_ONCE;
            let bytes = AT_ONCE.min(used - start);
            let y = y.slice(start * of_byte, (bytes * of_byte).min(len - start * of_byte));
            // SAFETY: these bytes are this task's.
            let mask = unsafe { mask.slice(start, bytes) };
            for (byte, y) in mask.iter_mut().zip(y.chunks(of_byte)) {
                let bits = y.iter().enumerate();
                *byte = bits.fold(0, |bits, (k, y)| bits | u8::from(y.to_acc() != T::Acc::ZERO) << k);
            }
        }
    });
}
