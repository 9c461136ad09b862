use std::ffi::c_int;
use std::ptr;

use cudarc::driver::sys::{
    CUevent, CUevent_flags_enum as EventFlags, CUstream, CUstream_flags_enum as StreamFlags,
    CUstreamCaptureMode_enum as CaptureMode,
};

use super::table::Table;
use super::{Bound, Context, RawGraph};
use crate::{Error, Result};

/// The handle of the default stream that each thread has of its own (`CU_STREAM_PER_THREAD`).
const OF_EACH_THREAD: usize = 2;

/// A stream; destroyed when dropped if it was made here.
pub(crate) struct RawStream {
    context: &'static Context,
    raw: CUstream,
    owned: bool,
}

/// A point in a stream's work.
pub(crate) struct RawEvent {
    context: &'static Context,
    raw: CUevent,
}

// SAFETY: handles that any thread may use; the driver locks what it has to.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}
// SAFETY: as above.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

impl RawStream {
    /// A stream that runs beside all others, the default one too.
    pub(crate) fn create(context: &'static Context) -> Result<RawStream> {
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        let flags = StreamFlags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: it writes a handle.
        let code = unsafe { (context.driver.cuStreamCreate)(&mut raw, flags) };
        context.driver.check("cuStreamCreate", code)?;
        Ok(RawStream {
            context,
            raw,
            owned: true,
        })
    }

    /// A stream of the caller's.
    ///
    /// # Safety
    /// It is a stream (or one of the driver's default ones), and stays so while this is used.
    pub(crate) unsafe fn borrow(context: &'static Context, raw: CUstream) -> Result<RawStream> {
        let _bound = context.bind()?;
        let mut its = ptr::null_mut();
        // SAFETY: the caller's; it writes a handle.
        let code = unsafe { (context.driver.cuStreamGetCtx)(raw, &mut its) };
        context.driver.check("cuStreamGetCtx", code)?;
        if its != context.raw {
            return Err(Error::ForeignStream {
                device: context.ordinal,
            });
        }
        Ok(RawStream {
            context,
            raw,
            owned: false,
        })
    }

    /// Whether it stands for another stream in each thread.
    pub(crate) fn is_of_each_thread(&self) -> bool {
        self.raw.addr() == OF_EACH_THREAD
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    pub(super) fn driver(&self) -> &'static Table {
        self.context.driver
    }

    /// Waits for all that was put into it.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        let driver = self.driver();
        // SAFETY: the stream is there.
        driver.check("cuStreamSynchronize", unsafe { (driver.cuStreamSynchronize)(self.raw) })
    }

    /// Lets what is put into it from now on wait for an event.
    pub(crate) fn wait(&self, event: &RawEvent) -> Result<()> {
        let _bound = self.context.bind()?;
        let driver = self.driver();
        // SAFETY: both are there.
        let code = unsafe { (driver.cuStreamWaitEvent)(self.raw, event.raw, 0) };
        driver.check("cuStreamWaitEvent", code)
    }

    /// Whether its work is being recorded. The context is current: who asks for each call has made it so for more than this.
    pub(crate) fn is_capturing(&self, _: &Bound<'_>) -> Result<bool> {
        let driver = self.driver();
        let mut status: c_int = 0;
        // SAFETY: it writes a number.
        let code = unsafe { (driver.cuStreamIsCapturing)(self.raw, &mut status) };
        driver.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// Begins to record. Other threads are not hindered.
    pub(crate) fn begin_capture(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        let driver = self.driver();
        let mode = CaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as c_int;
        // SAFETY: the stream is there.
        let code = unsafe { (driver.cuStreamBeginCapture_v2)(self.raw, mode) };
        driver.check("cuStreamBeginCapture", code)
    }

    /// Ends the record; the graph is ready to be launched.
    pub(crate) fn end_capture(&self) -> Result<RawGraph> {
        let _bound = self.context.bind()?;
        let driver = self.driver();
        let mut graph = ptr::null_mut();
        // SAFETY: it writes a handle.
        let code = unsafe { (driver.cuStreamEndCapture)(self.raw, &mut graph) };
        driver.check("cuStreamEndCapture", code)?;
        // SAFETY: it was made just now.
        Ok(unsafe { RawGraph::of(self.context, graph)? })
    }

    /// How urgent its work is: a lower number is more urgent, 0 what streams are if nobody says.
    pub(super) fn priority(&self) -> Result<c_int> {
        let driver = self.driver();
        let mut priority = 0;
        // SAFETY: it writes a number.
        let code = unsafe { (driver.cuStreamGetPriority)(self.raw, &mut priority) };
        driver.check("cuStreamGetPriority", code)?;
        Ok(priority)
    }

    pub(super) fn context(&self) -> &'static Context {
        self.context
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        if let (true, Ok(_bound)) = (self.owned, self.context.bind()) {
            // SAFETY: made here, destroyed once; the driver lets its work finish. A failure leaves nothing to do.
            unsafe { (self.driver().cuStreamDestroy_v2)(self.raw) };
        }
    }
}

impl RawEvent {
    /// An event at the end of what is in the stream now. `timed`: it knows when that was.
    pub(crate) fn record(stream: &RawStream, timed: bool) -> Result<RawEvent> {
        let context = stream.context;
        let _bound = context.bind()?;
        let driver = context.driver;
        let flags = match timed {
            true => EventFlags::CU_EVENT_DEFAULT,
            false => EventFlags::CU_EVENT_DISABLE_TIMING,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: it writes a handle.
        driver.check("cuEventCreate", unsafe {
            (driver.cuEventCreate)(&mut raw, flags as u32)
        })?;
        let event = RawEvent { context, raw };
        // SAFETY: both are there, of one context.
        driver.check("cuEventRecord", unsafe { (driver.cuEventRecord)(raw, stream.raw) })?;
        Ok(event)
    }

    /// Waits until the stream has come here.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        let driver = self.context.driver;
        // SAFETY: the event is there.
        driver.check("cuEventSynchronize", unsafe { (driver.cuEventSynchronize)(self.raw) })
    }

    /// Milliseconds from another event to this one; both have come to pass.
    pub(crate) fn milliseconds_since(&self, start: &RawEvent) -> Result<f32> {
        let _bound = self.context.bind()?;
        let driver = self.context.driver;
        let mut milliseconds = 0.0;
        // SAFETY: it writes a number.
        let code = unsafe { (driver.cuEventElapsedTime)(&mut milliseconds, start.raw, self.raw) };
        driver.check("cuEventElapsedTime", code)?;
        Ok(milliseconds)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        if let Ok(_bound) = self.context.bind() {
            // SAFETY: made here, destroyed once.
            unsafe { (self.context.driver.cuEventDestroy_v2)(self.raw) };
        }
    }
}
