use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::buffer::free;
use super::driver::{self, Pool, RawEvent, RawStream};
use super::launch::{self, Calls, Keeps, Workspace};
use super::view::{Home, Place};
use super::{Backward, Buffer, Device, Event, Forward, Graph, Plan, View, ViewMut};
use crate::{Error, Result, Scalar};

/// Work of a GPU in order. What is put into it is done later, while the host goes on. Cheap to clone; any thread may use it.
#[derive(Clone)]
pub struct Stream(Arc<State>);

struct State {
    device: Device,
    raw: RawStream,
    /// Memory to be freed that could not be while the stream was captured.
    parked: Mutex<Vec<u64>>,
    /// Scratch memory of its calls.
    keeps: Mutex<Keeps>,
    /// Those that came before.
    calls: Mutex<Calls>,
}

impl Stream {
    pub(super) fn new(device: Device) -> Result<Stream> {
        Ok(Stream::of(device, RawStream::create(device.context())?))
    }

    fn of(device: Device, raw: RawStream) -> Stream {
        Stream(Arc::new(State {
            device,
            raw,
            parked: Mutex::default(),
            keeps: Mutex::default(),
            calls: Mutex::default(),
        }))
    }

    /// The caller's `cudaStream_t` or `CUstream`, null for the default one. It is not destroyed here.
    ///
    /// # Safety
    /// It is a stream, and is not destroyed before this and everything that belongs to it are.
    ///
    /// # Errors
    /// [`Error::ForeignStream`] when it is not one of the GPU's primary context.
    pub unsafe fn from_raw(device: Device, stream: *mut c_void) -> Result<Stream> {
        // SAFETY: the caller's.
        let raw = unsafe { RawStream::borrow(device.context(), stream.cast())? };
        Ok(Stream::of(device, raw))
    }

    /// The stream as the driver knows it, for other libraries.
    pub fn as_raw(&self) -> *mut c_void {
        self.0.raw.raw().cast()
    }

    /// The GPU.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Waits until all that was put into it is done.
    ///
    /// # Errors
    /// [`Error::Driver`] for what went wrong meanwhile.
    pub fn synchronize(&self) -> Result<()> {
        self.0.raw.synchronize()
    }

