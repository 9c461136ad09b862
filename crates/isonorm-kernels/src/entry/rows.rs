//! The kernels of rows.

#![allow(unused_imports, reason = "each module uses some of what the list names")]

use super::Element;
use crate::rows::access::{Elements, Halves, Ragged, Vectors};
use crate::rows::across_runs::AcrossRuns;
use crate::rows::backward::{
    self, across_runs, apart, by_run, by_segment, gradients_by_part, gradients_later, gradients_of_pieces, segmented,
    segmented_later,
};
use crate::rows::by_column::ByColumn;
use crate::rows::by_segment::BySegment;
use crate::rows::each::{self, Each};
use crate::rows::epilogue::{Added, Any, Masked, Piecewise, Plain};
use crate::rows::forward::{self, Of, later, lines, pieces};
use crate::rows::gather;
use crate::rows::list::{backward_kernels, forward_kernels, sweep_kernels};
use crate::rows::long::{self, long_down, long_shared};
use crate::rows::parameters::ByRun;
use crate::rows::pieces::Pieces;
use crate::rows::running;
use crate::rows::segments::Segmented;
use crate::rows::spread::{Alone, Grid};
use crate::rows::statistics::{Centred, Given, Uncentred};
use crate::rows::team::{Block, Blocks, Chip, Lanes};
use crate::rows::two_sweeps::{self, down_columns};

macro_rules! entries {
    ($($family:literal by $function:ident { $($name:ident: $statistics:ty, $team:ty, $access:ty, $accesses:literal, $map:ty, $epilogue:ty,
        $residual:literal, $ahead:literal;)* })*) => {$($(
        /// See the function that it is made of.
        ///
        /// # Safety
        ///
        /// The same.
        #[cfg(isonorm_module = $family)]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(args: $function::Args<Element>) {
            // SAFETY: the caller's.
            unsafe { $function::$function::<Element, Of<$statistics, $team, $access, $map, $epilogue, $residual, $ahead>, $accesses>(&args) };
        }
    )*)*};
}

forward_kernels!(entries);
backward_kernels!(entries);
sweep_kernels!(entries);

/// See [`gather`](gather::gather).
///
/// # Safety
///
/// The same.
#[cfg(isonorm_module = "rows_gather")]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn gather(args: gather::Args<Element>) {
    // SAFETY: the caller's.
    unsafe { gather::gather(&args) };
}

/// See [`running`](running::running).
///
/// # Safety
///
/// The same.
#[cfg(isonorm_module = "rows_running")]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn running(args: running::Args<Element>) {
    // SAFETY: the caller's.
    unsafe { running::running(&args) };
}
