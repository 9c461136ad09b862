//! The one way from a layer to the engine and back: description, plan, arguments, run.

use super::core::{Core, Parameters};
use super::io::{Gradients, Input, Saved, Statistics};
use crate::{Backward, DType, Error, Forward, NormDesc, Pass, Plan, Result, Tensor, TensorData, View, ViewMut};

/// A tensor like `x` for the engine to fill.
fn like(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::zeros(x.shape(), x.dtype())?.with_layout(x.layout()))
}

/// The arguments of a forward pass that do not depend on where the statistics come from.
fn forward_arguments<'a>(data: Forward<'a>, parameters: &'a Parameters, residual: Option<&'a Tensor>) -> Forward<'a> {
    let mut arguments = data;
    if let Some(weight) = &parameters.weight {
        arguments = arguments.weight(weight.view());
    }
    if let Some(bias) = &parameters.bias {
        arguments = arguments.bias(bias.view());
    }
    if let Some(residual) = residual {
        arguments = arguments.residual(residual.view());
    }
    arguments
}

/// As [`forward_arguments`].
fn backward_arguments<'a>(
    data: Backward<'a>,
    parameters: &'a Parameters,
    residual: Option<&'a Tensor>,
) -> Backward<'a> {
    let mut arguments = data;
    if let Some(weight) = &parameters.weight {
        arguments = arguments.weight(weight.view());
    }
    if let Some(bias) = &parameters.bias {
        arguments = arguments.bias(bias.view());
    }
    if let Some(residual) = residual {
        arguments = arguments.residual(residual.view());
    }
    arguments
}

/// Running mean, running variance and the weight of the new batch.
type Update<'a> = (ViewMut<'a>, ViewMut<'a>, f64);

impl Statistics {
    /// Memory for those of `x`.
    fn for_input(plan: &Plan) -> (Option<TensorData>, TensorData) {
        let (desc, groups) = (plan.desc(), plan.geometry().groups());
        let mean = desc
            .get_norm()
            .is_centred()
            .then(|| TensorData::zeros(DType::F64, groups));
        (mean, TensorData::zeros(desc.get_statistics_dtype(), groups))
    }

    /// What a backward pass needs of them.
    fn give<'a>(&'a self, arguments: Backward<'a>) -> Backward<'a> {
        match self {
            Statistics::OfInput { mean: Some(mean), rstd } => arguments.saved(mean.view(), rstd.view()),
            Statistics::OfInput { mean: None, rstd } => arguments.saved_rstd(rstd.view()),
            Statistics::Running { mean, var } => arguments.running(mean.view(), var.view()),
        }
    }
}

impl Core {
    /// Evaluation, or training's pass for an op that should have running statistics and keeps none.
    fn eval_pass(&self) -> Pass {
        match self.running {
            None if self.config.norm().has_running_statistics() => Pass::Train,
            _ => Pass::Eval,
        }
    }

    fn desc(&self, input: &Input<'_>, pass: Pass) -> Result<NormDesc> {
        self.config.desc(input, self.parameters.affine(), pass)
    }

    fn running_views(&self) -> Option<(View<'_>, View<'_>)> {
        self.running.as_ref().map(|r| (r.mean.view(), r.var.view()))
    }

    /// Runs an evaluation pass over these views.
    fn evaluate(&self, desc: &NormDesc, data: Forward<'_>, residual: Option<&Tensor>) -> Result<()> {
        self.engine.run(desc, |device, plan, workspace| {
            let mut arguments = forward_arguments(data, &self.parameters, residual);
            if let Some((mean, var)) = self.running_views() {
                arguments = arguments.running(mean, var);
            }
            device.forward(plan, arguments, workspace)
        })
    }

    pub(super) fn forward(&self, input: Input<'_>) -> Result<Tensor> {
        let desc = self.desc(&input, self.eval_pass())?;
        let mut y = like(input.x())?;
        self.evaluate(
            &desc,
            Forward::new(input.x().view(), y.view_mut()),
            input.get_residual(),
        )?;
        Ok(y)
    }

    pub(super) fn forward_in_place(&self, x: &mut Tensor) -> Result<()> {
        let pass = self.eval_pass();
        let desc = self.desc(&Input::new(x), pass)?.in_place(true);
        if pass == Pass::Train {
            return Err(Error::InPlace {
                op: desc.op(),
                reason: "evaluation without running statistics uses those of x, by pass=train, which leaves x as it is",
            });
        }
        self.evaluate(&desc, Forward::in_place(x.view_mut()), None)
    }

