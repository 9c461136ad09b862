//! The kernels of a GPU, run by the interpreter in guarded memory.

use isonorm::cuda::{Interpreter, Moved};
use isonorm::{Error, GpuPlan, NormDesc, Result, Rung};

use super::guard::named;
use super::host::Host;
use super::{BackwardInputs, Engine, ForwardInputs, Outputs, Start, pass};
use crate::Case;

/// [`isonorm::cuda::Interpreter`] as an [`Engine`].
#[derive(Clone, Debug)]
pub struct InterpreterEngine {
    interpreter: Interpreter,
    start: Start,
    alternative: usize,
    moved: Vec<Moved>,
}

impl InterpreterEngine {
    /// This interpreter, with tensors that begin where vectors would like to.
    pub fn new(interpreter: Interpreter) -> InterpreterEngine {
        InterpreterEngine {
            interpreter,
            start: Start::Aligned,
            alternative: 0,
            moved: Vec::new(),
        }
    }

    /// The same with tensors that begin there.
    pub fn starting(self, start: Start) -> InterpreterEngine {
        InterpreterEngine { start, ..self }
    }

    /// The same with another plan than the one that is chosen; what has no such plan is unsupported.
    pub fn alternative(self, alternative: usize) -> InterpreterEngine {
        InterpreterEngine { alternative, ..self }
    }

    /// What kernels have read and written in the last pass, argument by argument.
    pub fn moved(&self) -> &[Moved] {
        &self.moved
    }

    fn plan(&self, desc: &NormDesc) -> Result<GpuPlan> {
        if self.alternative == 0 {
            return self.interpreter.plan(desc);
        }
        let mut plans = self.interpreter.alternatives(desc)?;
        if self.alternative >= plans.len() {
            return Err(Error::Unsupported {
                op: desc.op(),
                pass: desc.get_pass().name(),
                reason: "there are fewer plans".into(),
            });
        }
        Ok(plans.swap_remove(self.alternative))
    }
}

impl InterpreterEngine {
    fn forward_with(&mut self, plan: &GpuPlan, inputs: &ForwardInputs) -> Result<Outputs> {
        pass::forward(&Host(self.start), plan.desc(), inputs, |arguments| {
            self.moved = self.interpreter.forward(plan, arguments)?;
            Ok(())
        })
    }

    fn backward_with(&mut self, plan: &GpuPlan, inputs: &BackwardInputs) -> Result<Outputs> {
        pass::backward(&Host(self.start), plan.desc(), inputs, |arguments| {
            self.moved = self.interpreter.backward(plan, arguments)?;
            Ok(())
        })
    }
}

impl Engine for InterpreterEngine {
    fn name(&self) -> String {
        named(self.interpreter.to_string(), self.start)
    }

    fn handles(&self, case: &Case) -> Result<()> {
        pass::handles(case)
    }

    fn forward(&mut self, desc: &NormDesc, inputs: &ForwardInputs) -> Result<Outputs> {
        self.forward_with(&self.plan(desc)?, inputs)
    }

    fn backward(&mut self, desc: &NormDesc, inputs: &BackwardInputs) -> Result<Outputs> {
        self.backward_with(&self.plan(desc)?, inputs)
    }

    fn forward_by(&mut self, rung: Rung, desc: &NormDesc, inputs: &ForwardInputs) -> Result<Outputs> {
        self.forward_with(&self.interpreter.rung(rung, desc)?, inputs)
    }

    fn backward_by(&mut self, rung: Rung, desc: &NormDesc, inputs: &BackwardInputs) -> Result<Outputs> {
        self.backward_with(&self.interpreter.rung(rung, desc)?, inputs)
    }
}
