//! Everything that can be wrong with arguments, found before an element is touched.

use super::{Backward, Forward, Running, Through, Workspace};
use crate::{DType, Error, Geometry, NormDesc, Plan, Result, View};

/// One argument: its name and the memory it names.
type Named<'a> = (&'static str, View<'a>);

/// Collects what is wrong with the arguments of one call.
struct Checker<'p> {
    desc: &'p NormDesc,
    geometry: &'p Geometry,
}

impl Checker<'_> {
    fn op(&self) -> &'static str {
        self.desc.op()
    }

    /// Length, type and alignment of one argument.
    fn fits(&self, (tensor, view): Named<'_>, expected: usize, dtype: DType) -> Result<()> {
        let op = self.op();
        if view.dtype() != dtype {
            return Err(Error::DTypeMismatch {
                op,
                tensor,
                expected: dtype,
                got: view.dtype(),
            });
        }
        if view.len() != expected {
            let why = format!("x is {}", self.desc.get_shape());
            return Err(Error::LengthMismatch {
                op,
                tensor,
                expected,
                got: view.len(),
                why,
            });
        }
        let address = view.as_ptr() as usize;
        if !view.is_empty() && !address.is_multiple_of(dtype.bytes()) {
            return Err(Error::Misaligned {
                op,
                tensor,
                expected: dtype.bytes(),
                got: address,
            });
        }
        Ok(())
    }

    /// An argument that is needed, or that has no use.
    fn wanted<'a>(
        &self,
        tensor: &'static str,
        given: Option<View<'a>>,
        wanted: bool,
        why: &'static str,
        why_not: &'static str,
    ) -> Result<Option<Named<'a>>> {
        match (given, wanted) {
            (Some(view), true) => Ok(Some((tensor, view))),
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

    fn data(&self, named: Named<'_>) -> Result<()> {
        self.fits(named, self.geometry.elements(), self.desc.get_dtype())
    }

    fn parameter(&self, named: Named<'_>) -> Result<()> {
        self.fits(named, self.geometry.parameters, self.desc.get_param_dtype())
    }

    fn running(&self, mean: View<'_>, var: View<'_>) -> Result<()> {
        let (channels, dtype) = (self.geometry.channels, self.desc.get_param_dtype());
        self.fits(("running_mean", mean), channels, dtype)?;
        self.fits(("running_var", var), channels, dtype)
    }

    /// The saved mean may be kept in `f64` whatever the data, which makes the backward pass exact where the mean is much
    /// larger than the spread.
    fn statistics(&self, mean: Option<View<'_>>, rstd: Option<View<'_>>) -> Result<()> {
        let (groups, dtype) = (self.geometry.groups(), self.desc.get_statistics_dtype());
        if let Some(mean) = mean {
            let dtype = if mean.dtype() == DType::F64 { DType::F64 } else { dtype };
            self.fits(("mean", mean), groups, dtype)?;
        }
        rstd.map_or(Ok(()), |rstd| self.fits(("rstd", rstd), groups, dtype))
    }

    fn affine<'a>(
        &self,
        weight: Option<View<'a>>,
        bias: Option<View<'a>>,
        needs_bias: bool,
    ) -> Result<[Option<Named<'a>>; 2]> {
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

    /// Outputs overlap nothing.
    fn disjoint(&self, outputs: &[Option<Named<'_>>], inputs: &[Option<Named<'_>>]) -> Result<()> {
        let range = |v: &View<'_>| {
            let start = v.as_ptr() as usize;
            start..start + v.len() * v.dtype().bytes()
        };
        for (i, (written, output)) in outputs.iter().enumerate().filter_map(|(i, o)| o.map(|o| (i, o))) {
            for (other, view) in outputs[i + 1..].iter().chain(inputs).flatten() {
                let (a, b) = (range(&output), range(view));
                if a.start < b.end && b.start < a.end && !a.is_empty() && !b.is_empty() {
                    let hint = match (written, *other) {
                        ("y", "x") | ("dx", "dy") => ": to overwrite it, say inplace=yes and pass it once",
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

    fn in_place(&self, data: &Through<'_>) -> Result<()> {
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

fn checker<'p>(plan: &'p Plan, backward: bool, workspace: &Workspace) -> Result<Checker<'p>> {
    let desc = plan.desc();
    let mismatch = |reason: String| Err(Error::PlanMismatch { op: desc.op(), reason });
    if desc.get_pass().is_backward() != backward {
        let called = if backward { "backward" } else { "forward" };
        return mismatch(format!(
            "{called} was called with a plan of pass={}",
            desc.get_pass().name()
        ));
    }
    if workspace.bytes() < plan.workspace_bytes() {
        return mismatch(format!(
            "the workspace has {} bytes, the plan needs {}",
            workspace.bytes(),
            plan.workspace_bytes()
        ));
    }
    Ok(Checker {
        desc,
        geometry: plan.geometry(),
    })
}

fn given(view: &Option<crate::ViewMut<'_>>, name: &'static str) -> Option<(&'static str, View<'static>)> {
    // SAFETY: the copy is only measured (address, length, type), never read, so its lifetime does not matter.
    view.as_ref().map(|v| (name, unsafe { detached(v.as_view()) }))
}

/// A view without its borrow, to compare addresses.
///
/// # Safety
/// The result must not be read.
unsafe fn detached(v: View<'_>) -> View<'static> {
    // SAFETY: a view's pointer is never null; the caller reads nothing through it.
    unsafe {
        View::from_raw(
            std::ptr::NonNull::new_unchecked(v.as_ptr().cast_mut()),
            v.len(),
            v.dtype(),
        )
    }
}

/// Checks the arguments of a forward pass.
pub(crate) fn check_forward(plan: &Plan, a: &Forward<'_>, workspace: &Workspace) -> Result<()> {
    let c = checker(plan, false, workspace)?;
    let desc = c.desc;
    c.in_place(&a.data)?;
    let x = ("x", a.data.input());
    c.data(x)?;
    let y = match &a.data {
        Through::Separate(_, y) => given_one(y, "y"),
        _ => None,
    };
    y.map_or(Ok(()), |y| c.data(y))?;
    let [weight, bias] = c.affine(a.weight, a.bias, true)?;
    let residual = c.wanted(
        "residual",
        a.residual,
        desc.has_residual(),
        "the description's residual says so",
        "the description has no residual",
    )?;
    residual.map_or(Ok(()), |r| c.data(r))?;

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
            c.running(*mean, *var)?;
            running_in = [Some(("running_mean", *mean)), Some(("running_var", *var))];
        }
        (Some(Running::Update { mean, var, factor }), false) => {
            c.running(mean.as_view(), var.as_view())?;
            if !factor.is_finite() {
                let reason = format!("the factor of running statistics must be finite, got {factor}");
                return Err(Error::InvalidDescription { op, reason });
            }
            running_out = [given_one(mean, "running_mean"), given_one(var, "running_var")];
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
    c.statistics(
        a.saved_mean.as_ref().map(|m| m.as_view()),
        a.saved_rstd.as_ref().map(|r| r.as_view()),
    )?;
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
    let outputs = [y.or(in_place), running_out[0], running_out[1], mean, rstd];
    let x = in_place.is_none().then_some(x);
    c.disjoint(&outputs, &[x, weight, bias, residual, running_in[0], running_in[1]])
}

fn given_one(view: &crate::ViewMut<'_>, name: &'static str) -> Option<(&'static str, View<'static>)> {
    // SAFETY: the copy is only measured, never read.
    Some((name, unsafe { detached(view.as_view()) }))
}

/// Checks the arguments of a backward pass.
pub(crate) fn check_backward(plan: &Plan, a: &Backward<'_>, workspace: &Workspace) -> Result<()> {
    let c = checker(plan, true, workspace)?;
    let (desc, op) = (c.desc, c.op());
    c.in_place(&a.data)?;
    let (x, dy) = (("x", a.x), ("dy", a.data.input()));
    c.data(x)?;
    c.data(dy)?;
    let dx = match &a.data {
        Through::Separate(_, dx) => given_one(dx, "dx"),
        _ => None,
    };
    dx.map_or(Ok(()), |dx| c.data(dx))?;
    let needs_preactivation = desc.backward_needs_preactivation();
    let [weight, bias] = c.affine(a.weight, a.bias, needs_preactivation)?;
    let residual = if desc.has_residual() && !needs_preactivation {
        a.residual.map(|r| ("residual", r))
    } else {
        c.wanted(
            "residual",
            a.residual,
            desc.has_residual(),
            "the activation's derivative depends on it",
            "the description has no residual",
        )?
    };
    residual.map_or(Ok(()), |r| c.data(r))?;
    let dresidual = given(&a.dresidual, "dresidual");
    if dresidual.is_some() && !desc.has_residual() {
        return Err(Error::UnexpectedArgument {
            op,
            tensor: "dresidual",
            why: "the description has no residual",
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
            c.running(*mean, *var)?;
            running = [Some(("running_mean", *mean)), Some(("running_var", *var))];
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
    let mean = c.wanted("mean", a.mean, saved && centred, why, mean_why_not)?;
    let rstd = c.wanted("rstd", a.rstd, saved, why, why_not)?;
    c.statistics(a.mean, a.rstd)?;

    let in_place = matches!(a.data, Through::InPlace(_)).then_some(("dx", dy.1));
    let dy = in_place.is_none().then_some(dy);
    c.disjoint(
        &[dx.or(in_place), dweight, dbias, dresidual],
        &[Some(x), dy, weight, bias, residual, running[0], running[1], mean, rstd],
    )
}
