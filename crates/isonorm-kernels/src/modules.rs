//! The generated PTX, for whoever launches kernels: `cargo xtask ptx` writes it, and its first line names the sources.
//!
//! The driver compiles a module for the GPU at hand when it is loaded; load one when it is first used.
//!
//! The lists are statics, not constants: of a constant each codegen unit that names it has a copy, and this text is sixty megabytes.

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
    /// Family and type, as one name.
    pub fn name(&self) -> String {
        format!("{}_{}", self.family, self.data)
    }

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
    ($family:literal, $data:literal, $capability:literal) => {
        Module {
            family: $family,
            data: $data,
            compute_capability: $capability,
            ptx: include_str!(concat!("../ptx/", $family, "_", $data, ".sm_", $capability, ".ptx")),
        }
    };
}

macro_rules! modules {
    ($($family:literal of $($data:literal)* for $capability:literal;)*) => {
        /// The modules of the kernels for rows: each family for each element type that its kernels do well with. Families and names of
        /// entry points are those of [`Key`](crate::rows::key::Key).
        pub static ROWS: &[Module] = &[$($(module!($family, $data, $capability),)*)*];
    };
}

modules! {
    "rows_forward_lanes" of "f32" "f16" "bf16" for 80;
    "rows_forward_lanes_wide" of "f32" for 80;
    "rows_forward_block" of "f32" "f16" "bf16" for 80;
    "rows_forward_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_piecewise_wide" of "f32" for 80;
    "rows_forward_residual" of "f32" "f16" "bf16" for 80;
    "rows_forward_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_any_wide" of "f32" for 80;
    "rows_forward_any_residual" of "f32" "f16" "bf16" for 80;
    "rows_forward_runs_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_runs_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_runs_any_residual" of "f32" "f16" "bf16" for 80;
    "rows_forward_elements" of "f32" "f16" "bf16" for 80;
    "rows_forward_elements_runs" of "f32" "f16" "bf16" for 80;
    "rows_each_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_each_any" of "f32" "f16" "bf16" for 80;
    "rows_each_masked" of "f32" "f16" "bf16" for 80;
    "rows_each_elements" of "f32" "f16" "bf16" for 80;
    "rows_forward_cluster_plain" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_any" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_runs_plain" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_runs_any" of "f32" "f16" "bf16" for 90;
    "rows_forward_chip_plain" of "f32" "f16" "bf16" for 80;
    "rows_forward_chip_runs_plain" of "f32" "f16" "bf16" for 80;
    "rows_forward_chip_runs_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_segments_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_ragged_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_segments_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_ragged_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_cluster_segments_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_ragged_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_segments_wide" of "f32" for 90;
    "rows_forward_cluster_segments_any" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_ragged_any" of "f32" "f16" "bf16" for 90;
    "rows_forward_halves_piecewise" of "f16" "bf16" for 80;
    "rows_forward_halves_any" of "f16" "bf16" for 80;
    "rows_forward_cluster_halves_piecewise" of "f16" "bf16" for 90;
    "rows_forward_cluster_halves_any" of "f16" "bf16" for 90;
    "rows_forward_chip_segments_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_chip_segments_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_chip_ragged_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_chip_ragged_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_chip_segments_residual" of "f32" "f16" "bf16" for 80;
    "rows_forward_chip_ragged_residual" of "f32" "f16" "bf16" for 80;
    "rows_forward_ragged_by_column_block" of "f32" "f16" "bf16" for 80;
    "rows_forward_by_segment_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_by_segment_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_cluster_by_segment_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_by_segment_any" of "f32" "f16" "bf16" for 90;
    "rows_forward_lines_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_lines_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_cluster_lines_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_lines_any" of "f32" "f16" "bf16" for 90;
    "rows_forward_lines_of_segments_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_lines_of_segments_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_cluster_lines_of_segments_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_forward_cluster_lines_of_segments_any" of "f32" "f16" "bf16" for 90;
    "rows_forward_across_runs_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_across_runs_any" of "f32" "f16" "bf16" for 80;
    "rows_forward_pieces_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_pieces_runs_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_forward_pieces_runs_any" of "f32" "f16" "bf16" for 80;
    "rows_backward_pieces_runs_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_backward_pieces_runs" of "f32" "f16" "bf16" for 80;
    "rows_long" of "f32" "f16" "bf16" for 80;
    "rows_long_plain" of "f32" "f16" "bf16" for 80;
    "rows_long_runs_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_long_runs_any" of "f32" "f16" "bf16" for 80;
    "rows_long_down" of "f32" "f16" "bf16" for 80;
    "rows_long_runs" of "f32" "f16" "bf16" for 80;
    "rows_long_elements" of "f32" "f16" "bf16" for 80;
    "rows_long_elements_runs" of "f32" "f16" "bf16" for 80;
    "rows_long_runs_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_apart" of "f32" "f16" "bf16" for 80;
    "rows_backward_apart_wide" of "f32" for 80;
    "rows_backward_apart_cluster" of "f32" "f16" "bf16" for 90;
    "rows_backward_wide" of "f32" for 80;
    "rows_backward_added" of "f32" "f16" "bf16" for 80;
    "rows_backward" of "f32" "f16" "bf16" for 80;
    "rows_backward_elements" of "f32" "f16" "bf16" for 80;
    "rows_backward_cluster_plain" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster" of "f32" "f16" "bf16" for 90;
    "rows_backward_chip_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_chip_wide" of "f32" for 80;
    "rows_backward_segments_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_ragged_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_segments_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_backward_ragged_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_backward_segments" of "f32" "f16" "bf16" for 80;
    "rows_backward_ragged" of "f32" "f16" "bf16" for 80;
    "rows_backward_cluster_segments_plain" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_ragged_plain" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_segments_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_ragged_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_segments" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_ragged" of "f32" "f16" "bf16" for 90;
    "rows_backward_halves_plain" of "f16" "bf16" for 80;
    "rows_backward_halves_piecewise" of "f16" "bf16" for 80;
    "rows_backward_halves" of "f16" "bf16" for 80;
    "rows_backward_cluster_halves_plain" of "f16" "bf16" for 90;
    "rows_backward_cluster_halves_piecewise" of "f16" "bf16" for 90;
    "rows_backward_cluster_halves" of "f16" "bf16" for 90;
    "rows_backward_chip_segments_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_chip_ragged_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_chip_segments_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_backward_chip_segments" of "f32" "f16" "bf16" for 80;
    "rows_backward_chip_ragged_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_backward_chip_ragged" of "f32" "f16" "bf16" for 80;
    "rows_backward_chip_segments_residual" of "f32" "f16" "bf16" for 80;
    "rows_backward_chip_ragged_residual" of "f32" "f16" "bf16" for 80;
    "rows_backward_ragged_by_column_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_runs_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_runs_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_backward_runs" of "f32" "f16" "bf16" for 80;
    "rows_backward_cluster_runs_plain" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_runs_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_runs" of "f32" "f16" "bf16" for 90;
    "rows_backward_by_segment_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_by_segment_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_backward_by_segment" of "f32" "f16" "bf16" for 80;
    "rows_backward_cluster_by_segment_plain" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_by_segment_piecewise" of "f32" "f16" "bf16" for 90;
    "rows_backward_cluster_by_segment" of "f32" "f16" "bf16" for 90;
    "rows_backward_lines_of_segments" of "f32" "f16" "bf16" for 80;
    "rows_backward_cluster_lines_of_segments" of "f32" "f16" "bf16" for 90;
    "rows_backward_across_runs_plain" of "f32" "f16" "bf16" for 80;
    "rows_backward_across_runs_piecewise" of "f32" "f16" "bf16" for 80;
    "rows_backward_across_runs" of "f32" "f16" "bf16" for 80;
    "rows_sweeps_down" of "f32" "f16" "bf16" for 80;
    "rows_sweeps" of "f32" "f16" "bf16" for 80;
    "rows_sweeps_elements" of "f32" "f16" "bf16" for 80;
    "rows_sweeps_runs_plain" of "f32" "f16" "bf16" for 80;
    "rows_sweeps_runs" of "f32" "f16" "bf16" for 80;
    "rows_sweeps_elements_runs" of "f32" "f16" "bf16" for 80;
    "rows_gather" of "f32" "f16" "bf16" for 80;
    "rows_running" of "f32" "f16" "bf16" for 80;
    "tiles_forward_plain" of "f32" "f16" "bf16" for 80;
    "tiles_forward_piecewise" of "f32" "f16" "bf16" for 80;
    "tiles_forward" of "f32" "f16" "bf16" for 80;
    "tiles_forward_elements" of "f32" "f16" "bf16" for 80;
    "tiles_backward_plain" of "f32" "f16" "bf16" for 80;
    "tiles_backward_piecewise" of "f32" "f16" "bf16" for 80;
    "tiles_backward" of "f32" "f16" "bf16" for 80;
    "tiles_backward_elements" of "f32" "f16" "bf16" for 80;
    "tiles_backward_masked" of "f32" "f16" "bf16" for 80;
    "tiles_forward_columns_piecewise" of "f32" "f16" "bf16" for 90;
    "tiles_forward_columns" of "f32" "f16" "bf16" for 90;
    "tiles_forward_batched_piecewise" of "f32" "f16" "bf16" for 90;
    "tiles_forward_batched" of "f32" "f16" "bf16" for 90;
    "tiles_forward_columns_masked" of "f32" "f16" "bf16" for 90;
    "tiles_backward_columns_plain" of "f32" "f16" "bf16" for 90;
    "tiles_backward_columns_piecewise" of "f32" "f16" "bf16" for 90;
    "tiles_backward_columns" of "f32" "f16" "bf16" for 90;
    "tiles_backward_batched_plain" of "f32" "f16" "bf16" for 90;
    "tiles_backward_batched_piecewise" of "f32" "f16" "bf16" for 90;
    "tiles_backward_batched" of "f32" "f16" "bf16" for 90;
    "tiles_backward_columns_masked" of "f32" "f16" "bf16" for 90;
    "tiles_forward_joined_piecewise" of "f32" "f16" "bf16" for 90;
    "tiles_backward_joined_piecewise" of "f32" "f16" "bf16" for 90;
    "tiles_forward_joined" of "f32" "f16" "bf16" for 90;
    "tiles_backward_joined" of "f32" "f16" "bf16" for 90;
    "tiles_backward_columns_added" of "f32" "f16" "bf16" for 90;
    "tiles_backward_columns_result" of "f32" "f16" "bf16" for 90;
    "tiles_forward_held_piecewise" of "f32" "f16" "bf16" for 90;
    "tiles_forward_held" of "f32" "f16" "bf16" for 90;
    "tiles_backward_held_plain" of "f32" "f16" "bf16" for 90;
    "tiles_backward_held_added" of "f32" "f16" "bf16" for 90;
    "tiles_backward_held" of "f32" "f16" "bf16" for 90;
    "tiles_backward_held_masked" of "f32" "f16" "bf16" for 90;
}

