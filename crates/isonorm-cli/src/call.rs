//! A problem with all the tensors that it reads and writes, so that it can be carried out again and again.

use isonorm::{Affine, Backward, DType, Device, Forward, NormDesc, Pass, Plan, TensorData, Workspace};

use crate::error::Result;
use crate::memory;

/// What a pass reads. Which of the optional ones it needs is for the library to say.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    pub(crate) x: TensorData,
    /// The gradient of `y`; only a backward pass has it.
    pub(crate) dy: Option<TensorData>,
    pub(crate) weight: Option<TensorData>,
    pub(crate) bias: Option<TensorData>,
    pub(crate) residual: Option<TensorData>,
    /// Running mean and variance.
    pub(crate) running: Option<[TensorData; 2]>,
    /// What the forward pass saved; `None` for RMSNorm's mean.
    pub(crate) saved: [Option<TensorData>; 2],
}

impl Inputs {
    /// Only `x`.
    pub(crate) fn of(x: TensorData) -> Inputs {
        let (dy, weight, bias, residual, running) = (None, None, None, None, None);
        Inputs {
            x,
            dy,
            weight,
            bias,
            residual,
            running,
            saved: [None, None],
        }
    }
}

/// Which statistics a training pass hands out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Save {
    pub(crate) mean: bool,
    pub(crate) rstd: bool,
}

/// What a pass writes.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    /// `y`, or `dx`.
    pub(crate) main: TensorData,
    pub(crate) running: Option<[TensorData; 2]>,
    pub(crate) saved: [Option<TensorData>; 2],
    pub(crate) dweight: Option<TensorData>,
    pub(crate) dbias: Option<TensorData>,
    pub(crate) dresidual: Option<TensorData>,
}

/// A plan, its workspace and its tensors.
#[derive(Debug)]
pub(crate) struct Call {
    plan: Plan,
    workspace: Workspace,
    inputs: Inputs,
    outputs: Outputs,
    momentum: f64,
}

