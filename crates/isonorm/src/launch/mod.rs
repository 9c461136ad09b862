//! Arguments on their way to an engine: collected, then checked against the plan. The only place besides the engines that
//! looks at addresses.

mod args;
mod check;
mod workspace;

pub use args::{Backward, Forward};
pub(crate) use args::{Running, Through};
pub(crate) use check::{check_backward, check_forward};
pub use workspace::Workspace;
