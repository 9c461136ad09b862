//! Bytes of a file as typed elements.

use std::io::{self, Read};

use isonorm::{DType, Shape, TensorData};

/// A shape as it stands in a file, and the elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The elements; as many as the sizes' product.
    pub data: TensorData,
}

/// The number of elements of this shape, or a sentence about why there can be no such tensor.
pub(super) fn elements(shape: &[usize]) -> Result<usize, String> {
    Shape::try_from(shape)?.elements().ok_or_else(|| {
        format!(
            "a shape of {} has more elements than this machine can address",
            crate::format::dims(shape)
        )
    })
}

/// The elements' bytes in memory.
pub(crate) fn bytes(data: &TensorData) -> &[u8] {
    match data {
        TensorData::F16(v) => bytemuck::cast_slice(v),
        TensorData::Bf16(v) => bytemuck::cast_slice(v),
        TensorData::F32(v) => bytemuck::cast_slice(v),
        TensorData::F64(v) => bytemuck::cast_slice(v),
    }
}

/// The elements' bytes in memory, exclusive.
pub(crate) fn bytes_mut(data: &mut TensorData) -> &mut [u8] {
    match data {
        TensorData::F16(v) => bytemuck::cast_slice_mut(v),
        TensorData::Bf16(v) => bytemuck::cast_slice_mut(v),
        TensorData::F32(v) => bytemuck::cast_slice_mut(v),
        TensorData::F64(v) => bytemuck::cast_slice_mut(v),
    }
}

/// Reads `len` elements, whose bytes have this order.
pub(super) fn read(mut from: impl Read, dtype: DType, len: usize, big_endian: bool) -> io::Result<TensorData> {
    let refused = |e: crate::error::Error| io::Error::new(io::ErrorKind::OutOfMemory, e.to_string());
    crate::memory::check((len * dtype.bytes()) as u64).map_err(refused)?;
    let mut data = TensorData::zeros(dtype, len);
    from.read_exact(bytes_mut(&mut data))?;
    if big_endian != cfg!(target_endian = "big") {
        swap(bytes_mut(&mut data), dtype);
    }
    Ok(data)
}

/// Writes the elements with the least significant byte first.
pub(crate) fn write(data: &TensorData, to: &mut impl io::Write) -> io::Result<()> {
    if cfg!(target_endian = "little") {
        return to.write_all(bytes(data));
    }
    let mut swapped = bytes(data).to_vec();
    swap(&mut swapped, data.dtype());
    to.write_all(&swapped)
}

fn swap(bytes: &mut [u8], dtype: DType) {
    bytes.chunks_exact_mut(dtype.bytes()).for_each(<[u8]>::reverse);
}

/// Column-major elements of this shape in row-major order.
pub(super) fn row_major(data: &TensorData, shape: &[usize]) -> TensorData {
    match data {
        TensorData::F16(v) => transposed(v, shape).into(),
        TensorData::Bf16(v) => transposed(v, shape).into(),
        TensorData::F32(v) => transposed(v, shape).into(),
        TensorData::F64(v) => transposed(v, shape).into(),
    }
}

fn transposed<T: Copy>(from: &[T], shape: &[usize]) -> Vec<T> {
    let mut strides = vec![1; shape.len()];
    for i in 1..shape.len() {
        strides[i] = strides[i - 1] * shape[i - 1];
    }
    let (mut index, mut offset) = (vec![0; shape.len()], 0);
    let mut to = Vec::with_capacity(from.len());
    for _ in 0..from.len() {
        to.push(from[offset]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
            offset -= strides[axis] * shape[axis];
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_major_becomes_row_major() {
        assert_eq!(transposed(&[1, 4, 2, 5, 3, 6], &[2, 3]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(transposed(&[7], &[]), [7]);
        assert_eq!(transposed::<u8>(&[], &[3, 0]), Vec::<u8>::new());
    }

    #[test]
    fn bytes_of_either_order_are_read() {
        let read_as = |bytes: &[u8], big| read(bytes, DType::F32, 1, big).unwrap().to_f64();
        assert_eq!(read_as(&1.5f32.to_be_bytes(), true), [1.5]);
        assert_eq!(read_as(&1.5f32.to_le_bytes(), false), [1.5]);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert_eq!(elements(&[2, 3]), Ok(6));
        assert_eq!(elements(&[]), Ok(1));
        assert!(elements(&[usize::MAX, 2]).is_err());
        assert!(elements(&[1; 9]).is_err());
    }
}
