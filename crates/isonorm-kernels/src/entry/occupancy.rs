//! A kernel for questions to the driver, whose answers depend on the GPU and not on what a kernel does.

/// Does nothing.
///
/// # Safety
///
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn nothing() {}
