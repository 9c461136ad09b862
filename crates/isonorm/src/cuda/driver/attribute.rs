use std::ffi::CStr;

use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;

use isonorm_kernels::modules::OCCUPANCY;

use super::{Context, LoadedModule};
use crate::plan::gpu::copy_speed;
use crate::{DType, GpuProperties, Kernel, Result};

/// Bytes a second of a memory that nothing is known of: of the order of every GPU that the kernels run on.
const UNKNOWN_PEAK: f64 = 1e12;

/// What a plan has to know about this GPU.
pub(crate) fn properties(context: &Context) -> Result<GpuProperties> {
    let attribute = |which| attribute(context, which);
    let name = name(context)?;
    let known = GpuProperties::named(&name);
    // A double data rate: two transfers a clock; kHz, bits. Not every driver tells.
    let clock = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0);
    let bus = attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).unwrap_or(0);
    let peak = match 2.0 * f64::from(clock) * 1e3 * f64::from(bus) / 8.0 {
        0.0 => UNKNOWN_PEAK,
        peak => peak,
    };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let compute_capability = 10 * major + minor;
    let shared_bytes_per_block = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    Ok(GpuProperties {
        name: name.into(),
        compute_capability,
        cluster_sms: match compute_capability < OCCUPANCY.compute_capability {
            true => 0,
            false => cluster_sms(context, shared_bytes_per_block)?,
        },
        sms: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        threads_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        shared_bytes_per_sm: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        shared_bytes_per_block,
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
        memory_bytes: total_memory(context)?,
        copy_bytes_per_second: known.map_or(copy_speed(peak), |known| known.copy_bytes_per_second),
    })
}

/// Multiprocessors that run clusters of eight at once, of a kernel whose blocks take all shared memory.
fn cluster_sms(context: &Context, shared_bytes: u32) -> Result<u32> {
    let kernel = Kernel {
        family: OCCUPANCY.family,
        dtype: DType::F32,
        entry: "nothing",
        grid: 8,
        block: 32,
        cluster: 8,
        shared_bytes,
        resident: false,
    };
    let module = LoadedModule::load(context, OCCUPANCY.family, OCCUPANCY.ptx)?;
    let function = module.function(context, &kernel, shared_bytes)?;
    let clusters = function.resident_clusters(context, &kernel)?;
    Ok(clusters * kernel.cluster)
}

fn attribute(context: &Context, which: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: it writes one number.
    let code = unsafe { (context.driver.cuDeviceGetAttribute)(&mut value, which as i32, context.device) };
    context.driver.check("cuDeviceGetAttribute", code)?;
    Ok(value.max(0) as u32)
}

fn name(context: &Context) -> Result<String> {
    const LONGEST: usize = 256;
    let mut text = [0; LONGEST];
    // SAFETY: it writes at most so many bytes, the last one 0.
    let code = unsafe { (context.driver.cuDeviceGetName)(text.as_mut_ptr(), LONGEST as i32, context.device) };
    context.driver.check("cuDeviceGetName", code)?;
    text[LONGEST - 1] = 0;
    // SAFETY: there is a 0 at the end at the latest.
    Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

fn total_memory(context: &Context) -> Result<usize> {
    let mut bytes = 0;
    // SAFETY: it writes one number.
    let code = unsafe { (context.driver.cuDeviceTotalMem_v2)(&mut bytes, context.device) };
    context.driver.check("cuDeviceTotalMem", code)?;
    Ok(bytes)
}
