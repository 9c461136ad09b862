use isonorm::cuda::{AnyBuffer, Plan, Stream, Workspace};

use super::{Inputs, Outputs, Save, backward, forward};
use crate::error::{Error, Result};

/// A plan and its tensors in the memory of a GPU.
#[derive(Debug)]
pub(crate) struct GpuCall {
    plan: Plan,
    stream: Stream,
    inputs: Inputs<AnyBuffer>,
    outputs: Outputs<AnyBuffer>,
    momentum: f64,
}

impl GpuCall {
    /// Copies the inputs to the stream's GPU and allocates all that the pass writes there.
    pub(crate) fn new(plan: Plan, stream: &Stream, inputs: &Inputs, save: Save, momentum: f64) -> Result<GpuCall> {
        let blank = Outputs::of(plan.desc(), plan.geometry(), inputs.running.is_some(), save);
        let mut call = GpuCall {
            inputs: inputs.as_ref().try_map(|data| AnyBuffer::upload(stream, data))?,
            outputs: blank.try_map(|(dtype, len)| AnyBuffer::zeros(stream, dtype, len))?,
            plan,
            stream: stream.clone(),
            momentum,
        };
        call.prepare()?;
        Ok(call)
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Carries the same problem out by another plan.
    pub(crate) fn set_plan(&mut self, plan: Plan) {
        debug_assert_eq!(plan.desc(), self.plan.desc());
        self.plan = plan;
    }

    /// Undoes what the last run did to its own inputs: running statistics, and the tensor that it worked over.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        let copy = |from: &AnyBuffer, to: &mut AnyBuffer| self.stream.copy(from.view(), to.view_mut());
        if let (Some(now), Some(before)) = (&mut self.outputs.running, &self.inputs.running) {
            before.iter().zip(now).try_for_each(|(from, to)| copy(from, to))?;
        }
        if self.plan.desc().is_in_place() {
            let over = self.inputs.dy.as_ref().unwrap_or(&self.inputs.x);
            copy(over, &mut self.outputs.main)?;
        }
        Ok(())
    }

    /// Puts the problem into the stream once.
    pub(crate) fn run(&mut self) -> isonorm::Result<()> {
        let GpuCall {
            plan,
            stream,
            inputs,
            outputs,
            momentum,
        } = self;
        match inputs.dy {
            Some(_) => stream.backward(plan, backward(plan.desc(), inputs, outputs), Workspace::Pool),
            None => stream.forward(plan, forward(plan.desc(), inputs, outputs, *momentum), Workspace::Pool),
        }
    }

    /// Puts a copy of the first elements of the input to the output into the stream: bytes without arithmetic.
    pub(crate) fn copy(&mut self, elements: usize) -> isonorm::Result<()> {
        let (from, to) = (self.inputs.x.view(), self.outputs.main.view_mut());
        match (from.get(0..elements), to.get(0..elements)) {
            (Some(from), Some(to)) => self.stream.copy(from, to),
            _ => unreachable!("there are {elements} elements"),
        }
    }

    /// The results, when they are there.
    pub(crate) fn into_outputs(self) -> Result<Outputs> {
        self.outputs.try_map(|buffer| buffer.to_data()).map_err(Error::from)
    }
}
