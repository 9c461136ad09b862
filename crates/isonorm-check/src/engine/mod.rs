//! [`Engine`]: what can be held against the oracle; [`CpuEngine`], [`CudaEngine`] and, with the feature `interpreter`,
//! `InterpreterEngine`.

mod cpu;
mod cuda;
mod guard;
mod host;
#[cfg(feature = "interpreter")]
mod interpreter;
mod pass;

use std::fmt;

use isonorm::{DType, Error, NormDesc, Pass, Rung, TensorData};
use serde::Serialize;

pub use cpu::CpuEngine;
pub use cuda::CudaEngine;
pub use guard::{Guarded, Start, same_bits};
pub(crate) use guard::{bits, is_poison};
#[cfg(feature = "interpreter")]
pub use interpreter::InterpreterEngine;

use crate::Case;
use crate::data::mask;

/// Running mean and variance.
#[derive(Clone, Debug)]
pub struct Running {
    /// The mean of each channel.
    pub mean: TensorData,
    /// The variance of each channel.
    pub var: TensorData,
}

/// What a forward pass reads.
#[derive(Clone, Debug)]
pub struct ForwardInputs {
    /// The input.
    pub x: TensorData,
    /// The weight, where there is one.
    pub weight: Option<TensorData>,
    /// The bias, where there is one.
    pub bias: Option<TensorData>,
    /// The residual, where there is one: added before the activation, or to `x`.
    pub residual: Option<TensorData>,
    /// Running statistics: to use in evaluation, to update in training.
    pub running: Option<Running>,
    /// The weight of the new statistics in the update.
    pub factor: f64,
    /// The types of the mean and the rstd to save, or of the mean and the variance where only statistics are taken; `None`: neither is
    /// saved.
    pub saved: Option<(DType, DType)>,
}

/// What a backward pass reads.
#[derive(Clone, Debug)]
pub struct BackwardInputs {
    /// The input of the forward pass; where that was a sum, the stream.
    pub x: TensorData,
    /// The gradient of its output.
    pub dy: TensorData,
    /// The weight, where there is one.
    pub weight: Option<TensorData>,
    /// The bias, where there is one.
    pub bias: Option<TensorData>,
    /// The residual, where there is one.
    pub residual: Option<TensorData>,
    /// The mask of a ReLU, where there is one: a bit for each element.
    pub mask: Option<TensorData>,
    /// The result of a ReLU, where that is read.
    pub result: Option<TensorData>,
    /// The gradient that the residual stream has besides, where there is one.
    pub dstream: Option<TensorData>,
    /// Running statistics, where the forward pass used them.
    pub running: Option<Running>,
    /// The means of g and of g·x̂, where they are told.
    pub means: Option<[TensorData; 2]>,
    /// The saved mean, where there is one.
    pub mean: Option<TensorData>,
    /// The saved rstd, where there is one.
    pub rstd: Option<TensorData>,
    /// Whether dx is left out.
    pub without_dx: bool,
    /// Whether the gradients of weight and bias are left out.
    pub without_dweight: bool,
}

impl BackwardInputs {
    /// Where dy passes a ReLU, if a mask or its result says so.
    pub fn passes(&self) -> Option<Vec<bool>> {
        match (&self.mask, &self.result) {
            (Some(mask), _) => Some(mask::to_bits(mask, self.x.len())),
            (None, Some(y)) => Some(y.to_f64().into_iter().map(|y| y != 0.0).collect()),
            (None, None) => None,
        }
    }
}

/// A tensor that a pass writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names of the field")]
pub enum Output {
    Y,
    Mask,
    Stream,
    Mean,
    Rstd,
    Var,
    RunningMean,
    RunningVar,
    Dx,
    Dweight,
    Dbias,
    Dresidual,
}

