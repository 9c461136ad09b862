//! The one way from a layer to the engine and back: description, plan, arguments, run.

use super::config::Named;
use super::core::{Core, Parameters};
use super::io::{Gradients, Input, Saved, Statistics};
use crate::{
    Backward, DType, Error, Forward, NormDesc, Pass, Plan, Residual, Result, Tensor, TensorData, View, ViewMut,
};

/// A tensor like `x` for the engine to fill.
pub(super) fn like(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::zeros(x.shape(), x.dtype())?.with_layout(x.layout()))
}

/// The tensors of a forward pass with the layer's parameters.
fn forward_arguments<'a>(data: Forward<'a>, parameters: &'a Parameters) -> Forward<'a> {
    let mut arguments = data;
    if let Some(weight) = &parameters.weight {
        arguments = arguments.weight(weight.view());
    }
    if let Some(bias) = &parameters.bias {
        arguments = arguments.bias(bias.view());
    }
    arguments
}

/// As [`forward_arguments`].
fn backward_arguments<'a>(data: Backward<'a>, parameters: &'a Parameters) -> Backward<'a> {
    let mut arguments = data;
    if let Some(weight) = &parameters.weight {
        arguments = arguments.weight(weight.view());
    }
    if let Some(bias) = &parameters.bias {
        arguments = arguments.bias(bias.view());
    }
    arguments
}

/// The tensors of a forward pass over this input.
fn forward_data<'a>(input: Input<'a>, y: &'a mut Tensor) -> Forward<'a> {
    let data = Forward::new(input.x().view(), y.view_mut());
    match input.get_residual() {
        Some(residual) => data.residual(residual.view()),
        None => data,
    }
}

/// Running mean, running variance and the weight of the new batch.
pub(super) type Update<'a> = (ViewMut<'a>, ViewMut<'a>, f64);

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

    /// The description of a pass that normalizes `x`.
    pub(super) fn desc_of(&self, x: Named<'_>, residual: Residual, pass: Pass) -> Result<NormDesc> {
        self.config.desc(x, residual, self.parameters.affine(), pass)
    }

    /// The description of a pass over this input.
    fn desc(&self, input: Input<'_>, pass: Pass) -> Result<NormDesc> {
        let (x, residual) = (("x", input.x()), input.get_residual());
        let desc = self.desc_of(x, residual.is_some().into(), pass)?;
        if let Some(residual) = residual {
            self.config.check_like(x, ("residual", residual))?;
        }
        Ok(desc)
    }

    fn running_views(&self) -> Option<(View<'_>, View<'_>)> {
        self.running.as_ref().map(|r| (r.mean.view(), r.var.view()))
    }

    /// Runs an evaluation pass over these tensors.
    pub(super) fn evaluate(&self, desc: &NormDesc, data: Forward<'_>) -> Result<()> {
        self.engine.run(desc, |device, plan, workspace| {
            let mut arguments = forward_arguments(data, &self.parameters);
            if let Some((mean, var)) = self.running_views() {
                arguments = arguments.running(mean, var);
            }
            device.forward(plan, arguments, workspace)
        })
    }

    pub(super) fn forward(&self, input: Input<'_>) -> Result<Tensor> {
        let desc = self.desc(input, self.eval_pass())?;
        let mut y = like(input.x())?;
        self.evaluate(&desc, forward_data(input, &mut y))?;
        Ok(y)
    }

    pub(super) fn forward_in_place(&self, x: &mut Tensor) -> Result<()> {
        let pass = self.eval_pass();
        let desc = self.desc(Input::new(x), pass)?.in_place(true);
        if pass == Pass::Train {
            return Err(Error::InPlace {
                op: desc.op(),
                reason: "evaluation without running statistics uses those of x, by pass=train, which leaves x as it is",
            });
        }
        self.evaluate(&desc, Forward::in_place(x.view_mut()))
    }

    pub(super) fn forward_eval(&self, input: Input<'_>) -> Result<(Tensor, Saved)> {
        let Some(running) = &self.running else {
            return self.forward_saving(input, None);
        };
        let y = self.forward(input)?;
        let desc = self.desc(input, Pass::BackwardEval)?;
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

    /// Training's pass over this input.
    fn forward_saving(&self, input: Input<'_>, update: Option<Update<'_>>) -> Result<(Tensor, Saved)> {
        let desc = self.desc(input, Pass::Train)?;
        let mut y = like(input.x())?;
        let saved = self.save(&desc, forward_data(input, &mut y), update)?;
        Ok((y, saved))
    }

    /// Runs a training pass over these tensors.
    pub(super) fn save(&self, desc: &NormDesc, data: Forward<'_>, update: Option<Update<'_>>) -> Result<Saved> {
        let statistics = self.engine.run(desc, |device, plan, workspace| {
            let (mut mean, mut rstd) = Statistics::for_input(plan);
            let mut arguments = forward_arguments(data, &self.parameters);
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
        Ok(Saved {
            desc: desc.pass(Pass::Backward),
            statistics,
        })
    }

    pub(super) fn backward(&self, input: Input<'_>, dy: &Tensor, saved: &Saved) -> Result<Gradients> {
        let desc = self.desc(input, saved.desc.get_pass())?;
        saved.check_for(&desc)?;
        let (x, residual) = (input.x(), input.get_residual());
        self.config.check_like(("x", x), ("dy", dy))?;
        let mut dx = like(x)?;
        let mut dresidual = residual.map(like).transpose()?;
        let mut data = Backward::new(x.view(), dy.view(), dx.view_mut());
        if let (Some(residual), Some(dresidual)) = (residual, &mut dresidual) {
            data = data.residual(residual.view()).dresidual(dresidual.view_mut());
        }
        let (weight, bias) = self.differentiate(&desc, data, saved)?;
        Ok(Gradients {
            input: dx,
            weight,
            bias,
            residual: dresidual,
        })
    }

    /// Runs a backward pass over these tensors; returns the gradients of weight and bias.
    pub(super) fn differentiate(
        &self,
        desc: &NormDesc,
        data: Backward<'_>,
        saved: &Saved,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let mut weight = self.gradient_of(&self.parameters.weight)?;
        let mut bias = self.gradient_of(&self.parameters.bias)?;
        self.engine.run(desc, |device, plan, workspace| {
            let mut arguments = saved.statistics.give(backward_arguments(data, &self.parameters));
            if let Some(dweight) = &mut weight {
                arguments = arguments.dweight(dweight.view_mut());
            }
            if let Some(dbias) = &mut bias {
                arguments = arguments.dbias(dbias.view_mut());
            }
            device.backward(plan, arguments, workspace)
        })?;
        Ok((weight, bias))
    }

    /// Memory for a parameter's gradient, where it is wanted.
    fn gradient_of(&self, parameter: &Option<Tensor>) -> Result<Option<Tensor>> {
        let trained = parameter.as_ref().filter(|_| self.config.kind.is_trained());
        trained.map(like).transpose()
    }
}
