//! Whether there is memory for what is asked, before it is asked for: a failed allocation cannot be reported in one line.

use crate::error::{Error, Result};
use crate::format;

/// Refuses work on tensors of this many bytes in all when the machine has less memory to spare.
pub(crate) fn check(bytes: u64) -> Result<()> {
    match available() {
        Some(available) if bytes > available => {
            let (needed, available) = (format::bytes(bytes), format::bytes(available));
            Err(Error::usage(format!(
                "not enough memory: {needed} are needed, {available} are available"
            )))
        }
        _ => Ok(()),
    }
}

/// How often so many bytes fit, once where that is not known.
pub(crate) fn times(bytes: u64) -> usize {
    let times = available().map_or(1, |available| available / bytes.max(1));
    times.try_into().unwrap_or(usize::MAX)
}

/// Free memory as Linux tells it; elsewhere what the allocator can do is found out by allocating.
fn available() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}
