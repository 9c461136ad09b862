use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, CUlaunchAttributeID_enum as LaunchAttribute,
    CUlaunchAttributeValue, CUstreamCaptureMode_enum as CaptureMode,
};

use super::kernel::attribute;
use super::table::Table;
use super::{Bound, Context, Function, RawStream};
use crate::{Kernel, Result};

/// Work that was recorded, ready to be launched.
pub(crate) struct RawGraph {
    context: &'static Context,
    raw: CUgraphExec,
}

/// Kernels one behind the other, which are launched together, each time with other arguments. The host has that done in less than half of the
/// time that it takes to launch one kernel by itself.
pub(crate) struct KernelGraph {
    context: &'static Context,
    /// What the executable one was made of; its nodes are the names of kernels in that.
    graph: CUgraph,
    nodes: Vec<(CUgraphNode, Function)>,
    /// Of the stream that it is launched into: kernels of a graph have their own.
    priority: c_int,
    ready: Option<RawGraph>,
}

// SAFETY: handles that any thread may use; launches of one graph are put in order by the driver.
unsafe impl Send for RawGraph {}
// SAFETY: as above.
unsafe impl Sync for RawGraph {}
// SAFETY: as above, and what changes it takes it mutably.
unsafe impl Send for KernelGraph {}

impl RawGraph {
    /// A graph made ready; the context is current.
    ///
    /// # Safety
    /// It is one, which nobody else destroys.
    pub(super) unsafe fn of(context: &'static Context, graph: CUgraph) -> Result<RawGraph> {
        // SAFETY: the caller's; it is of no use once it is instantiated.
        unsafe {
            let ready = RawGraph::instantiate(context, graph);
            (context.driver.cuGraphDestroy)(graph);
            ready
        }
    }

    /// # Safety
    /// As [`of`](RawGraph::of), but that the graph stays the caller's.
    unsafe fn instantiate(context: &'static Context, graph: CUgraph) -> Result<RawGraph> {
        let mut raw = ptr::null_mut();
        // SAFETY: the caller's; it writes a handle.
        let code = unsafe { (context.driver.cuGraphInstantiateWithFlags)(&mut raw, graph, 0) };
        context.driver.check("cuGraphInstantiateWithFlags", code)?;
        Ok(RawGraph { context, raw })
    }

    /// Puts the recorded work into a stream. The context is current.
    ///
    /// # Safety
    /// The memory that it was recorded with is still there, and nobody else uses what it writes, until it is done.
    pub(crate) unsafe fn launch(&self, stream: &RawStream, _: &Bound<'_>) -> Result<()> {
        let driver = self.context.driver;
        // SAFETY: the caller's.
        driver.check("cuGraphLaunch", unsafe {
            (driver.cuGraphLaunch)(self.raw, stream.raw())
        })
    }
}

impl Drop for RawGraph {
    fn drop(&mut self) {
        if let Ok(_bound) = self.context.bind() {
            // SAFETY: made here, destroyed once; the driver lets its work finish.
            unsafe { (self.context.driver.cuGraphExecDestroy)(self.raw) };
        }
    }
}

impl KernelGraph {
    /// No kernel yet; for launches into this stream.
    pub(crate) fn new(stream: &RawStream) -> Result<KernelGraph> {
        let context = stream.context();
        let _bound = context.bind()?;
        let (mut graph, priority) = (ptr::null_mut(), stream.priority()?);
        // SAFETY: it writes a handle.
        let code = unsafe { (context.driver.cuGraphCreate)(&mut graph, 0) };
        context.driver.check("cuGraphCreate", code)?;
        Ok(KernelGraph {
            context,
            graph,
            nodes: Vec::new(),
            priority,
            ready: None,
        })
    }

