//! The residual stream of a pre-norm transformer: what is added up is normalized, in one pass.

use super::core::Core;
use super::execute::like;
use super::io::{Gradients, Saved};
use crate::{Backward, Forward, NormDesc, Pass, Residual, Result, Tensor};

impl Core {
    /// The description of a forward pass.
    fn stream_desc(&self, x: &Tensor, residual: &Tensor, pass: Pass) -> Result<NormDesc> {
        let x = ("x", x);
        let desc = self.desc_of(x, Residual::Stream, pass)?;
        self.config.check_like(x, ("residual", residual))?;
        Ok(desc)
    }

    pub(super) fn forward_stream(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        let desc = self.stream_desc(x, residual, Pass::Eval)?;
        let (mut y, mut stream) = (like(x)?, like(x)?);
        let data = Forward::new(x.view(), y.view_mut());
        self.evaluate(&desc, data.stream(residual.view(), stream.view_mut()))?;
        Ok((y, stream))
    }

    pub(super) fn forward_stream_in_place(&self, x: &mut Tensor, stream: &mut Tensor) -> Result<()> {
        let desc = self.stream_desc(x, stream, Pass::Eval)?.in_place(true);
        let data = Forward::in_place(x.view_mut());
        self.evaluate(&desc, data.stream_in_place(stream.view_mut()))
    }

    pub(super) fn forward_stream_train(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor, Saved)> {
        let desc = self.stream_desc(x, residual, Pass::Train)?;
        let (mut y, mut stream) = (like(x)?, like(x)?);
        let data = Forward::new(x.view(), y.view_mut());
        let saved = self.save(&desc, data.stream(residual.view(), stream.view_mut()), None)?;
        Ok((y, stream, saved))
    }

    pub(super) fn backward_stream(
        &self,
        stream: &Tensor,
        dy: &Tensor,
        dstream: Option<&Tensor>,
        saved: &Saved,
    ) -> Result<Gradients> {
        let named = ("stream", stream);
        let desc = self.desc_of(named, Residual::Stream, saved.desc.get_pass())?;
        saved.check_for(&desc)?;
        self.config.check_like(named, ("dy", dy))?;
        let mut dx = like(stream)?;
        let mut data = Backward::new(stream.view(), dy.view(), dx.view_mut());
        if let Some(dstream) = dstream {
            self.config.check_like(named, ("dstream", dstream))?;
            data = data.dstream(dstream.view());
        }
        let (weight, bias) = self.differentiate(&desc, data, saved)?;
        Ok(Gradients {
            input: dx,
            weight,
            bias,
            residual: None,
        })
    }
}
