//! The kernels of a GPU, run by the interpreter in guarded memory.

use isonorm::cuda::Interpreter;
use isonorm::{NormDesc, Result};

use super::host::Host;
use super::{BackwardInputs, Engine, ForwardInputs, Outputs, pass};

/// [`isonorm::cuda::Interpreter`] as an [`Engine`].
#[derive(Clone, Debug)]
pub struct InterpreterEngine {
    interpreter: Interpreter,
}

impl InterpreterEngine {
    /// This interpreter.
    pub fn new(interpreter: Interpreter) -> InterpreterEngine {
        InterpreterEngine { interpreter }
    }
}

impl Engine for InterpreterEngine {
    fn name(&self) -> String {
        self.interpreter.to_string()
    }

    fn forward(&mut self, desc: &NormDesc, inputs: &ForwardInputs) -> Result<Outputs> {
        let plan = self.interpreter.plan(desc)?;
        pass::forward(&Host, desc, inputs, |arguments| {
            self.interpreter.forward(&plan, arguments)
        })
    }

    fn backward(&mut self, desc: &NormDesc, inputs: &BackwardInputs) -> Result<Outputs> {
        let plan = self.interpreter.plan(desc)?;
        pass::backward(&Host, desc, inputs, |arguments| {
            self.interpreter.backward(&plan, arguments)
        })
    }
}
