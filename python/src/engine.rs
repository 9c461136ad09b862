//! Where plans run: CPUs by their threads, GPUs by their streams. Both are found again by what Python names them by.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError, RwLock};

use isonorm::cuda::{self, Stream};
use isonorm::{Device, Result};

/// The CPU with so many threads, of this process: threads do not survive a fork, and a pool of the parent's would wait for ever.
pub(crate) fn cpu(threads: usize) -> Device {
    static DEVICES: Mutex<Vec<(u32, usize, Device)>> = Mutex::new(Vec::new());
    let process = std::process::id();
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = devices.iter().find(|(of, with, _)| (*of, *with) == (process, threads));
    if let Some((_, _, device)) = known {
        return device.clone();
    }
    let device = Device::cpu_with_threads(threads);
    devices.push((process, threads, device.clone()));
    device
}

/// The caller's stream, with the scratch memory that its calls have shared so far.
///
/// # Safety
/// It is a stream of this GPU's primary context, and lives as long as calls use it.
pub(crate) unsafe fn stream(device: cuda::Device, raw: usize) -> Result<Stream> {
    static STREAMS: RwLock<Option<HashMap<(u32, usize), Stream>>> = RwLock::new(None);
    let key = (device.ordinal(), raw);
    let known = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(stream) = known.as_ref().and_then(|streams| streams.get(&key)) {
        return Ok(stream.clone());
    }
    drop(known);
    // SAFETY: the caller's.
    let stream = unsafe { Stream::from_raw(device, raw as *mut c_void)? };
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    Ok(streams.get_or_insert_default().entry(key).or_insert(stream).clone())
}
