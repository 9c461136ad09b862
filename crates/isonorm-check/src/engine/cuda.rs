//! A GPU, with every tensor guarded in its memory.

use isonorm::cuda::{AnyBuffer, Device, Plan, Stream, View, ViewMut, Workspace};
use isonorm::{NormDesc, Result, Rung};

use super::guard::named;
use super::pass::Memory;
use super::{BackwardInputs, Engine, ForwardInputs, Guarded, Outputs, Start, pass};
use crate::Case;

/// [`isonorm::cuda::Device`] as an [`Engine`]: tensors go there with their margins, and come back with them.
#[derive(Clone, Debug)]
pub struct CudaEngine {
    stream: Stream,
    start: Start,
}

impl CudaEngine {
    /// This GPU, with a stream of its own, and tensors that begin where vectors would like to.
    ///
    /// # Errors
    /// [`isonorm::Error::Driver`].
    pub fn new(device: Device) -> Result<CudaEngine> {
        Ok(CudaEngine {
            stream: device.stream()?,
            start: Start::Aligned,
        })
    }

    /// The same with tensors that begin there.
    pub fn starting(self, start: Start) -> CudaEngine {
        CudaEngine { start, ..self }
    }
}

impl CudaEngine {
    fn forward_with(&self, plan: &Plan, inputs: &ForwardInputs) -> Result<Outputs> {
        pass::forward(self, plan.desc(), inputs, |arguments| {
            self.stream.forward(plan, arguments, Workspace::Pool)
        })
    }

    fn backward_with(&self, plan: &Plan, inputs: &BackwardInputs) -> Result<Outputs> {
        pass::backward(self, plan.desc(), inputs, |arguments| {
            self.stream.backward(plan, arguments, Workspace::Pool)
        })
    }
}

impl Memory for CudaEngine {
    type Held = AnyBuffer;
    type Read<'a> = View<'a>;
    type Write<'a> = ViewMut<'a>;

    fn start(&self) -> Start {
        self.start
    }

    fn hold(&self, guarded: &Guarded) -> Result<AnyBuffer> {
        AnyBuffer::upload(&self.stream, guarded.memory())
    }

    fn read<'a>(guarded: &'a Guarded, held: &'a AnyBuffer) -> View<'a> {
        held.view().get(guarded.inside()).expect("the margins were sent along")
    }

    fn write<'a>(guarded: &'a mut Guarded, held: &'a mut AnyBuffer) -> ViewMut<'a> {
        held.view_mut()
            .get(guarded.inside())
            .expect("the margins were sent along")
    }

    fn fetch(held: &AnyBuffer, guarded: &mut Guarded) -> Result<()> {
        guarded.replace(held.to_data()?);
        Ok(())
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> String {
        named(self.stream.device().to_string(), self.start)
    }

    fn handles(&self, case: &Case) -> Result<()> {
        pass::handles(case)
    }

    fn forward(&mut self, desc: &NormDesc, inputs: &ForwardInputs) -> Result<Outputs> {
        self.forward_with(&self.stream.device().plan(desc)?, inputs)
    }

    fn backward(&mut self, desc: &NormDesc, inputs: &BackwardInputs) -> Result<Outputs> {
        self.backward_with(&self.stream.device().plan(desc)?, inputs)
    }

    fn forward_by(&mut self, rung: Rung, desc: &NormDesc, inputs: &ForwardInputs) -> Result<Outputs> {
        self.forward_with(&self.stream.device().rung(rung, desc)?, inputs)
    }

    fn backward_by(&mut self, rung: Rung, desc: &NormDesc, inputs: &BackwardInputs) -> Result<Outputs> {
        self.backward_with(&self.stream.device().rung(rung, desc)?, inputs)
    }
}
