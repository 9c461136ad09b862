//! The one list of kernels: entry points of the GPU, names and functions of the host are made from it.

/// Hands the list to a macro: families with the function that they are made of, and in each the kernels with what [`Of`] and
/// the function are given: statistics, team, access, accesses a thread, parameters, activations, whether there may be a
/// residual, and whether data is loaded ahead.
///
/// [`Of`]: super::forward::Of
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
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Any, true, false;
                layer_warp_v3: Centred, Lanes<32>, Vectors, 3, ByColumn, Any, true, false;
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByColumn, Any, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Any, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByColumn, Any, true, false;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Any, true, false;
                rms_warp_v3: Uncentred, Lanes<32>, Vectors, 3, ByColumn, Any, true, false;
                rms_warp_v4: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Any, true, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Any, true, false;
                rms_block_v4: Uncentred, Block, Vectors, 4, ByColumn, Any, true, false;
            }
            "rows_forward_runs_piecewise" by forward {
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByRun, Piecewise, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByRun, Piecewise, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByRun, Piecewise, true, false;
            }
            "rows_forward_runs_any" by forward {
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByRun, Any, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByRun, Any, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByRun, Any, true, false;
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
            "rows_each_elements" by each {
                given_each_v4: Given, Each, Elements, 4, ByRun, Any, true, false;
            }
            "rows_forward_cluster_plain" by forward {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors, 4, ByColumn, Plain, false, true;
                rms_blocks_v4_ahead: Uncentred, Blocks, Vectors, 4, ByColumn, Plain, false, true;
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
                layer_block_v4_ahead: Centred, Block, Vectors<true>, 4, Segmented, Piecewise, false, true;
                layer_block_v8_ahead: Centred, Block, Vectors<true>, 8, Segmented, Piecewise, false, true;
            }
            "rows_forward_ragged_piecewise" by forward {
                layer_block_v4_ahead: Centred, Block, Ragged, 4, Segmented, Piecewise, false, true;
                layer_block_v8_ahead: Centred, Block, Ragged, 8, Segmented, Piecewise, false, true;
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
            "rows_forward_chip_segments_piecewise" by later {
                layer_chip_v8_ahead: Centred, Chip, Vectors<true>, 8, Segmented, Piecewise, false, true;
            }
            "rows_forward_chip_segments_any" by later {
                layer_chip_v8_ahead: Centred, Chip, Vectors<true>, 8, Segmented, Any, false, true;
            }
            "rows_forward_chip_ragged_piecewise" by later {
                layer_chip_v8_ahead: Centred, Chip, Ragged, 8, Segmented, Piecewise, false, true;
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

/// The list of the backward pass, in the same form.
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
            "rows_backward_wide" by backward {
                layer_warp_v6_ahead: Centred, Lanes<32>, Vectors, 6, ByColumn, Plain, true, true;
                layer_warp_v8_ahead: Centred, Lanes<32>, Vectors, 8, ByColumn, Plain, true, true;
                rms_warp_v6_ahead: Uncentred, Lanes<32>, Vectors, 6, ByColumn, Plain, true, true;
                rms_warp_v8_ahead: Uncentred, Lanes<32>, Vectors, 8, ByColumn, Plain, true, true;
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
            "rows_backward_cluster_runs_plain" by by_run {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors, 4, ByRun, Plain, true, true;
            }
            "rows_backward_cluster_runs" by by_run {
                layer_blocks_v4_ahead: Centred, Blocks, Vectors, 4, ByRun, Any, false, true;
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
            "rows_backward_chip_segments_plain" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Vectors<true>, 4, Segmented, Plain, false, true;
            }
            "rows_backward_chip_ragged_plain" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Ragged, 4, Segmented, Plain, false, true;
            }
            "rows_backward_chip_segments_piecewise" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Vectors<true>, 4, Segmented, Piecewise, false, true;
            }
            "rows_backward_chip_segments" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Vectors<true>, 4, Segmented, Any, false, true;
            }
            "rows_backward_chip_ragged_piecewise" by segmented_later {
                layer_chip_v4_ahead: Centred, Chip, Ragged, 4, Segmented, Piecewise, false, true;
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

/// The list of the backward pass in two sweeps, in the same form.
macro_rules! sweep_kernels {
    ($receive:ident) => {
        $receive! {
            "rows_sweeps_plain" by two_sweeps {
                layer_grid_v2: Centred, Grid, Vectors, 2, ByColumn, Plain, true, false;
                rms_grid_v2: Uncentred, Grid, Vectors, 2, ByColumn, Plain, true, false;
            }
            "rows_sweeps" by two_sweeps {
                layer_grid_v2: Centred, Grid, Vectors, 2, ByColumn, Any, true, false;
                rms_grid_v2: Uncentred, Grid, Vectors, 2, ByColumn, Any, true, false;
            }
            "rows_sweeps_elements" by two_sweeps {
                layer_grid_v4: Centred, Grid, Elements, 4, ByColumn, Any, true, false;
                rms_grid_v4: Uncentred, Grid, Elements, 4, ByColumn, Any, true, false;
            }
            "rows_sweeps_runs_plain" by two_sweeps {
                layer_grid_v2: Centred, Grid, Vectors, 2, ByRun, Plain, true, false;
                given_grid_v2: Given, Grid, Vectors, 2, ByRun, Plain, true, false;
            }
            "rows_sweeps_runs" by two_sweeps {
                layer_grid_v2: Centred, Grid, Vectors, 2, ByRun, Any, true, false;
                given_grid_v2: Given, Grid, Vectors, 2, ByRun, Any, true, false;
            }
            "rows_sweeps_elements_runs" by two_sweeps {
                layer_grid_v4: Centred, Grid, Elements, 4, ByRun, Any, true, false;
                given_grid_v4: Given, Grid, Elements, 4, ByRun, Any, true, false;
            }
        }
    };
}

pub(crate) use {backward_kernels, forward_kernels, sweep_kernels};
