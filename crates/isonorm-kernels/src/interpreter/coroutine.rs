//! The side of the coroutine: who is running, and how it asks the scheduler for what it cannot do alone.

use std::cell::Cell;
use std::panic::Location;
use std::ptr;

use corosensei::Yielder;

use super::world::World;
use super::{Fault, FaultKind};

pub(crate) type Place = &'static Location<'static>;

/// What the lanes of a warp do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    ShuffleXor,
    ShuffleDown,
    ShuffleIndex,
    Ballot,
    Barrier,
}

/// Whose barrier it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Block,
    Cluster,
}

/// Why a thread gives way.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    Warp {
        operation: Operation,
        value: u32,
        operand: u32,
        place: Place,
    },
    Barrier {
        scope: Scope,
        place: Place,
    },
    Counter {
        address: usize,
        at_least: u32,
        place: Place,
    },
    Message {
        address: usize,
        tag: u32,
        place: Place,
    },
    Transfer {
        offset: u32,
        parity: u32,
        place: Place,
    },
    Cluster {
        place: Place,
    },
    /// The fault is in the world; this thread does not run again.
    Fault,
}

/// Who a coroutine is.
pub(crate) struct Running {
    pub world: *const World<'static>,
    pub yielder: *const Yielder<u32, Request>,
    /// The block's index among those that run together.
    pub block: u32,
    /// The thread's index in its block.
    pub thread: u32,
}

thread_local! {
    static CURRENT: Cell<*const Running> = const { Cell::new(ptr::null()) };
}

/// The coroutine that is running.
///
/// # Panics
///
/// Outside of a launch.
pub(crate) fn current() -> &'static Running {
    let running = CURRENT.get();
    assert!(!running.is_null(), "kernels run inside `Launch::run` only");
    // SAFETY: set by `enter` and `suspend` to the frame of the coroutine that runs; that frame lives until the
    // coroutine has ended, and callers use it before that.
    unsafe { &*running }
}

impl Running {
    /// Runs `kernel` as this coroutine.
    pub fn enter(&self, kernel: &dyn Fn()) {
        CURRENT.set(self);
        kernel();
    }

    pub fn world(&self) -> &World<'static> {
        // SAFETY: the scheduler keeps the world until all coroutines are gone.
        unsafe { &*self.world }
    }

    /// Gives way until the scheduler has an answer.
    pub fn suspend(&self, request: Request) -> u32 {
        // SAFETY: the yielder lives as long as the coroutine, which is the caller.
        let answer = unsafe { &*self.yielder }.suspend(request);
        CURRENT.set(self);
        answer
    }

    /// The result, or the end of the launch.
    pub fn expect<T>(&self, result: Result<T, (FaultKind, String)>, place: Place) -> T {
        match result {
            Ok(value) => value,
            Err((kind, detail)) => {
                let block = self.world().block_index(self.block);
                let fault = Fault::at(kind, block, self.thread, Some(place), detail);
                self.world().fail(fault);
                self.suspend(Request::Fault);
                unreachable!("a thread that failed runs no more")
            }
        }
    }
}
