//! The generated PTX, for whoever launches kernels: `cargo xtask ptx` writes it, and its first line names the sources.
//!
//! The driver compiles a module for the GPU at hand when it is loaded; load one when it is first used.

/// PTX of some kernels, with the element types they are for.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The family of kernels and the element type, such as `rows_forward_f32`.
    pub name: &'static str,
    /// The oldest GPU that runs it, as a compute capability: 80 is 8.0.
    pub compute_capability: u32,
    /// What the driver is given.
    pub ptx: &'static str,
}

impl Module {
    /// The names of its entry points.
    pub fn entries(&self) -> impl Iterator<Item = &'static str> {
        let lines = self
            .ptx
            .lines()
            .filter_map(|line| line.strip_prefix(".visible .entry "));
        lines.map(|line| line.trim_end_matches('('))
    }
}

/// LayerNorm and RMSNorm forward; the names of the entry points are `rows::forward::Key::name`'s.
pub const ROWS_FORWARD: [Module; 3] = [
    Module {
        name: "rows_forward_f32",
        compute_capability: 80,
        ptx: include_str!("../ptx/rows_forward_f32.sm_80.ptx"),
    },
    Module {
        name: "rows_forward_f16",
        compute_capability: 80,
        ptx: include_str!("../ptx/rows_forward_f16.sm_80.ptx"),
    },
    Module {
        name: "rows_forward_bf16",
        compute_capability: 80,
        ptx: include_str!("../ptx/rows_forward_bf16.sm_80.ptx"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::forward::Key;

    #[test]
    fn every_key_has_an_entry_and_every_entry_a_key() {
        for module in ROWS_FORWARD {
            let dtype = module.name.trim_start_matches("rows_forward_");
            let mut keys: Vec<_> = Key::all().map(|key| key.name(dtype)).collect();
            let mut entries: Vec<_> = module.entries().collect();
            keys.sort();
            entries.sort_unstable();
            assert_eq!(keys, entries);
        }
    }
}
