//! Arguments on their way to an engine: collected, then checked against the plan. The only place besides the engines that
//! looks at addresses.

mod args;
mod check;
mod span;
mod workspace;

pub use args::{Backward, BackwardArguments, Forward, ForwardArguments};
pub(crate) use args::{Running, Through};
pub(crate) use check::{Problem, check_backward, check_forward};
pub(crate) use span::{Span, Spanning};
pub use workspace::Workspace;
