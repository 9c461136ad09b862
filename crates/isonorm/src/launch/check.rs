//! Everything that can be wrong with arguments, found before an element is touched.

use super::{BackwardArguments, ForwardArguments, Running, Span, Spanning, Through};
use crate::{DType, Error, Geometry, NormDesc, Result};

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

    /// The saved mean may be kept in `f64` whatever the data, which makes the backward pass exact where the mean is much
    /// larger than the spread.
    fn statistics(&self, mean: Option<Span>, rstd: Option<Span>) -> Result<()> {
        let (groups, dtype) = (self.geometry.groups(), self.desc.get_statistics_dtype());
        if let Some(mean) = mean {
            let dtype = if mean.dtype == DType::F64 { DType::F64 } else { dtype };
            self.fits(("mean", mean), groups, dtype)?;
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

/// Checks the arguments of a forward pass.
pub(crate) fn check_forward<R: Spanning, W: Spanning>(c: Problem<'_>, a: &ForwardArguments<R, W>) -> Result<()> {
    c.direction(false)?;
    let desc = c.desc;
    c.in_place(&a.data)?;
    let (x, y) = a.data.spans();
    let (x, y) = (("x", x), y.map(|y| ("y", y)));
    c.data(x)?;
    y.map_or(Ok(()), |y| c.data(y))?;
    let [weight, bias] = c.affine(span(&a.weight), span(&a.bias), true)?;
    let residual = c.wanted(
        "residual",
        span(&a.residual),
        desc.has_residual(),
        "the description's residual says so",
        c.no_residual(),
    )?;
    residual.map_or(Ok(()), |r| c.data(r))?;
    let mask = c.mask(span(&a.mask), "the description's residual=masked writes one")?;
    let [added, stream] = c.stream(&a.stream)?;

    let op = desc.op();
    let (mut running_out, mut running_in) = ([None; 2], [None; 2]);
    match (&a.running, desc.uses_running_statistics()) {
        (None, false) => {}
        (None, true) => {
            let why = "pass=eval normalizes with running statistics";
            return Err(Error::MissingArgument {
                op,
                tensor: "running_mean and running_var",
                why,
            });
        }
        (Some(_), _) if !desc.get_norm().has_running_statistics() => {
            let why = "this op has no running statistics";
            return Err(Error::UnexpectedArgument {
                op,
                tensor: "running_mean and running_var",
                why,
            });
        }
        (Some(Running::Given { mean, var }), true) => {
            c.running(mean.span(), var.span())?;
            running_in = [Some(("running_mean", mean.span())), Some(("running_var", var.span()))];
        }
        (Some(Running::Update { mean, var, factor }), false) => {
            c.running(mean.span(), var.span())?;
            if !factor.is_finite() {
                let reason = format!("the factor of running statistics must be finite, got {factor}");
                return Err(Error::InvalidDescription { op, reason });
            }
            running_out = [Some(("running_mean", mean.span())), Some(("running_var", var.span()))];
        }
        (Some(Running::Given { .. }), false) => {
            let why = "pass=train uses the statistics of x (to update running statistics, pass them to update_running)";
            return Err(Error::UnexpectedArgument {
                op,
                tensor: "running_mean and running_var",
                why,
            });
        }
        (Some(Running::Update { .. }), true) => {
            let why = "pass=eval does not update them (pass them to running)";
            return Err(Error::UnexpectedArgument {
                op,
                tensor: "running_mean and running_var to update",
                why,
            });
        }
    }
    c.statistics(span(&a.saved_mean), span(&a.saved_rstd))?;
    if desc.uses_running_statistics() && (a.saved_mean.is_some() || a.saved_rstd.is_some()) {
        let why = "pass=eval computes no statistics";
        return Err(Error::UnexpectedArgument {
            op,
            tensor: "mean or rstd to save",
            why,
        });
    }
    if a.saved_mean.is_some() && !desc.get_norm().is_centred() {
        return Err(Error::UnexpectedArgument {
            op,
            tensor: "mean",
            why: "this op subtracts none",
        });
    }
    let (mean, rstd) = (given(&a.saved_mean, "mean"), given(&a.saved_rstd, "rstd"));
    let in_place = matches!(a.data, Through::InPlace(_)).then_some(x);
    let outputs = [y.or(in_place), mask, stream, running_out[0], running_out[1], mean, rstd];
    let x = in_place.is_none().then_some(x);
    c.disjoint(
        &outputs,
        &[x, weight, bias, residual, added, running_in[0], running_in[1]],
    )
}

/// Checks the arguments of a backward pass.
pub(crate) fn check_backward<R: Spanning, W: Spanning>(c: Problem<'_>, a: &BackwardArguments<R, W>) -> Result<()> {
    c.direction(true)?;
    let (desc, op) = (c.desc, c.op());
    c.in_place(&a.data)?;
    let (dy, dx) = a.data.spans();
    let (x, dy, dx) = (("x", a.x.span()), ("dy", dy), dx.map(|dx| ("dx", dx)));
    c.data(x)?;
    c.data(dy)?;
    dx.map_or(Ok(()), |dx| c.data(dx))?;
    let needs_preactivation = desc.backward_needs_preactivation();
    let [weight, bias] = c.affine(span(&a.weight), span(&a.bias), needs_preactivation)?;
    let residual = if desc.has_residual() && !needs_preactivation {
        given(&a.residual, "residual")
    } else {
        c.wanted(
            "residual",
            span(&a.residual),
            desc.has_residual(),
            "the activation's derivative depends on it",
            c.no_residual(),
        )?
    };
    residual.map_or(Ok(()), |r| c.data(r))?;
    let mask = c.mask(span(&a.mask), "the forward pass wrote it for this")?;
    let dstream = given(&a.dstream, "dstream");
    if dstream.is_some() && !desc.has_stream() {
        return Err(Error::UnexpectedArgument {
            op,
            tensor: "dstream",
            why: NO_STREAM,
        });
    }
    dstream.map_or(Ok(()), |d| c.data(d))?;
    let dresidual = given(&a.dresidual, "dresidual");
    if dresidual.is_some() && !desc.has_residual() {
        return Err(Error::UnexpectedArgument {
            op,
            tensor: "dresidual",
            why: c.no_residual(),
        });
    }
    dresidual.map_or(Ok(()), |r| c.data(r))?;
    let (dweight, dbias) = (given(&a.dweight, "dweight"), given(&a.dbias, "dbias"));
    let why = "the description's affine has none";
    for (gradient, has) in [
        (dweight, desc.get_affine().has_weight()),
        (dbias, desc.get_affine().has_bias()),
    ] {
        let Some(named) = gradient else { continue };
        if !has {
            return Err(Error::UnexpectedArgument {
                op,
                tensor: named.0,
                why,
            });
        }
        c.parameter(named)?;
    }

    let mut running = [None; 2];
    match (&a.running, desc.uses_running_statistics()) {
        (None, false) => {}
        (Some(Running::Given { mean, var }), true) => {
            c.running(mean.span(), var.span())?;
            running = [Some(("running_mean", mean.span())), Some(("running_var", var.span()))];
        }
        (None, true) => {
            let why = "pass=backward_eval goes through running statistics";
            return Err(Error::MissingArgument {
                op,
                tensor: "running_mean and running_var",
                why,
            });
        }
        (Some(_), _) => {
            let why = "this pass uses the saved statistics of x";
            return Err(Error::UnexpectedArgument {
                op,
                tensor: "running_mean and running_var",
                why,
            });
        }
    }
    let saved = !desc.uses_running_statistics();
    let why = "the forward pass saved it for this";
    let why_not = "this pass goes through running statistics";
    let centred = desc.get_norm().is_centred();
    let mean_why_not = if centred { why_not } else { "this op subtracts none" };
    let mean = c.wanted("mean", span(&a.mean), saved && centred, why, mean_why_not)?;
    let rstd = c.wanted("rstd", span(&a.rstd), saved, why, why_not)?;
    c.statistics(span(&a.mean), span(&a.rstd))?;

    let in_place = matches!(a.data, Through::InPlace(_)).then_some(("dx", dy.1));
    let dy = in_place.is_none().then_some(dy);
    c.disjoint(
        &[dx.or(in_place), dweight, dbias, dresidual],
        &[
            Some(x),
            dy,
            weight,
            bias,
            residual,
            mask,
            dstream,
            running[0],
            running[1],
            mean,
            rstd,
        ],
    )
}
