//! The generated PTX, for whoever launches kernels: `cargo xtask ptx` writes it, and its first line names the sources.
//!
//! The driver compiles a module for the GPU at hand when it is loaded; load one when it is first used.

/// PTX of some kernels, with the element types they are for.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The family of kernels, such as `rows_forward_block`.
    pub family: &'static str,
    /// The element type: `f32`, `f16`, `bf16`.
    pub data: &'static str,
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

macro_rules! module {
    ($family:literal, $data:literal) => {
        Module {
            family: $family,
            data: $data,
            compute_capability: 80,
            ptx: include_str!(concat!("../ptx/", $family, "_", $data, ".sm_80.ptx")),
        }
    };
}

macro_rules! modules {
    ($($family:literal)*) => {
        /// The modules of the kernels for rows: each family for each element type. Families and names of entry points are those
        /// of [`Key`](crate::rows::key::Key).
        pub const ROWS: &[Module] = &[$(
            module!($family, "f32"),
            module!($family, "f16"),
            module!($family, "bf16"),
        )*];
    };
}

modules! {
    "rows_forward_lanes"
    "rows_forward_block"
    "rows_forward_wide"
    "rows_forward_piecewise"
    "rows_forward_smooth"
    "rows_forward_runs_piecewise"
    "rows_forward_runs_smooth"
    "rows_forward_elements_piecewise"
    "rows_forward_elements_smooth"
    "rows_forward_elements_runs_piecewise"
    "rows_forward_elements_runs_smooth"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::key::kernels;

    #[test]
    fn every_kernel_has_an_entry_and_every_entry_a_kernel() {
        for module in ROWS {
            let listed = kernels::<f32>()
                .into_iter()
                .filter(|kernel| kernel.family == module.family);
            let mut names: Vec<_> = listed.map(|kernel| kernel.name).collect();
            let mut entries: Vec<_> = module.entries().collect();
            names.sort_unstable();
            entries.sort_unstable();
            assert!(!names.is_empty(), "{}", module.family);
            assert_eq!(names, entries, "{} {}", module.family, module.data);
        }
        for kernel in kernels::<f32>() {
            assert!(
                ROWS.iter().any(|module| module.family == kernel.family),
                "{}",
                kernel.family
            );
        }
    }
}