    pub(super) fn forward_eval(&self, input: Input<'_>) -> Result<(Tensor, Saved)> {
        let Some(running) = &self.running else {
            return self.forward_saving(input, None);
        };
        let y = self.forward(input)?;
        let desc = self.desc(&input, Pass::BackwardEval)?;
        let statistics = Statistics::Running {
            mean: running.mean.clone(),
            var: running.var.clone(),
        };
        Ok((y, Saved { desc, statistics }))
    }

    pub(super) fn forward_train(&mut self, input: Input<'_>) -> Result<(Tensor, Saved)> {
        if !self.config.kind.is_trained() {
            return self.forward_eval(input);
        }
        let momentum = self.config.momentum;
        // Taken out, so that it is free to change while the rest of the layer is shared.
        let mut running = self.running.take();
        let batches = running.as_ref().map(|r| r.batches.saturating_add(1));
        let update = running.as_mut().zip(batches).map(|(r, batches)| {
            let factor = momentum.factor(batches);
            (r.mean.view_mut(), r.var.view_mut(), factor)
        });
        let result = self.forward_saving(input, update);
        if let (Some(running), Some(batches), Ok(_)) = (&mut running, batches, &result) {
            running.batches = batches;
        }
        self.running = running;
        result
    }

    /// Runs a training pass.
    fn forward_saving(&self, input: Input<'_>, update: Option<Update<'_>>) -> Result<(Tensor, Saved)> {
        let desc = self.desc(&input, Pass::Train)?;
        let mut y = like(input.x())?;
        let statistics = self.engine.run(&desc, |device, plan, workspace| {
            let (mut mean, mut rstd) = Statistics::for_input(plan);
            let data = Forward::new(input.x().view(), y.view_mut());
            let mut arguments = forward_arguments(data, &self.parameters, input.get_residual());
            if let Some((mean, var, factor)) = update {
                arguments = arguments.update_running(mean, var, factor);
            }
            arguments = match &mut mean {
                Some(mean) => arguments.save(mean.view_mut(), rstd.view_mut()),
                None => arguments.save_rstd(rstd.view_mut()),
            };
            device.forward(plan, arguments, workspace)?;
            Ok(Statistics::OfInput { mean, rstd })
        })?;
        Ok((
            y,
            Saved {
                desc: desc.pass(Pass::Backward),
                statistics,
            },
        ))
    }

    pub(super) fn backward(&self, input: Input<'_>, dy: &Tensor, saved: &Saved) -> Result<Gradients> {
        let desc = self.desc(&input, saved.desc.get_pass())?;
        if desc != saved.desc {
            let reason = format!("what was saved is for `{}`, not for `{desc}`", saved.desc);
            return Err(Error::PlanMismatch { op: desc.op(), reason });
        }
        let (x, residual) = (input.x(), input.get_residual());
        self.config.check_like(x, "dy", dy)?;
        let mut gradients = Gradients {
            input: like(x)?,
            weight: self.gradient_of(&self.parameters.weight)?,
            bias: self.gradient_of(&self.parameters.bias)?,
            residual: residual.map(like).transpose()?,
        };
        self.engine.run(&desc, |device, plan, workspace| {
            let Gradients {
                input,
                weight,
                bias,
                residual: dresidual,
            } = &mut gradients;
            let data = Backward::new(x.view(), dy.view(), input.view_mut());
            let mut arguments = saved
                .statistics
                .give(backward_arguments(data, &self.parameters, residual));
            if let Some(dweight) = weight {
                arguments = arguments.dweight(dweight.view_mut());
            }
            if let Some(dbias) = bias {
                arguments = arguments.dbias(dbias.view_mut());
            }
            if let Some(dresidual) = dresidual {
                arguments = arguments.dresidual(dresidual.view_mut());
            }
            device.backward(plan, arguments, workspace)
        })?;
        Ok(gradients)
    }

    /// Memory for a parameter's gradient, where it is wanted.
    fn gradient_of(&self, parameter: &Option<Tensor>) -> Result<Option<Tensor>> {
        let trained = parameter.as_ref().filter(|_| self.config.kind.is_trained());
        trained.map(like).transpose()
    }
}
