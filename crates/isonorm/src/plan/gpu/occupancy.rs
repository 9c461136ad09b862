//! How many blocks a multiprocessor holds at once, at least: from what the PTX says of a kernel, which the driver keeps to
//! when it compiles it.

use isonorm_kernels::modules::ROWS;
use isonorm_kernels::simt::WARP;

use super::{GpuProperties, Kernel};

/// Registers of a multiprocessor, of every GPU that the kernels run on.
const REGISTERS_PER_SM: u32 = 64 << 10;
/// Parts of a multiprocessor, each with its share of the registers, between which the warps of a block are divided.
pub(super) const PARTS_OF_SM: u32 = 4;
/// Registers are given out to a warp in units of so many.
const WARP_REGISTER_UNIT: u32 = 256;
/// Registers of a thread, at most.
const MOST_REGISTERS: u32 = 255;
/// Bytes of shared memory that the GPU takes for itself in each block.
pub(super) const RESERVED_SHARED_BYTES: u32 = 1 << 10;
/// Blocks of a multiprocessor, at least, whatever their size.
const BLOCKS_PER_SM: u32 = 16;

/// Blocks of this kernel that a multiprocessor holds at once, at least.
pub(super) fn blocks_per_sm(gpu: &GpuProperties, kernel: &Kernel) -> u32 {
    let of_warp = (most_registers(kernel) * WARP).next_multiple_of(WARP_REGISTER_UNIT);
    let warps = REGISTERS_PER_SM / PARTS_OF_SM / of_warp * PARTS_OF_SM;
    let by_registers = warps / kernel.block.div_ceil(WARP);
    let by_threads = gpu.threads_per_sm / kernel.block;
    let by_shared = gpu.shared_bytes_per_sm / (kernel.shared_bytes + RESERVED_SHARED_BYTES);
    by_registers.min(by_threads).min(by_shared).clamp(1, BLOCKS_PER_SM)
}

/// Registers that a thread has at most: those that the entry point is limited to, or what the largest block that it may be
/// launched with leaves each.
fn most_registers(kernel: &Kernel) -> u32 {
    let of_kernel = ROWS
        .iter()
        .filter(|module| (module.family, module.data) == (kernel.family, kernel.dtype.name()));
    let limits = of_kernel.filter_map(|module| limit(module.ptx, kernel.entry));
    limits.max().unwrap_or(MOST_REGISTERS)
}

/// The limit that stands in the head of an entry point.
fn limit(ptx: &str, entry: &str) -> Option<u32> {
    let start = ptx.find(&format!(".entry {entry}("))?;
    let head = ptx[start..].split('{').next()?;
    let directive = |name: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse::<u32>().ok()
    };
    let of_largest_block = || Some((REGISTERS_PER_SM / directive(".maxntid")?.max(1)).min(MOST_REGISTERS));
    directive(".maxnreg").or_else(of_largest_block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_from_the_head_of_the_entry() {
        let ptx = ".visible .entry a_v1(\n.param .b64 p\n)\n.maxntid 1024\n.maxnreg 40\n{\n}\n.visible .entry a_v1_ahead(\n)\n.maxntid 512\n{\n.maxnreg 9\n}\n";
        assert_eq!(limit(ptx, "a_v1"), Some(40));
        assert_eq!(limit(ptx, "a_v1_ahead"), Some(128));
        assert_eq!(limit(ptx, "b_v1"), None);
    }

    #[test]
    fn every_kernel_has_a_limit() {
        for module in ROWS {
            for entry in module.entries() {
                let registers = limit(module.ptx, entry);
                assert!(
                    registers.is_some_and(|r| (16..=255).contains(&r)),
                    "{entry}: {registers:?}"
                );
            }
        }
    }
}
