//! A pass over guarded tensors, wherever they are: inputs placed, arguments collected, results fetched and looked at.

use isonorm::{BackwardArguments, DType, Error, ForwardArguments, Geometry, NormDesc, Pass, Result, TensorData};

use super::{BackwardInputs, Fault, ForwardInputs, Guarded, Output, Outputs, Running, Start, guard::same_bits};
use crate::data::mask;
use crate::{Case, Data};

/// The kernels of a GPU square in `f32`: distances from 2⁶⁴ on overflow, and rstd is 0.
pub(super) fn handles(case: &Case) -> Result<()> {
    if case.data != Data::Huge || case.desc.get_dtype() == DType::F16 {
        return Ok(());
    }
    Err(Error::Unsupported {
        op: case.desc.op(),
        pass: case.desc.get_pass().name(),
        reason: "squares of numbers from 2⁶⁴ on overflow f32 in its kernels".into(),
    })
}

/// Memory that an engine works on. The host has a guarded copy of every tensor.
pub(super) trait Memory {
    /// A tensor there, with its margins.
    type Held;
    /// How it is named to be read.
    type Read<'a>;
    /// How it is named to be written.
    type Write<'a>;

    /// Where tensors begin.
    fn start(&self) -> Start;

    /// Places a tensor.
    fn hold(&self, guarded: &Guarded) -> Result<Self::Held>;

    /// Names it, without its margins.
    fn read<'a>(guarded: &'a Guarded, held: &'a Self::Held) -> Self::Read<'a>;

    /// Names it, without its margins.
    fn write<'a>(guarded: &'a mut Guarded, held: &'a mut Self::Held) -> Self::Write<'a>;

    /// Brings the host's copy up to date.
    fn fetch(held: &Self::Held, guarded: &mut Guarded) -> Result<()>;
}

/// A guarded tensor, and what it has to be afterwards when it is an input.
struct Tensor<'a, M: Memory> {
    name: &'static str,
    guarded: Guarded,
    held: M::Held,
    original: Option<&'a TensorData>,
}

impl<'a, M: Memory> Tensor<'a, M> {
    fn read(&self) -> M::Read<'_> {
        M::read(&self.guarded, &self.held)
    }

    fn write(&mut self) -> M::Write<'_> {
        M::write(&mut self.guarded, &mut self.held)
    }

    fn fault(&self) -> Option<Fault> {
        let tensor = self.name;
        if !self.guarded.is_intact() {
            return Some(Fault::OutOfBounds { tensor });
        }
        let original = self.original?;
        (!same_bits(&self.guarded.contents(), original)).then_some(Fault::InputChanged { tensor })
    }
}

/// Makes tensors in a memory.
struct Maker<'m, M>(&'m M);

impl<M: Memory> Maker<'_, M> {
    fn tensor<'a>(
        &self,
        name: &'static str,
        guarded: Guarded,
        original: Option<&'a TensorData>,
    ) -> Result<Tensor<'a, M>> {
        Ok(Tensor {
            name,
            held: self.0.hold(&guarded)?,
            guarded,
            original,
        })
    }

    fn input<'a>(&self, name: &'static str, data: &'a TensorData) -> Result<Tensor<'a, M>> {
        self.tensor(name, Guarded::copy(data, self.0.start()), Some(data))
    }

    fn optional<'a>(&self, name: &'static str, data: &'a Option<TensorData>) -> Result<Option<Tensor<'a, M>>> {
        data.as_ref().map(|data| self.input(name, data)).transpose()
    }

    fn output<'a>(&self, output: Output, dtype: DType, len: usize) -> Result<Tensor<'a, M>> {
        self.tensor(output.name(), Guarded::unwritten(dtype, len, self.0.start()), None)
    }

    /// A tensor that is read and then written over, or one that is only read.
    fn given<'a>(&self, name: &'static str, data: &'a TensorData, written: bool) -> Result<Tensor<'a, M>> {
        self.tensor(name, Guarded::copy(data, self.0.start()), (!written).then_some(data))
    }

    fn running<'a>(&self, running: &'a Option<Running>, written: bool) -> Result<Option<[Tensor<'a, M>; 2]>> {
        let Some(Running { mean, var }) = running else {
            return Ok(None);
        };
        Ok(Some([
            self.given("running_mean", mean, written)?,
            self.given("running_var", var, written)?,
        ]))
    }
}

/// Sets arguments that may be absent.
macro_rules! given {
    ($arguments:ident, $($method:ident: $tensor:expr),*) => {
        $(if let Some(tensor) = $tensor {
            $arguments = $arguments.$method(tensor);
        })*
    };
}