/// The modules of the [`ladder`](crate::ladder): what no plan takes.
pub static LADDER: &[Module] = &[
    module!("ladder_batch_norm", "f32", 80),
    module!("ladder_layer_norm", "f32", 80),
];

/// A kernel that does nothing, named `nothing`: for questions to the driver about clusters.
pub static OCCUPANCY: Module = Module {
    family: "occupancy",
    data: "",
    compute_capability: 90,
    ptx: include_str!("../ptx/occupancy.sm_90.ptx"),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::list;
    use crate::rows::key::{backward_kernels, kernels, sweep_kernels};
    use crate::tiles::key as tiles;

    /// Families and names of all kernels.
    fn all() -> Vec<(&'static str, &'static str)> {
        let forward = kernels::<f32>().into_iter().map(|kernel| (kernel.family, kernel.name));
        let backward = backward_kernels::<f32>()
            .into_iter()
            .map(|kernel| (kernel.family, kernel.name));
        let sweeps = sweep_kernels::<f32>()
            .into_iter()
            .map(|kernel| (kernel.family, kernel.name));
        forward
            .chain(backward)
            .chain(sweeps)
            .chain(tiles::kernels::<f32>().into_iter().map(|k| (k.family, k.name)))
            .chain(tiles::backward_kernels::<f32>().into_iter().map(|k| (k.family, k.name)))
            .chain([("rows_gather", "gather"), ("rows_running", "running")])
            .collect()
    }

    #[test]
    fn every_kernel_has_an_entry_and_every_entry_a_kernel() {
        for module in ROWS {
            let listed = all().into_iter().filter(|(family, _)| *family == module.family);
            let mut names: Vec<_> = listed.map(|(_, name)| name).collect();
            let mut entries: Vec<_> = module.entries().collect();
            names.sort_unstable();
            entries.sort_unstable();
            assert!(!names.is_empty(), "{}", module.family);
            assert_eq!(names, entries, "{} {}", module.family, module.data);
        }
        for (family, _) in all() {
            assert!(ROWS.iter().any(|module| module.family == family), "{family}");
        }
    }

    #[test]
    fn every_kernel_of_the_ladder_has_an_entry() {
        let listed = [
            list::batch_norm().map(|(name, _)| name).to_vec(),
            list::layer_norm().map(|(name, _)| name).to_vec(),
        ];
        for (module, mut names) in LADDER.iter().zip(listed) {
            let mut entries: Vec<_> = module.entries().collect();
            names.sort_unstable();
            entries.sort_unstable();
            assert_eq!(names, entries, "{}", module.family);
        }
    }
}
