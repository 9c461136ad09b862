//! The arguments of a backward pass.

use super::{NO_STREAM, Problem, given, span};
use crate::launch::{BackwardArguments, Running, Spanning, Through};
use crate::{Error, Result};

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
    let result = c.wanted(
        "y",
        span(&a.result),
        desc.reads_result(),
        "the gradient passes where it is not 0",
        "the description's residual is not of the result",
    )?;
    result.map_or(Ok(()), |y| c.data(y))?;
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
            running = c.told(mean.span(), var.span())?;
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
    let means = c.means(&a.means, !matches!(a.data, Through::ReadOnly(_)))?;

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
            result,
            dstream,
            running[0],
            running[1],
            mean,
            rstd,
            means[0],
            means[1],
        ],
    )
}
