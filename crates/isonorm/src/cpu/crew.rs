//! Hands tasks to threads.

use std::ops::Range;

use rayon::prelude::*;

use super::isa::Vectors;
use super::stream;

/// Bytes that one hand-over should be worth: fewer, and handing over costs more than the work.
const BYTES_PER_HANDOVER: usize = if cfg!(miri) { 1 << 7 } else { 64 << 10 };
/// A pass over fewer bytes than this is over before a second thread has woken up.
const SERIAL_BYTES: usize = if cfg!(miri) { 1 << 8 } else { 256 << 10 };

/// The threads of the pool that the caller runs in.
pub(super) struct Crew {
    /// What kernels are run with.
    pub(super) vectors: Vectors,
    /// Bytes that the whole pass moves.
    bytes: usize,
}

impl Crew {
    pub(super) fn new(vectors: Vectors, bytes: usize) -> Crew {
        Crew { vectors, bytes }
    }

    /// Whether a pass over this many bytes is worth more than one thread.
    pub(super) fn pays(bytes: usize) -> bool {
        bytes >= SERIAL_BYTES
    }

    /// Runs tasks `0..tasks`, about equal ones that touch disjoint memory, in any order; returns when all have ended and
    /// their stores can be seen. A thread is given a range of tasks, so that it sets up its working space once.
    pub(super) fn for_each(&self, tasks: usize, work: impl Fn(Range<usize>) + Sync) {
        let run = |tasks: Range<usize>| {
            work(tasks);
            stream::fence();
        };
        if tasks == 0 {
            return;
        }
        if tasks == 1 || !Crew::pays(self.bytes) || rayon::current_num_threads() == 1 {
            return run(0..tasks);
        }
        let step = (tasks as u128 * BYTES_PER_HANDOVER as u128 / self.bytes as u128) as usize;
        let step = step.clamp(1, tasks);
        (0..tasks.div_ceil(step))
            .into_par_iter()
            .for_each(|i| run(i * step..((i + 1) * step).min(tasks)));
    }
}
