use isonorm::{Affine, DType, Device, NormDesc, Plan, TensorData, Workspace};

use super::{Inputs, Outputs, Save, backward, forward};
use crate::error::{Error, Result};
use crate::memory;

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
        let blank = Outputs::of(plan.desc(), plan.geometry(), inputs.running.is_some(), save);
        let zeros = |(dtype, len)| Ok::<_, Error>(TensorData::zeros(dtype, len));
        let mut outputs = blank.try_map(zeros)?;
        if let (Some(now), Some(before)) = (&mut outputs.running, &inputs.running) {
            now.clone_from(before);
        }
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
        let Call {
            plan,
            workspace,
            inputs,
            outputs,
            momentum,
        } = self;
        match inputs.dy {
            Some(_) => device.backward(plan, backward(plan.desc(), inputs, outputs), workspace),
            None => device.forward(plan, forward(plan.desc(), inputs, outputs, *momentum), workspace),
        }
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
