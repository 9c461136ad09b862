//! The modules that are built, and for which GPUs.

/// What the compiler is told to compile for.
pub struct Target {
    /// The oldest GPU that runs it.
    pub cpu: &'static str,
    /// The version of PTX, which the driver must know.
    pub ptx: &'static str,
}

/// Ampere and everything after it.
const SM_80: Target = Target {
    cpu: "sm_80",
    ptx: "ptx78",
};

/// Hopper and after: clusters, bulk copies.
const SM_90: Target = Target {
    cpu: "sm_90",
    ptx: "ptx81",
};

/// A family of kernels for one element type.
pub struct Module {
    /// The family, as `--cfg isonorm_module` has it.
    pub family: &'static str,
    /// The element type, as `--cfg isonorm_data` has it.
    pub data: Option<&'static str>,
    pub target: Target,
    /// Threads of a block, at most, of the kernel of that name; the assembler divides the registers for that many.
    pub max_threads: fn(&str) -> u32,
    /// Whether the text is kept; otherwise the module exists to be looked at.
    pub committed: bool,
}

impl Module {
    /// Family and element type.
    pub fn name(&self) -> String {
        self.data
            .map_or(self.family.into(), |data| format!("{}_{data}", self.family))
    }
}

/// The families of kernels.
const FAMILIES: [&str; 172] = [
    "rows_forward_lanes",
    "rows_forward_lanes_wide",
    "rows_forward_block",
    "rows_forward_piecewise",
    "rows_forward_piecewise_wide",
    "rows_forward_residual",
    "rows_forward_any",
    "rows_forward_any_wide",
    "rows_forward_any_residual",
    "rows_forward_runs_piecewise",
    "rows_forward_runs_any",
    "rows_forward_runs_any_residual",
    "rows_forward_elements",
    "rows_forward_elements_runs",
    "rows_each_piecewise",
    "rows_each_any",
    "rows_each_masked",
    "rows_each_elements",
    "rows_forward_cluster_plain",
    "rows_forward_cluster_any",
    "rows_forward_cluster_runs_plain",
    "rows_forward_cluster_runs_any",
    "rows_forward_chip_plain",
    "rows_forward_chip_runs_plain",
    "rows_forward_chip_runs_any",
    "rows_forward_segments_piecewise",
    "rows_forward_ragged_piecewise",
    "rows_forward_segments_any",
    "rows_forward_ragged_any",
    "rows_forward_cluster_segments_piecewise",
    "rows_forward_cluster_ragged_piecewise",
    "rows_forward_cluster_segments_wide",
    "rows_forward_cluster_segments_any",
    "rows_forward_cluster_ragged_any",
    "rows_forward_halves_piecewise",
    "rows_forward_halves_any",
    "rows_forward_cluster_halves_piecewise",
    "rows_forward_cluster_halves_any",
    "rows_forward_chip_segments_piecewise",
    "rows_forward_chip_segments_any",
    "rows_forward_chip_ragged_piecewise",
    "rows_forward_chip_ragged_any",
    "rows_forward_chip_segments_residual",
    "rows_forward_chip_ragged_residual",
    "rows_forward_ragged_by_column_block",
    "rows_forward_by_segment_piecewise",
    "rows_forward_by_segment_any",
    "rows_forward_cluster_by_segment_piecewise",
    "rows_forward_cluster_by_segment_any",
    "rows_forward_lines_piecewise",
    "rows_forward_lines_any",
    "rows_forward_cluster_lines_piecewise",
    "rows_forward_cluster_lines_any",
    "rows_forward_lines_of_segments_piecewise",
    "rows_forward_lines_of_segments_any",
    "rows_forward_cluster_lines_of_segments_piecewise",
    "rows_forward_cluster_lines_of_segments_any",
    "rows_forward_across_runs_piecewise",
    "rows_forward_across_runs_any",
    "rows_forward_pieces_piecewise",
    "rows_forward_pieces_runs_piecewise",
    "rows_forward_pieces_runs_any",
    "rows_backward_pieces_runs_piecewise",
    "rows_backward_pieces_runs",
    "rows_long",
    "rows_long_plain",
    "rows_long_runs_piecewise",
    "rows_long_runs_any",
    "rows_long_down",
    "rows_long_runs",
    "rows_long_elements",
    "rows_long_elements_runs",
    "rows_long_runs_plain",
    "rows_backward_plain",
    "rows_backward_apart",
    "rows_backward_apart_wide",
    "rows_backward_apart_cluster",
    "rows_backward_wide",
    "rows_backward_added",
    "rows_backward",
    "rows_backward_elements",
    "rows_backward_cluster_plain",
    "rows_backward_cluster",
    "rows_backward_chip_plain",
    "rows_backward_chip_wide",
    "rows_backward_segments_plain",
    "rows_backward_ragged_plain",
    "rows_backward_segments_piecewise",
    "rows_backward_ragged_piecewise",
    "rows_backward_segments",
    "rows_backward_ragged",
    "rows_backward_cluster_segments_plain",
    "rows_backward_cluster_ragged_plain",
    "rows_backward_cluster_segments_piecewise",
    "rows_backward_cluster_ragged_piecewise",
    "rows_backward_cluster_segments",
    "rows_backward_cluster_ragged",
    "rows_backward_halves_plain",
    "rows_backward_halves_piecewise",
    "rows_backward_halves",
    "rows_backward_cluster_halves_plain",
    "rows_backward_cluster_halves_piecewise",
    "rows_backward_cluster_halves",
    "rows_backward_chip_segments_plain",
    "rows_backward_chip_ragged_plain",
    "rows_backward_chip_segments_piecewise",
    "rows_backward_chip_segments",
    "rows_backward_chip_ragged_piecewise",
    "rows_backward_chip_ragged",
    "rows_backward_chip_segments_residual",
    "rows_backward_chip_ragged_residual",
    "rows_backward_ragged_by_column_plain",
    "rows_backward_runs_plain",
    "rows_backward_runs_piecewise",
    "rows_backward_runs",
    "rows_backward_cluster_runs_plain",
    "rows_backward_cluster_runs_piecewise",
    "rows_backward_cluster_runs",
    "rows_backward_by_segment_plain",
    "rows_backward_by_segment_piecewise",
    "rows_backward_by_segment",
    "rows_backward_cluster_by_segment_plain",
    "rows_backward_cluster_by_segment_piecewise",
    "rows_backward_cluster_by_segment",
    "rows_backward_lines_of_segments",
    "rows_backward_cluster_lines_of_segments",
    "rows_backward_across_runs_plain",
    "rows_backward_across_runs_piecewise",
    "rows_backward_across_runs",
    "rows_sweeps_down",
    "rows_sweeps",
    "rows_sweeps_elements",
    "rows_sweeps_runs_plain",
    "rows_sweeps_runs",
    "rows_sweeps_elements_runs",
    "rows_gather",
    "rows_running",
    "tiles_forward_plain",
    "tiles_forward_piecewise",
    "tiles_forward",
    "tiles_forward_elements",
    "tiles_backward_plain",
    "tiles_backward_piecewise",
    "tiles_backward",
    "tiles_backward_elements",
    "tiles_backward_masked",
    "tiles_forward_columns_piecewise",
    "tiles_forward_columns",
    "tiles_forward_batched_piecewise",
    "tiles_forward_batched",
    "tiles_forward_columns_masked",
    "tiles_backward_columns_plain",
    "tiles_backward_columns_piecewise",
    "tiles_backward_columns",
    "tiles_backward_batched_plain",
    "tiles_backward_batched_piecewise",
    "tiles_backward_batched",
    "tiles_backward_columns_masked",
    "tiles_forward_joined_piecewise",
    "tiles_backward_joined_piecewise",
    "tiles_forward_joined",
    "tiles_backward_joined",
    "tiles_backward_columns_added",
    "tiles_backward_columns_result",
    "tiles_forward_held_piecewise",
    "tiles_forward_held",
    "tiles_backward_held_plain",
    "tiles_backward_held_added",
    "tiles_backward_held",
    "tiles_backward_held_masked",
    "ladder_batch_norm",
    "ladder_layer_norm",
];

