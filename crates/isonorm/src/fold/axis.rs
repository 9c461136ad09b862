use std::fmt;

use super::refused;
use crate::{Layout, Result, Tensor};

/// How the weight of a linear or convolution layer is stored, and so where its output channels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightLayout {
    /// `[out, in]`: `y = W·x + b`.
    Linear,
    /// `[in, out]`: `y = x·W + b`, as the `Conv1D` of GPT-2 stores it.
    LinearTransposed,
    /// `[out, in/groups, kernel]` with one to three kernel dimensions, and any number of groups.
    Conv,
    /// `[in, out/groups, kernel]` with one to three kernel dimensions: a transposed convolution.
    ConvTranspose {
        /// The number of groups, which the shape of the weight does not tell.
        groups: usize,
    },
}

impl fmt::Display for WeightLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightLayout::Linear => f.write_str("linear"),
            WeightLayout::LinearTransposed => f.write_str("transposed linear"),
            WeightLayout::Conv => f.write_str("conv"),
            WeightLayout::ConvTranspose { groups: 1 } => f.write_str("transposed conv"),
            WeightLayout::ConvTranspose { groups } => {
                write!(f, "transposed conv of {groups} groups")
            }
        }
    }
}

/// Where the channels stand in a weight, which is seen as `[groups, repeat, channels, inner]` in memory order: element
/// `(g, r, c, i)` belongs to channel `g·channels + c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelAxis {
    pub(super) groups: usize,
    pub(super) repeat: usize,
    pub(super) channels: usize,
    pub(super) inner: usize,
}

impl ChannelAxis {
    /// The output channels of a layer.
    pub(super) fn output(layout: WeightLayout, weight: &Tensor) -> Result<ChannelAxis> {
        check_rank(layout, weight)?;
        let shape = weight.shape();
        let dims = shape.dims();
        let kernel: usize = dims[2..].iter().product();
        let single = ChannelAxis {
            groups: 1,
            repeat: 1,
            channels: dims[0],
            inner: 1,
        };
        match layout {
            WeightLayout::Linear | WeightLayout::Conv => Ok(ChannelAxis {
                inner: dims[1] * kernel,
                ..single
            }),
            WeightLayout::LinearTransposed => Ok(ChannelAxis {
                repeat: dims[0],
                channels: dims[1],
                ..single
            }),
            WeightLayout::ConvTranspose { groups } => {
                if groups == 0 || !dims[0].is_multiple_of(groups) {
                    return Err(refused(format!(
                        "the {} input channels of the transposed convolution (weight {shape}) do not divide into {groups} groups",
                        dims[0]
                    )));
                }
                let (repeat, inner) = match weight.layout() {
                    Layout::ChannelsFirst => (dims[0] / groups, kernel),
                    Layout::ChannelsLast => (dims[0] / groups * kernel, 1),
                };
                Ok(ChannelAxis {
                    groups,
                    repeat,
                    channels: dims[1],
                    inner,
                })
            }
        }
    }

    /// The input channels of a linear layer.
    pub(super) fn input(layout: WeightLayout, weight: &Tensor) -> Result<ChannelAxis> {
        check_rank(layout, weight)?;
        let shape = weight.shape();
        let dims = shape.dims();
        let (repeat, channels, inner) = match layout {
            WeightLayout::Linear => (dims[0], dims[1], 1),
            WeightLayout::LinearTransposed => (1, dims[0], dims[1]),
            WeightLayout::Conv | WeightLayout::ConvTranspose { .. } => {
                return Err(refused(format!(
                    "a norm cannot be folded into the {layout} after it (weight {shape}): the zeros of its padding are not normalized"
                )));
            }
        };
        Ok(ChannelAxis {
            groups: 1,
            repeat,
            channels,
            inner,
        })
    }

    /// The number of channels.
    pub(super) fn total(&self) -> usize {
        self.groups * self.channels
    }

    /// The number of contiguous elements with the same group and repetition.
    pub(super) fn row(&self) -> usize {
        self.channels * self.inner
    }

    /// The first channel of row `row`.
    pub(super) fn first_channel(&self, row: usize) -> usize {
        row / self.repeat.max(1) * self.channels
    }
}

fn check_rank(layout: WeightLayout, weight: &Tensor) -> Result<()> {
    let (shape, rank) = (weight.shape(), weight.shape().rank());
    let (fits, expected) = match layout {
        WeightLayout::Linear => (rank == 2, "[out, in]"),
        WeightLayout::LinearTransposed => (rank == 2, "[in, out]"),
        WeightLayout::Conv => ((3..=5).contains(&rank), "[out, in/groups, 1 to 3 sizes]"),
        WeightLayout::ConvTranspose { .. } => ((3..=5).contains(&rank), "[in, out/groups, 1 to 3 sizes]"),
    };
    if fits {
        return Ok(());
    }
    Err(refused(format!(
        "expected a {layout} weight {expected}, got shape {shape}"
    )))
}
