//! The host's kernels of all element types, compiled once. Where the compiler shares generics between crates, as it does in builds for tests,
//! others find them here, who would compile hundreds of kernels for themselves otherwise, and again for their own tests.

use isonorm_math::{Bf16, F16};

use crate::rows::Data;
use crate::{rows, tiles};

/// How many there are.
pub fn count() -> usize {
    of::<f32>() + of::<F16>() + of::<Bf16>()
}

fn of<T: Data>() -> usize {
    let rows = rows::key::kernels::<T>().len() + rows::key::backward_kernels::<T>().len();
    let tiles = tiles::key::kernels::<T>().len() + tiles::key::backward_kernels::<T>().len();
    rows + rows::key::sweep_kernels::<T>().len() + tiles
}
