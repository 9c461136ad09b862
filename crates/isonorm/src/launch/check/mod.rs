//! Everything that can be wrong with arguments, found before an element is touched.

mod backward;
mod forward;

pub(crate) use backward::check_backward;
pub(crate) use forward::check_forward;

use super::{Span, Spanning, Through};
use crate::{DType, Error, Geometry, Norm, NormDesc, Pass, Result};

/// One argument: its name and the memory it names.
type Named = (&'static str, Span);

/// Why there is no use for a residual stream or its gradient.
const NO_STREAM: &str = "the description has no residual stream";

/// What arguments are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem<'p> {
    pub(crate) desc: &'p NormDesc,
    pub(crate) geometry: &'p Geometry,
}

impl Problem<'_> {
    fn op(&self) -> &'static str {
        self.desc.op()
    }

    /// The call goes in the direction that was planned.
    fn direction(&self, backward: bool) -> Result<()> {
        if self.desc.get_pass().is_backward() == backward {
            return Ok(());
        }
        let called = if backward { "backward" } else { "forward" };
        let pass = self.desc.get_pass().name();
        Err(Error::PlanMismatch {
            op: self.op(),
            reason: format!("{called} was called with a plan of pass={pass}"),
        })
    }

    /// Length, type and alignment of one argument.
    fn fits(&self, (tensor, span): Named, expected: usize, dtype: DType) -> Result<()> {
        let op = self.op();
        if span.dtype != dtype {
            return Err(Error::DTypeMismatch {
                op,
                tensor,
                expected: dtype,
                got: span.dtype,
            });
        }
        if span.len != expected {
            let why = format!("x is {}", self.desc.get_shape());
            return Err(Error::LengthMismatch {
                op,
                tensor,
                expected,
                got: span.len,
                why,
            });
        }
        if span.len > 0 && !span.address.is_multiple_of(dtype.bytes()) {
            return Err(Error::Misaligned {
                op,
                tensor,
                expected: dtype.bytes(),
                got: span.address,
            });
        }
        Ok(())
    }

    /// An argument that is needed, or that has no use.
    fn wanted(
        &self,
        tensor: &'static str,
        given: Option<Span>,
        wanted: bool,
        why: &'static str,
        why_not: &'static str,
    ) -> Result<Option<Named>> {
        match (given, wanted) {
            (Some(span), true) => Ok(Some((tensor, span))),
            (None, false) => Ok(None),
            (None, true) => Err(Error::MissingArgument {
                op: self.op(),
                tensor,
                why,
            }),
            (Some(_), false) => Err(Error::UnexpectedArgument {
                op: self.op(),
                tensor,
                why: why_not,
            }),
        }
    }

    fn data(&self, named: Named) -> Result<()> {
        self.fits(named, self.geometry.elements(), self.desc.get_dtype())
    }

    /// The mask, which is there if the description says so.
    fn mask(&self, mask: Option<Span>, why: &'static str) -> Result<Option<Named>> {
        let mask = self.wanted(
            "mask",
            mask,
            self.desc.has_mask(),
            why,
            "the description's residual is not masked",
        )?;
        let fits = |mask| self.fits(mask, self.desc.mask_elements(), self.desc.get_dtype());
        mask.map_or(Ok(()), fits)?;
        Ok(mask)
    }

    fn parameter(&self, named: Named) -> Result<()> {
        self.fits(named, self.geometry.parameters, self.desc.get_param_dtype())
    }

    fn running(&self, mean: Span, var: Span) -> Result<()> {
        let (channels, dtype) = (self.geometry.channels, self.desc.get_param_dtype());
        self.fits(("running_mean", mean), channels, dtype)?;
        self.fits(("running_var", var), channels, dtype)
    }

    /// Those that are told: a mean that nobody keeps may be `f64`, as a saved one may.
    fn told(&self, mean: Span, var: Span) -> Result<[Option<Named>; 2]> {
        let (channels, dtype) = (self.geometry.channels, self.desc.get_param_dtype());
        self.fits(("running_mean", mean), channels, wide(mean, dtype))?;
        self.fits(("running_var", var), channels, dtype)?;
        Ok([Some(("running_mean", mean)), Some(("running_var", var))])
    }

    /// The means that the gradient of `x` needs, where they are told.
    fn means(&self, means: &Option<[impl Spanning; 2]>, wants_dx: bool) -> Result<[Option<Named>; 2]> {
        let Some([g, gx]) = means else { return Ok([None; 2]) };
        let (op, tensor) = (self.op(), "mean_g and mean_gx");
        let why = match (self.desc.get_norm(), self.desc.get_pass()) {
            _ if !wants_dx => "there is no dx that needs them",
            (Norm::Batch, Pass::BackwardEval) => {
                let (channels, dtype) = (self.geometry.channels, self.desc.get_statistics_dtype());
                let means = [("mean_g", g.span()), ("mean_gx", gx.span())];
                means
                    .into_iter()
                    .try_for_each(|mean| self.fits(mean, channels, dtype))?;
                return Ok(means.map(Some));
            }
            (Norm::Batch, _) => "pass=backward computes them; pass=backward_eval is told them",
            _ => "they are for batchnorm, whose statistics may be those of several ranks",
        };
        Err(Error::UnexpectedArgument { op, tensor, why })
    }

    /// The saved mean may be kept in `f64` whatever the data, which makes the backward pass exact where the mean is much
    /// larger than the spread.
    fn statistics(&self, mean: Option<Span>, rstd: Option<Span>) -> Result<()> {
        let (groups, dtype) = (self.geometry.groups(), self.desc.get_statistics_dtype());
        if let Some(mean) = mean {
            self.fits(("mean", mean), groups, wide(mean, dtype))?;
        }
        rstd.map_or(Ok(()), |rstd| self.fits(("rstd", rstd), groups, dtype))
    }

    fn affine(&self, weight: Option<Span>, bias: Option<Span>, needs_bias: bool) -> Result<[Option<Named>; 2]> {
        let affine = self.desc.get_affine();
        let why = "the description's affine says so";
        let why_not = "the description's affine has none";
        let weight = self.wanted("weight", weight, affine.has_weight(), why, why_not)?;
        let bias = if needs_bias || !affine.has_bias() {
            self.wanted("bias", bias, affine.has_bias(), why, why_not)?
        } else {
            bias.map(|b| ("bias", b))
        };
        [weight, bias]
            .into_iter()
            .flatten()
            .try_for_each(|p| self.parameter(p))?;
        Ok([weight, bias])
    }

    /// Why there is no use for a residual that is added before the activation.
    fn no_residual(&self) -> &'static str {
        match self.desc.has_stream() {
            true => "the description's residual is a stream, and goes where that does",
            false => "the description has no residual",
        }
    }

    /// What is added to `x`, unless the sum is written over it; and where the sum is written.
    fn stream<R: Spanning, W: Spanning>(&self, stream: &Option<Through<R, W>>) -> Result<[Option<Named>; 2]> {
        let op = self.op();
        match (stream, self.desc.has_stream()) {
            (None, false) => Ok([None; 2]),
            (None, true) => Err(Error::MissingArgument {
                op,
                tensor: "residual and stream",
                why: "the description's residual=stream says so",
            }),
            (Some(_), false) => Err(Error::UnexpectedArgument {
                op,
                tensor: "stream",
                why: NO_STREAM,
            }),
            (Some(stream), true) => {
                let (residual, stream) = stream.spans();
                self.data(("residual", residual))?;
                let Some(stream) = stream else {
                    return Ok([None, Some(("stream", residual))]);
                };
                self.data(("stream", stream))?;
                Ok([Some(("residual", residual)), Some(("stream", stream))])
            }
        }
    }

    /// Outputs overlap nothing.
    fn disjoint(&self, outputs: &[Option<Named>], inputs: &[Option<Named>]) -> Result<()> {
        for (i, (written, output)) in outputs.iter().enumerate().filter_map(|(i, o)| o.map(|o| (i, o))) {
            for (other, span) in outputs[i + 1..].iter().chain(inputs).flatten() {
                if output.overlaps(*span) {
                    let hint = match (written, *other) {
                        ("y", "x") | ("dx", "dy") => ": to overwrite it, say inplace=yes and pass it once",
                        ("stream", "residual") => ": to overwrite it, pass it once to stream_in_place",
                        _ => "",
                    };
                    return Err(Error::Overlap {
                        op: self.op(),
                        written,
                        other,
                        hint,
                    });
                }
            }
        }
        Ok(())
    }

    fn in_place<R, W>(&self, data: &Through<R, W>) -> Result<()> {
        let is = matches!(data, Through::InPlace(_));
        if is == self.desc.is_in_place() || matches!(data, Through::ReadOnly(_)) {
            return Ok(());
        }
        let says = |b: bool| if b { "in place" } else { "out of place" };
        let reason = format!(
            "the description works {}, the arguments {}",
            says(self.desc.is_in_place()),
            says(is)
        );
        Err(Error::PlanMismatch { op: self.op(), reason })
    }
}

/// The type of a mean, which may be `f64` where others are of this type.
fn wide(mean: Span, dtype: DType) -> DType {
    if mean.dtype == DType::F64 { DType::F64 } else { dtype }
}

/// An argument that may be absent, under its name.
fn given(argument: &Option<impl Spanning>, name: &'static str) -> Option<Named> {
    argument.as_ref().map(|a| (name, a.span()))
}

/// The memory of an argument that may be absent.
fn span(argument: &Option<impl Spanning>) -> Option<Span> {
    argument.as_ref().map(Spanning::span)
}

impl<R: Spanning, W: Spanning> Through<R, W> {
    /// What is read, and what is written elsewhere.
    fn spans(&self) -> (Span, Option<Span>) {
        match self {
            Through::Separate(x, y) => (x.span(), Some(y.span())),
            Through::InPlace(x) => (x.span(), None),
            Through::ReadOnly(x) => (x.span(), None),
        }
    }
}
