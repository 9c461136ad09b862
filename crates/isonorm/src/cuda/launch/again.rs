//! Calls that come again: their kernels are launched together, as a graph that is given the call's arguments.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;

use crate::Kernel;
use crate::cuda::driver::{Function, KernelGraph};
use crate::cuda::{Plan, Stream};

/// Kinds of calls that a stream knows, at most. A graph takes 112 KB of the GPU's memory (an H200, driver 580).
const MOST_KINDS: usize = 256;
/// Calls into a stream after which one that did not come again makes room for another. Those of a training step come more often.
const LONG_AGO: u64 = 4096;

/// Calls that launch the same kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) aligned: bool,
    /// Whether the kernels that only some calls need, for running statistics or gradients of parameters, are among them.
    pub(super) all: bool,
}

/// What a stream knows of the calls that came so far.
#[derive(Default)]
pub(in crate::cuda) struct Calls {
    known: HashMap<(usize, Kind), Known, RandomState>,
    /// How many came.
    count: u64,
}

struct Known {
    /// Kept so that no other plan takes its address.
    #[expect(dead_code, reason = "held for its address")]
    plan: Plan,
    ready: Ready,
    /// The number of the last such call.
    last: u64,
}

enum Ready {
    /// It came once.
    No,
    Graph(KernelGraph),
    /// Its kernels are launched one by one: they are no graph, or the driver makes none of them.
    Never,
}

impl Calls {
    /// The graph of a call, ready or about to be; none for one that comes for the first time.
    pub(super) fn graph(&mut self, stream: &Stream, plan: &Plan, kind: Kind) -> Option<&mut KernelGraph> {
        self.count += 1;
        let key = (plan.address(), kind);
        if self.known.len() >= MOST_KINDS && !self.known.contains_key(&key) && !self.make_room() {
            return None;
        }
        match self.known.entry(key) {
            Entry::Occupied(known) => known.into_mut().graph(stream, self.count),
            Entry::Vacant(place) => {
                place.insert(Known {
                    plan: plan.clone(),
                    ready: Ready::No,
                    last: self.count,
                });
                None
            }
        }
    }

    /// Forgets the call that came longest ago, unless that is lately.
    fn make_room(&mut self) -> bool {
        let oldest = self.known.iter().min_by_key(|(_, known)| known.last);
        let Some((&oldest, _)) = oldest.filter(|(_, known)| self.count - known.last > LONG_AGO) else {
            return false;
        };
        self.known.remove(&oldest).is_some()
    }

    /// Such calls are launched kernel by kernel from now on.
    pub(super) fn give_up(&mut self, plan: &Plan, kind: Kind) {
        if let Some(known) = self.known.get_mut(&(plan.address(), kind)) {
            known.ready = Ready::Never;
        }
    }

    /// How many graphs are ready.
    pub(in crate::cuda) fn ready(&self) -> usize {
        let is_ready = |known: &&Known| matches!(&known.ready, Ready::Graph(graph) if graph.is_ready());
        self.known.values().filter(is_ready).count()
    }
}

impl Known {
    /// Its graph, for call number `count`.
    fn graph(&mut self, stream: &Stream, count: u64) -> Option<&mut KernelGraph> {
        self.last = count;
        if let Ready::No = self.ready {
            self.ready = KernelGraph::new(stream.raw()).map_or(Ready::Never, Ready::Graph);
        }
        match &mut self.ready {
            Ready::Graph(graph) => Some(graph),
            Ready::No | Ready::Never => None,
        }
    }
}

/// A call on its way into a graph.
pub(super) struct Given<'g> {
    graph: &'g mut KernelGraph,
    /// Kernels that were given their argument.
    kernels: usize,
    /// Whether all of it is what the graph does.
    fits: bool,
}

impl<'g> Given<'g> {
    pub(super) fn to(graph: &'g mut KernelGraph) -> Given<'g> {
        Given {
            graph,
            kernels: 0,
            fits: true,
        }
    }

    /// The call's next kernel.
    ///
    /// # Safety
    /// As for [`Function::launch`], and it is launched as this kernel each time.
    pub(super) unsafe fn kernel<A>(&mut self, function: Function, kernel: &Kernel, argument: &A) {
        // SAFETY: the caller's.
        let given = unsafe { self.graph.give(self.kernels, function, kernel, argument) };
        self.kernels += 1;
        self.fits &= given.unwrap_or(false);
    }

    /// The call does something else, which is no kernel.
    pub(super) fn other(&mut self) {
        self.fits = false;
    }

    /// The graph, if all kernels of it have the call's arguments, and it is ready.
    pub(super) fn whole(self) -> Option<&'g KernelGraph> {
        let fits = self.fits && self.kernels > 0 && self.kernels == self.graph.kernels();
        (fits && self.graph.prepare().is_ok()).then_some(&*self.graph)
    }
}
