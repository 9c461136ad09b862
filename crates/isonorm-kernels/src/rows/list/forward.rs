//! The kernels of the forward pass.

/// Hands the list to a macro: families with the function that they are made of, and in each the kernels with what [`Of`] and
/// the function are given: statistics, team, access, accesses a thread, parameters, activations, whether there may be a
/// residual, and whether data is loaded ahead.
///
/// [`Of`]: crate::rows::forward::Of
macro_rules! forward_kernels {
    ($receive:ident) => {
        $receive! {
            "rows_forward_lanes" by forward {
                layer_lanes2_v1: Centred, Lanes<2>, Vectors, 1, ByColumn, Plain, false, false;
                layer_lanes2_v2: Centred, Lanes<2>, Vectors, 2, ByColumn, Plain, false, false;
                layer_lanes4_v2: Centred, Lanes<4>, Vectors, 2, ByColumn, Plain, false, false;
                layer_lanes4_v3: Centred, Lanes<4>, Vectors, 3, ByColumn, Plain, false, false;
                layer_lanes4_v4: Centred, Lanes<4>, Vectors, 4, ByColumn, Plain, false, false;
                layer_lanes8_v3: Centred, Lanes<8>, Vectors, 3, ByColumn, Plain, false, false;
                layer_lanes8_v4: Centred, Lanes<8>, Vectors, 4, ByColumn, Plain, false, false;
                layer_lanes16_v3: Centred, Lanes<16>, Vectors, 3, ByColumn, Plain, false, false;
                layer_lanes16_v4: Centred, Lanes<16>, Vectors, 4, ByColumn, Plain, false, false;
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Plain, false, false;
                layer_warp_v3: Centred, Lanes<32>, Vectors, 3, ByColumn, Plain, false, false;
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByColumn, Plain, false, false;
                rms_lanes2_v1: Uncentred, Lanes<2>, Vectors, 1, ByColumn, Plain, false, false;
                rms_lanes2_v2: Uncentred, Lanes<2>, Vectors, 2, ByColumn, Plain, false, false;
                rms_lanes4_v2: Uncentred, Lanes<4>, Vectors, 2, ByColumn, Plain, false, false;
                rms_lanes4_v3: Uncentred, Lanes<4>, Vectors, 3, ByColumn, Plain, false, false;
                rms_lanes4_v4: Uncentred, Lanes<4>, Vectors, 4, ByColumn, Plain, false, false;
                rms_lanes8_v3: Uncentred, Lanes<8>, Vectors, 3, ByColumn, Plain, false, false;
                rms_lanes8_v4: Uncentred, Lanes<8>, Vectors, 4, ByColumn, Plain, false, false;
                rms_lanes16_v3: Uncentred, Lanes<16>, Vectors, 3, ByColumn, Plain, false, false;
                rms_lanes16_v4: Uncentred, Lanes<16>, Vectors, 4, ByColumn, Plain, false, false;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Plain, false, false;
                rms_warp_v3: Uncentred, Lanes<32>, Vectors, 3, ByColumn, Plain, false, false;
                rms_warp_v4: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Plain, false, false;
            }
            "rows_forward_lanes_wide" by forward {
                layer_warp_v6: Centred, Lanes<32>, Vectors, 6, ByColumn, Plain, false, false;
                rms_warp_v6: Uncentred, Lanes<32>, Vectors, 6, ByColumn, Plain, false, false;
            }
            "rows_forward_block" by forward {
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Plain, false, false;
                layer_block_v3: Centred, Block, Vectors, 3, ByColumn, Plain, false, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByColumn, Plain, false, false;
                layer_block_v6: Centred, Block, Vectors, 6, ByColumn, Plain, false, false;
                layer_block_v8: Centred, Block, Vectors, 8, ByColumn, Plain, false, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Plain, false, false;
                rms_block_v3: Uncentred, Block, Vectors, 3, ByColumn, Plain, false, false;
                rms_block_v4: Uncentred, Block, Vectors, 4, ByColumn, Plain, false, false;
                rms_block_v6: Uncentred, Block, Vectors, 6, ByColumn, Plain, false, false;
                rms_block_v8: Uncentred, Block, Vectors, 8, ByColumn, Plain, false, false;
            }
            "rows_forward_piecewise" by forward {
                layer_lanes2_v1: Centred, Lanes<2>, Vectors, 1, ByColumn, Piecewise, false, false;
                layer_lanes2_v2: Centred, Lanes<2>, Vectors, 2, ByColumn, Piecewise, false, false;
                layer_lanes4_v2: Centred, Lanes<4>, Vectors, 2, ByColumn, Piecewise, false, false;
                layer_lanes4_v3: Centred, Lanes<4>, Vectors, 3, ByColumn, Piecewise, false, false;
                layer_lanes4_v4: Centred, Lanes<4>, Vectors, 4, ByColumn, Piecewise, false, false;
                layer_lanes8_v3: Centred, Lanes<8>, Vectors, 3, ByColumn, Piecewise, false, false;
                layer_lanes8_v4: Centred, Lanes<8>, Vectors, 4, ByColumn, Piecewise, false, false;
                layer_lanes16_v3: Centred, Lanes<16>, Vectors, 3, ByColumn, Piecewise, false, false;
                layer_lanes16_v4: Centred, Lanes<16>, Vectors, 4, ByColumn, Piecewise, false, false;
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Piecewise, false, false;
                layer_warp_v3: Centred, Lanes<32>, Vectors, 3, ByColumn, Piecewise, false, false;
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByColumn, Piecewise, false, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Piecewise, false, false;
                layer_block_v3: Centred, Block, Vectors, 3, ByColumn, Piecewise, false, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByColumn, Piecewise, false, false;
                rms_lanes2_v1: Uncentred, Lanes<2>, Vectors, 1, ByColumn, Piecewise, false, false;
                rms_lanes2_v2: Uncentred, Lanes<2>, Vectors, 2, ByColumn, Piecewise, false, false;
                rms_lanes4_v2: Uncentred, Lanes<4>, Vectors, 2, ByColumn, Piecewise, false, false;
                rms_lanes4_v3: Uncentred, Lanes<4>, Vectors, 3, ByColumn, Piecewise, false, false;
                rms_lanes4_v4: Uncentred, Lanes<4>, Vectors, 4, ByColumn, Piecewise, false, false;
                rms_lanes8_v3: Uncentred, Lanes<8>, Vectors, 3, ByColumn, Piecewise, false, false;
                rms_lanes8_v4: Uncentred, Lanes<8>, Vectors, 4, ByColumn, Piecewise, false, false;
                rms_lanes16_v3: Uncentred, Lanes<16>, Vectors, 3, ByColumn, Piecewise, false, false;
                rms_lanes16_v4: Uncentred, Lanes<16>, Vectors, 4, ByColumn, Piecewise, false, false;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Piecewise, false, false;
                rms_warp_v3: Uncentred, Lanes<32>, Vectors, 3, ByColumn, Piecewise, false, false;
                rms_warp_v4: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Piecewise, false, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Piecewise, false, false;
                rms_block_v3: Uncentred, Block, Vectors, 3, ByColumn, Piecewise, false, false;
                rms_block_v4: Uncentred, Block, Vectors, 4, ByColumn, Piecewise, false, false;
            }
            "rows_forward_piecewise_wide" by forward {
                layer_warp_v6: Centred, Lanes<32>, Vectors, 6, ByColumn, Piecewise, false, false;
                rms_warp_v6: Uncentred, Lanes<32>, Vectors, 6, ByColumn, Piecewise, false, false;
            }
            "rows_forward_residual" by forward {
                layer_lanes2_v1: Centred, Lanes<2>, Vectors, 1, ByColumn, Piecewise, true, false;
                layer_lanes2_v2: Centred, Lanes<2>, Vectors, 2, ByColumn, Piecewise, true, false;
                layer_lanes4_v2: Centred, Lanes<4>, Vectors, 2, ByColumn, Piecewise, true, false;
                layer_lanes4_v3: Centred, Lanes<4>, Vectors, 3, ByColumn, Piecewise, true, false;
                layer_lanes4_v4: Centred, Lanes<4>, Vectors, 4, ByColumn, Piecewise, true, false;
                layer_lanes8_v3: Centred, Lanes<8>, Vectors, 3, ByColumn, Piecewise, true, false;
                layer_lanes8_v4: Centred, Lanes<8>, Vectors, 4, ByColumn, Piecewise, true, false;
                layer_lanes16_v3: Centred, Lanes<16>, Vectors, 3, ByColumn, Piecewise, true, false;
                layer_lanes16_v4: Centred, Lanes<16>, Vectors, 4, ByColumn, Piecewise, true, false;
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Piecewise, true, false;
                layer_warp_v3: Centred, Lanes<32>, Vectors, 3, ByColumn, Piecewise, true, false;
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByColumn, Piecewise, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Piecewise, true, false;
                layer_block_v3: Centred, Block, Vectors, 3, ByColumn, Piecewise, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByColumn, Piecewise, true, false;
                rms_lanes2_v1: Uncentred, Lanes<2>, Vectors, 1, ByColumn, Piecewise, true, false;
                rms_lanes2_v2: Uncentred, Lanes<2>, Vectors, 2, ByColumn, Piecewise, true, false;
                rms_lanes4_v2: Uncentred, Lanes<4>, Vectors, 2, ByColumn, Piecewise, true, false;
                rms_lanes4_v3: Uncentred, Lanes<4>, Vectors, 3, ByColumn, Piecewise, true, false;
                rms_lanes4_v4: Uncentred, Lanes<4>, Vectors, 4, ByColumn, Piecewise, true, false;
                rms_lanes8_v3: Uncentred, Lanes<8>, Vectors, 3, ByColumn, Piecewise, true, false;
                rms_lanes8_v4: Uncentred, Lanes<8>, Vectors, 4, ByColumn, Piecewise, true, false;
                rms_lanes16_v3: Uncentred, Lanes<16>, Vectors, 3, ByColumn, Piecewise, true, false;
                rms_lanes16_v4: Uncentred, Lanes<16>, Vectors, 4, ByColumn, Piecewise, true, false;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Piecewise, true, false;
                rms_warp_v3: Uncentred, Lanes<32>, Vectors, 3, ByColumn, Piecewise, true, false;
                rms_warp_v4: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Piecewise, true, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Piecewise, true, false;
                rms_block_v3: Uncentred, Block, Vectors, 3, ByColumn, Piecewise, true, false;
                rms_block_v4: Uncentred, Block, Vectors, 4, ByColumn, Piecewise, true, false;
            }
            "rows_forward_any" by forward {
                layer_lanes2_v2: Centred, Lanes<2>, Vectors, 2, ByColumn, Any, false, false;
                layer_lanes4_v2: Centred, Lanes<4>, Vectors, 2, ByColumn, Any, false, false;
                layer_lanes4_v4: Centred, Lanes<4>, Vectors, 4, ByColumn, Any, false, false;
                layer_lanes8_v4: Centred, Lanes<8>, Vectors, 4, ByColumn, Any, false, false;
                layer_lanes16_v4: Centred, Lanes<16>, Vectors, 4, ByColumn, Any, false, false;
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Any, false, false;
                layer_warp_v3: Centred, Lanes<32>, Vectors, 3, ByColumn, Any, false, false;
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByColumn, Any, false, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Any, false, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByColumn, Any, false, false;
                rms_lanes2_v2: Uncentred, Lanes<2>, Vectors, 2, ByColumn, Any, false, false;
                rms_lanes4_v2: Uncentred, Lanes<4>, Vectors, 2, ByColumn, Any, false, false;
                rms_lanes4_v4: Uncentred, Lanes<4>, Vectors, 4, ByColumn, Any, false, false;
                rms_lanes8_v4: Uncentred, Lanes<8>, Vectors, 4, ByColumn, Any, false, false;
                rms_lanes16_v4: Uncentred, Lanes<16>, Vectors, 4, ByColumn, Any, false, false;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Any, false, false;
                rms_warp_v3: Uncentred, Lanes<32>, Vectors, 3, ByColumn, Any, false, false;
                rms_warp_v4: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Any, false, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Any, false, false;
                rms_block_v4: Uncentred, Block, Vectors, 4, ByColumn, Any, false, false;
            }
            "rows_forward_any_wide" by forward {
                layer_warp_v6: Centred, Lanes<32>, Vectors, 6, ByColumn, Any, false, false;
                layer_block_v8: Centred, Block, Vectors, 8, ByColumn, Any, false, false;
                rms_warp_v6: Uncentred, Lanes<32>, Vectors, 6, ByColumn, Any, false, false;
                rms_block_v8: Uncentred, Block, Vectors, 8, ByColumn, Any, false, false;
            }
            "rows_forward_any_residual" by forward {
                layer_lanes2_v2: Centred, Lanes<2>, Vectors, 2, ByColumn, Any, true, false;
                layer_lanes4_v2: Centred, Lanes<4>, Vectors, 2, ByColumn, Any, true, false;
                layer_lanes4_v4: Centred, Lanes<4>, Vectors, 4, ByColumn, Any, true, false;
                layer_lanes8_v4: Centred, Lanes<8>, Vectors, 4, ByColumn, Any, true, false;
                layer_lanes16_v4: Centred, Lanes<16>, Vectors, 4, ByColumn, Any, true, false;
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Any, true, false;
                layer_warp_v3: Centred, Lanes<32>, Vectors, 3, ByColumn, Any, true, false;
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByColumn, Any, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Any, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByColumn, Any, true, false;
                rms_lanes2_v2: Uncentred, Lanes<2>, Vectors, 2, ByColumn, Any, true, false;
                rms_lanes4_v2: Uncentred, Lanes<4>, Vectors, 2, ByColumn, Any, true, false;
                rms_lanes4_v4: Uncentred, Lanes<4>, Vectors, 4, ByColumn, Any, true, false;
                rms_lanes8_v4: Uncentred, Lanes<8>, Vectors, 4, ByColumn, Any, true, false;
                rms_lanes16_v4: Uncentred, Lanes<16>, Vectors, 4, ByColumn, Any, true, false;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Any, true, false;
                rms_warp_v3: Uncentred, Lanes<32>, Vectors, 3, ByColumn, Any, true, false;
                rms_warp_v4: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Any, true, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Any, true, false;
                rms_block_v4: Uncentred, Block, Vectors, 4, ByColumn, Any, true, false;
            }
            "rows_forward_runs_piecewise" by forward {
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByRun, Piecewise, false, false;
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByRun, Piecewise, false, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByRun, Piecewise, false, false;
                layer_block_v3: Centred, Block, Vectors, 3, ByRun, Piecewise, false, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByRun, Piecewise, false, false;
            }
            "rows_forward_runs_any" by forward {
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByRun, Any, false, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByRun, Any, false, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByRun, Any, false, false;
            }
            "rows_forward_runs_any_residual" by forward {
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByRun, Any, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByRun, Any, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByRun, Any, true, false;
            }
            "rows_forward_lines_piecewise" by lines {
                layer_block_v1_ahead: Centred, Block, Vectors, 1, ByRun, Piecewise, false, true;
            }
            "rows_forward_lines_any" by lines {
                layer_block_v1_ahead: Centred, Block, Vectors, 1, ByRun, Any, false, true;
            }
            "rows_forward_cluster_lines_piecewise" by lines {
                layer_blocks_v1_ahead: Centred, Blocks, Vectors, 1, ByRun, Piecewise, false, true;
            }
            "rows_forward_cluster_lines_any" by lines {
                layer_blocks_v1_ahead: Centred, Blocks, Vectors, 1, ByRun, Any, false, true;
            }
            "rows_forward_lines_of_segments_piecewise" by lines {
                layer_block_v1_ahead: Centred, Block, Vectors<true>, 1, Segmented, Piecewise, false, true;
            }
            "rows_forward_lines_of_segments_any" by lines {
                layer_block_v1_ahead: Centred, Block, Vectors<true>, 1, Segmented, Any, false, true;
            }
            "rows_forward_cluster_lines_of_segments_piecewise" by lines {
                layer_blocks_v1_ahead: Centred, Blocks, Vectors<true>, 1, Segmented, Piecewise, false, true;
            }
            "rows_forward_cluster_lines_of_segments_any" by lines {
                layer_blocks_v1_ahead: Centred, Blocks, Vectors<true>, 1, Segmented, Any, false, true;
            }
            "rows_forward_across_runs_piecewise" by forward {
                layer_block_v2: Centred, Block, Vectors, 2, AcrossRuns, Piecewise, false, false;
                layer_block_v4: Centred, Block, Vectors, 4, AcrossRuns, Piecewise, false, false;
            }
            "rows_forward_across_runs_any" by forward {
                layer_block_v2: Centred, Block, Vectors, 2, AcrossRuns, Any, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, AcrossRuns, Any, true, false;
            }
            "rows_forward_elements" by forward {
                layer_warp_v4: Centred, Lanes<32>, Elements, 4, ByColumn, Any, true, false;
                layer_block_v8: Centred, Block, Elements, 8, ByColumn, Any, true, false;
                rms_warp_v4: Uncentred, Lanes<32>, Elements, 4, ByColumn, Any, true, false;
                rms_block_v8: Uncentred, Block, Elements, 8, ByColumn, Any, true, false;
            }
            "rows_forward_elements_runs" by forward {
                layer_warp_v4: Centred, Lanes<32>, Elements, 4, ByRun, Any, true, false;
                layer_block_v8: Centred, Block, Elements, 8, ByRun, Any, true, false;
            }
            "rows_each_piecewise" by each {
                given_each_v2: Given, Each, Ragged, 2, ByRun, Piecewise, true, false;
            }
            "rows_each_any" by each {
                given_each_v2: Given, Each, Ragged, 2, ByRun, Any, true, false;
            }
            "rows_each_masked" by each {
                given_each_v2: Given, Each, Ragged, 2, ByRun, Masked, true, false;
            }
            "rows_each_elements" by each {
                given_each_v4: Given, Each, Elements, 4, ByRun, Any, true, false;
            }
            "rows_forward_cluster_plain" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors, 4, ByColumn, Plain, false, true;
                rms_blocks_v4_ahead: Uncentred, Blocks, Vectors, 4, ByColumn, Plain, false, true;
            }
            "rows_forward_cluster_any" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors, 4, ByColumn, Any, false, true;
                rms_blocks_v4_ahead: Uncentred, Blocks, Vectors, 4, ByColumn, Any, false, true;
            }
            "rows_forward_cluster_runs_plain" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors, 4, ByRun, Plain, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Vectors, 8, ByRun, Plain, false, true;
            }
            "rows_forward_cluster_runs_any" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors, 4, ByRun, Any, false, true;
            }
            "rows_forward_chip_plain" by later {
                layer_chip_v8_ahead: Centred, Chip, Vectors, 8, ByColumn, Plain, false, true;
                rms_chip_v8_ahead: Uncentred, Chip, Vectors, 8, ByColumn, Plain, false, true;
            }
            "rows_forward_chip_runs_plain" by later {
                layer_chip_v8_ahead: Centred, Chip, Vectors, 8, ByRun, Plain, false, true;
            }
            "rows_forward_chip_runs_any" by later {
                layer_chip_v8_ahead: Centred, Chip, Vectors, 8, ByRun, Any, false, true;
            }
            "rows_forward_segments_piecewise" by forward {
                layer_block_v4: Centred, Block, Vectors<true>, 4, Segmented, Piecewise, false, false;
                layer_block_v8: Centred, Block, Vectors<true>, 8, Segmented, Piecewise, false, false;
            }
            "rows_forward_ragged_piecewise" by forward {
                layer_block_v4: Centred, Block, Ragged, 4, Segmented, Piecewise, false, false;
                layer_block_v8: Centred, Block, Ragged, 8, Segmented, Piecewise, false, false;
            }
            "rows_forward_segments_any" by forward {
                layer_block_v4_ahead: Centred, Block, Vectors<true>, 4, Segmented, Any, true, true;
            }
            "rows_forward_ragged_any" by forward {
                layer_block_v4_ahead: Centred, Block, Ragged, 4, Segmented, Any, true, true;
            }
            "rows_forward_cluster_segments_piecewise" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors<true>, 4, Segmented, Piecewise, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Vectors<true>, 8, Segmented, Piecewise, false, true;
            }
            "rows_forward_cluster_ragged_piecewise" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Ragged, 4, Segmented, Piecewise, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Ragged, 8, Segmented, Piecewise, false, true;
            }
            "rows_forward_cluster_segments_wide" by forward {
                layer_blocks_v16_ahead: Centred, Blocks, Vectors<true>, 16, Segmented, Piecewise, false, true;
            }
            "rows_forward_cluster_segments_any" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors<true>, 4, Segmented, Any, true, true;
            }
            "rows_forward_cluster_ragged_any" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Ragged, 4, Segmented, Any, true, true;
            }
            "rows_forward_halves_piecewise" by forward {
                layer_block_v8: Centred, Block, Halves, 8, Segmented, Piecewise, false, false;
            }
            "rows_forward_halves_any" by forward {
                layer_block_v4_ahead: Centred, Block, Halves, 4, Segmented, Any, true, true;
            }
            "rows_forward_cluster_halves_piecewise" by forward {
                layer_blocks_v8_ahead: Centred, Blocks, Halves, 8, Segmented, Piecewise, false, true;
            }
            "rows_forward_cluster_halves_any" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Halves, 4, Segmented, Any, true, true;
            }
            "rows_forward_chip_segments_piecewise" by later {
                layer_chip_v8_ahead: Centred, Chip, Vectors<true>, 8, Segmented, Piecewise, false, true;
            }
            "rows_forward_chip_segments_any" by later {
                layer_chip_v8_ahead: Centred, Chip, Vectors<true>, 8, Segmented, Any, false, true;
            }
            "rows_forward_chip_ragged_piecewise" by later {
                layer_chip_v9_ahead: Centred, Chip, Ragged, 9, Segmented, Piecewise, false, true;
            }
            "rows_forward_chip_ragged_any" by later {
                layer_chip_v9_ahead: Centred, Chip, Ragged, 9, Segmented, Any, false, true;
            }
            "rows_forward_chip_segments_residual" by later {
                layer_chip_v8_ahead: Centred, Chip, Vectors<true>, 8, Segmented, Piecewise, true, true;
            }
            "rows_forward_chip_ragged_residual" by later {
                layer_chip_v9_ahead: Centred, Chip, Ragged, 9, Segmented, Piecewise, true, true;
            }
            "rows_forward_ragged_by_column_block" by forward {
                layer_block_v2_ahead: Centred, Block, Ragged<true>, 2, ByColumn, Plain, false, true;
                layer_block_v4_ahead: Centred, Block, Ragged<true>, 4, ByColumn, Plain, false, true;
                rms_block_v2_ahead: Uncentred, Block, Ragged<true>, 2, ByColumn, Plain, false, true;
                rms_block_v4_ahead: Uncentred, Block, Ragged<true>, 4, ByColumn, Plain, false, true;
            }
            "rows_forward_by_segment_piecewise" by forward {
                layer_block_v4_ahead: Centred, Block, Ragged<true>, 4, BySegment, Piecewise, false, true;
                layer_block_v8_ahead: Centred, Block, Ragged<true>, 8, BySegment, Piecewise, false, true;
            }
            "rows_forward_by_segment_any" by forward {
                layer_block_v4_ahead: Centred, Block, Ragged<true>, 4, BySegment, Any, true, true;
            }
            "rows_forward_cluster_by_segment_piecewise" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Ragged<true>, 4, BySegment, Piecewise, false, true;
                layer_blocks_v8_ahead: Centred, Blocks, Ragged<true>, 8, BySegment, Piecewise, false, true;
            }
            "rows_forward_cluster_by_segment_any" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Ragged<true>, 4, BySegment, Any, true, true;
            }
            "rows_forward_pieces_piecewise" by pieces {
                layer_pieces_v4_ahead: Centred, Pieces, Vectors, 4, ByColumn, Piecewise, false, true;
                rms_pieces_v4_ahead: Uncentred, Pieces, Vectors, 4, ByColumn, Piecewise, false, true;
            }
            "rows_forward_pieces_runs_piecewise" by pieces {
                layer_pieces_v4_ahead: Centred, Pieces, Vectors, 4, ByRun, Piecewise, false, true;
            }
            "rows_forward_pieces_runs_any" by pieces {
                layer_pieces_v4_ahead: Centred, Pieces, Vectors, 4, ByRun, Any, false, true;
            }
            "rows_long" by long {
                layer_alone_v2: Centred, Alone, Vectors, 2, ByColumn, Any, true, true;
                layer_grid_v2: Centred, Grid, Vectors, 2, ByColumn, Any, true, true;
                rms_alone_v2: Uncentred, Alone, Vectors, 2, ByColumn, Any, true, true;
                rms_grid_v2: Uncentred, Grid, Vectors, 2, ByColumn, Any, true, true;
            }
            "rows_long_plain" by long_shared {
                layer_alone_v4: Centred, Alone, Vectors, 4, ByColumn, Plain, false, false;
                rms_alone_v4: Uncentred, Alone, Vectors, 4, ByColumn, Plain, false, false;
            }
            "rows_long_runs_piecewise" by long_shared {
                layer_alone_v4: Centred, Alone, Vectors, 4, ByRun, Piecewise, false, false;
            }
            "rows_long_runs_any" by long_shared {
                layer_alone_v4: Centred, Alone, Vectors, 4, ByRun, Any, false, false;
            }
            "rows_long_down" by long_down {
                layer_grid_v4: Centred, Grid, Vectors, 4, ByColumn, Plain, false, false;
                rms_grid_v4: Uncentred, Grid, Vectors, 4, ByColumn, Plain, false, false;
            }
            "rows_long_runs" by long {
                layer_alone_v2: Centred, Alone, Vectors, 2, ByRun, Any, true, true;
                layer_grid_v2: Centred, Grid, Vectors, 2, ByRun, Any, true, true;
            }
            "rows_long_elements" by long {
                layer_alone_v2: Centred, Alone, Elements, 2, ByColumn, Any, true, true;
                layer_grid_v2: Centred, Grid, Elements, 2, ByColumn, Any, true, true;
                rms_alone_v2: Uncentred, Alone, Elements, 2, ByColumn, Any, true, true;
                rms_grid_v2: Uncentred, Grid, Elements, 2, ByColumn, Any, true, true;
            }
            "rows_long_elements_runs" by long {
                layer_alone_v2: Centred, Alone, Elements, 2, ByRun, Any, true, true;
                layer_grid_v2: Centred, Grid, Elements, 2, ByRun, Any, true, true;
            }
            "rows_long_runs_plain" by long {
                layer_alone_v2: Centred, Alone, Vectors, 2, ByRun, Plain, false, true;
                layer_grid_v2: Centred, Grid, Vectors, 2, ByRun, Plain, false, true;
            }
        }
    };
}

pub(crate) use forward_kernels;
