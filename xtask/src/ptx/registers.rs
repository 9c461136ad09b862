//! How many registers kernels get.

use super::module::Module;

impl Module {
    /// The most registers that a kernel gets, where that is fewer than the largest block leaves it. The assembler takes
    /// more than it needs as long as it may, and it is threads that keep memory busy.
    pub fn registers(&self, kernel: &str) -> Option<u32> {
        // 16 bytes of a 16-bit type are eight numbers instead of four.
        let more = if self.data == Some("f32") { 0 } else { 8 };
        let is_f16 = self.data == Some("f16");
        match self.family {
            // What takes no spills: more threads, where memory is so fast that a multiprocessor does not ask for enough otherwise.
            "rows_forward_lanes" if more > 0 => Some(match kernel {
                _ if kernel.ends_with("warp_v1") => 40,
                _ if kernel.ends_with("_v1") => 48,
                _ if kernel.ends_with("_v2") => 64,
                "layer_warp_v3" | "layer_lanes8_v3" | "layer_lanes16_v3" => 56,
                "layer_lanes8_v4" | "layer_lanes16_v4" => 64,
                "layer_warp_v4" => 72,
                _ if kernel.ends_with("_v3") => 72,
                _ => 80,
            }),
            "rows_forward_block" if more > 0 => match kernel {
                "rms_block_v2" | "rms_block_v3" | "layer_block_v3" => Some(64),
                "layer_block_v2" | "layer_block_v4" => Some(72),
                "rms_block_v4" => Some(80),
                "rms_block_v6" | "layer_block_v8" => Some(88),
                "layer_block_v6" => Some(104),
                _ => None,
            },
            "rows_forward_block" => match kernel {
                "rms_block_v4" => Some(64),
                "layer_block_v4" => Some(72),
                "rms_block_v6" => Some(80),
                "layer_block_v6" => Some(88),
                "rms_block_v8" | "layer_block_v8" => Some(104),
                _ => None,
            },
            "rows_forward_cluster_plain" if more == 0 => Some(96),
            // Eight accesses take more.
            "rows_forward_cluster_runs_plain" if kernel.contains("_v4") => Some(80),
            "rows_each_piecewise" | "rows_each_any" => Some(48),
            "rows_each_masked" => Some(48 + more),
            // Three blocks of seven warps on a multiprocessor.
            // A row of each block: three blocks of thirteen warps on a multiprocessor, or two.
            "rows_forward_segments_piecewise" => Some(if kernel.contains("_v4") { 48 } else { 72 }),
            "rows_forward_ragged_piecewise" => Some(match kernel.contains("_v4") {
                true if more > 0 => 48,
                true => 56,
                false if is_f16 => 80,
                false => 72,
            }),
            "rows_forward_halves_piecewise" => Some(if is_f16 { 64 } else { 48 }),
            // Three blocks of seven warps on a multiprocessor.
            "rows_forward_cluster_segments_piecewise" => Some(if kernel.contains("_v4") { 72 } else { 80 }),
            "rows_forward_cluster_ragged_piecewise" => Some(if kernel.contains("_v4") { 72 } else { 88 }),
            "rows_forward_cluster_halves_piecewise" => Some(if is_f16 { 80 } else { 48 }),
            "rows_forward_halves_any" | "rows_forward_cluster_halves_any" => Some(72),
            // Two blocks of thirteen warps, but for what the assembler makes of f16 on compute capability 12.0.
            "rows_backward_halves_plain" => Some(if is_f16 { 80 } else { 72 }),
            "rows_backward_halves_piecewise" => Some(if is_f16 { 96 } else { 72 }),
            "rows_backward_cluster_halves_plain" | "rows_backward_cluster_halves_piecewise" => {
                Some(if is_f16 { 96 } else { 72 })
            }
            "rows_backward_halves" => Some(if is_f16 { 80 } else { 72 }),
            "rows_backward_cluster_halves" => Some(if is_f16 { 80 } else { 72 }),
            "rows_forward_by_segment_piecewise" => Some(if kernel.contains("_v4") { 72 } else { 104 }),
            "rows_forward_cluster_by_segment_piecewise" => Some(if kernel.contains("_v4") { 80 } else { 104 }),
            // Rows stay in shared memory.
            "rows_backward_lines_of_segments" if more > 0 && !is_f16 => Some(72),
            lines if lines.contains("_lines") && lines.ends_with("_piecewise") => Some(56),
            lines if lines.contains("_lines") => Some(64),
            "rows_backward_runs_plain" | "rows_backward_cluster_runs_plain" => Some(48),
            "rows_backward_runs_piecewise" => Some(56),
            "rows_backward_runs" | "rows_backward_cluster_runs_piecewise" | "rows_backward_cluster_runs" => Some(64),
            "rows_backward_by_segment_plain" if kernel.contains("_v4") => Some(96),
            // What takes no spills.
            "rows_forward_across_runs_piecewise" => Some(if kernel.contains("_v4") { 72 } else { 48 + more }),
            "rows_forward_across_runs_any" => Some(if kernel.contains("_v4") {
                88 + 2 * more
            } else {
                56 + more
            }),
            "rows_backward_across_runs_plain" => Some(if kernel.contains("_v4") {
                80 + more
            } else {
                48 + 2 * more
            }),
            "rows_backward_across_runs_piecewise" => Some(match kernel.contains("_v4") {
                true if is_f16 => 128,
                true => 96 + more,
                false if is_f16 => 96,
                false => 56 + 3 * more,
            }),
            "rows_backward_across_runs" => Some(64 + 2 * more),
            "rows_forward_ragged_by_column_block" if more > 0 && kernel.contains("_v4") => Some(104),
            "rows_forward_ragged_by_column_block" => Some(72),
            "rows_backward_ragged_by_column_plain" if more == 0 => Some(96),
            // Whatever shared memory has room for.
            "rows_backward_chip_segments_plain" | "rows_backward_chip_segments_piecewise" => Some(80),
            "rows_backward_chip_ragged_plain" => Some(80),
            "rows_backward_chip_ragged_piecewise" => Some(if is_f16 { 88 } else { 80 }),
            "rows_forward_chip_segments_piecewise" | "rows_forward_chip_ragged_piecewise" if more > 0 => Some(80),
            "rows_forward_chip_segments_piecewise" | "rows_forward_chip_ragged_piecewise" => Some(88),
            "rows_forward_chip_runs_plain" => Some(80),
            "rows_forward_chip_runs_any" => Some(88 + 2 * more),
            "rows_forward_piecewise" if more > 0 => Some(match kernel {
                _ if kernel.starts_with("layer") && kernel.ends_with("_v4") && !kernel.contains("block") => 64,
                _ if kernel.starts_with("layer_lanes") && kernel.ends_with("_v3") => 56,
                "rms_lanes4_v4" => 56,
                _ => 48,
            }),
            "rows_forward_piecewise" => Some(match kernel {
                "layer_lanes2_v2" | "layer_lanes4_v2" | "layer_block_v4" => 56,
                _ => 48,
            }),
            "rows_forward_residual" if more > 0 => Some(match kernel {
                "layer_block_v4" => 64,
                "rms_block_v4" => 80,
                "layer_block_v3" | "rms_block_v3" => 56,
                "layer_lanes4_v3" => 72,
                _ if kernel.ends_with("_v4") && kernel.starts_with("layer") => 80,
                _ if kernel.ends_with("_v4") => 72,
                _ if kernel.ends_with("_v3") => 64,
                _ => 56,
            }),
            "rows_forward_residual" if kernel.ends_with("_v4") => Some(80),
            // Activations of several numbers side by side take all they get, and are no faster for it.
            "rows_forward_any" => Some(match kernel {
                "layer_lanes4_v4" if more > 0 => 64,
                _ if kernel.ends_with("_v1") || kernel.ends_with("block_v2") => 48,
                _ => 56,
            }),
            "rows_forward_lanes_wide" => Some(72),
            "rows_forward_piecewise_wide" => Some(56),
            "rows_forward_any_wide" => Some(match kernel {
                "layer_warp_v6" => 64,
                "rms_block_v8" => 88,
                _ if kernel.ends_with("_v8") => 96,
                _ => 72,
            }),
            "rows_forward_any_residual" => Some(match kernel {
                "layer_block_v4" if more == 0 => 80,
                "layer_warp_v3" => 64 + more,
                _ if kernel.contains("lanes") && kernel.ends_with("_v4") => 80,
                _ if kernel.ends_with("_v4") => 72,
                _ if kernel.contains("lanes") => 64 + more,
                _ => 64,
            }),
            // Parameters of a run are few, so that rows take hardly more than what is loaded of them.
            "rows_forward_runs_piecewise" => Some(match kernel {
                "layer_warp_v4" => 56 + 2 * more,
                "layer_block_v4" => 56 + more,
                "layer_block_v3" => 48 + more,
                _ => 48,
            }),
            "rows_forward_runs_any" if kernel.ends_with("_v4") => Some(if is_f16 { 80 } else { 56 + more }),
            "rows_forward_runs_any" => Some(48 + more),
            "rows_forward_runs_any_residual" if kernel.ends_with("_v4") => Some(72 + 4 * more),
            "rows_forward_runs_any_residual" => Some(72),
            "rows_backward_plain" | "rows_backward_cluster_plain" if kernel.ends_with("_v1_ahead") => Some(80),
            "rows_backward_plain" | "rows_backward_cluster_plain" if more == 0 && kernel.ends_with("_v2_ahead") => {
                Some(80)
            }
            // Twelve warps on a multiprocessor, or sixteen.
            "rows_backward_added" if kernel.contains("_v3") => Some(128 + 5 * more),
            "rows_backward_apart" => Some(if kernel.contains("_v4") { 112 } else { 80 + more }),
            "rows_backward_apart_wide" => Some(128),
            "rows_backward_chip_plain" if kernel.contains("_v4") => Some(128),
            "rows_backward_chip_wide" => Some(128),
            // Three blocks of eight warps on a multiprocessor.
            "rows_backward_pieces_runs_piecewise" | "rows_backward_pieces_runs" => Some(80),
            "rows_forward_pieces_runs_piecewise" if more > 0 && !is_f16 => Some(80),
            // Two of the largest blocks on a multiprocessor.
            "rows_gather" => Some(64),
            // Two blocks of twelve warps or more on a multiprocessor, or three of eight.
            "rows_long_plain" => Some(if more > 0 { 72 } else { 80 }),
            // Whatever shared memory has room for.
            "rows_long_runs_piecewise" => Some(if more > 0 { 56 } else { 72 }),
            "rows_long_runs_any" => Some(64),
            "rows_long_down" => Some(80),
            "rows_sweeps_down" => Some(64 + 2 * more),
            "rows_sweeps_runs_plain" if !kernel.starts_with("given") => Some(80),
            // One block on a multiprocessor.
            "tiles_forward_columns_piecewise"
            | "tiles_forward_columns"
            | "tiles_backward_columns_plain"
            | "tiles_backward_columns_piecewise"
            | "tiles_backward_columns" => None,
            batched if batched.contains("_batched") => None,
            // Four blocks of eight warps on a multiprocessor, or three.
            "tiles_backward_held" => Some(72 + more),
            "tiles_forward_held_piecewise" if more == 0 => Some(56),
            "tiles_backward_held_plain" if more == 0 => Some(72),
            "tiles_backward_held_masked" if more == 0 => Some(48),
            held if held.contains("_held") => Some(64),
            "tiles_forward_plain" | "tiles_forward_piecewise" if kernel == "given" => Some(64 + 2 * more),
            "tiles_forward" if kernel == "given" => Some(64),
            // Eight columns of an access, each with sums of its own and what z needs, take more.
            "tiles_forward" | "tiles_backward" | "tiles_backward_piecewise" if more > 0 => None,
            "tiles_backward" if kernel == "by_row" => None,
            // Two blocks on a multiprocessor.
            tiles if tiles.starts_with("tiles") && kernel != "given" => Some(128),
            _ => None,
        }
    }
}
