//! The driver's functions, looked up one by one.
//!
//! `cudarc` finds the library and has the types. Its functions are not called: they panic where a driver lacks one, and return
//! an enumeration, in which a newer driver's error would be an invalid value. Here a missing function is an error that names
//! it, and codes stay numbers.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec,
    CUgraphNode, CUlaunchAttributeValue, CUlaunchConfig, CUmemPoolProps, CUmemoryPool, CUmodule, CUstream,
};

macro_rules! table {
    ($($function:ident($($argument:ty),* $(,)?);)*) => {
        /// The functions that this crate calls; each returns 0 or the number of an error.
        #[allow(non_snake_case)]
        pub(crate) struct Table {
            $(pub(crate) $function: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Table {
            /// Looks the functions up; the error is the name of one that is missing.
            ///
            /// # Safety
            /// The library has been found to be there.
            pub(super) unsafe fn load() -> Result<Table, &'static str> {
                // SAFETY: the caller's; otherwise it would panic.
                let library = unsafe { sys::culib() };
                Ok(Table {
                    $($function: {
                        // SAFETY: the type is that of the driver's documentation, for the name with its version.
                        let symbol = unsafe { library.get(stringify!($function)) };
                        *symbol.map_err(|_| stringify!($function))?
                    },)*
                })
            }
        }
    };
}

table! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(c_int, *mut *const c_char);
    cuGetErrorString(c_int, *mut *const c_char);

    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceTotalMem_v2(*mut usize, CUdevice);
    cuDeviceGetAttribute(*mut c_int, c_int, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);

    cuCtxGetCurrent(*mut CUcontext);
    cuCtxPushCurrent_v2(CUcontext);
    cuCtxPopCurrent_v2(*mut CUcontext);

    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamSynchronize(CUstream);
    cuStreamGetCtx(CUstream, *mut CUcontext);
    cuStreamGetPriority(CUstream, *mut c_int);
    cuStreamWaitEvent(CUstream, CUevent, c_uint);
    cuStreamIsCapturing(CUstream, *mut c_int);
    cuStreamBeginCapture_v2(CUstream, c_int);
    cuStreamEndCapture(CUstream, *mut CUgraph);

    cuThreadExchangeStreamCaptureMode(*mut c_int);

    cuGraphCreate(*mut CUgraph, c_uint);
    cuGraphAddKernelNode_v2(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeSetAttribute(CUgraphNode, c_int, *const CUlaunchAttributeValue);
    cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, u64);
    cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphLaunch(CUgraphExec, CUstream);
    cuGraphDestroy(CUgraph);
    cuGraphExecDestroy(CUgraphExec);

    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventRecord(CUevent, CUstream);
    cuEventSynchronize(CUevent);
    cuEventElapsedTime(*mut f32, CUevent, CUevent);

    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemPoolCreate(*mut CUmemoryPool, *const CUmemPoolProps);
    cuMemPoolSetAttribute(CUmemoryPool, c_int, *mut c_void);
    cuMemAllocFromPoolAsync(*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
    cuMemFreeAsync(CUdeviceptr, CUstream);
    cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuPointerGetAttributes(c_uint, *mut c_int, *mut *mut c_void, CUdeviceptr);

    cuModuleLoadDataEx(*mut CUmodule, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuFuncSetAttribute(CUfunction, c_int, c_int);
    cuOccupancyMaxActiveClusters(*mut c_int, CUfunction, *const CUlaunchConfig);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, CUfunction, c_int, usize);
    cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
}