    /// Lets what is put into this stream from now on wait for what is in the other now. The host does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        self.0.raw.wait(&RawEvent::record(&other.0.raw, false)?)
    }

    /// A point in time: when the stream has come past all that is in it now.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn record(&self) -> Result<Event> {
        Ok(Event::new(RawEvent::record(&self.0.raw, true)?))
    }

    /// Whether what is put into it is recorded rather than done.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn is_capturing(&self) -> Result<bool> {
        self.0.raw.is_capturing(&self.device().context().bind()?)
    }

    /// Records what `work` puts into this stream, instead of doing it.
    ///
    /// # Errors
    /// `work`'s; [`Error::Driver`] when something in it cannot be captured. The stream is as before then.
    pub fn capture(&self, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        Graph::capture(self, work)
    }

    /// Zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Capturing`]; [`Error::Driver`].
    pub fn zeros<T: Scalar>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::zeros(self, len)
    }

    /// A copy of host memory; waits until it is there.
    ///
    /// # Errors
    /// As [`zeros`](Stream::zeros).
    pub fn upload<T: Scalar>(&self, data: &[T]) -> Result<Buffer<T>> {
        Buffer::upload(self, data)
    }

    /// Copies elements in the memory of this GPU.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] or [`Error::DTypeMismatch`] when they are not alike, [`Error::Overlap`] when they lie in each
    /// other; [`Error::WrongMemory`]; [`Error::Driver`].
    pub fn copy(&self, from: View<'_>, to: ViewMut<'_>) -> Result<()> {
        let (source, target) = (from.place(), to.place());
        launch::check_copy(source.span, target.span)?;
        let places = [Some(("the source", source)), Some(("the target", target))];
        self.work_on("copy", &places, || {
            let bytes = source.span.len * source.span.dtype.bytes();
            let (to, from) = (target.span.address as u64, source.span.address as u64);
            // SAFETY: both are this GPU's memory, of this size, apart, and borrowed; the order is seen to by `work_on`.
            unsafe { driver::copy_within(self.device().context(), to, from, bytes, &self.0.raw) }
        })
    }

    /// Puts a forward pass into the stream. Waits for nothing but for other threads that put calls into the same stream. A plan's second call
    /// makes a graph of its kernels, which takes the host some time, and by which those that follow are launched; these allocate nothing on the
    /// host.
    ///
    /// # Errors
    /// When an argument is missing, unwanted, of the wrong length or type, misaligned, overlaps another, or is not this GPU's
    /// memory; when the plan is another GPU's; [`Error::Capturing`] when kernels would have to be loaded while the stream is
    /// captured; [`Error::Unsupported`]. Nothing has been launched then.
    pub fn forward(&self, plan: &Plan, arguments: Forward<'_>, workspace: Workspace<'_>) -> Result<()> {
        launch::forward_on(self, plan, &arguments, workspace)
    }

    /// Puts a backward pass into the stream.
    ///
    /// # Errors
    /// As [`forward`](Stream::forward).
    pub fn backward(&self, plan: &Plan, arguments: Backward<'_>, workspace: Workspace<'_>) -> Result<()> {
        launch::backward_on(self, plan, &arguments, workspace)
    }

    pub(super) fn raw(&self) -> &RawStream {
        &self.0.raw
    }

    fn is(&self, other: &Stream) -> bool {
        self.0.raw.raw() == other.0.raw.raw()
    }

    /// Checks where memory is, then does work on it in this stream, in the order of the streams that the memory belongs to.
    pub(super) fn work_on(
        &self,
        op: &'static str,
        places: &[Option<(&'static str, Place<'_>)>],
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        for (tensor, place) in places.iter().flatten() {
            place.check(op, tensor, self.device())?;
        }
        let foreign = || {
            places.iter().flatten().filter_map(|(tensor, place)| match place.home {
                Home::Stream(stream) if !stream.is(self) => Some((*tensor, stream)),
                _ => None,
            })
        };
        if let Some((tensor, _)) = foreign().next()
            && self.is_capturing()?
        {
            let reason = format!("{tensor} belongs to another stream");
            return Err(Error::Capturing { reason });
        }
        foreign().try_for_each(|(_, other)| self.wait_for(other))?;
        let done = work();
        // Also after a failure: part of the work may be in the stream.
        foreign().try_for_each(|(_, other)| other.wait_for(self))?;
        done
    }

    /// The calls that came before, for one that is captured or is not. None where it is: a graph has kernels, not other graphs. Nor of a stream
    /// that is several: launches of one graph wait for each other.
    pub(super) fn calls(&self, captured: bool) -> Option<MutexGuard<'_, Calls>> {
        let calls = || self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        (!captured && !self.0.raw.is_of_each_thread()).then(calls)
    }

    /// Of how many kinds of calls it has a graph.
    #[doc(hidden)]
    pub fn graphs(&self) -> usize {
        self.calls(false).map_or(0, |calls| calls.ready())
    }

    /// Its scratch memory, for one call.
    pub(super) fn keeps(&self) -> MutexGuard<'_, Keeps> {
        self.0.keeps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<u64> {
        if self.is_capturing()? {
            let reason = "a buffer cannot be made then; make it before".into();
            return Err(Error::Capturing { reason });
        }
        self.free_parked();
        Pool::allocate(self.device().context(), bytes, &self.0.raw)
    }

    /// Takes back what [`allocate`](Stream::allocate) gave, when the stream has come that far.
    pub(super) fn release(&self, address: u64) {
        if self.is_capturing().unwrap_or(true) {
            self.0.parked().push(address);
            return;
        }
        self.free_parked();
        // SAFETY: a buffer is dropped once, and what used it in other streams has been waited for.
        unsafe { free(&self.0.raw, self.device(), address) };
    }

    fn free_parked(&self) {
        let parked = std::mem::take(&mut *self.0.parked());
        for address in parked {
            // SAFETY: as in `release`.
            unsafe { free(&self.0.raw, self.device(), address) };
        }
    }
}

impl State {
    fn parked(&self) -> MutexGuard<'_, Vec<u64>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for address in std::mem::take(&mut *self.parked()) {
            // SAFETY: as in `Stream::release`.
            unsafe { free(&self.raw, self.device, address) };
        }
        let keeps = self.keeps.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A failure leaves nothing to do.
        let _ = keeps.release(self.device.context(), &self.raw);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:p} of {})", self.as_raw(), self.device())
    }
}
