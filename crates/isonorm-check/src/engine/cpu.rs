//! The CPU engine of isonorm, in guarded memory.

use isonorm::{
    Backward, CpuProperties, DType, Device, Forward, Geometry, Isa, NormDesc, Plan, Result, TensorData, View, ViewMut,
    Workspace,
};

use super::{BackwardInputs, Engine, Fault, ForwardInputs, Guarded, Output, Outputs, Running, guard::same_bits};

/// [`isonorm::Device`] as an [`Engine`]. Every tensor lies between margins, outputs are poisoned before each pass, and
/// inputs are compared with what they were.
#[derive(Clone, Debug)]
pub struct CpuEngine {
    device: Device,
    /// What plans are made for, when it is another processor than the device.
    properties: Option<CpuProperties>,
}

/// A guarded tensor, and what it has to be afterwards when it is an input.
struct Tensor<'a> {
    name: &'static str,
    guarded: Guarded,
    original: Option<&'a TensorData>,
}

impl<'a> Tensor<'a> {
    fn input(name: &'static str, data: &'a TensorData) -> Tensor<'a> {
        Tensor {
            name,
            guarded: Guarded::copy(data),
            original: Some(data),
        }
    }

    fn optional(name: &'static str, data: &'a Option<TensorData>) -> Option<Tensor<'a>> {
        data.as_ref().map(|data| Tensor::input(name, data))
    }

    fn output(output: Output, dtype: DType, len: usize) -> Tensor<'static> {
        Tensor {
            name: output.name(),
            guarded: Guarded::unwritten(dtype, len),
            original: None,
        }
    }

    /// A tensor that is read and then written over.
    fn overwritten(name: &'static str, data: &TensorData) -> Tensor<'static> {
        Tensor {
            name,
            guarded: Guarded::copy(data),
            original: None,
        }
    }

    fn running(running: &'a Option<Running>, written: bool) -> Option<[Tensor<'a>; 2]> {
        running.as_ref().map(|r| {
            [("running_mean", &r.mean), ("running_var", &r.var)].map(|(name, data)| {
                if written {
                    Tensor::overwritten(name, data)
                } else {
                    Tensor::input(name, data)
                }
            })
        })
    }

    fn view(&self) -> View<'_> {
        self.guarded.view()
    }

    fn view_mut(&mut self) -> ViewMut<'_> {
        self.guarded.view_mut()
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

/// Sets arguments that may be absent.
macro_rules! given {
    ($arguments:ident, $($method:ident: $tensor:expr),*) => {
        $(if let Some(tensor) = $tensor {
            $arguments = $arguments.$method(tensor);
        })*
    };
}

impl CpuEngine {
    /// This device.
    pub fn new(device: Device) -> CpuEngine {
        CpuEngine {
            device,
            properties: None,
        }
    }

    /// The same, with plans for a processor with these properties: with such caches, say, that results go past them.
    pub fn planning_for(self, properties: CpuProperties) -> CpuEngine {
        CpuEngine {
            properties: Some(properties),
            ..self
        }
    }

    fn plan(&self, desc: &NormDesc) -> Result<Plan> {
        match &self.properties {
            Some(properties) => Plan::new(desc, properties),
            None => self.device.plan(desc),
        }
    }

