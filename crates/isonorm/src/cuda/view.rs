//! Borrowed memory of a GPU with an element type.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use super::driver::{self, Location};
use super::{Device, Stream};
use crate::launch::{Span, Spanning};
use crate::{DType, Error, Result};

/// How it is known where a view's memory is, and in which order it is worked on.
#[derive(Clone, Copy)]
pub(super) enum Home<'a> {
    /// A buffer's: its stream's.
    Stream(&'a Stream),
    /// The caller says that it is this GPU's.
    Device(Device),
    /// The driver is asked.
    Unknown,
}

/// Memory, wherever it is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) span: Span,
    pub(super) home: Home<'a>,
}

/// Shared, contiguous elements in the memory of a GPU, of a type known at run time.
#[derive(Clone, Copy)]
pub struct View<'a> {
    place: Place<'a>,
}

/// Exclusive, contiguous elements in the memory of a GPU, of a type known at run time.
pub struct ViewMut<'a> {
    place: Place<'a>,
    exclusive: PhantomData<&'a mut ()>,
}

fn raw(address: u64, len: usize, dtype: DType, home: Home<'_>) -> Place<'_> {
    let address = address as usize;
    Place {
        span: Span { address, len, dtype },
        home,
    }
}

impl<'a> View<'a> {
    pub(super) fn new(place: Place<'a>) -> View<'a> {
        View { place }
    }

    /// `len` elements of type `dtype` at a device address. Where that is, each call asks the driver, and refuses host memory
    /// and another GPU's.
    ///
    /// # Safety
    /// Until the stream has come past every call that is given this view: the elements stay allocated, and nobody writes
    /// them. What writes them before is ordered before, by the caller.
    pub unsafe fn from_raw(address: u64, len: usize, dtype: DType) -> View<'a> {
        View::new(raw(address, len, dtype, Home::Unknown))
    }

    /// The same without asking the driver.
    ///
    /// # Safety
    /// As [`from_raw`](View::from_raw), and the memory is of this GPU.
    pub unsafe fn from_raw_of(device: Device, address: u64, len: usize, dtype: DType) -> View<'a> {
        View::new(raw(address, len, dtype, Home::Device(device)))
    }

    /// Part of it; `None` when it does not have these elements.
    pub fn get(self, range: Range<usize>) -> Option<View<'a>> {
        Some(View::new(self.place.get(range)?))
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.place.span.address as u64
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.place.span.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements' type.
    pub fn dtype(&self) -> DType {
        self.place.span.dtype
    }

    pub(super) fn place(&self) -> Place<'a> {
        self.place
    }
}

impl<'a> ViewMut<'a> {
    pub(super) fn new(place: Place<'a>) -> ViewMut<'a> {
        ViewMut {
            place,
            exclusive: PhantomData,
        }
    }

    /// `len` elements of type `dtype` at a device address; asked about as [`View::from_raw`].
    ///
    /// # Safety
    /// Until the stream has come past every call that is given this view: the elements stay allocated, and nobody else reads
    /// or writes them, but that an overlap with another argument of the same call is refused there.
    pub unsafe fn from_raw(address: u64, len: usize, dtype: DType) -> ViewMut<'a> {
        ViewMut::new(raw(address, len, dtype, Home::Unknown))
    }

    /// The same without asking the driver.
    ///
    /// # Safety
    /// As [`from_raw`](ViewMut::from_raw), and the memory is of this GPU.
    pub unsafe fn from_raw_of(device: Device, address: u64, len: usize, dtype: DType) -> ViewMut<'a> {
        ViewMut::new(raw(address, len, dtype, Home::Device(device)))
    }

    /// Part of it; `None` when it does not have these elements.
    pub fn get(self, range: Range<usize>) -> Option<ViewMut<'a>> {
        Some(ViewMut::new(self.place.get(range)?))
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.place.span.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn place(&self) -> Place<'a> {
        self.place
    }
}

impl<'a> Place<'a> {
    fn get(self, range: Range<usize>) -> Option<Place<'a>> {
        let Span { address, len, dtype } = self.span;
        let fits = range.start <= range.end && range.end <= len;
        fits.then(|| Place {
            span: Span {
                address: address + range.start * dtype.bytes(),
                len: range.len(),
                dtype,
            },
            ..self
        })
    }

    /// Refuses memory that is not this GPU's.
    pub(super) fn check(&self, op: &'static str, tensor: &'static str, device: Device) -> Result<()> {
        let got = match self.home {
            _ if self.span.len == 0 => return Ok(()),
            Home::Stream(stream) if stream.device() == device => return Ok(()),
            Home::Device(its) if its == device => return Ok(()),
            Home::Stream(stream) => format!("memory of gpu {}", stream.device().ordinal()),
            Home::Device(its) => format!("memory of gpu {}", its.ordinal()),
            Home::Unknown => match driver::locate(device.context(), self.span.address as u64)? {
                Location::Device(ordinal) if ordinal == device.ordinal() => return Ok(()),
                Location::Managed => return Ok(()),
                Location::Device(ordinal) => format!("memory of gpu {ordinal}"),
                Location::PageLocked => "page-locked memory of the host".into(),
                Location::Host => "memory of the host, or none".into(),
            },
        };
        Err(Error::WrongMemory {
            op,
            tensor,
            address: self.span.address as u64,
            got,
            device: device.ordinal(),
        })
    }
}

impl Spanning for View<'_> {
    fn span(&self) -> Span {
        self.place.span
    }
}

impl Spanning for ViewMut<'_> {
    fn span(&self) -> Span {
        self.place.span
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} x {})", self.len(), self.dtype())
    }
}

impl fmt::Debug for ViewMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewMut({} x {})", self.len(), self.place.span.dtype)
    }
}
