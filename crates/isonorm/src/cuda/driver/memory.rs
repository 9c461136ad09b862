use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUmemAllocationType_enum as AllocationType, CUmemLocationType_enum as LocationType,
    CUmemPool_attribute_enum as PoolAttribute, CUmemPoolProps, CUmemoryPool, CUmemorytype_enum as MemoryType,
    CUpointer_attribute_enum as PointerAttribute,
};

use super::{Context, RawStream};
use crate::{Error, Result};

/// Memory that streams allocate from: what is freed stays here for the next one, so that allocating in a loop asks the system
/// for nothing, and never waits for the GPU. Ours alone, so that nobody else's settings change.
#[derive(Debug)]
pub(crate) struct Pool(CUmemoryPool);

// SAFETY: a handle that any thread may use, never destroyed.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// The driver's number for "no memory left".
const OUT_OF_MEMORY: c_int = 2;

impl Pool {
    fn create(context: &Context) -> Result<Pool> {
        let _bound = context.bind()?;
        let driver = context.driver;
        // SAFETY: plain numbers and enumerations that have a 0.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = AllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = LocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = context.device;
        let mut pool = ptr::null_mut();
        // SAFETY: it reads the properties and writes a handle.
        driver.check("cuMemPoolCreate", unsafe {
            (driver.cuMemPoolCreate)(&mut pool, &properties)
        })?;
        let mut keep = u64::MAX;
        let attribute = PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as c_int;
        // SAFETY: this attribute is 64 bits.
        let code = unsafe { (driver.cuMemPoolSetAttribute)(pool, attribute, ptr::from_mut(&mut keep).cast()) };
        driver.check("cuMemPoolSetAttribute", code)?;
        Ok(Pool(pool))
    }

    /// The pool of a context, made when it is first needed.
    fn of(context: &Context) -> Result<&Pool> {
        if context.pool.get().is_none() {
            // Of two that are made at once, one stays.
            let _ = context.pool.set(Pool::create(context)?);
        }
        Ok(context.pool.get().expect("set above"))
    }

    /// `bytes` of memory, at least 1, from the moment that the stream comes to it.
    pub(crate) fn allocate(context: &Context, bytes: usize, stream: &RawStream) -> Result<u64> {
        let pool = Pool::of(context)?;
        let _bound = context.bind()?;
        let mut address = 0;
        // SAFETY: it writes an address; pool and stream are of this context.
        let code = unsafe { (context.driver.cuMemAllocFromPoolAsync)(&mut address, bytes, pool.0, stream.raw()) };
        if code == OUT_OF_MEMORY {
            let (free, total) = context.memory()?;
            return Err(Error::OutOfMemory {
                device: context.ordinal,
                bytes,
                free,
                total,
            });
        }
        context.driver.check("cuMemAllocFromPoolAsync", code)?;
        Ok(address)
    }

    /// Gives memory back once the stream has come that far.
    ///
    /// # Safety
    /// It was allocated here, is freed once, and nothing uses it later in the stream, or in another.
    pub(crate) unsafe fn free(context: &Context, address: u64, stream: &RawStream) -> Result<()> {
        let _bound = context.bind()?;
        // SAFETY: the caller's.
        let code = unsafe { (context.driver.cuMemFreeAsync)(address, stream.raw()) };
        context.driver.check("cuMemFreeAsync", code)
    }
}

/// Zeros, from the moment that the stream comes to it.
///
/// # Safety
/// The memory is of this context and may be written.
pub(crate) unsafe fn set_zero(context: &Context, address: u64, bytes: usize, stream: &RawStream) -> Result<()> {
    let _bound = context.bind()?;
    // SAFETY: the caller's.
    let code = unsafe { (context.driver.cuMemsetD8Async)(address, 0, bytes, stream.raw()) };
    context.driver.check("cuMemsetD8Async", code)
}

/// Copies host memory in, and waits for it: the host's may go afterwards.
///
/// # Safety
/// There are so many bytes on both sides; the GPU's may be written.
pub(crate) unsafe fn copy_from_host(
    context: &Context,
    to: u64,
    from: *const u8,
    bytes: usize,
    stream: &RawStream,
) -> Result<()> {
    let _bound = context.bind()?;
    // SAFETY: the caller's.
    let code = unsafe { (context.driver.cuMemcpyHtoDAsync_v2)(to, from.cast(), bytes, stream.raw()) };
    let copied = context.driver.check("cuMemcpyHtoDAsync", code);
    // Waited for even where it failed: part of it may be under way.
    stream.synchronize().and(copied)
}

/// Copies memory out to the host, and waits for it.
///
/// # Safety
/// There are so many bytes on both sides; the host's may be written.
pub(crate) unsafe fn copy_to_host(
    context: &Context,
    to: *mut u8,
    from: u64,
    bytes: usize,
    stream: &RawStream,
) -> Result<()> {
    let _bound = context.bind()?;
    // SAFETY: the caller's.
    let code = unsafe { (context.driver.cuMemcpyDtoHAsync_v2)(to.cast(), from, bytes, stream.raw()) };
    let copied = context.driver.check("cuMemcpyDtoHAsync", code);
    stream.synchronize().and(copied)
}

/// Copies from place to place in the GPU's memory.
///
/// # Safety
/// There are so many bytes on both sides, which do not overlap, until the stream has come past the copy.
pub(crate) unsafe fn copy_within(
    context: &Context,
    to: u64,
    from: u64,
    bytes: usize,
    stream: &RawStream,
) -> Result<()> {
    let _bound = context.bind()?;
    // SAFETY: the caller's.
    let code = unsafe { (context.driver.cuMemcpyDtoDAsync_v2)(to, from, bytes, stream.raw()) };
    context.driver.check("cuMemcpyDtoDAsync", code)
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Memory that the driver knows nothing of.
    Host,
    /// Host memory that GPUs can reach, slowly.
    PageLocked,
    /// Memory of the GPU with this number.
    Device(u32),
    /// Memory that moves to who uses it.
    Managed,
}

/// Asks the driver where an address is.
pub(crate) fn locate(context: &Context, address: u64) -> Result<Location> {
    let mut attributes = [
        PointerAttribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as c_int,
        PointerAttribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as c_int,
        PointerAttribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as c_int,
    ];
    // Wider than any of them.
    let mut values = [0u64; 3];
    let mut places = values.each_mut().map(|v| ptr::from_mut(v).cast::<c_void>());
    let count = attributes.len() as u32;
    let driver = context.driver;
    // SAFETY: as many places as attributes, each large enough. An address that it does not know leaves the zeros.
    let code = unsafe { (driver.cuPointerGetAttributes)(count, attributes.as_mut_ptr(), places.as_mut_ptr(), address) };
    driver.check("cuPointerGetAttributes", code)?;
    const HOST: u64 = MemoryType::CU_MEMORYTYPE_HOST as u64;
    Ok(match values.map(|v| v & u64::from(u32::MAX)) {
        [0, ..] => Location::Host,
        [_, 1, _] => Location::Managed,
        [HOST, ..] => Location::PageLocked,
        [_, _, ordinal] => Location::Device(ordinal as u32),
    })
}