/// Fetches what was written and what should not have been.
fn outputs<'d, M: Memory>(
    written: Vec<(Output, &mut Tensor<'d, M>)>,
    read: Vec<&mut Tensor<'d, M>>,
    elements: usize,
) -> Result<Outputs> {
    let mut outputs = Outputs::default();
    for (output, tensor) in written {
        M::fetch(&tensor.held, &mut tensor.guarded)?;
        outputs.faults.extend(tensor.fault());
        let contents = tensor.guarded.contents();
        outputs.tensors.push(match output {
            Output::Mask => (output, mask::to_numbers(&contents, elements)),
            _ => (output, contents),
        });
    }
    for tensor in read {
        M::fetch(&tensor.held, &mut tensor.guarded)?;
        outputs.faults.extend(tensor.fault());
    }
    Ok(outputs)
}

/// The arguments of a forward pass in a memory.
type Forward<'a, M> = ForwardArguments<<M as Memory>::Read<'a>, <M as Memory>::Write<'a>>;
/// The arguments of a backward pass in a memory.
type Backward<'a, M> = BackwardArguments<<M as Memory>::Read<'a>, <M as Memory>::Write<'a>>;

/// A forward pass: `run` is the engine's.
pub(super) fn forward<M: Memory>(
    memory: &M,
    desc: &NormDesc,
    inputs: &ForwardInputs,
    run: impl FnOnce(Forward<'_, M>) -> Result<()>,
) -> Result<Outputs> {
    let make = Maker(memory);
    let groups = Geometry::of(desc)?.groups();
    let in_place = desc.is_in_place();
    let updates = !desc.uses_running_statistics();
    let moments = desc.get_pass() == Pass::Moments;
    let mut x = make.given("x", &inputs.x, in_place)?;
    let mut y = make.output(Output::Y, desc.get_dtype(), inputs.x.len())?;
    let mut weight = make.optional("weight", &inputs.weight)?;
    let mut bias = make.optional("bias", &inputs.bias)?;
    let mut residual = make.optional("residual", &inputs.residual)?;
    // In place the stream overwrites the residual as well.
    let residual_data = inputs.residual.as_ref().filter(|_| desc.has_stream() && in_place);
    let mut mask = make.output(Output::Mask, desc.get_dtype(), desc.mask_elements())?;
    let mut stream = match residual_data {
        Some(residual) => make.given("residual", residual, true)?,
        None => make.output(Output::Stream, desc.get_dtype(), inputs.x.len())?,
    };
    let mut running = make.running(&inputs.running, updates)?;
    let statistic = |output, dtype: Option<DType>| dtype.map(|t| make.output(output, t, groups)).transpose();
    let centred = desc.get_norm().is_centred();
    let mut mean = statistic(Output::Mean, inputs.saved.map(|s| s.0).filter(|_| centred))?;
    let scale = if moments { Output::Var } else { Output::Rstd };
    let mut rstd = statistic(scale, inputs.saved.map(|s| s.1))?;

    let mut arguments = match (in_place, moments) {
        (true, _) => Forward::<M>::in_place(x.write()),
        (_, true) => Forward::<M>::without_y(x.read()),
        _ => Forward::<M>::new(x.read(), y.write()),
    };
    given!(arguments, weight: weight.as_ref().map(Tensor::read), bias: bias.as_ref().map(Tensor::read));
    arguments = match &residual {
        Some(residual) if !desc.has_stream() => arguments.residual(residual.read()),
        Some(_) if in_place => arguments.stream_in_place(stream.write()),
        Some(residual) => arguments.stream(residual.read(), stream.write()),
        None => arguments,
    };
    if desc.has_mask() {
        arguments = arguments.save_mask(mask.write());
    }
    if let Some([mean, var]) = &mut running {
        arguments = if updates {
            arguments.update_running(mean.write(), var.write(), inputs.factor)
        } else {
            arguments.running(mean.read(), var.read())
        };
    }
    arguments = match (moments, &mut mean, &mut rstd) {
        (true, Some(mean), Some(var)) => arguments.save_variance(mean.write(), var.write()),
        (_, Some(mean), Some(rstd)) => arguments.save(mean.write(), rstd.write()),
        (_, _, Some(rstd)) => arguments.save_rstd(rstd.write()),
        _ => arguments,
    };
    run(arguments)?;

    let mut written = Vec::new();
    let mut read: Vec<_> = [&mut weight, &mut bias, &mut residual].into_iter().flatten().collect();
    match (in_place, moments) {
        (true, _) => written.push((Output::Y, &mut x)),
        // Nothing may write it, whatever that would be.
        (_, true) => read.extend([&mut x, &mut y]),
        _ => {
            written.push((Output::Y, &mut y));
            read.push(&mut x);
        }
    }
    if desc.has_mask() {
        written.push((Output::Mask, &mut mask));
    }
    if desc.has_stream() {
        written.push((Output::Stream, &mut stream));
    }
    if let Some([mean, var]) = &mut running {
        if updates {
            written.extend([(Output::RunningMean, mean), (Output::RunningVar, var)]);
        } else {
            read.extend([mean, var]);
        }
    }
    written.extend(mean.as_mut().map(|m| (Output::Mean, m)));
    written.extend(rstd.as_mut().map(|r| (scale, r)));
    outputs(written, read, inputs.x.len())
}

/// A backward pass: `run` is the engine's.
pub(super) fn backward<M: Memory>(
    memory: &M,
    desc: &NormDesc,
    inputs: &BackwardInputs,
    run: impl FnOnce(Backward<'_, M>) -> Result<()>,
) -> Result<Outputs> {
    let make = Maker(memory);
    let parameters = Geometry::of(desc)?.parameters;
    let in_place = desc.is_in_place();
    let mut x = make.input("x", &inputs.x)?;
    let mut dy = make.given("dy", &inputs.dy, in_place)?;
    let like_x = |output| make.output(output, desc.get_dtype(), inputs.x.len());
    let (mut dx, mut dresidual) = (like_x(Output::Dx)?, like_x(Output::Dresidual)?);
    let mut weight = make.optional("weight", &inputs.weight)?;
    let mut bias = make.optional("bias", &inputs.bias)?;
    let mut residual = make.optional("residual", &inputs.residual)?;
    let mut mask = make.optional("mask", &inputs.mask)?;
    let mut result = make.optional("y", &inputs.result)?;
    let mut dstream = make.optional("dstream", &inputs.dstream)?;
    let mut running = make.running(&inputs.running, false)?;
    let told = |k: usize, name| {
        inputs
            .means
            .as_ref()
            .map(|means| make.input(name, &means[k]))
            .transpose()
    };
    let mut means = [told(0, "mean_g")?, told(1, "mean_gx")?];
    let mut mean = make.optional("mean", &inputs.mean)?;
    let mut rstd = make.optional("rstd", &inputs.rstd)?;
    let gradient = |output, has: bool| {
        (has && !inputs.without_dweight)
            .then(|| make.output(output, desc.get_param_dtype(), parameters))
            .transpose()
    };
    let mut dweight = gradient(Output::Dweight, desc.get_affine().has_weight())?;
    let mut dbias = gradient(Output::Dbias, desc.get_affine().has_bias())?;

    let mut arguments = match (inputs.without_dx, in_place) {
        (true, _) => Backward::<M>::without_dx(x.read(), dy.read()),
        (false, true) => Backward::<M>::in_place(x.read(), dy.write()),
        (false, false) => Backward::<M>::new(x.read(), dy.read(), dx.write()),
    };
    given!(arguments, weight: weight.as_ref().map(Tensor::read), bias: bias.as_ref().map(Tensor::read),
        residual: residual.as_ref().map(Tensor::read), mask: mask.as_ref().map(Tensor::read), result: result.as_ref().map(Tensor::read), dstream: dstream.as_ref().map(Tensor::read), dweight: dweight.as_mut().map(Tensor::write),
        dbias: dbias.as_mut().map(Tensor::write));
    if let Some([mean, var]) = &running {
        arguments = arguments.running(mean.read(), var.read());
    }
    if let [Some(g), Some(gx)] = &means {
        arguments = arguments.means(g.read(), gx.read());
    }
    arguments = match (&mean, &rstd) {
        (Some(mean), Some(rstd)) => arguments.saved(mean.read(), rstd.read()),
        (_, Some(rstd)) => arguments.saved_rstd(rstd.read()),
        _ => arguments,
    };
    if desc.has_residual() {
        arguments = arguments.dresidual(dresidual.write());
    }
    run(arguments)?;

    let optional = [
        &mut weight,
        &mut bias,
        &mut residual,
        &mut mask,
        &mut result,
        &mut dstream,
        &mut mean,
        &mut rstd,
    ];
    let mut read: Vec<_> = optional.into_iter().flatten().chain([&mut x]).collect();
    read.extend(running.iter_mut().flatten());
    read.extend(means.iter_mut().flatten());
    let mut written = Vec::new();
    match (inputs.without_dx, in_place) {
        // Nothing may write it, whatever that would be.
        (true, _) => read.extend([&mut dx, &mut dy]),
        (false, true) => written.push((Output::Dx, &mut dy)),
        (false, false) => {
            written.push((Output::Dx, &mut dx));
            read.push(&mut dy);
        }
    }
    written.extend(dweight.as_mut().map(|w| (Output::Dweight, w)));
    written.extend(dbias.as_mut().map(|b| (Output::Dbias, b)));
    if desc.has_residual() {
        written.push((Output::Dresidual, &mut dresidual));
    }
    outputs(written, read, inputs.x.len())
}
