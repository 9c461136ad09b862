//! Memory that tells when it was mistreated.

use std::ops::Range;

use isonorm::{DType, TensorData, View, ViewMut, bf16, f16};

/// Elements before and behind a tensor that nobody may touch: more than the widest vector of the smallest type.
const MARGIN_BYTES: usize = 128;

/// Where vectors would like to begin.
const VECTOR_BYTES: usize = 64;

/// Where a guarded tensor begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Where vectors would like to.
    Aligned,
    /// One element behind that.
    Misaligned,
}

/// An engine's name, where its tensors begin included.
pub(super) fn named(engine: String, start: Start) -> String {
    match start {
        Start::Aligned => engine,
        Start::Misaligned => format!("{engine}, misaligned"),
    }
}

/// A NaN that no arithmetic produces, in every type: what is in memory before it is written.
const POISON: u64 = 0xFFFB_ABAB_ABAB_ABAB;

/// A tensor between two margins of poison.
#[derive(Clone, Debug)]
pub struct Guarded {
    memory: TensorData,
    start: usize,
    len: usize,
}

/// Runs `$body` with `$v` bound to the vector inside.
macro_rules! each {
    ($data:expr, $v:ident => $body:expr) => {
        match $data {
            TensorData::F16($v) => $body,
            TensorData::Bf16($v) => $body,
            TensorData::F32($v) => $body,
            TensorData::F64($v) => $body,
        }
    };
}

/// `len` poisoned elements.
fn poisoned(dtype: DType, len: usize) -> TensorData {
    match dtype {
        DType::F16 => vec![f16::from_bits((POISON >> 48) as u16); len].into(),
        DType::Bf16 => vec![bf16::from_bits((POISON >> 48) as u16); len].into(),
        DType::F32 => vec![f32::from_bits((POISON >> 32) as u32); len].into(),
        DType::F64 => vec![f64::from_bits(POISON); len].into(),
    }
}

/// The bits of an element.
pub(crate) fn bits(data: &TensorData, i: usize) -> u64 {
    match data {
        TensorData::F16(v) => v[i].to_bits().into(),
        TensorData::Bf16(v) => v[i].to_bits().into(),
        TensorData::F32(v) => v[i].to_bits().into(),
        TensorData::F64(v) => v[i].to_bits(),
    }
}

/// Whether this element was never written.
pub(crate) fn is_poison(data: &TensorData, i: usize) -> bool {
    bits(data, i) == bits(&poisoned(data.dtype(), 1), 0)
}

/// Whether two tensors are the same bits.
pub fn same_bits(a: &TensorData, b: &TensorData) -> bool {
    a.dtype() == b.dtype() && a.len() == b.len() && (0..a.len()).all(|i| bits(a, i) == bits(b, i))
}

impl Guarded {
    /// A tensor that nobody has written yet.
    pub fn unwritten(dtype: DType, len: usize, start: Start) -> Guarded {
        let size = dtype.bytes();
        let memory = poisoned(dtype, len + (2 * MARGIN_BYTES + VECTOR_BYTES) / size);
        let address = memory.view().as_ptr() as usize;
        let boundary = (address + MARGIN_BYTES).next_multiple_of(VECTOR_BYTES);
        let start = (boundary - address) / size + usize::from(start == Start::Misaligned);
        Guarded { memory, start, len }
    }

    /// A copy of a tensor.
    pub fn copy(data: &TensorData, start: Start) -> Guarded {
        let mut guarded = Guarded::unwritten(data.dtype(), data.len(), start);
        let range = guarded.start..guarded.start + guarded.len;
        match (&mut guarded.memory, data) {
            (TensorData::F16(to), TensorData::F16(from)) => to[range].copy_from_slice(from),
            (TensorData::Bf16(to), TensorData::Bf16(from)) => to[range].copy_from_slice(from),
            (TensorData::F32(to), TensorData::F32(from)) => to[range].copy_from_slice(from),
            (TensorData::F64(to), TensorData::F64(from)) => to[range].copy_from_slice(from),
            _ => unreachable!("made of the same type"),
        }
        guarded
    }

    /// The tensor, shared.
    pub fn view(&self) -> View<'_> {
        each!(&self.memory, v => v[self.start..self.start + self.len].into())
    }

    /// The tensor, exclusive.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        let range = self.start..self.start + self.len;
        each!(&mut self.memory, v => (&mut v[range]).into())
    }

    /// The tensor with its margins.
    pub fn memory(&self) -> &TensorData {
        &self.memory
    }

    /// Where the tensor is in its memory.
    pub fn inside(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Takes over the memory of a copy that was worked on elsewhere, margins included.
    ///
    /// # Panics
    /// If it is not of the same type and length.
    pub fn replace(&mut self, memory: TensorData) {
        let same = memory.dtype() == self.memory.dtype() && memory.len() == self.memory.len();
        assert!(same, "a copy of another tensor");
        self.memory = memory;
    }

    /// A copy of the tensor without its margins.
    pub fn contents(&self) -> TensorData {
        each!(&self.memory, v => v[self.start..self.start + self.len].to_vec().into())
    }

    /// Whether the margins are as they were.
    pub fn is_intact(&self) -> bool {
        let behind = self.start + self.len..self.memory.len();
        (0..self.start).chain(behind).all(|i| is_poison(&self.memory, i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_is_nan_in_every_type_and_margins_watch() {
        let starts = [Start::Aligned, Start::Misaligned];
        for (dtype, start) in DType::ALL.into_iter().flat_map(|d| starts.map(|s| (d, s))) {
            let mut guarded = Guarded::unwritten(dtype, 3, start);
            assert!(guarded.contents().to_f64().iter().all(|v| v.is_nan()));
            assert!(guarded.is_intact());
            let address = guarded.view().as_ptr() as usize;
            let behind = usize::from(start == Start::Misaligned) * dtype.bytes();
            assert_eq!(address % VECTOR_BYTES, behind);
            let behind = guarded.start + guarded.len;
            each!(&mut guarded.memory, v => v[behind] = Default::default());
            assert!(!guarded.is_intact());
        }
    }

    #[test]
    fn copies_are_the_same_bits() {
        let data = TensorData::from_f64(DType::Bf16, &[1.0, f64::NAN, -0.0]);
        assert!(same_bits(&Guarded::copy(&data, Start::Aligned).contents(), &data));
        assert!(!same_bits(&data, &TensorData::zeros(DType::Bf16, 3)));
    }
}
