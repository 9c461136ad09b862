//! The kernels of the backward pass over rows that their teams hold.

/// The list of the backward pass, in the form of that of the [forward pass](super::forward).
macro_rules! backward_kernels {
    ($receive:ident) => {
        $receive! {
            "rows_backward_plain" by backward {
                layer_lanes2_v1_ahead: Centred, Lanes<2>, Vectors, 1, ByColumn, Plain, true, true;
                layer_lanes4_v1_ahead: Centred, Lanes<4>, Vectors, 1, ByColumn, Plain, true, true;
                layer_lanes8_v1_ahead: Centred, Lanes<8>, Vectors, 1, ByColumn, Plain, true, true;
                layer_lanes16_v1_ahead: Centred, Lanes<16>, Vectors, 1, ByColumn, Plain, true, true;
                layer_warp_v1_ahead: Centred, Lanes<32>, Vectors, 1, ByColumn, Plain, true, true;
                layer_warp_v2_ahead: Centred, Lanes<32>, Vectors, 2, ByColumn, Plain, true, true;
                layer_warp_v3_ahead: Centred, Lanes<32>, Vectors, 3, ByColumn, Plain, true, true;
                layer_warp_v4_ahead: Centred, Lanes<32>, Vectors, 4, ByColumn, Plain, true, true;
                layer_block_v2_ahead: Centred, Block, Vectors, 2, ByColumn, Plain, true, true;
                rms_lanes2_v1_ahead: Uncentred, Lanes<2>, Vectors, 1, ByColumn, Plain, true, true;
                rms_lanes4_v1_ahead: Uncentred, Lanes<4>, Vectors, 1, ByColumn, Plain, true, true;
                rms_lanes8_v1_ahead: Uncentred, Lanes<8>, Vectors, 1, ByColumn, Plain, true, true;
                rms_lanes16_v1_ahead: Uncentred, Lanes<16>, Vectors, 1, ByColumn, Plain, true, true;
                rms_warp_v1_ahead: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Plain, true, true;
                rms_warp_v2_ahead: Uncentred, Lanes<32>, Vectors, 2, ByColumn, Plain, true, true;
                rms_warp_v3_ahead: Uncentred, Lanes<32>, Vectors, 3, ByColumn, Plain, true, true;
                rms_warp_v4_ahead: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Plain, true, true;
                rms_block_v2_ahead: Uncentred, Block, Vectors, 2, ByColumn, Plain, true, true;
            }
            "rows_backward_apart" by apart {
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByColumn, Plain, true, false;
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByColumn, Plain, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Plain, true, false;
                rms_warp_v2: Uncentred, Lanes<32>, Vectors, 2, ByColumn, Plain, true, false;
                rms_warp_v4: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Plain, true, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Plain, true, false;
            }
            "rows_backward_apart_wide" by apart {
                layer_warp_v8: Centred, Lanes<32>, Vectors, 8, ByColumn, Plain, true, false;
                rms_warp_v8: Uncentred, Lanes<32>, Vectors, 8, ByColumn, Plain, true, false;
            }
            "rows_backward_apart_cluster" by apart {
                layer_blocks_v4: Centred, Blocks, Vectors, 4, ByColumn, Plain, true, false;
                rms_blocks_v4: Uncentred, Blocks, Vectors, 4, ByColumn, Plain, true, false;
            }
            "rows_backward_wide" by backward {
                layer_warp_v6_ahead: Centred, Lanes<32>, Vectors, 6, ByColumn, Plain, true, true;
                layer_warp_v8_ahead: Centred, Lanes<32>, Vectors, 8, ByColumn, Plain, true, true;
                rms_warp_v6_ahead: Uncentred, Lanes<32>, Vectors, 6, ByColumn, Plain, true, true;
                rms_warp_v8_ahead: Uncentred, Lanes<32>, Vectors, 8, ByColumn, Plain, true, true;
            }
            "rows_backward_added" by backward {
                layer_lanes2_v1_ahead: Centred, Lanes<2>, Vectors, 1, ByColumn, Added, true, true;
                layer_lanes4_v1_ahead: Centred, Lanes<4>, Vectors, 1, ByColumn, Added, true, true;
                layer_lanes8_v1_ahead: Centred, Lanes<8>, Vectors, 1, ByColumn, Added, true, true;
                layer_lanes16_v1_ahead: Centred, Lanes<16>, Vectors, 1, ByColumn, Added, true, true;
                layer_warp_v1_ahead: Centred, Lanes<32>, Vectors, 1, ByColumn, Added, true, true;
                layer_warp_v2_ahead: Centred, Lanes<32>, Vectors, 2, ByColumn, Added, true, true;
                layer_warp_v3_ahead: Centred, Lanes<32>, Vectors, 3, ByColumn, Added, true, true;
                layer_warp_v4_ahead: Centred, Lanes<32>, Vectors, 4, ByColumn, Added, true, true;
                layer_block_v2_ahead: Centred, Block, Vectors, 2, ByColumn, Added, true, true;
                rms_lanes2_v1_ahead: Uncentred, Lanes<2>, Vectors, 1, ByColumn, Added, true, true;
                rms_lanes4_v1_ahead: Uncentred, Lanes<4>, Vectors, 1, ByColumn, Added, true, true;
                rms_lanes8_v1_ahead: Uncentred, Lanes<8>, Vectors, 1, ByColumn, Added, true, true;
                rms_lanes16_v1_ahead: Uncentred, Lanes<16>, Vectors, 1, ByColumn, Added, true, true;
                rms_warp_v1_ahead: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Added, true, true;
                rms_warp_v2_ahead: Uncentred, Lanes<32>, Vectors, 2, ByColumn, Added, true, true;
                rms_warp_v3_ahead: Uncentred, Lanes<32>, Vectors, 3, ByColumn, Added, true, true;
                rms_warp_v4_ahead: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Added, true, true;
                rms_block_v2_ahead: Uncentred, Block, Vectors, 2, ByColumn, Added, true, true;
            }
            "rows_backward" by backward {
                layer_warp_v1_ahead: Centred, Lanes<32>, Vectors, 1, ByColumn, Any, true, true;
                layer_block_v1_ahead: Centred, Block, Vectors, 1, ByColumn, Any, true, true;
                layer_block_v2_ahead: Centred, Block, Vectors, 2, ByColumn, Any, true, true;
                rms_warp_v1_ahead: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Any, true, true;
                rms_block_v1_ahead: Uncentred, Block, Vectors, 1, ByColumn, Any, true, true;
                rms_block_v2_ahead: Uncentred, Block, Vectors, 2, ByColumn, Any, true, true;
            }
            "rows_backward_cluster_plain" by backward {
                layer_blocks_v2_ahead: Centred, Blocks, Vectors, 2, ByColumn, Plain, true, true;
                rms_blocks_v2_ahead: Uncentred, Blocks, Vectors, 2, ByColumn, Plain, true, true;
            }
            "rows_backward_runs_plain" by by_run {
                layer_block_v1_ahead: Centred, Block, Vectors, 1, ByRun, Plain, false, true;
            }
            "rows_backward_runs_piecewise" by by_run {
                layer_block_v1_ahead: Centred, Block, Vectors, 1, ByRun, Piecewise, false, true;
            }
            "rows_backward_runs" by by_run {
                layer_block_v1_ahead: Centred, Block, Vectors, 1, ByRun, Any, false, true;
            }
            "rows_backward_cluster_runs_plain" by by_run {
                layer_blocks_v1_ahead: Centred, Blocks, Vectors, 1, ByRun, Plain, false, true;
            }
            "rows_backward_cluster_runs_piecewise" by by_run {
                layer_blocks_v1_ahead: Centred, Blocks, Vectors, 1, ByRun, Piecewise, false, true;
            }
            "rows_backward_cluster_runs" by by_run {
                layer_blocks_v1_ahead: Centred, Blocks, Vectors, 1, ByRun, Any, false, true;
            }
            "rows_backward_lines_of_segments" by by_run {
                layer_block_v1_ahead: Centred, Block, Vectors<true>, 1, Segmented, Any, false, true;
            }
            "rows_backward_cluster_lines_of_segments" by by_run {
                layer_blocks_v1_ahead: Centred, Blocks, Vectors<true>, 1, Segmented, Any, false, true;
            }
            "rows_backward_cluster" by backward {
                layer_blocks_v2_ahead: Centred, Blocks, Vectors, 2, ByColumn, Any, true, true;
                rms_blocks_v2_ahead: Uncentred, Blocks, Vectors, 2, ByColumn, Any, true, true;
            }
            "rows_backward_chip_plain" by gradients_later {
                layer_chip_v2_ahead: Centred, Chip, Vectors, 2, ByColumn, Plain, true, true;
                rms_chip_v2_ahead: Uncentred, Chip, Vectors, 2, ByColumn, Plain, true, true;
                layer_chip_v4_ahead: Centred, Chip, Vectors, 4, ByColumn, Plain, true, true;
                rms_chip_v4_ahead: Uncentred, Chip, Vectors, 4, ByColumn, Plain, true, true;
            }
            "rows_backward_chip_wide" by gradients_by_part {
                layer_chip_v8_ahead: Centred, Chip, Vectors, 8, ByColumn, Plain, true, true;
                rms_chip_v8_ahead: Uncentred, Chip, Vectors, 8, ByColumn, Plain, true, true;
            }
            "rows_backward_segments_plain" by segmented {
                layer_block_v4_ahead: Centred, Block, Vectors<true>, 4, Segmented, Plain, false, true;
                layer_block_v8_ahead: Centred, Block, Vectors<true>, 8, Segmented, Plain, false, true;
            }
            "rows_backward_ragged_plain" by segmented {
                layer_block_v4_ahead: Centred, Block, Ragged, 4, Segmented, Plain, false, true;
                layer_block_v8_ahead: Centred, Block, Ragged, 8, Segmented, Plain, false, true;
            }
            "rows_backward_segments_piecewise" by segmented {
                layer_block_v4_ahead: Centred, Block, Vectors<true>, 4, Segmented, Piecewise, false, true;
                layer_block_v8_ahead: Centred, Block, Vectors<true>, 8, Segmented, Piecewise, false, true;
            }
            "rows_backward_ragged_piecewise" by segmented {
                layer_block_v4_ahead: Centred, Block, Ragged, 4, Segmented, Piecewise, false, true;
                layer_block_v8_ahead: Centred, Block, Ragged, 8, Segmented, Piecewise, false, true;
            }
            "rows_backward_segments" by segmented {
                layer_block_v2_ahead: Centred, Block, Vectors<true>, 2, Segmented, Any, true, true;
            }
            "rows_backward_ragged" by segmented {
                layer_block_v2_ahead: Centred, Block, Ragged, 2, Segmented, Any, true, true;
            }
            "rows_backward_cluster_segments_plain" by segmented {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors<true>, 4, Segmented, Plain, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Vectors<true>, 8, Segmented, Plain, false, true;
            }
            "rows_backward_cluster_ragged_plain" by segmented {
                layer_blocks_v4_ahead: Centred, Blocks, Ragged, 4, Segmented, Plain, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Ragged, 8, Segmented, Plain, false, true;
            }
            "rows_backward_cluster_segments_piecewise" by segmented {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors<true>, 4, Segmented, Piecewise, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Vectors<true>, 8, Segmented, Piecewise, false, true;
            }
            "rows_backward_cluster_ragged_piecewise" by segmented {
                layer_blocks_v4_ahead: Centred, Blocks, Ragged, 4, Segmented, Piecewise, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Ragged, 8, Segmented, Piecewise, false, true;
            }
            "rows_backward_cluster_segments" by segmented {
                layer_blocks_v2_ahead: Centred, Blocks, Vectors<true>, 2, Segmented, Any, true, true;
            }
            "rows_backward_cluster_ragged" by segmented {
                layer_blocks_v2_ahead: Centred, Blocks, Ragged, 2, Segmented, Any, true, true;
            }
            "rows_backward_halves_plain" by segmented {
                layer_block_v8_ahead: Centred, Block, Halves, 8, Segmented, Plain, false, true;
            }
            "rows_backward_halves_piecewise" by segmented {
                layer_block_v8_ahead: Centred, Block, Halves, 8, Segmented, Piecewise, false, true;
            }
            "rows_backward_halves" by segmented {
                layer_block_v4_ahead: Centred, Block, Halves, 4, Segmented, Any, true, true;
            }
            "rows_backward_cluster_halves_plain" by segmented {
                layer_blocks_v8_ahead: Centred, Blocks, Halves, 8, Segmented, Plain, false, true;
            }
            "rows_backward_cluster_halves_piecewise" by segmented {
                layer_blocks_v8_ahead: Centred, Blocks, Halves, 8, Segmented, Piecewise, false, true;
            }
            "rows_backward_cluster_halves" by segmented {
                layer_blocks_v4_ahead: Centred, Blocks, Halves, 4, Segmented, Any, true, true;
            }
            "rows_backward_chip_segments_plain" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Vectors<true>, 4, Segmented, Plain, false, true;
            }
            "rows_backward_chip_ragged_plain" by segmented_later {
                layer_chip_v5_ahead: Centred, Chip, Ragged, 5, Segmented, Plain, false, true;
            }
            "rows_backward_chip_segments_piecewise" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Vectors<true>, 4, Segmented, Piecewise, false, true;
            }
            "rows_backward_chip_segments" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Vectors<true>, 4, Segmented, Any, false, true;
            }
            "rows_backward_chip_ragged_piecewise" by segmented_later {
                layer_chip_v5_ahead: Centred, Chip, Ragged, 5, Segmented, Piecewise, false, true;
            }
            "rows_backward_chip_ragged" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Ragged, 4, Segmented, Any, false, true;
            }
            "rows_backward_chip_segments_residual" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Vectors<true>, 4, Segmented, Piecewise, true, true;
            }
            "rows_backward_chip_ragged_residual" by segmented_later {
                layer_chip_v5_ahead: Centred, Chip, Ragged, 5, Segmented, Piecewise, true, true;
            }
            "rows_backward_ragged_by_column_plain" by backward {
                layer_block_v2_ahead: Centred, Block, Ragged<true>, 2, ByColumn, Plain, false, true;
                rms_block_v2_ahead: Uncentred, Block, Ragged<true>, 2, ByColumn, Plain, false, true;
            }
            "rows_backward_by_segment_plain" by by_segment {
                layer_block_v4_ahead: Centred, Block, Ragged<true>, 4, BySegment, Plain, false, true;
                layer_block_v8_ahead: Centred, Block, Ragged<true>, 8, BySegment, Plain, false, true;
            }
            "rows_backward_by_segment_piecewise" by by_segment {
                layer_block_v4_ahead: Centred, Block, Ragged<true>, 4, BySegment, Piecewise, false, true;
            }
            "rows_backward_by_segment" by by_segment {
                layer_block_v2_ahead: Centred, Block, Ragged<true>, 2, BySegment, Any, true, true;
            }
            "rows_backward_across_runs_plain" by across_runs {
                layer_block_v2_ahead: Centred, Block, Vectors, 2, AcrossRuns, Plain, false, true;
                layer_block_v4_ahead: Centred, Block, Vectors, 4, AcrossRuns, Plain, false, true;
            }
            "rows_backward_across_runs_piecewise" by across_runs {
                layer_block_v2_ahead: Centred, Block, Vectors, 2, AcrossRuns, Piecewise, false, true;
                layer_block_v4_ahead: Centred, Block, Vectors, 4, AcrossRuns, Piecewise, false, true;
            }
            "rows_backward_across_runs" by across_runs {
                layer_block_v2_ahead: Centred, Block, Vectors, 2, AcrossRuns, Any, true, true;
            }
            "rows_backward_cluster_by_segment_plain" by by_segment {
                layer_blocks_v4_ahead: Centred, Blocks, Ragged<true>, 4, BySegment, Plain, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Ragged<true>, 8, BySegment, Plain, false, true;
            }
            "rows_backward_cluster_by_segment_piecewise" by by_segment {
                layer_blocks_v4_ahead: Centred, Blocks, Ragged<true>, 4, BySegment, Piecewise, false, true;
            }
            "rows_backward_cluster_by_segment" by by_segment {
                layer_blocks_v2_ahead: Centred, Blocks, Ragged<true>, 2, BySegment, Any, true, true;
            }
            "rows_backward_pieces_runs_piecewise" by gradients_of_pieces {
                layer_pieces_v4_ahead: Centred, Pieces, Vectors, 4, ByRun, Piecewise, false, true;
            }
            "rows_backward_pieces_runs" by gradients_of_pieces {
                layer_pieces_v2_ahead: Centred, Pieces, Vectors, 2, ByRun, Any, false, true;
            }
            "rows_backward_elements" by backward {
                layer_warp_v1: Centred, Lanes<32>, Elements, 1, ByColumn, Any, true, false;
                layer_block_v4: Centred, Block, Elements, 4, ByColumn, Any, true, false;
                rms_warp_v1: Uncentred, Lanes<32>, Elements, 1, ByColumn, Any, true, false;
                rms_block_v4: Uncentred, Block, Elements, 4, ByColumn, Any, true, false;
            }
        }
    };
}

pub(crate) use backward_kernels;