/// Whether the family is one of strips.
fn is_strips(family: &str) -> bool {
    ["_columns", "_joined", "_batched"]
        .iter()
        .any(|kind| family.contains(kind))
}

/// As `Key::max_threads` has it: what a kernel holds and does leaves room for so many.
fn max_threads(family: &str) -> fn(&str) -> u32 {
    match family {
        "rows_forward_lanes" | "rows_forward_block" => |kernel| match kernel {
            short if short.ends_with("_v1") => 1024,
            short if short.ends_with("_v2") => 768,
            _ => 512,
        },
        "rows_forward_piecewise" | "rows_forward_residual" | "rows_forward_runs_piecewise" => {
            |kernel| match kernel.ends_with("_v1") || kernel.ends_with("_v2") {
                true => 1024,
                false => 512,
            }
        }
        "rows_backward_wide" => |_| 256,
        // As they were published.
        ladder if ladder.starts_with("ladder") => |kernel| if kernel == "bn_tile_nc" { 1024 } else { 256 },
        strips if is_strips(strips) => |_| 512,
        held if held.contains("_held") => |_| 768,
        tiles if tiles.starts_with("tiles") => |_| 256,
        "rows_backward_added" => |kernel| match kernel.contains("_v3") || kernel.contains("_v4") {
            true => 256,
            false => 512,
        },
        "rows_backward_plain" => |kernel| if kernel.contains("_v4") { 256 } else { 512 },
        "rows_backward_cluster_ragged_piecewise" => |kernel| if kernel.contains("_v8") { 384 } else { 512 },
        _ => |_| 512,
    }
}

/// The element types that a family is for.
fn data(family: &str) -> &'static [&'static str] {
    match family {
        // Accesses of 16-bit numbers have more sums than there are registers, or more numbers.
        "rows_backward_wide"
        | "rows_backward_apart_wide"
        | "rows_backward_chip_wide"
        | "rows_forward_lanes_wide"
        | "rows_forward_piecewise_wide"
        | "rows_forward_any_wide"
        | "rows_forward_cluster_segments_wide" => &["f32"],
        ladder if ladder.starts_with("ladder") => &["f32"],
        // Two of 32 bits are hardly ever an image's last.
        halves if halves.contains("_halves") => &["f16", "bf16"],
        _ => &["f32", "f16", "bf16"],
    }
}

/// Each function of `simt` once, so that all of them are seen by the assembler.
const PROBE: Module = Module {
    family: "simt",
    data: None,
    target: SM_90,
    max_threads: |_| 512,
    committed: false,
};

/// A kernel that does nothing, for questions to the driver.
const OCCUPANCY: Module = Module {
    family: "occupancy",
    data: None,
    target: SM_90,
    max_threads: |_| 1024,
    committed: true,
};

/// Every module.
pub fn modules() -> Vec<Module> {
    let families = FAMILIES.into_iter().flat_map(|family| {
        data(family).iter().map(move |data| Module {
            family,
            data: Some(data),
            target: if ["cluster", "_held"].iter().any(|needs| family.contains(needs)) || is_strips(family) {
                SM_90
            } else {
                SM_80
            },
            max_threads: max_threads(family),
            committed: true,
        })
    });
    families.chain([OCCUPANCY, PROBE]).collect()
}
