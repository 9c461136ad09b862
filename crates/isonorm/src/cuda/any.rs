use super::{Buffer, Stream, View, ViewMut};
use crate::{DType, Result, TensorData, bf16, f16};

/// A [`Buffer`] whose element type is known at run time.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names of the types")]
pub enum AnyBuffer {
    F16(Buffer<f16>),
    Bf16(Buffer<bf16>),
    F32(Buffer<f32>),
    F64(Buffer<f64>),
}

/// Runs `$body` with `$b` bound to the buffer inside.
macro_rules! each {
    ($buffer:expr, $b:ident => $body:expr) => {
        match $buffer {
            AnyBuffer::F16($b) => $body,
            AnyBuffer::Bf16($b) => $body,
            AnyBuffer::F32($b) => $body,
            AnyBuffer::F64($b) => $body,
        }
    };
}

impl AnyBuffer {
    /// A copy of host memory; waits until it is there.
    ///
    /// # Errors
    /// As [`Stream::upload`].
    pub fn upload(stream: &Stream, data: &TensorData) -> Result<AnyBuffer> {
        Ok(match data {
            TensorData::F16(v) => AnyBuffer::F16(stream.upload(v)?),
            TensorData::Bf16(v) => AnyBuffer::Bf16(stream.upload(v)?),
            TensorData::F32(v) => AnyBuffer::F32(stream.upload(v)?),
            TensorData::F64(v) => AnyBuffer::F64(stream.upload(v)?),
        })
    }

    /// Zeros.
    ///
    /// # Errors
    /// As [`Stream::zeros`].
    pub fn zeros(stream: &Stream, dtype: DType, len: usize) -> Result<AnyBuffer> {
        Ok(match dtype {
            DType::F16 => AnyBuffer::F16(stream.zeros(len)?),
            DType::Bf16 => AnyBuffer::Bf16(stream.zeros(len)?),
            DType::F32 => AnyBuffer::F32(stream.zeros(len)?),
            DType::F64 => AnyBuffer::F64(stream.zeros(len)?),
        })
    }

    /// The elements, after all that was put into the stream before; waits for it.
    ///
    /// # Errors
    /// As [`Buffer::to_vec`].
    pub fn to_data(&self) -> Result<TensorData> {
        each!(self, b => Ok(b.to_vec()?.into()))
    }

    /// All elements, shared.
    pub fn view(&self) -> View<'_> {
        each!(self, b => b.view())
    }

    /// All elements, exclusive.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        each!(self, b => b.view_mut())
    }
}

impl<'a> From<&'a AnyBuffer> for View<'a> {
    fn from(buffer: &'a AnyBuffer) -> View<'a> {
        buffer.view()
    }
}

impl<'a> From<&'a mut AnyBuffer> for ViewMut<'a> {
    fn from(buffer: &'a mut AnyBuffer) -> ViewMut<'a> {
        buffer.view_mut()
    }
}
