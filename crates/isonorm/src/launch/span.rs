use crate::{DType, View, ViewMut};

/// Where an argument lies and how much of it there is: all that is checked, and nothing that could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Of the first element.
    pub(crate) address: usize,
    /// In elements.
    pub(crate) len: usize,
    pub(crate) dtype: DType,
}

impl Span {
    /// Whether there is a byte that belongs to both.
    pub(crate) fn overlaps(self, other: Span) -> bool {
        let end = |s: Span| s.address.saturating_add(s.len * s.dtype.bytes());
        self.len > 0 && other.len > 0 && self.address < end(other) && other.address < end(self)
    }
}

/// What names memory.
pub(crate) trait Spanning {
    /// The memory.
    fn span(&self) -> Span;
}

impl Spanning for View<'_> {
    fn span(&self) -> Span {
        Span {
            address: self.as_ptr() as usize,
            len: self.len(),
            dtype: self.dtype(),
        }
    }
}

impl Spanning for ViewMut<'_> {
    fn span(&self) -> Span {
        self.as_view().span()
    }
}
