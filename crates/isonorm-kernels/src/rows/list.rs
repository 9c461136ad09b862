//! The one list of kernels: entry points of the GPU, names and functions of the host are made from it.

/// Hands the list to a macro: modules, and in each the kernels with what [`Of`] and [`forward`] are given: statistics, team,
/// access, accesses a thread, parameters, activations, whether there may be a residual, and whether rows are loaded ahead.
///
/// [`Of`]: super::forward::Of
/// [`forward`]: super::forward::forward
macro_rules! forward_kernels {
    ($receive:ident) => {
        $receive! {
            "rows_forward_lanes" {
                layer_lanes8_v1: Centred, Lanes<8>, Vectors, 1, ByColumn, Plain, false, false;
                layer_lanes8_v1_ahead: Centred, Lanes<8>, Vectors, 1, ByColumn, Plain, false, true;
                layer_lanes16_v1: Centred, Lanes<16>, Vectors, 1, ByColumn, Plain, false, false;
                layer_lanes16_v1_ahead: Centred, Lanes<16>, Vectors, 1, ByColumn, Plain, false, true;
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Plain, false, false;
                layer_warp_v1_ahead: Centred, Lanes<32>, Vectors, 1, ByColumn, Plain, false, true;
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByColumn, Plain, false, false;
                layer_warp_v2_ahead: Centred, Lanes<32>, Vectors, 2, ByColumn, Plain, false, true;
                rms_lanes8_v1: Uncentred, Lanes<8>, Vectors, 1, ByColumn, Plain, false, false;
                rms_lanes8_v1_ahead: Uncentred, Lanes<8>, Vectors, 1, ByColumn, Plain, false, true;
                rms_lanes16_v1: Uncentred, Lanes<16>, Vectors, 1, ByColumn, Plain, false, false;
                rms_lanes16_v1_ahead: Uncentred, Lanes<16>, Vectors, 1, ByColumn, Plain, false, true;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Plain, false, false;
                rms_warp_v1_ahead: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Plain, false, true;
                rms_warp_v2: Uncentred, Lanes<32>, Vectors, 2, ByColumn, Plain, false, false;
                rms_warp_v2_ahead: Uncentred, Lanes<32>, Vectors, 2, ByColumn, Plain, false, true;
            }
            "rows_forward_block" {
                layer_block_v1: Centred, Block, Vectors, 1, ByColumn, Plain, false, false;
                layer_block_v1_ahead: Centred, Block, Vectors, 1, ByColumn, Plain, false, true;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Plain, false, false;
                layer_block_v2_ahead: Centred, Block, Vectors, 2, ByColumn, Plain, false, true;
                rms_block_v1: Uncentred, Block, Vectors, 1, ByColumn, Plain, false, false;
                rms_block_v1_ahead: Uncentred, Block, Vectors, 1, ByColumn, Plain, false, true;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Plain, false, false;
                rms_block_v2_ahead: Uncentred, Block, Vectors, 2, ByColumn, Plain, false, true;
            }
            "rows_forward_wide" {
                layer_warp_v4: Centred, Lanes<32>, Vectors, 4, ByColumn, Plain, false, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByColumn, Plain, false, false;
                layer_block_v8: Centred, Block, Vectors, 8, ByColumn, Plain, false, false;
                rms_warp_v4: Uncentred, Lanes<32>, Vectors, 4, ByColumn, Plain, false, false;
                rms_block_v4: Uncentred, Block, Vectors, 4, ByColumn, Plain, false, false;
                rms_block_v8: Uncentred, Block, Vectors, 8, ByColumn, Plain, false, false;
            }
            "rows_forward_piecewise" {
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Piecewise, true, false;
                layer_block_v1: Centred, Block, Vectors, 1, ByColumn, Piecewise, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Piecewise, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByColumn, Piecewise, true, false;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Piecewise, true, false;
                rms_block_v1: Uncentred, Block, Vectors, 1, ByColumn, Piecewise, true, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Piecewise, true, false;
                rms_block_v4: Uncentred, Block, Vectors, 4, ByColumn, Piecewise, true, false;
            }
            "rows_forward_smooth" {
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByColumn, Smooth, true, false;
                layer_block_v1: Centred, Block, Vectors, 1, ByColumn, Smooth, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByColumn, Smooth, true, false;
                rms_warp_v1: Uncentred, Lanes<32>, Vectors, 1, ByColumn, Smooth, true, false;
                rms_block_v1: Uncentred, Block, Vectors, 1, ByColumn, Smooth, true, false;
                rms_block_v2: Uncentred, Block, Vectors, 2, ByColumn, Smooth, true, false;
            }
            "rows_forward_runs_piecewise" {
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByRun, Piecewise, true, false;
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByRun, Piecewise, true, false;
                layer_block_v1: Centred, Block, Vectors, 1, ByRun, Piecewise, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByRun, Piecewise, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByRun, Piecewise, true, false;
                given_block_v1: Given, Block, Vectors, 1, ByRun, Piecewise, true, false;
                given_block_v4: Given, Block, Vectors, 4, ByRun, Piecewise, true, false;
            }
            "rows_forward_runs_smooth" {
                layer_warp_v1: Centred, Lanes<32>, Vectors, 1, ByRun, Smooth, true, false;
                layer_warp_v2: Centred, Lanes<32>, Vectors, 2, ByRun, Smooth, true, false;
                layer_block_v1: Centred, Block, Vectors, 1, ByRun, Smooth, true, false;
                layer_block_v2: Centred, Block, Vectors, 2, ByRun, Smooth, true, false;
                layer_block_v4: Centred, Block, Vectors, 4, ByRun, Smooth, true, false;
                given_block_v1: Given, Block, Vectors, 1, ByRun, Smooth, true, false;
                given_block_v4: Given, Block, Vectors, 4, ByRun, Smooth, true, false;
            }
            "rows_forward_elements_piecewise" {
                layer_warp_v4: Centred, Lanes<32>, Elements, 4, ByColumn, Piecewise, true, false;
                layer_block_v8: Centred, Block, Elements, 8, ByColumn, Piecewise, true, false;
                rms_warp_v4: Uncentred, Lanes<32>, Elements, 4, ByColumn, Piecewise, true, false;
                rms_block_v8: Uncentred, Block, Elements, 8, ByColumn, Piecewise, true, false;
            }
            "rows_forward_elements_smooth" {
                layer_warp_v4: Centred, Lanes<32>, Elements, 4, ByColumn, Smooth, true, false;
                layer_block_v8: Centred, Block, Elements, 8, ByColumn, Smooth, true, false;
                rms_warp_v4: Uncentred, Lanes<32>, Elements, 4, ByColumn, Smooth, true, false;
                rms_block_v8: Uncentred, Block, Elements, 8, ByColumn, Smooth, true, false;
            }
            "rows_forward_elements_runs_piecewise" {
                layer_warp_v4: Centred, Lanes<32>, Elements, 4, ByRun, Piecewise, true, false;
                layer_block_v8: Centred, Block, Elements, 8, ByRun, Piecewise, true, false;
                given_warp_v4: Given, Lanes<32>, Elements, 4, ByRun, Piecewise, true, false;
                given_block_v8: Given, Block, Elements, 8, ByRun, Piecewise, true, false;
            }
            "rows_forward_elements_runs_smooth" {
                layer_warp_v4: Centred, Lanes<32>, Elements, 4, ByRun, Smooth, true, false;
                layer_block_v8: Centred, Block, Elements, 8, ByRun, Smooth, true, false;
                given_warp_v4: Given, Lanes<32>, Elements, 4, ByRun, Smooth, true, false;
                given_block_v8: Given, Block, Elements, 8, ByRun, Smooth, true, false;
            }
        }
    };
}

pub(crate) use forward_kernels;
