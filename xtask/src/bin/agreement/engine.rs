//! isonorm on a case: all steps forward, then backward.

use anyhow::{Context as _, Result};
use isonorm::{Pass, TensorData};
use isonorm_check::{BackwardInputs, Engine, ForwardInputs, Output, Running};

use crate::case::Case;

fn running(case: &Case<'_>) -> Result<Option<Running>> {
    let both = case.get("running_mean")?.zip(case.get("running_var")?);
    Ok(both.map(|(mean, var)| Running { mean, var }))
}

/// The results of a case by name.
pub fn run(engine: &mut dyn Engine, case: &Case<'_>) -> Result<Vec<(&'static str, TensorData)>> {
    let desc = &case.desc;
    let batches = case.batches()?;
    let computed = !desc.uses_running_statistics();
    let statistics = desc.get_statistics_dtype();
    let mut inputs = ForwardInputs {
        x: batches.first().context("a case has no batch")?.clone(),
        weight: case.get("weight")?,
        bias: case.get("bias")?,
        residual: case.get("residual")?,
        running: running(case)?,
        factor: 0.0,
        saved: computed.then_some((statistics, statistics)),
    };
    let mut results = Vec::new();
    for step in 0..case.record.steps {
        inputs.x.clone_from(&batches[step % batches.len()]);
        inputs.factor = case.factor(step);
        let outputs = engine.forward(desc, &inputs)?;
        let new = |output| outputs.get(output).cloned();
        if let Some((mean, var)) = new(Output::RunningMean).zip(new(Output::RunningVar)) {
            inputs.running = Some(Running { mean, var });
        }
        results = outputs.tensors;
    }
    let take = |results: &mut Vec<(Output, TensorData)>, output| {
        let at = results.iter().position(|(o, _)| *o == output)?;
        Some(results.swap_remove(at).1)
    };
    let backward = BackwardInputs {
        mean: take(&mut results, Output::Mean),
        rstd: take(&mut results, Output::Rstd),
        dy: case.tensor("dy")?,
        weight: inputs.weight,
        bias: inputs.bias,
        residual: inputs.residual,
        mask: None,
        result: None,
        dstream: None,
        running: inputs.running.filter(|_| !computed),
        x: inputs.x,
        without_dx: false,
        without_dweight: false,
        means: None,
    };
    let pass = match desc.get_pass() {
        Pass::Eval => Pass::BackwardEval,
        _ => Pass::Backward,
    };
    results.extend(engine.backward(&desc.pass(pass), &backward)?.tensors);
    Ok(results
        .into_iter()
        .map(|(output, values)| (output.name(), values))
        .collect())
}
