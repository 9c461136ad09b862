//! [`Fault`]: what a kernel did wrong, who and where.

use std::fmt;
use std::panic::Location;

/// The kinds of mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside of the buffers, or of shared memory.
    OutOfBounds,
    /// An address that is not a multiple of the size of the access.
    Misaligned,
    /// A write to an input.
    ReadOnly,
    /// A read of shared memory that nobody wrote.
    Poison,
    /// Two threads at one byte of shared memory, one of them writing, and no barrier between; a message in place of one that is still
    /// waited for.
    Race,
    /// An access to the destination of an asynchronous copy, or the end of a thread, before the wait.
    MissingWait,
    /// A barrier that some threads of the group miss.
    DivergentBarrier,
    /// A shuffle or vote that some lanes of the warp miss.
    DivergentWarp,
    /// Nobody can run.
    Deadlock,
    /// A barrier for copies that is used wrongly, or a peer that has ended.
    Misuse,
    /// The kernel panicked.
    Panic,
    /// Sizes that cannot be launched.
    Launch,
}

/// What a kernel did wrong. [`Display`](fmt::Display) says all of it in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which mistake.
    pub kind: FaultKind,
    /// The block's index in the grid.
    pub block: u32,
    /// The thread's index in the block.
    pub thread: u32,
    /// Source file, line and column of the call; empty where there is none.
    pub place: String,
    /// What was expected and what came.
    pub detail: String,
}

impl Fault {
    pub(crate) fn of_launch(detail: String) -> Self {
        Self {
            kind: FaultKind::Launch,
            block: 0,
            thread: 0,
            place: String::new(),
            detail,
        }
    }

    pub(crate) fn at(
        kind: FaultKind,
        block: u32,
        thread: u32,
        place: Option<&Location<'_>>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            block,
            thread,
            place: place.map(ToString::to_string).unwrap_or_default(),
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FaultKind::OutOfBounds => "access out of bounds",
            FaultKind::Misaligned => "misaligned access",
            FaultKind::ReadOnly => "write to read-only memory",
            FaultKind::Poison => "read of shared memory that was never written",
            FaultKind::Race => "race",
            FaultKind::MissingWait => "asynchronous copy not waited for",
            FaultKind::DivergentBarrier => "divergent barrier",
            FaultKind::DivergentWarp => "divergent warp operation",
            FaultKind::Deadlock => "deadlock",
            FaultKind::Misuse => "misuse",
            FaultKind::Panic => "panic in the kernel",
            FaultKind::Launch => "invalid launch",
        };
        write!(f, "{kind}, block {} thread {}", self.block, self.thread)?;
        if !self.place.is_empty() {
            write!(f, " at {}", self.place)?;
        }
        write!(f, ": {}", self.detail)
    }
}

impl std::error::Error for Fault {}
