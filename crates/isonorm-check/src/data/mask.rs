//! Masks of ReLU as they lie in memory: a byte for each 16 bytes of the data, of which bit k is of element k.

use isonorm::{DType, NormDesc, TensorData, bf16, f16};

/// Elements that a byte is of.
fn of_byte(dtype: DType) -> usize {
    16 / dtype.bytes()
}

/// A mask, of whether each element in memory has a bit.
pub fn from_bits(desc: &NormDesc, mut bit: impl FnMut(usize) -> bool) -> TensorData {
    let (dtype, elements) = (desc.get_dtype(), desc.get_shape().elements().unwrap_or(0));
    let mut bytes = vec![0u8; desc.mask_elements() * dtype.bytes()];
    for i in 0..elements {
        bytes[i / of_byte(dtype)] |= u8::from(bit(i)) << (i % of_byte(dtype));
    }
    match dtype {
        DType::F16 => words(&bytes)
            .map(|b| f16::from_bits(u16::from_ne_bytes(b)))
            .collect::<Vec<_>>()
            .into(),
        DType::Bf16 => words(&bytes)
            .map(|b| bf16::from_bits(u16::from_ne_bytes(b)))
            .collect::<Vec<_>>()
            .into(),
        DType::F32 => words(&bytes).map(f32::from_ne_bytes).collect::<Vec<_>>().into(),
        DType::F64 => words(&bytes).map(f64::from_ne_bytes).collect::<Vec<_>>().into(),
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// Whether each of so many elements in memory has a bit.
pub fn to_bits(mask: &TensorData, elements: usize) -> Vec<bool> {
    let bytes: Vec<u8> = match mask {
        TensorData::F16(v) => v.iter().flat_map(|x| x.to_bits().to_ne_bytes()).collect(),
        TensorData::Bf16(v) => v.iter().flat_map(|x| x.to_bits().to_ne_bytes()).collect(),
        TensorData::F32(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        TensorData::F64(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
    };
    let of_byte = of_byte(mask.dtype());
    let bit = |i: usize| bytes[i / of_byte] >> (i % of_byte) & 1 == 1;
    (0..elements).map(bit).collect()
}

/// 1 for each of so many elements in memory that has a bit, and 0 for others.
pub(crate) fn to_numbers(mask: &TensorData, elements: usize) -> TensorData {
    let bits = to_bits(mask, elements).into_iter();
    let numbers: Vec<f64> = bits.map(|bit| f64::from(u8::from(bit))).collect();
    TensorData::from_f64(mask.dtype(), &numbers)
}