    /// How many kernels it has.
    pub(crate) fn kernels(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it is ready, so that it takes no more kernels.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Gives kernel number `place` its argument for the next launch. Before it is ready the next kernel is added by that. Whether it has that
    /// kernel there.
    ///
    /// # Safety
    /// As for [`Function::launch`], and it is launched as this kernel each time.
    pub(crate) unsafe fn give<A>(
        &mut self,
        place: usize,
        function: Function,
        kernel: &Kernel,
        argument: &A,
    ) -> Result<bool> {
        let mut arguments: [*mut c_void; 1] = [ptr::from_ref(argument).cast_mut().cast()];
        let params = CUDA_KERNEL_NODE_PARAMS {
            func: function.0,
            gridDimX: kernel.grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: kernel.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: kernel.shared_bytes,
            kernelParams: arguments.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        let Some(ready) = &self.ready else {
            return self.add(&params, function, kernel).map(|()| true);
        };
        match self.nodes.get(place) {
            Some(&(node, of)) if of == function => {
                let driver = self.context.driver;
                // SAFETY: the node is of the graph that this was made of; the argument is copied before it returns.
                let code = unsafe { (driver.cuGraphExecKernelNodeSetParams_v2)(ready.raw, node, &params) };
                driver.check("cuGraphExecKernelNodeSetParams", code).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Adds a kernel behind the others.
    fn add(&mut self, params: &CUDA_KERNEL_NODE_PARAMS, function: Function, kernel: &Kernel) -> Result<()> {
        let _bound = self.context.bind()?;
        let driver = self.context.driver;
        let (mut node, last) = (ptr::null_mut(), self.nodes.last().map(|(node, _)| *node));
        let before = last.as_slice();
        // SAFETY: the graph is there, and so is the node before; it writes a handle, and the argument is copied before it returns.
        let code =
            unsafe { (driver.cuGraphAddKernelNode_v2)(&mut node, self.graph, before.as_ptr(), before.len(), params) };
        driver.check("cuGraphAddKernelNode", code)?;
        let set = |id: LaunchAttribute, value: &CUlaunchAttributeValue| {
            // SAFETY: the node is there, and the value what that attribute has.
            let code = unsafe { (driver.cuGraphKernelNodeSetAttribute)(node, id as c_int, value) };
            driver.check("cuGraphKernelNodeSetAttribute", code)
        };
        if let Some(asked) = attribute(kernel) {
            set(asked.id, &asked.value)?;
        }
        let priority = CUlaunchAttributeValue {
            priority: self.priority,
        };
        set(LaunchAttribute::CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority)?;
        self.nodes.push((node, function));
        Ok(())
    }

    /// Makes it ready, if it is not.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        if self.ready.is_none() {
            let _bound = self.context.bind()?;
            let _unseen = Unseen::begin(self.context.driver)?;
            // SAFETY: made here, and destroyed when this is dropped.
            self.ready = Some(unsafe { RawGraph::instantiate(self.context, self.graph)? });
        }
        Ok(())
    }

    /// Puts its kernels into a stream; nothing where it is not ready. The context is current.
    ///
    /// # Safety
    /// Each has been given its argument, which points to what [`Function::launch`] asks for.
    pub(crate) unsafe fn launch(&self, stream: &RawStream, bound: &Bound<'_>) -> Result<()> {
        // SAFETY: the caller's.
        self.ready
            .as_ref()
            .map_or(Ok(()), |ready| unsafe { ready.launch(stream, bound) })
    }
}

impl Drop for KernelGraph {
    fn drop(&mut self) {
        if let Ok(_bound) = self.context.bind() {
            // SAFETY: made here, destroyed once; the executable one is another.
            unsafe { (self.context.driver.cuGraphDestroy)(self.graph) };
        }
    }
}

/// While it lives, what this thread does is not taken for part of what another thread's capture must not see.
struct Unseen(&'static Table, c_int);

impl Unseen {
    fn begin(driver: &'static Table) -> Result<Unseen> {
        let mut mode = CaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_int;
        // SAFETY: it reads and writes a number.
        let code = unsafe { (driver.cuThreadExchangeStreamCaptureMode)(&mut mode) };
        driver.check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(Unseen(driver, mode))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // SAFETY: as above, with the mode that was there. A failure leaves nothing to do.
        unsafe { (self.0.cuThreadExchangeStreamCaptureMode)(&mut self.1) };
    }
}
