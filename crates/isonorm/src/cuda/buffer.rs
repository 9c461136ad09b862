use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use super::driver::{self, Pool};
use super::view::{Home, Place};
use super::{Device, Stream, View, ViewMut};
use crate::launch::Span;
use crate::{Error, Result, Scalar};

/// Elements in the memory of a GPU. It belongs to a stream: it is there from the moment that the stream comes to its
/// allocation until the stream comes to its being dropped. [`Stream::upload`] and [`Stream::zeros`] make one.
pub struct Buffer<T: Scalar> {
    stream: Stream,
    address: u64,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Scalar> Buffer<T> {
    /// Memory that nobody has written.
    fn unwritten(stream: &Stream, len: usize) -> Result<Buffer<T>> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|b| isize::try_from(*b).is_ok());
        let Some(bytes) = bytes else {
            let (free, total) = stream.device().memory()?;
            return Err(Error::OutOfMemory {
                device: stream.device().ordinal(),
                bytes: usize::MAX,
                free,
                total,
            });
        };
        // No allocation is empty.
        let address = stream.allocate(bytes.max(1))?;
        Ok(Buffer {
            stream: stream.clone(),
            address,
            len,
            elements: PhantomData,
        })
    }

    pub(super) fn zeros(stream: &Stream, len: usize) -> Result<Buffer<T>> {
        let buffer = Buffer::unwritten(stream, len)?;
        if len == 0 {
            return Ok(buffer);
        }
        // SAFETY: just allocated, of this size.
        unsafe { driver::set_zero(buffer.device().context(), buffer.address, buffer.bytes(), stream.raw())? };
        Ok(buffer)
    }

    pub(super) fn upload(stream: &Stream, data: &[T]) -> Result<Buffer<T>> {
        let mut buffer = Buffer::unwritten(stream, data.len())?;
        buffer.copy_from(data)?;
        Ok(buffer)
    }

    /// Overwrites the elements, after all that was put into the stream before; waits until that is done.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] unless there are as many; [`Error::Driver`], also for what went wrong in the stream before.
    pub fn copy_from(&mut self, data: &[T]) -> Result<()> {
        self.same_length("data", data.len())?;
        let (from, bytes) = (data.as_ptr().cast(), self.bytes());
        // SAFETY: as many bytes on both sides; this buffer is borrowed exclusively.
        unsafe { driver::copy_from_host(self.device().context(), self.address, from, bytes, self.stream.raw()) }
    }

    /// Copies the elements out, after all that was put into the stream before; waits until that is done.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] unless there are as many; [`Error::Driver`], also for what went wrong in the stream before.
    pub fn copy_to(&self, data: &mut [T]) -> Result<()> {
        self.same_length("data", data.len())?;
        let (to, bytes) = (data.as_mut_ptr().cast(), self.bytes());
        // SAFETY: as many bytes on both sides; any bits are a number of type T.
        unsafe { driver::copy_to_host(self.device().context(), to, self.address, bytes, self.stream.raw()) }
    }

    /// The elements, after all that was put into the stream before; waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`], also for what went wrong in the stream before.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut data = vec![T::default(); self.len];
        self.copy_to(&mut data)?;
        Ok(data)
    }

    fn same_length(&self, tensor: &'static str, got: usize) -> Result<()> {
        if got == self.len {
            return Ok(());
        }
        Err(Error::LengthMismatch {
            op: "copy",
            tensor,
            expected: self.len,
            got,
            why: "the buffer has as many".into(),
        })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The GPU that it is in.
    pub fn device(&self) -> Device {
        self.stream.device()
    }

    /// The stream that it belongs to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Its address in the GPU's memory, for other libraries.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// All elements, shared.
    pub fn view(&self) -> View<'_> {
        View::new(self.place())
    }

    /// All elements, exclusive.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        ViewMut::new(self.place())
    }

    /// Some elements, shared; `None` when it does not have them.
    pub fn get(&self, range: Range<usize>) -> Option<View<'_>> {
        self.view().get(range)
    }

    /// Some elements, exclusive; `None` when it does not have them.
    pub fn get_mut(&mut self, range: Range<usize>) -> Option<ViewMut<'_>> {
        self.view_mut().get(range)
    }

    fn place(&self) -> Place<'_> {
        Place {
            span: Span {
                address: self.address as usize,
                len: self.len,
                dtype: T::DTYPE,
            },
            home: Home::Stream(&self.stream),
        }
    }
}

impl<T: Scalar> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.stream.release(self.address);
    }
}

impl<'a, T: Scalar> From<&'a Buffer<T>> for View<'a> {
    fn from(buffer: &'a Buffer<T>) -> View<'a> {
        buffer.view()
    }
}

impl<'a, T: Scalar> From<&'a mut Buffer<T>> for ViewMut<'a> {
    fn from(buffer: &'a mut Buffer<T>) -> ViewMut<'a> {
        buffer.view_mut()
    }
}

impl<T: Scalar> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} x {} on {})", self.len, T::DTYPE, self.device())
    }
}

/// Frees what streams allocated; see [`Stream::release`].
///
/// # Safety
/// As [`Pool::free`].
pub(super) unsafe fn free(stream: &driver::RawStream, device: Device, address: u64) {
    // SAFETY: the caller's. A failure leaves nothing to do: the memory is lost until the process ends.
    let _ = unsafe { Pool::free(device.context(), address, stream) };
}
