//! isonorm on a case: all steps forward, then backward.

use anyhow::{Context as _, Result};
use isonorm::{Backward, Device, Forward, Pass, Plan, TensorData, Workspace};

use crate::case::Case;

/// The inputs beside `x` and `dy`; running statistics are updated in place.
struct Inputs {
    weight: Option<TensorData>,
    bias: Option<TensorData>,
    residual: Option<TensorData>,
    running: Option<(TensorData, TensorData)>,
}

/// What the forward pass leaves for the backward pass.
struct Saved {
    mean: Option<TensorData>,
    rstd: Option<TensorData>,
}

impl Inputs {
    fn of(case: &Case<'_>) -> Result<Inputs> {
        let running = case.get("running_mean")?.zip(case.get("running_var")?);
        Ok(Inputs {
            weight: case.get("weight")?,
            bias: case.get("bias")?,
            residual: case.get("residual")?,
            running,
        })
    }
}

impl Saved {
    /// Room for the statistics that a plan's backward pass asks for.
    fn new(plan: &Plan) -> Saved {
        let (desc, groups) = (plan.desc(), plan.geometry().groups());
        let zeros = |wanted: bool| wanted.then(|| TensorData::zeros(desc.get_statistics_dtype(), groups));
        let computed = !desc.uses_running_statistics();
        Saved {
            mean: zeros(computed && desc.get_norm().is_centred()),
            rstd: zeros(computed),
        }
    }
}

fn forward(
    device: &Device,
    case: &Case<'_>,
    batches: &[TensorData],
    inputs: &mut Inputs,
) -> Result<(TensorData, Saved)> {
    let plan = device.plan(&case.desc)?;
    let mut workspace = Workspace::new(&plan);
    let mut y = TensorData::zeros(case.desc.get_dtype(), plan.geometry().elements());
    let mut saved = Saved::new(&plan);
    for step in 0..case.record.steps {
        let mut call = Forward::new(&batches[step % batches.len()], &mut y);
        if let Some(weight) = &inputs.weight {
            call = call.weight(weight);
        }
        if let Some(bias) = &inputs.bias {
            call = call.bias(bias);
        }
        if let Some(residual) = &inputs.residual {
            call = call.residual(residual);
        }
        if let Some((mean, var)) = &mut inputs.running {
            call = if case.record.updates_running {
                call.update_running(mean, var, case.factor(step))
            } else {
                call.running(&*mean, &*var)
            };
        }
        call = match (&mut saved.mean, &mut saved.rstd) {
            (Some(mean), Some(rstd)) => call.save(mean, rstd),
            (None, Some(rstd)) => call.save_rstd(rstd),
            _ => call,
        };
        device.forward(&plan, call, &mut workspace)?;
    }
    Ok((y, saved))
}

fn backward(
    device: &Device,
    case: &Case<'_>,
    x: &TensorData,
    inputs: &Inputs,
    saved: &Saved,
) -> Result<Vec<(&'static str, TensorData)>> {
    let pass = if case.desc.get_pass() == Pass::Eval {
        Pass::BackwardEval
    } else {
        Pass::Backward
    };
    let plan = device.plan(&case.desc.pass(pass))?;
    let mut workspace = Workspace::new(&plan);
    let dy = case.tensor("dy")?;
    let like = |t: &TensorData| TensorData::zeros(t.dtype(), t.len());
    let mut dx = like(&dy);
    let mut dweight = inputs.weight.as_ref().map(like);
    let mut dbias = inputs.bias.as_ref().map(like);
    let mut dresidual = inputs.residual.as_ref().map(like);

    let mut call = Backward::new(x, &dy, &mut dx);
    if let (Some(weight), Some(dweight)) = (&inputs.weight, &mut dweight) {
        call = call.weight(weight).dweight(dweight);
    }
    if let (Some(bias), Some(dbias)) = (&inputs.bias, &mut dbias) {
        call = call.bias(bias).dbias(dbias);
    }
    if let (Some(residual), Some(dresidual)) = (&inputs.residual, &mut dresidual) {
        call = call.residual(residual).dresidual(dresidual);
    }
    if let Some((mean, var)) = &inputs.running
        && case.desc.uses_running_statistics()
    {
        call = call.running(mean, var);
    }
    call = match (&saved.mean, &saved.rstd) {
        (Some(mean), Some(rstd)) => call.saved(mean, rstd),
        (None, Some(rstd)) => call.saved_rstd(rstd),
        _ => call,
    };
    device.backward(&plan, call, &mut workspace)?;
    let optional = [("dweight", dweight), ("dbias", dbias), ("dresidual", dresidual)];
    Ok([("dx", Some(dx))]
        .into_iter()
        .chain(optional)
        .filter_map(|(name, t)| Some((name, t?)))
        .collect())
}

/// The results of a case by name.
pub fn run(device: &Device, case: &Case<'_>) -> Result<Vec<(&'static str, TensorData)>> {
    let batches = case.batches()?;
    let mut inputs = Inputs::of(case)?;
    let (y, saved) = forward(device, case, &batches, &mut inputs)?;
    let last = (case.record.steps + batches.len() - 1) % batches.len().max(1);
    let x = batches.get(last).context("a case has no batch")?;
    let mut results = backward(device, case, x, &inputs, &saved)?;
    results.insert(0, ("y", y));
    if let Some((mean, var)) = inputs.running
        && case.record.updates_running
    {
        results.extend([("running_mean", mean), ("running_var", var)]);
    }
    Ok(results)
}
