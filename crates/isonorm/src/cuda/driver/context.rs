use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::table::Table;
use super::{Pool, driver};
use crate::Result;

/// The primary context of a GPU: the one that the CUDA runtime, and with it every framework, works in. It is kept for as long
/// as the process runs.
pub(crate) struct Context {
    pub(super) driver: &'static Table,
    pub(crate) ordinal: u32,
    pub(super) device: CUdevice,
    pub(super) raw: CUcontext,
    pub(super) pool: std::sync::OnceLock<Pool>,
}

// SAFETY: a context may be used by any thread; the driver locks what it has to.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// While it lives, the context is current on this thread; afterwards the one before is again.
pub(crate) struct Bound<'c> {
    driver: &'static Table,
    pushed: bool,
    /// What is current is a matter of this thread.
    thread: PhantomData<(&'c Context, *const ())>,
}

impl Context {
    /// The context of this GPU.
    pub(crate) fn retain(ordinal: u32) -> Result<Context> {
        let driver = driver()?;
        let (mut device, mut raw) = (0, ptr::null_mut());
        // SAFETY: both write one handle.
        unsafe {
            driver.check("cuDeviceGet", (driver.cuDeviceGet)(&mut device, ordinal as i32))?;
            driver.check(
                "cuDevicePrimaryCtxRetain",
                (driver.cuDevicePrimaryCtxRetain)(&mut raw, device),
            )?;
        }
        Ok(Context {
            driver,
            ordinal,
            device,
            raw,
            pool: Default::default(),
        })
    }

    /// Makes it current; costs next to nothing where it is already.
    pub(crate) fn bind(&self) -> Result<Bound<'_>> {
        let driver = self.driver;
        let mut current = ptr::null_mut();
        // SAFETY: it writes one handle.
        driver.check("cuCtxGetCurrent", unsafe { (driver.cuCtxGetCurrent)(&mut current) })?;
        let pushed = current != self.raw;
        if pushed {
            // SAFETY: the context is retained.
            driver.check("cuCtxPushCurrent", unsafe { (driver.cuCtxPushCurrent_v2)(self.raw) })?;
        }
        Ok(Bound {
            driver,
            pushed,
            thread: PhantomData,
        })
    }

    /// Free memory and all of it, in bytes.
    pub(crate) fn memory(&self) -> Result<(usize, usize)> {
        let _bound = self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        let code = unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) };
        self.driver.check("cuMemGetInfo", code)?;
        Ok((free, total))
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: this guard pushed it, and does not leave its thread. A failure leaves nothing to do.
            unsafe { (self.driver.cuCtxPopCurrent_v2)(&mut popped) };
        }
    }
}
