//! What several tests need.

use std::io::Write;

use isonorm::cuda::Device;

/// Every GPU; where there is none, a line says that this is skipped.
pub fn gpus(what: &str) -> Vec<Device> {
    Device::all().unwrap_or_else(|error| {
        // Past the test harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what} on GPUs: {error}");
        Vec::new()
    })
}
