//! [`Sent`]: what threads know of other warps' accesses by what these have sent, where no barrier says it.

use std::cell::RefCell;
use std::collections::HashMap;

use super::shadow::Access;

/// A warp: its block's index among those that run together, and its own in the block.
type Warp = (u32, u32);

/// How many messages of each warp have come to someone: what the warp did before the last of them is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(HashMap<Warp, u32>);

impl Known {
    /// Whether a message says that this access is over.
    pub fn includes(&self, access: Access) -> bool {
        let sent = self.0.get(&access.warp());
        sent.is_some_and(|&sent| sent > access.sent)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, (warp, sent): Message) {
        let known = self.0.entry(warp).or_default();
        *known = sent.max(*known);
    }

    fn join(&mut self, other: &Known) {
        for (&warp, &sent) in &other.0 {
            self.add((warp, sent));
        }
    }
}

/// The sender of a message, and how many it has sent with this one.
pub(crate) type Message = (Warp, u32);

/// Who has sent how much, and what each thread knows.
#[derive(Default)]
pub(crate) struct Sent {
    by_warp: RefCell<HashMap<Warp, u32>>,
    of_threads: RefCell<HashMap<(u32, u32), Known>>,
}

impl Sent {
    /// How much the warp has sent so far.
    pub fn so_far(&self, warp: Warp) -> u32 {
        self.by_warp.borrow().get(&warp).copied().unwrap_or(0)
    }

    /// One more message of the warp.
    pub fn send(&self, warp: Warp) -> Message {
        let mut by_warp = self.by_warp.borrow_mut();
        let sent = by_warp.entry(warp).or_default();
        *sent += 1;
        (warp, *sent)
    }

    /// The thread has received messages.
    pub fn receive(&self, block: u32, thread: u32, messages: &Known) {
        if !messages.is_empty() {
            self.of_threads
                .borrow_mut()
                .entry((block, thread))
                .or_default()
                .join(messages);
        }
    }

    /// Calls `check` with what the thread knows.
    pub fn with_known<R>(&self, block: u32, thread: u32, check: impl FnOnce(&Known) -> R) -> R {
        match self.of_threads.borrow().get(&(block, thread)) {
            Some(known) => check(known),
            None => check(&Known::default()),
        }
    }
}