impl Call {
    /// Allocates all that the pass writes.
    pub(crate) fn new(plan: Plan, inputs: Inputs, save: Save, momentum: f64) -> Result<Call> {
        memory::check(output_bytes(&plan))?;
        let (desc, g) = (*plan.desc(), *plan.geometry());
        let backward = desc.get_pass().is_backward();
        let zeros = |wanted: bool, dtype: DType, len: usize| wanted.then(|| TensorData::zeros(dtype, len));
        let parameter = |wanted| zeros(backward && wanted, desc.get_param_dtype(), g.parameters);
        let statistic = |wanted| zeros(wanted && !backward, desc.get_statistics_dtype(), g.groups());
        let outputs = Outputs {
            main: TensorData::zeros(desc.get_dtype(), g.elements()),
            running: inputs.running.clone().filter(|_| desc.get_pass() == Pass::Train),
            saved: [statistic(save.mean), statistic(save.mean || save.rstd)],
            dweight: parameter(desc.get_affine().has_weight()),
            dbias: parameter(desc.get_affine().has_bias()),
            dresidual: zeros(backward && desc.has_residual(), desc.get_dtype(), g.elements()),
        };
        let workspace = Workspace::new(&plan);
        Ok(Call {
            plan,
            workspace,
            inputs,
            outputs,
            momentum,
        })
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn desc(&self) -> &NormDesc {
        self.plan.desc()
    }

    /// The inputs, and the outputs to write over: for what else moves the same bytes.
    pub(crate) fn memory(&mut self) -> (&Inputs, &mut Outputs) {
        (&self.inputs, &mut self.outputs)
    }

    pub(crate) fn into_outputs(self) -> Outputs {
        self.outputs
    }

    /// Undoes what the last run did to its own inputs: running statistics, and the tensor that it worked over.
    pub(crate) fn prepare(&mut self) {
        if let (Some(now), Some(before)) = (&mut self.outputs.running, &self.inputs.running) {
            now.clone_from(before);
        }
        if self.plan.desc().is_in_place() {
            let over = self.inputs.dy.as_ref().unwrap_or(&self.inputs.x);
            self.outputs.main.clone_from(over);
        }
    }

    /// Carries out the problem once.
    pub(crate) fn run(&mut self, device: &Device) -> isonorm::Result<()> {
        match self.inputs.dy {
            Some(_) => self.backward(device),
            None => self.forward(device),
        }
    }

    fn forward(&mut self, device: &Device) -> isonorm::Result<()> {
        let Call {
            plan,
            workspace,
            inputs,
            outputs,
            momentum,
        } = self;
        let mut call = match plan.desc().is_in_place() {
            true => Forward::in_place(&mut outputs.main),
            false => Forward::new(&inputs.x, &mut outputs.main),
        };
        if let Some(weight) = &inputs.weight {
            call = call.weight(weight);
        }
        if let Some(bias) = &inputs.bias {
            call = call.bias(bias);
        }
        if let Some(residual) = &inputs.residual {
            call = call.residual(residual);
        }
        call = match (&mut outputs.running, &inputs.running) {
            (Some([mean, var]), _) => call.update_running(mean, var, *momentum),
            (None, Some([mean, var])) => call.running(mean, var),
            (None, None) => call,
        };
        call = match &mut outputs.saved {
            [Some(mean), Some(rstd)] => call.save(mean, rstd),
            [None, Some(rstd)] => call.save_rstd(rstd),
            _ => call,
        };
        device.forward(plan, call, workspace)
    }

    fn backward(&mut self, device: &Device) -> isonorm::Result<()> {
        let Call {
            plan,
            workspace,
            inputs,
            outputs,
            ..
        } = self;
        let dy = inputs.dy.as_ref().unwrap_or(&inputs.x);
        let mut call = match plan.desc().is_in_place() {
            true => Backward::in_place(&inputs.x, &mut outputs.main),
            false => Backward::new(&inputs.x, dy, &mut outputs.main),
        };
        if let Some(weight) = &inputs.weight {
            call = call.weight(weight);
        }
        if let Some(bias) = &inputs.bias {
            call = call.bias(bias);
        }
        if let Some(residual) = &inputs.residual {
            call = call.residual(residual);
        }
        if let Some([mean, var]) = &inputs.running {
            call = call.running(mean, var);
        }
        call = match &inputs.saved {
            [Some(mean), Some(rstd)] => call.saved(mean, rstd),
            [None, Some(rstd)] => call.saved_rstd(rstd),
            _ => call,
        };
        if let Some(dweight) = &mut outputs.dweight {
            call = call.dweight(dweight);
        }
        if let Some(dbias) = &mut outputs.dbias {
            call = call.dbias(dbias);
        }
        if let Some(dresidual) = &mut outputs.dresidual {
            call = call.dresidual(dresidual);
        }
        device.backward(plan, call, workspace)
    }
}

/// Bytes of all that a pass may write, and of its workspace.
fn output_bytes(plan: &Plan) -> u64 {
    const LARGEST_ELEMENT: usize = DType::F64.bytes();
    let g = plan.geometry();
    let tensors = 2 * g.elements() as u64 * plan.desc().get_dtype().bytes() as u64;
    let small = (g.parameters as u64)
        .saturating_add(g.groups() as u64)
        .saturating_mul(2 * LARGEST_ELEMENT as u64);
    tensors
        .saturating_add(small)
        .saturating_add(plan.workspace_bytes() as u64)
}

/// The mean and rstd that the forward pass of this backward problem would have saved (no mean for RMSNorm).
pub(crate) fn statistics_of(desc: &NormDesc, x: &TensorData, device: &Device) -> Result<[Option<TensorData>; 2]> {
    let plain = NormDesc::new(desc.get_norm(), desc.get_shape())
        .layout(desc.get_layout())
        .dtype(desc.get_dtype())
        .affine(Affine::None)
        .eps(desc.get_eps());
    let save = Save {
        mean: desc.get_norm().is_centred(),
        rstd: true,
    };
    let mut call = Call::new(device.plan(&plain)?, Inputs::of(x.clone()), save, 0.0)?;
    call.run(device)?;
    Ok(call.outputs.saved)
}
