use std::fmt;

use super::Stream;
use super::driver::{RawEvent, RawGraph};
use crate::Result;

/// A point in a stream's work, with the time when it is reached.
pub struct Event(RawEvent);

impl Event {
    pub(super) fn new(raw: RawEvent) -> Event {
        Event(raw)
    }

    /// Waits until it is reached.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for what went wrong in the stream meanwhile.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Seconds from `start` to this event, by the GPU's clock; waits for this one.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also when `start` is not reached yet.
    pub fn seconds_since(&self, start: &Event) -> Result<f64> {
        self.synchronize()?;
        Ok(f64::from(self.0.milliseconds_since(&start.0)?) / 1e3)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Event")
    }
}

/// Work that was recorded by [`Stream::capture`]: launching it again costs the host the same, however much it is.
pub struct Graph(RawGraph);

/// Ends a capture that an early return or a panic left open.
struct Capturing<'s>(Option<&'s Stream>);

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0 {
            stream.keeps().forget_graph();
            // What was recorded is thrown away; an error means that there was nothing to throw away.
            let _ = stream.raw().end_capture();
        }
    }
}

impl Graph {
    pub(super) fn capture(stream: &Stream, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        stream.raw().begin_capture()?;
        let mut open = Capturing(Some(stream));
        stream.keeps().begin_graph();
        work(stream)?;
        stream.keeps().end_graph(stream.device().context(), stream.raw())?;
        open.0 = None;
        stream.raw().end_capture().map(Graph)
    }

    /// Puts the recorded work into a stream.
    ///
    /// # Safety
    /// Until the stream has come past it: the buffers and the raw memory that it was recorded with are there, and nothing but
    /// this stream works on them.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        let bound = stream.device().context().bind()?;
        // SAFETY: the caller's.
        unsafe { self.0.launch(stream.raw(), &bound) }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Graph")
    }
}
