//! The ops, as types: what marks a [`Layer`](super::Layer).

mod sealed {
    pub trait Sealed {}
}

/// An op that a layer can have.
pub trait Op: sealed::Sealed + 'static {
    /// The layer's name.
    const NAME: &'static str;
}

/// An op whose weight and bias are trained, and may be left out.
pub trait Trained: Op {}

/// An op that can keep running statistics.
pub trait Tracking: Trained {}

/// An op that can normalize a residual stream.
pub trait Streaming: Trained {}

/// Marks [`BatchNorm`](super::BatchNorm).
#[derive(Debug)]
pub enum Batch {}

/// Marks [`FrozenBatchNorm`](super::FrozenBatchNorm).
#[derive(Debug)]
pub enum FrozenBatch {}

/// Marks [`LayerNorm`](super::LayerNorm).
#[derive(Debug)]
pub enum Layer {}

/// Marks [`RmsNorm`](super::RmsNorm).
#[derive(Debug)]
pub enum Rms {}

/// Marks [`GroupNorm`](super::GroupNorm).
#[derive(Debug)]
pub enum Group {}

/// Marks [`InstanceNorm`](super::InstanceNorm).
#[derive(Debug)]
pub enum Instance {}

macro_rules! ops {
    ($($op:ty => $name:literal),*) => {$(
        impl sealed::Sealed for $op {}
        impl Op for $op {
            const NAME: &'static str = $name;
        }
    )*};
}

ops!(
    Batch => "BatchNorm",
    FrozenBatch => "FrozenBatchNorm",
    Layer => "LayerNorm",
    Rms => "RmsNorm",
    Group => "GroupNorm",
    Instance => "InstanceNorm"
);

impl Trained for Batch {}
impl Trained for Layer {}
impl Trained for Rms {}
impl Trained for Group {}
impl Trained for Instance {}

impl Tracking for Batch {}
impl Tracking for Instance {}

impl Streaming for Layer {}
impl Streaming for Rms {}