    /// The CPU with every vector width that this machine has, with one thread and with three.
    pub fn all() -> Vec<CpuEngine> {
        [1, 3]
            .into_iter()
            .flat_map(|threads| {
                let device = Device::cpu_with_threads(threads);
                Isa::ALL.into_iter().filter_map(move |isa| device.with_isa(isa))
            })
            .map(CpuEngine::new)
            .collect()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

fn outputs(written: Vec<(Output, &Tensor<'_>)>, read: &[Option<&Tensor<'_>>]) -> Outputs {
    let all = written.iter().map(|(_, t)| *t);
    let faults = all
        .chain(read.iter().flatten().copied())
        .filter_map(Tensor::fault)
        .collect();
    let tensors = written
        .iter()
        .map(|(output, t)| (*output, t.guarded.contents()))
        .collect();
    Outputs { tensors, faults }
}

impl Engine for CpuEngine {
    fn name(&self) -> String {
        self.device.to_string()
    }

    fn forward(&mut self, desc: &NormDesc, inputs: &ForwardInputs) -> Result<Outputs> {
        let plan = self.plan(desc)?;
        let mut workspace = Workspace::new(&plan);
        let groups = Geometry::of(desc)?.groups();

        let mut x = Tensor::input("x", &inputs.x);
        let mut y = Tensor::output(Output::Y, desc.get_dtype(), inputs.x.len());
        let weight = Tensor::optional("weight", &inputs.weight);
        let bias = Tensor::optional("bias", &inputs.bias);
        let residual = Tensor::optional("residual", &inputs.residual);
        let updates = !desc.uses_running_statistics();
        let mut running = Tensor::running(&inputs.running, updates);
        let centred = desc.get_norm().is_centred();
        let (mean_type, rstd_type) = (inputs.saved.map(|s| s.0), inputs.saved.map(|s| s.1));
        let mut mean = mean_type
            .filter(|_| centred)
            .map(|t| Tensor::output(Output::Mean, t, groups));
        let mut rstd = rstd_type.map(|t| Tensor::output(Output::Rstd, t, groups));

        if desc.is_in_place() {
            x.original = None;
        }
        let mut arguments = if desc.is_in_place() {
            Forward::in_place(x.view_mut())
        } else {
            Forward::new(x.view(), y.view_mut())
        };
        given!(arguments, weight: weight.as_ref().map(Tensor::view), bias: bias.as_ref().map(Tensor::view),
            residual: residual.as_ref().map(Tensor::view));
        if let Some([mean, var]) = &mut running {
            arguments = if updates {
                arguments.update_running(mean.view_mut(), var.view_mut(), inputs.factor)
            } else {
                arguments.running(mean.view(), var.view())
            };
        }
        arguments = match (&mut mean, &mut rstd) {
            (Some(mean), Some(rstd)) => arguments.save(mean.view_mut(), rstd.view_mut()),
            (_, Some(rstd)) => arguments.save_rstd(rstd.view_mut()),
            _ => arguments,
        };
        self.device.forward(&plan, arguments, &mut workspace)?;

        let mut written = vec![(Output::Y, if desc.is_in_place() { &x } else { &y })];
        let mut read = vec![weight.as_ref(), bias.as_ref(), residual.as_ref()];
        if !desc.is_in_place() {
            read.push(Some(&x));
        }
        if let Some([mean, var]) = &running {
            if updates {
                written.extend([(Output::RunningMean, mean), (Output::RunningVar, var)]);
            } else {
                read.extend([Some(mean), Some(var)]);
            }
        }
        written.extend(mean.as_ref().map(|m| (Output::Mean, m)));
        written.extend(rstd.as_ref().map(|r| (Output::Rstd, r)));
        Ok(outputs(written, &read))
    }

    fn backward(&mut self, desc: &NormDesc, inputs: &BackwardInputs) -> Result<Outputs> {
        let plan = self.plan(desc)?;
        let mut workspace = Workspace::new(&plan);
        let parameters = Geometry::of(desc)?.parameters;

        let x = Tensor::input("x", &inputs.x);
        let mut dy = Tensor::input("dy", &inputs.dy);
        let [mut dx, mut dresidual] =
            [Output::Dx, Output::Dresidual].map(|output| Tensor::output(output, desc.get_dtype(), inputs.x.len()));
        let weight = Tensor::optional("weight", &inputs.weight);
        let bias = Tensor::optional("bias", &inputs.bias);
        let residual = Tensor::optional("residual", &inputs.residual);
        let running = Tensor::running(&inputs.running, false);
        let mean = Tensor::optional("mean", &inputs.mean);
        let rstd = Tensor::optional("rstd", &inputs.rstd);
        let gradient = |output| Tensor::output(output, desc.get_param_dtype(), parameters);
        let affine = desc.get_affine();
        let mut dweight = affine.has_weight().then(|| gradient(Output::Dweight));
        let mut dbias = affine.has_bias().then(|| gradient(Output::Dbias));

        if desc.is_in_place() {
            dy.original = None;
        }
        let mut arguments = if desc.is_in_place() {
            Backward::in_place(x.view(), dy.view_mut())
        } else {
            Backward::new(x.view(), dy.view(), dx.view_mut())
        };
        given!(arguments, weight: weight.as_ref().map(Tensor::view), bias: bias.as_ref().map(Tensor::view),
            residual: residual.as_ref().map(Tensor::view), dweight: dweight.as_mut().map(Tensor::view_mut),
            dbias: dbias.as_mut().map(Tensor::view_mut));
        if let Some([mean, var]) = &running {
            arguments = arguments.running(mean.view(), var.view());
        }
        arguments = match (&mean, &rstd) {
            (Some(mean), Some(rstd)) => arguments.saved(mean.view(), rstd.view()),
            (_, Some(rstd)) => arguments.saved_rstd(rstd.view()),
            _ => arguments,
        };
        if desc.has_residual() {
            arguments = arguments.dresidual(dresidual.view_mut());
        }
        self.device.backward(&plan, arguments, &mut workspace)?;

        let mut read = vec![Some(&x), weight.as_ref(), bias.as_ref(), residual.as_ref()];
        read.extend([mean.as_ref(), rstd.as_ref()]);
        read.extend(running.iter().flatten().map(Some));
        if !desc.is_in_place() {
            read.push(Some(&dy));
        }
        let mut written = vec![(Output::Dx, if desc.is_in_place() { &dy } else { &dx })];
        written.extend(dweight.as_ref().map(|w| (Output::Dweight, w)));
        written.extend(dbias.as_ref().map(|b| (Output::Dbias, b)));
        if desc.has_residual() {
            written.push((Output::Dresidual, &dresidual));
        }
        Ok(outputs(written, &read))
    }
}
