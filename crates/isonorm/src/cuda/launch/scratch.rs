//! Scratch memory: the caller's, the stream's own, or the pool's.

use std::sync::MutexGuard;

use isonorm_kernels::grid::Messages;

use super::Scratch;
use crate::cuda::driver::{self, Context, Pool, RawStream};
use crate::cuda::{Stream, ViewMut};
use crate::launch::Spanning;
use crate::plan::gpu::rows::VECTOR_BYTES;
use crate::plan::gpu::{self, Schedule};
use crate::{Error, Result};

/// Where a call's scratch memory comes from; see [`GpuPlan::workspace_bytes`](crate::GpuPlan::workspace_bytes).
#[derive(Debug, Default)]
pub enum Workspace<'a> {
    /// The stream's own, which grows when a call needs more, and is kept for the next one. Calls that [`Stream::capture`] records have
    /// memory of their graph in the same way. What a call needs that others record, or one that needs more than 32 MiB, is allocated from
    /// a pool instead, and given back when the stream has come past the call.
    #[default]
    Pool,
    /// The caller's. Its element type does not matter.
    Given(ViewMut<'a>),
}

/// What a stream keeps, of each kind, at most.
const MOST_KEPT_BYTES: usize = 32 << 20;
/// At least: few plans need more.
const LEAST_KEPT_BYTES: usize = 64 << 10;

/// What a call needs.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    bytes: usize,
    messages: gpu::Messages,
}

impl Needs {
    /// Of kernels of a schedule, which update running statistics or do not.
    pub(super) fn of(schedule: Option<&Schedule>, updates: bool) -> Needs {
        Needs {
            bytes: schedule.map_or(0, |s| s.scratch_bytes(updates)),
            messages: schedule.map_or_else(gpu::Messages::default, |s| s.messages),
        }
    }

    /// All of it in one piece: messages come behind the rest.
    fn in_all(self) -> usize {
        self.bytes + self.messages.bytes
    }

    /// Memory at this address, with the messages' made zero.
    ///
    /// # Safety
    /// There are so many bytes that may be written.
    unsafe fn at(self, address: usize, stream: &Stream) -> Result<Scratch> {
        let places = address + self.bytes;
        if self.messages.bytes > 0 {
            let context = stream.device().context();
            // SAFETY: the caller's.
            unsafe { driver::set_zero(context, places as u64, self.messages.bytes, stream.raw())? };
        }
        Ok(Scratch {
            workspace: address,
            messages: Messages {
                places: places as *mut u32,
                sent: 0,
            },
        })
    }
}

/// Who has the scratch memory of a call until it is in the stream.
pub(super) enum Lease<'s> {
    /// The caller, or nobody.
    Others,
    /// The stream, into which no other thread puts a call meanwhile.
    Stream(#[expect(dead_code, reason = "held for its lock")] MutexGuard<'s, Keeps>),
    /// The pool, which gets it back.
    Pool(&'s Stream, usize),
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Lease::Pool(stream, address) = self {
            // SAFETY: allocated for this call, whose kernels are in the stream. While the stream is captured, both become part of the
            // graph.
            let _ = unsafe { Pool::free(stream.device().context(), *address as u64, stream.raw()) };
        }
    }
}

/// Finds the scratch memory of a call, which is captured or is not.
pub(super) fn lease<'s>(
    stream: &'s Stream,
    op: &'static str,
    workspace: &Workspace<'_>,
    (needs, captured): (Needs, bool),
) -> Result<(Scratch, Lease<'s>)> {
    if needs.in_all() == 0 {
        return Ok((Scratch::NONE, Lease::Others));
    }
    if let Workspace::Given(view) = workspace {
        let address = given(stream, op, view, needs.in_all())?;
        // SAFETY: the caller's, of this size.
        return Ok((unsafe { needs.at(address, stream)? }, Lease::Others));
    }
    let is_small = needs.bytes.max(needs.messages.bytes) <= MOST_KEPT_BYTES;
    // A stream of each thread's own is several.
    if is_small && !stream.raw().is_of_each_thread() {
        let mut keeps = stream.keeps();
        if let Some(kept) = keeps.of(captured) {
            let scratch = kept.scratch(stream, needs)?;
            return Ok((scratch, Lease::Stream(keeps)));
        }
    }
    let address = Pool::allocate(stream.device().context(), needs.in_all(), stream.raw())? as usize;
    let lease = Lease::Pool(stream, address);
    // SAFETY: just allocated.
    Ok((unsafe { needs.at(address, stream)? }, lease))
}

/// The address of the caller's memory, which has to have so many bytes.
fn given(stream: &Stream, op: &'static str, view: &ViewMut<'_>, needs: usize) -> Result<usize> {
    let tensor = "the workspace";
    view.place().check(op, tensor, stream.device())?;
    let (address, has) = (view.span().address, view.span().len * view.span().dtype.bytes());
    if has < needs {
        let reason = format!("the workspace has {has} bytes, the plan needs {needs}");
        return Err(Error::PlanMismatch { op, reason });
    }
    let expected = VECTOR_BYTES as usize;
    if !address.is_multiple_of(expected) {
        return Err(Error::Misaligned {
            op,
            tensor,
            expected,
            got: address,
        });
    }
    Ok(address)
}

