//! [`Buffers`]: the global memory that a launch may touch.

use std::cell::Cell;
use std::marker::PhantomData;

use super::{FaultKind, Report};

struct Buffer {
    name: String,
    start: *mut u8,
    bytes: usize,
    writable: bool,
    /// What launches have moved so far.
    moved: Cell<Report>,
}

/// The global memory of a launch: slices of the host, borrowed while it lasts.
#[derive(Default)]
pub struct Buffers<'a> {
    list: Vec<Buffer>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffers<'a> {
    /// No memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input and returns the pointer that the kernel gets.
    pub fn read_only<T: Copy>(&mut self, name: &str, data: &'a [T]) -> *const T {
        self.push(name, data.as_ptr().cast_mut().cast(), size_of_val(data), false);
        data.as_ptr()
    }

    /// Adds memory to read and write, and returns the pointer that the kernel gets. Any bytes must be valid for `T`.
    pub fn writable<T: Copy>(&mut self, name: &str, data: &'a mut [T]) -> *mut T {
        let start = data.as_mut_ptr();
        self.push(name, start.cast(), size_of_val(data), true);
        start
    }

    fn push(&mut self, name: &str, start: *mut u8, bytes: usize, writable: bool) {
        self.list.push(Buffer {
            name: name.into(),
            start,
            bytes,
            writable,
            moved: Cell::default(),
        });
    }

    /// What launches have read and written so far, buffer by buffer.
    pub fn moved(&self) -> impl Iterator<Item = (&str, Report)> {
        self.list.iter().map(|buffer| (&buffer.name[..], buffer.moved.get()))
    }

    /// The memory behind an address, when all of `bytes` may be accessed.
    fn find(&self, address: usize, bytes: usize, write: bool) -> Result<(&Buffer, *mut u8), (FaultKind, String)> {
        let what = if write { "write" } else { "read" };
        if bytes.is_power_of_two() && !address.is_multiple_of(bytes.min(16)) {
            let detail = format!("{what} of {bytes} bytes at {}", self.describe(address));
            return Err((FaultKind::Misaligned, detail));
        }
        let holder = self.list.iter().find(|buffer| {
            let offset = address.wrapping_sub(buffer.start.addr());
            offset < buffer.bytes && bytes <= buffer.bytes - offset
        });
        let Some(buffer) = holder else {
            let detail = format!("{what} of {bytes} bytes at {}", self.describe(address));
            return Err((FaultKind::OutOfBounds, detail));
        };
        if write && !buffer.writable {
            return Err((
                FaultKind::ReadOnly,
                format!("{bytes} bytes at {}", self.describe(address)),
            ));
        }
        Ok((buffer, buffer.start.wrapping_add(address - buffer.start.addr())))
    }

    /// An address as a buffer's name and a distance, of the buffer that is nearest.
    fn describe(&self, address: usize) -> String {
        let distance = |buffer: &Buffer| {
            let start = buffer.start.addr();
            start.saturating_sub(address) + address.saturating_sub(start + buffer.bytes)
        };
        let Some(buffer) = self.list.iter().min_by_key(|buffer| distance(buffer)) else {
            return format!("{address:#x}, with no buffer passed");
        };
        let offset = address as i128 - buffer.start.addr() as i128;
        format!(
            "byte {offset} of buffer `{}`, which has {} bytes",
            buffer.name, buffer.bytes
        )
    }

    pub(super) fn read(&self, address: usize, to: &mut [u8]) -> Result<(), (FaultKind, String)> {
        let (buffer, from) = self.find(address, to.len(), false)?;
        let moved = buffer.moved.get();
        buffer.moved.set(Report {
            bytes_read: moved.bytes_read + to.len() as u64,
            ..moved
        });
        // SAFETY: `find` made sure that the bytes lie in a slice that is borrowed for this lifetime, and nothing else
        // accesses it while a launch runs, on this one thread.
        unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    pub(super) fn write(&self, address: usize, from: &[u8]) -> Result<(), (FaultKind, String)> {
        let (buffer, to) = self.find(address, from.len(), true)?;
        let moved = buffer.moved.get();
        buffer.moved.set(Report {
            bytes_written: moved.bytes_written + from.len() as u64,
            ..moved
        });
        // SAFETY: as in `read`, and the slice is borrowed mutably.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    /// Whether so many bytes may be read.
    pub(super) fn check_read(&self, address: usize, bytes: usize) -> Result<(), (FaultKind, String)> {
        self.find(address, bytes, false).map(drop)
    }
}