impl Output {
    /// The name of the argument.
    pub const fn name(self) -> &'static str {
        match self {
            Output::Y => "y",
            Output::Mask => "mask",
            Output::Stream => "stream",
            Output::Mean => "mean",
            Output::Rstd => "rstd",
            Output::Var => "var",
            Output::RunningMean => "running_mean",
            Output::RunningVar => "running_var",
            Output::Dx => "dx",
            Output::Dweight => "dweight",
            Output::Dbias => "dbias",
            Output::Dresidual => "dresidual",
        }
    }

    /// Whether it has a value for each element of the input, not for each group, channel or parameter.
    pub const fn is_elementwise(self) -> bool {
        matches!(
            self,
            Output::Y | Output::Mask | Output::Stream | Output::Dx | Output::Dresidual
        )
    }

    /// The outputs that this description has.
    pub fn of(desc: &NormDesc) -> Vec<Output> {
        let (norm, affine) = (desc.get_norm(), desc.get_affine());
        let (train, moments) = (desc.get_pass() == Pass::Train, desc.get_pass() == Pass::Moments);
        let running = train && norm.has_running_statistics();
        let backward = desc.get_pass().is_backward();
        [
            (Output::Y, !backward && !moments),
            (Output::Mask, !backward && desc.has_mask()),
            (Output::Stream, !backward && desc.has_stream()),
            (Output::Mean, train && norm.is_centred() || moments),
            (Output::Rstd, train),
            (Output::Var, moments),
            (Output::RunningMean, running),
            (Output::RunningVar, running),
            (Output::Dx, backward),
            (Output::Dweight, backward && affine.has_weight()),
            (Output::Dbias, backward && affine.has_bias()),
            (Output::Dresidual, backward && desc.has_residual()),
        ]
        .into_iter()
        .filter_map(|(output, has)| has.then_some(output))
        .collect()
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that an engine did to memory that was not its to touch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Fault {
    /// It wrote before or behind a tensor.
    OutOfBounds {
        /// The tensor's name.
        tensor: &'static str,
    },
    /// It changed an input.
    InputChanged {
        /// The tensor's name.
        tensor: &'static str,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::OutOfBounds { tensor } => write!(f, "wrote outside of {tensor}"),
            Fault::InputChanged { tensor } => write!(f, "changed {tensor}, an input"),
        }
    }
}

/// What a pass wrote. Of a mask 1 for each element that has a bit, and 0 for others, in the data's type.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// Every output, whole.
    pub tensors: Vec<(Output, TensorData)>,
    /// What else happened to memory, as far as the engine can tell.
    pub faults: Vec<Fault>,
}

impl Outputs {
    /// One output.
    pub fn get(&self, output: Output) -> Option<&TensorData> {
        self.tensors.iter().find_map(|(o, data)| (*o == output).then_some(data))
    }
}

/// Something that carries out descriptions.
pub trait Engine {
    /// Its name in reports.
    fn name(&self) -> String;

    /// Whether it says of itself that it does this case justice; such a case is skipped, by reason.
    ///
    /// # Errors
    /// [`Error::Unsupported`], where it does not.
    fn handles(&self, _case: &Case) -> isonorm::Result<()> {
        Ok(())
    }

    /// A forward pass. All of [`Output::of`] the description are wanted, but for the saved statistics where
    /// [`ForwardInputs::saved`] is `None` and the running ones where [`ForwardInputs::running`] is.
    ///
    /// # Errors
    /// What the engine refuses with.
    fn forward(&mut self, desc: &NormDesc, inputs: &ForwardInputs) -> isonorm::Result<Outputs>;

    /// A backward pass. All of [`Output::of`] the description are wanted, but for those that the inputs say are left out.
    ///
    /// # Errors
    /// What the engine refuses with.
    fn backward(&mut self, desc: &NormDesc, inputs: &BackwardInputs) -> isonorm::Result<Outputs>;

    /// A forward pass by a rung of the ladder.
    ///
    /// # Errors
    /// What the engine refuses with; it may have none.
    fn forward_by(&mut self, rung: Rung, desc: &NormDesc, _: &ForwardInputs) -> isonorm::Result<Outputs> {
        Err(no_rung(rung, desc))
    }

    /// A backward pass by a rung of the ladder.
    ///
    /// # Errors
    /// As [`forward_by`](Engine::forward_by).
    fn backward_by(&mut self, rung: Rung, desc: &NormDesc, _: &BackwardInputs) -> isonorm::Result<Outputs> {
        Err(no_rung(rung, desc))
    }
}

fn no_rung(rung: Rung, desc: &NormDesc) -> Error {
    Error::Unsupported {
        op: desc.op(),
        pass: desc.get_pass().name(),
        reason: format!("{rung} is a kernel of GPUs"),
    }
}
