//! Memory with a type and a shape: borrowed [`View`]s for frameworks, owned [`Tensor`]s for everyone else.

mod owned;
mod view;

pub use owned::{Tensor, TensorData};
pub use view::{Scalar, View, ViewMut};
