//! The one list of kernels: entry points of the GPU, names and functions of the host are made from it.

mod backward;
mod forward;

/// The list of the backward pass in two sweeps, in the same form.
macro_rules! sweep_kernels {
    ($receive:ident) => {
        $receive! {
            "rows_sweeps_down" by down_columns {
                layer_grid_v1: Centred, Grid, Vectors, 1, ByColumn, Plain, true, false;
                rms_grid_v1: Uncentred, Grid, Vectors, 1, ByColumn, Plain, true, false;
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

pub(crate) use backward::backward_kernels;
pub(crate) use forward::forward_kernels;
pub(crate) use sweep_kernels;
