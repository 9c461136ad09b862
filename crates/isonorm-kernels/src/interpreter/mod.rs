//! Runs kernels on the host, and is strict where a GPU is lenient.
//!
//! Each GPU thread is a coroutine, which gives way at shuffles, barriers and waits; which one runs next is drawn from a
//! seed. What a GPU would let pass is a [`Fault`] here:
//!
//! | mistake | how it is found |
//! |---|---|
//! | access outside of the buffers, or not aligned, or a write to an input | every global access is compared with [`Buffers`] |
//! | shared memory that nobody wrote | it starts poisoned, byte for byte |
//! | race in shared memory | each byte remembers its last writer and two readers, and the barriers they had passed |
//! | message of the grid that takes the place of one still waited for | messages are numbered |
//! | asynchronous copy not waited for | it lands in the wait, and nowhere else |
//! | barrier or shuffle that some threads miss | who waits where is compared |
//! | deadlock | nobody can run: the fault says who waits where |
//!
//! ```
//! use isonorm_kernels::interpreter::{Buffers, Launch};
//! use isonorm_kernels::simt;
//!
//! let mut y = [0u32; 64];
//! let mut buffers = Buffers::new();
//! let place = buffers.writable("y", &mut y);
//! let report = Launch::new(1, 64).run(&buffers, || {
//!     let i = simt::thread_index();
//!     // SAFETY: one element a thread.
//!     unsafe { simt::store_32(place.wrapping_add(i as usize), i) };
//! })?;
//! assert_eq!(report.bytes_written, 256);
//! assert_eq!(y[63], 63);
//! # Ok::<(), isonorm_kernels::interpreter::Fault>(())
//! ```
//!
//! Not modelled: races in global memory, the order in which writes of other blocks become visible, and that a thread
//! which did not wait for a bulk copy itself needs a barrier with one that did.

mod buffers;
mod coroutine;
mod exchange;
mod fault;
mod scheduler;
mod sent;
mod shadow;
mod transfer;
pub(crate) mod world;

pub use buffers::Buffers;
pub(crate) use coroutine::{Operation, Request, Scope, current};
pub use fault::{Fault, FaultKind};

use crate::simt::WARP;

/// Threads of a block, at most.
const MAX_THREADS: u32 = 1024;

/// How a kernel is launched: the sizes of its grid, and the seed of the order that threads run in.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) cluster: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) resident: bool,
    pub(crate) seed: u64,
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes that were read from global memory, each as often as it was read.
    pub bytes_read: u64,
    /// Bytes that were written to global memory.
    pub bytes_written: u64,
}

impl Launch {
    /// `blocks` blocks of `threads` threads, no shared memory, no clusters.
    pub fn new(blocks: u32, threads: u32) -> Self {
        Self {
            blocks,
            threads,
            cluster: 1,
            shared_bytes: 0,
            resident: false,
            seed: 0,
        }
    }

    /// With so many bytes of dynamic shared memory a block.
    #[must_use]
    pub fn shared_bytes(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    /// With clusters of so many blocks.
    #[must_use]
    pub fn cluster(self, cluster: u32) -> Self {
        Self { cluster, ..self }
    }

    /// With all blocks running at the same time, as an exchange over the grid needs it. Otherwise clusters run one
    /// after the other, so that a kernel which wrongly relies on more is found.
    #[must_use]
    pub fn resident(self) -> Self {
        Self { resident: true, ..self }
    }

    /// With another order of threads and blocks.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Runs `kernel` in every thread.
    ///
    /// # Errors
    ///
    /// The first [`Fault`]; the buffers are then partly written.
    pub fn run(&self, buffers: &Buffers<'_>, kernel: impl Fn()) -> Result<Report, Fault> {
        self.check()?;
        scheduler::run(self, buffers, &kernel)
    }

    fn check(&self) -> Result<(), Fault> {
        let fault = |detail: String| Err(Fault::of_launch(detail));
        if self.threads == 0 || self.threads > MAX_THREADS || !self.threads.is_multiple_of(WARP) {
            return fault(format!(
                "{} threads a block, expected a multiple of {WARP} up to {MAX_THREADS}",
                self.threads
            ));
        }
        if self.blocks == 0 || self.cluster == 0 || !self.blocks.is_multiple_of(self.cluster) {
            return fault(format!(
                "{} blocks in clusters of {}, expected a positive multiple",
                self.blocks, self.cluster
            ));
        }
        Ok(())
    }
}