/// What a stream keeps for its calls, and what it keeps for those that it records, whose graph may run while the stream goes on.
#[derive(Default)]
pub(in crate::cuda) struct Keeps {
    stream: Kept,
    /// While the stream records.
    graph: Option<Kept>,
}

impl Keeps {
    /// The memory of calls that are captured, or are not; nobody's where somebody else began the capture, whose end is not ours to see.
    fn of(&mut self, captured: bool) -> Option<&mut Kept> {
        match captured {
            true => self.graph.as_mut(),
            false => Some(&mut self.stream),
        }
    }

    /// The stream records from now on.
    pub(in crate::cuda) fn begin_graph(&mut self) {
        self.graph = Some(Kept::default());
    }

    /// The last of what the stream records: gives back the memory of the graph's calls.
    pub(in crate::cuda) fn end_graph(&mut self, context: &Context, stream: &RawStream) -> Result<()> {
        self.graph
            .take()
            .map_or(Ok(()), |mut kept| kept.release(context, stream))
    }

    /// What was recorded is thrown away, and its memory with it.
    pub(in crate::cuda) fn forget_graph(&mut self) {
        self.graph = None;
    }

    /// Gives back what the stream keeps, when it has come so far.
    pub(in crate::cuda) fn release(&mut self, context: &Context, stream: &RawStream) -> Result<()> {
        self.stream.release(context, stream)
    }
}

/// Memory that calls which follow one another work in. To ask the pool each time takes the host longer than to launch a kernel, and to
/// make messages zero takes the GPU nearly as long as a small problem.
#[derive(Default)]
struct Kept {
    workspace: Region,
    /// Of messages alone, and zero at first.
    messages: Region,
    /// No message there has a tag beyond this one.
    sent: u32,
}

/// Memory of the pool; none at first.
#[derive(Default)]
struct Region {
    address: u64,
    bytes: usize,
}

impl Kept {
    fn scratch(&mut self, stream: &Stream, needs: Needs) -> Result<Scratch> {
        let gpu::Messages { bytes, tags } = needs.messages;
        self.workspace.grow(needs.bytes, stream)?;
        let is_new = self.messages.grow(bytes, stream)?;
        let (sent, last) = next_tags(if is_new { u32::MAX } else { self.sent }, tags);
        if sent == 0 && bytes > 0 {
            self.sent = 0;
            let context = stream.device().context();
            // SAFETY: the region is that long.
            unsafe { driver::set_zero(context, self.messages.address, self.messages.bytes, stream.raw())? };
        }
        self.sent = last;
        Ok(Scratch {
            workspace: self.workspace.address as usize,
            messages: Messages {
                places: self.messages.address as *mut u32,
                sent,
            },
        })
    }

    fn release(&mut self, context: &Context, stream: &RawStream) -> Result<()> {
        let workspace = self.workspace.release(context, stream);
        self.messages.release(context, stream).and(workspace)
    }
}

/// The tag that those of a call come behind, and its last. The first is 0 where memory has to be made zero: at the beginning, and where
/// there are not enough behind the last one so far.
fn next_tags(so_far: u32, tags: u64) -> (u32, u32) {
    let behind = |sent: u32| u32::try_from(u64::from(sent) + tags);
    match behind(so_far) {
        Ok(last) => (so_far, last),
        Err(_) => (0, behind(0).unwrap_or(u32::MAX)),
    }
}

impl Region {
    /// Makes it as large as needed; whether it is another than before. What fails leaves none, so that the next is another.
    fn grow(&mut self, needed: usize, stream: &Stream) -> Result<bool> {
        if needed <= self.bytes {
            return Ok(false);
        }
        let (context, bytes) = (
            stream.device().context(),
            needed.next_power_of_two().max(LEAST_KEPT_BYTES),
        );
        self.release(context, stream.raw())?;
        let address = Pool::allocate(context, bytes, stream.raw())?;
        *self = Region { address, bytes };
        Ok(true)
    }

    /// Gives it back, when the stream has come so far.
    fn release(&mut self, context: &Context, stream: &RawStream) -> Result<()> {
        match std::mem::take(self) {
            Region { bytes: 0, .. } => Ok(()),
            // SAFETY: it was allocated once, and calls that come later work elsewhere.
            Region { address, .. } => unsafe { Pool::free(context, address, stream) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::next_tags;

    #[test]
    fn tags_begin_again_where_there_are_no_more() {
        assert_eq!(next_tags(0, 7), (0, 7));
        assert_eq!(next_tags(7, 5), (7, 12));
        assert_eq!(next_tags(u32::MAX - 5, 5), (u32::MAX - 5, u32::MAX));
        assert_eq!(next_tags(u32::MAX - 4, 5), (0, 5));
        assert_eq!(next_tags(u32::MAX, 1), (0, 1));
        // More than there are: each such call makes memory zero.
        assert_eq!(next_tags(3, 1 << 40), (0, u32::MAX));
    }
}
