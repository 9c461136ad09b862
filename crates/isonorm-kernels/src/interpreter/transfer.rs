//! Asynchronous copies: groups that a thread waits for, and barriers that count bytes, which may be messages.

use std::collections::VecDeque;

use super::sent::{Known, Message};

/// A copy to a block's shared memory that has not landed.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    pub from: Source,
    pub to: u32,
    pub bytes: u32,
}

/// Where the data of a copy comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// This address of global memory.
    Global(usize),
    /// So many bytes from this address of global memory on, and zeros.
    GlobalSome(usize, u32),
    /// A thread that has sent it.
    Thread([u8; 8], Message),
}

/// The copies of one thread.
#[derive(Default)]
pub(crate) struct Groups {
    open: Vec<Copy>,
    committed: VecDeque<Vec<Copy>>,
}

impl Groups {
    pub fn start(&mut self, copy: Copy) {
        self.open.push(copy);
    }

    pub fn commit(&mut self) {
        self.committed.push_back(std::mem::take(&mut self.open));
    }

    /// What lands when all but the `pending` newest groups have to be there.
    pub fn wait(&mut self, pending: usize) -> Vec<Copy> {
        let landing = self.committed.len().saturating_sub(pending);
        self.committed.drain(..landing).flatten().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.committed.iter().all(Vec::is_empty)
    }
}

/// The state of a barrier that counts arrivals and bytes.
pub(crate) struct TransferState {
    pub arrivals: u32,
    pub pending: u32,
    pub expected_bytes: u64,
    pub phase: u32,
    pub copies: Vec<Copy>,
    /// What has been received with the phases that have ended.
    pub known: Known,
}

impl TransferState {
    pub fn new(arrivals: u32) -> Self {
        Self {
            arrivals,
            pending: arrivals,
            expected_bytes: 0,
            phase: 0,
            copies: Vec::new(),
            known: Known::default(),
        }
    }

    /// Ends the phase if everything has arrived, and returns what lands with it.
    pub fn complete(&mut self) -> Option<Vec<Copy>> {
        let started: u64 = self.copies.iter().map(|copy| u64::from(copy.bytes)).sum();
        if self.pending > 0 || started != self.expected_bytes {
            return None;
        }
        self.phase += 1;
        self.pending = self.arrivals;
        self.expected_bytes = 0;
        for copy in &self.copies {
            if let Source::Thread(_, message) = copy.from {
                self.known.add(message);
            }
        }
        Some(std::mem::take(&mut self.copies))
    }

    /// Whether the phase of this parity has ended.
    pub fn has_passed(&self, parity: u32) -> bool {
        self.phase % 2 != parity % 2
    }
}
