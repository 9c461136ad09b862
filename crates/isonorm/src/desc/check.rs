//! What can be wrong with a description by itself, before there is any memory.

use super::{DType, Layout, MASK_SHARE, Norm, NormDesc, Over, Pass, Residual};
use crate::{Activation, Error, Result};

impl NormDesc {
    /// Checks everything that can be wrong with a description by itself.
    ///
    /// # Errors
    /// [`Error::InvalidDescription`] or [`Error::InPlace`], saying what was expected and what came.
    pub fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::InvalidDescription { op: self.op(), reason });
        let (shape, rank) = (self.shape, self.shape.rank());
        match self.norm {
            Norm::Batch if !(2..=5).contains(&rank) => {
                return invalid(format!(
                    "expected x of 2 to 5 dimensions (N,C or N,C,spatial), got {shape}"
                ));
            }
            Norm::Instance if !(3..=5).contains(&rank) => {
                return invalid(format!("expected x of 3 to 5 dimensions (N,C,spatial), got {shape}"));
            }
            Norm::Group { .. } | Norm::Layer(Over::Channels) | Norm::Rms(Over::Channels) if rank < 2 => {
                return invalid(format!(
                    "expected x of at least 2 dimensions (N,C or N,C,spatial), got {shape}"
                ));
            }
            Norm::Layer(Over::Last(n)) | Norm::Rms(Over::Last(n)) if n == 0 || n > rank => {
                return invalid(format!(
                    "cannot normalize over the last {n} dimensions of x of {rank} ({shape})"
                ));
            }
            // No channels are a multiple of anything, but not of groups so many that counting them overflows.
            Norm::Group { groups }
                if !(1..=shape.dims()[1].max(1)).contains(&groups) || !shape.dims()[1].is_multiple_of(groups) =>
            {
                return invalid(format!(
                    "the number of channels must be a multiple of the number of groups, got {} channels and {groups} groups (x is {shape})",
                    shape.dims()[1]
                ));
            }
            _ => {}
        }
        if self.layout == Layout::ChannelsLast && !self.norm.has_channels() {
            return invalid(format!(
                "channels_last has no meaning for rows; permute the shape {shape} instead"
            ));
        }
        if self.has_stream() && !matches!(self.norm, Norm::Layer(Over::Last(_)) | Norm::Rms(Over::Last(_))) {
            return invalid("residual=stream is for layernorm and rmsnorm over the last dimensions".into());
        }
        let of_relu = matches!(self.residual, Residual::Masked | Residual::Result);
        if of_relu && (self.norm, self.activation) != (Norm::Batch, Activation::Relu) {
            return invalid(format!(
                "residual={} is for batchnorm with act=relu",
                self.residual.name()
            ));
        }
        if self.pass == Pass::Moments {
            if self.norm != Norm::Batch {
                return invalid("pass=moments is for batchnorm".into());
            }
            let plain = self.moments();
            if (self.affine, self.activation, self.residual, self.in_place)
                != (plain.affine, plain.activation, plain.residual, plain.in_place)
            {
                return invalid(
                    "pass=moments does nothing with elements: affine=none, no activation, no residual, not in place"
                        .into(),
                );
            }
        }
        let Some(elements) = shape.elements() else {
            return invalid(format!(
                "x of shape {shape} has more elements than this machine can address"
            ));
        };
        let run = self.run_bytes();
        if self.has_mask() && elements > 0 && !run.is_multiple_of(MASK_SHARE) {
            return invalid(format!(
                "residual=masked needs {} of a multiple of {MASK_SHARE} bytes, got {run} (x is {shape} of {})",
                self.runs(),
                self.dtype
            ));
        }
        let params = self.get_param_dtype();
        if params != self.dtype && params != DType::F32 {
            return invalid(format!(
                "parameters must be f32 or of x's type {}, got {params}",
                self.dtype
            ));
        }
        let eps = self.get_eps();
        if !(eps >= 0.0 && eps.is_finite()) {
            return invalid(format!("eps must be finite and not negative, got {eps}"));
        }
        if let Activation::LeakyRelu { slope } = self.activation
            && !slope.is_finite()
        {
            return invalid(format!("the slope of leaky ReLU must be finite, got {slope}"));
        }
        // Behind a residual stream it needs the stream, not x.
        if self.in_place && self.pass == Pass::Train && !self.has_stream() {
            return Err(Error::InPlace {
                op: self.op(),
                reason: "the backward pass of pass=train needs x",
            });
        }
        if elements > 0 && self.pass == Pass::Train {
            self.check_values_per_group(elements)?;
        }
        Ok(())
    }

    /// Bytes that lie together, of one position or one channel.
    fn run_bytes(&self) -> usize {
        let dims = self.shape.dims();
        let elements: usize = match self.layout {
            Layout::ChannelsFirst if dims.len() > 2 => dims[2..].iter().product(),
            _ => dims.get(1).copied().unwrap_or(1),
        };
        elements * self.dtype.bytes()
    }

    /// What lies together.
    fn runs(&self) -> &'static str {
        match self.layout {
            Layout::ChannelsFirst if self.shape.rank() > 2 => "channels of a sample",
            _ => "rows of channels",
        }
    }

    /// A variance needs two values; PyTorch refuses one in training for these ops.
    fn check_values_per_group(&self, elements: usize) -> Result<()> {
        let dims = self.shape.dims();
        let (per_group, unit) = match self.norm {
            Norm::Batch => (elements / dims[1], "channel"),
            Norm::Instance => (dims[2..].iter().product(), "channel of a sample"),
            // As PyTorch has it: only a batch that has one value a group in all is refused.
            Norm::Group { groups } => (elements / groups, "group"),
            Norm::Layer(_) | Norm::Rms(_) => return Ok(()),
        };
        if per_group == 1 {
            return Err(Error::InvalidDescription {
                op: self.op(),
                reason: format!(
                    "expected more than 1 value per {unit} in training, got x of shape {}",
                    self.shape
                ),
            });
        }
        Ok(())
    }
}
