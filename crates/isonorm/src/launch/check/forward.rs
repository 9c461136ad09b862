//! The arguments of a forward pass.

use super::{Named, Problem, given, span};
use crate::launch::{ForwardArguments, Running, Span, Spanning, Through};
use crate::{Error, Pass, Result};

/// Checks the arguments of a forward pass.
pub(crate) fn check_forward<R: Spanning, W: Spanning>(c: Problem<'_>, a: &ForwardArguments<R, W>) -> Result<()> {
    c.direction(false)?;
    let desc = c.desc;
    c.in_place(&a.data)?;
    c.writes_y(&a.data)?;
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
        (Some(_), _) if desc.get_pass() == Pass::Moments => {
            let why = "pass=moments may be of a part of a batch (update them with the statistics of all of it)";
            return Err(Error::UnexpectedArgument {
                op,
                tensor: "running_mean and running_var",
                why,
            });
        }
        (Some(Running::Given { mean, var }), true) => {
            running_in = c.told(mean.span(), var.span())?;
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
    let var = c.variance(span(&a.saved_rstd), span(&a.saved_var))?;
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
    let outputs = [
        y.or(in_place),
        mask,
        stream,
        running_out[0],
        running_out[1],
        mean,
        rstd,
        var,
    ];
    let x = in_place.is_none().then_some(x);
    c.disjoint(
        &outputs,
        &[x, weight, bias, residual, added, running_in[0], running_in[1]],
    )
}

impl Problem<'_> {
    /// There is a `y`, unless only statistics are taken.
    fn writes_y<R, W>(&self, data: &Through<R, W>) -> Result<()> {
        let (op, tensor) = (self.op(), "y");
        let is_without = matches!(data, Through::ReadOnly(_));
        match (is_without, self.desc.get_pass() == Pass::Moments) {
            (true, false) => Err(Error::MissingArgument {
                op,
                tensor,
                why: "only pass=moments writes none",
            }),
            (false, true) => Err(Error::UnexpectedArgument {
                op,
                tensor,
                why: "pass=moments writes none (pass x to without_y)",
            }),
            _ => Ok(()),
        }
    }

    /// The variance, which is saved instead of rstd where only statistics are taken.
    fn variance(&self, rstd: Option<Span>, var: Option<Span>) -> Result<Option<Named>> {
        let op = self.op();
        match (rstd, var, self.desc.get_pass() == Pass::Moments) {
            (Some(_), _, true) => Err(Error::UnexpectedArgument {
                op,
                tensor: "rstd to save",
                why: "pass=moments saves the variance (save_variance)",
            }),
            (_, Some(_), false) => Err(Error::UnexpectedArgument {
                op,
                tensor: "variance to save",
                why: "only pass=moments saves it, others rstd (save)",
            }),
            (_, None, _) => Ok(None),
            (_, Some(var), true) => {
                let (groups, dtype) = (self.geometry.groups(), self.desc.get_statistics_dtype());
                self.fits(("var", var), groups, dtype)?;
                Ok(Some(("var", var)))
            }
        }
    }
}
