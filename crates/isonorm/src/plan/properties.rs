use std::sync::OnceLock;

use crate::Isa;

/// What a plan has to know about a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuProperties {
    /// Threads that work at once.
    pub threads: usize,
    /// Bytes of the second-level cache of one core.
    pub l2_bytes: usize,
    /// Bytes of the last-level cache.
    pub llc_bytes: usize,
    /// The vector instructions that are used.
    pub isa: Isa,
}

/// Cache sizes of a modest core, for systems that do not tell.
const DEFAULT_L2: usize = 512 << 10;
const DEFAULT_LLC: usize = 8 << 20;

impl CpuProperties {
    /// This machine with `threads` threads and vector instructions `isa`.
    pub fn detect(threads: usize, isa: Isa) -> CpuProperties {
        static CACHES: OnceLock<(usize, usize)> = OnceLock::new();
        let (l2_bytes, llc_bytes) = *CACHES.get_or_init(|| {
            let l2 = cache_size(2).unwrap_or(DEFAULT_L2);
            (l2, cache_size(3).unwrap_or(DEFAULT_LLC.max(l2)))
        });
        CpuProperties {
            threads,
            l2_bytes,
            llc_bytes,
            isa,
        }
    }
}

/// The size of the first core's data cache of this level, as Linux tells it.
fn cache_size(level: usize) -> Option<usize> {
    (0..8).find_map(|index| {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
            std::fs::read_to_string(path).ok()
        };
        if read("level")?.trim().parse() != Ok(level) || read("type")?.trim() == "Instruction" {
            return None;
        }
        let size = read("size")?;
        let size = size.trim();
        match size.as_bytes().last()? {
            b'K' => size[..size.len() - 1].parse::<usize>().ok()?.checked_mul(1 << 10),
            b'M' => size[..size.len() - 1].parse::<usize>().ok()?.checked_mul(1 << 20),
            _ => size.parse().ok(),
        }
        .filter(|&s| s > 0)
    })
}
