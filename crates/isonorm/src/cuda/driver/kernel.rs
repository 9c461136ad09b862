use std::ffi::{CString, c_int, c_void};
use std::{ptr, slice};

use cudarc::driver::sys::{
    CUfunction, CUfunction_attribute_enum as FunctionAttribute, CUjit_option_enum as JitOption, CUlaunchAttribute,
    CUlaunchAttributeID_enum as LaunchAttribute, CUlaunchAttributeValue, CUlaunchAttributeValue_union__bindgen_ty_1,
    CUlaunchConfig, CUmodule, CUstream,
};

use super::{Context, RawStream};
use crate::{Error, Kernel, Result};

/// Blocks get this much dynamic shared memory without asking.
const FREE_SHARED_BYTES: u32 = 48 << 10;
/// Clusters of up to so many blocks run on every GPU that has clusters.
const PORTABLE_CLUSTER: u32 = 8;
/// What the compiler may say about a module that it refuses.
const LOG_BYTES: usize = 8 << 10;

/// A module of kernels in a context; it stays for as long as the process runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedModule(CUmodule);

/// A kernel in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function(pub(super) CUfunction);

// SAFETY: handles that any thread may use, and that are never unloaded.
unsafe impl Send for LoadedModule {}
// SAFETY: as above.
unsafe impl Sync for LoadedModule {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl LoadedModule {
    /// Compiles PTX for the context's GPU.
    pub(crate) fn load(context: &Context, name: &str, ptx: &str) -> Result<LoadedModule> {
        let _bound = context.bind()?;
        let driver = context.driver;
        let text = CString::new(ptx).expect("PTX is text");
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            JitOption::CU_JIT_ERROR_LOG_BUFFER as c_int,
            JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as c_int,
        ];
        // A number goes as the pointer itself.
        let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
        let mut module = ptr::null_mut();
        // SAFETY: the text ends with 0; there are as many values as options; the log outlives the call.
        let code = unsafe {
            (driver.cuModuleLoadDataEx)(
                &mut module,
                text.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        match driver.check("cuModuleLoadDataEx", code) {
            Ok(()) => Ok(LoadedModule(module)),
            Err(Error::Driver {
                call,
                code,
                name: error,
                reason,
            }) => {
                let log = String::from_utf8_lossy(&log);
                let said = log.trim_end_matches('\0').trim();
                Err(Error::Driver {
                    call,
                    code,
                    name: error,
                    reason: format!("module {name}: {reason} {said}").trim_end().into(),
                })
            }
            Err(other) => Err(other),
        }
    }

    /// A kernel of it, allowed the cluster that it is going to be launched with, and, if it needs more shared memory than any kernel
    /// gets, all that the GPU has for a block: other plans have the same function, and the last that asked decides for all.
    pub(crate) fn function(&self, context: &Context, kernel: &Kernel, most_shared_bytes: u32) -> Result<Function> {
        let _bound = context.bind()?;
        let driver = context.driver;
        let entry = CString::new(kernel.entry).expect("names are text");
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with 0.
        let code = unsafe { (driver.cuModuleGetFunction)(&mut function, self.0, entry.as_ptr()) };
        driver.check("cuModuleGetFunction", code)?;
        let allow = |attribute: FunctionAttribute, value: u32| {
            // SAFETY: the function was found just now.
            let code = unsafe { (driver.cuFuncSetAttribute)(function, attribute as c_int, value as c_int) };
            driver.check("cuFuncSetAttribute", code)
        };
        if kernel.shared_bytes > FREE_SHARED_BYTES {
            allow(
                FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                most_shared_bytes,
            )?;
        }
        if kernel.cluster > PORTABLE_CLUSTER {
            allow(
                FunctionAttribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                1,
            )?;
        }
        Ok(Function(function))
    }
}

/// A cluster's size, as an attribute of a launch.
fn cluster(blocks: u32) -> CUlaunchAttribute {
    let size = CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 };
    CUlaunchAttribute {
        id: LaunchAttribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        pad: [0; 4],
        value: CUlaunchAttributeValue { clusterDim: size },
    }
}

/// What is asked of a kernel's launch, if anything. Never both: blocks of a cluster run at the same time anyway.
pub(super) fn attribute(kernel: &Kernel) -> Option<CUlaunchAttribute> {
    match (kernel.cluster > 1, kernel.resident) {
        (true, _) => Some(cluster(kernel.cluster)),
        (false, true) => Some(ALL_AT_ONCE),
        (false, false) => None,
    }
}

/// That all blocks run at the same time, also beside another stream's kernels, or the launch fails.
const ALL_AT_ONCE: CUlaunchAttribute = CUlaunchAttribute {
    id: LaunchAttribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    pad: [0; 4],
    value: CUlaunchAttributeValue { cooperative: 1 },
};

/// A launch with some attributes, which have to outlive it.
fn config(kernel: &Kernel, stream: CUstream, attributes: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: kernel.grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: kernel.block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: kernel.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

impl Function {
    /// Blocks that a multiprocessor holds at once.
    pub(crate) fn resident_blocks(self, context: &Context, kernel: &Kernel) -> Result<u32> {
        let _bound = context.bind()?;
        let (mut blocks, threads) = (0, kernel.block as c_int);
        // SAFETY: it writes one number; the function is loaded.
        let code = unsafe {
            (context.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                &mut blocks,
                self.0,
                threads,
                kernel.shared_bytes as usize,
            )
        };
        context
            .driver
            .check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(blocks.max(0) as u32)
    }

    /// Clusters that the GPU holds at once.
    pub(crate) fn resident_clusters(self, context: &Context, kernel: &Kernel) -> Result<u32> {
        let _bound = context.bind()?;
        let mut size = cluster(kernel.cluster);
        let config = config(kernel, ptr::null_mut(), slice::from_mut(&mut size));
        let mut clusters = 0;
        // SAFETY: it writes one number; the function is loaded, and the attribute outlives the call.
        let code = unsafe { (context.driver.cuOccupancyMaxActiveClusters)(&mut clusters, self.0, &config) };
        context.driver.check("cuOccupancyMaxActiveClusters", code)?;
        Ok(clusters.max(0) as u32)
    }

    /// Launches it with one argument.
    ///
    /// # Safety
    /// `A` is what the kernel takes, bit for bit; what it points to is what the kernel's contract says, until the stream has
    /// come past the kernel. The context is current.
    pub(crate) unsafe fn launch<A>(self, kernel: &Kernel, argument: &A, stream: &RawStream) -> Result<()> {
        let mut asked = attribute(kernel);
        let config = config(kernel, stream.raw(), asked.as_mut_slice());
        let mut arguments: [*mut c_void; 1] = [ptr::from_ref(argument).cast_mut().cast()];
        let driver = stream.driver();
        // SAFETY: the caller's; the driver copies the argument before it returns.
        let code = unsafe { (driver.cuLaunchKernelEx)(&config, self.0, arguments.as_mut_ptr(), ptr::null_mut()) };
        driver.check("cuLaunchKernelEx", code)
    }
}
