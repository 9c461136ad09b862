//! The CPU engine of isonorm, in guarded memory.

use isonorm::{CpuProperties, Device, Isa, NormDesc, Plan, Result, Workspace};

use super::host::Host;
use super::{BackwardInputs, Engine, ForwardInputs, Outputs, Start, pass};

/// [`isonorm::Device`] as an [`Engine`]. Every tensor lies between margins, outputs are poisoned before each pass, and
/// inputs are compared with what they were.
#[derive(Clone, Debug)]
pub struct CpuEngine {
    device: Device,
    /// What plans are made for, when it is another processor than the device.
    properties: Option<CpuProperties>,
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

impl Engine for CpuEngine {
    fn name(&self) -> String {
        self.device.to_string()
    }

    fn forward(&mut self, desc: &NormDesc, inputs: &ForwardInputs) -> Result<Outputs> {
        let plan = self.plan(desc)?;
        let mut workspace = Workspace::new(&plan);
        pass::forward(&Host(Start::Misaligned), desc, inputs, |arguments| {
            self.device.forward(&plan, arguments, &mut workspace)
        })
    }

    fn backward(&mut self, desc: &NormDesc, inputs: &BackwardInputs) -> Result<Outputs> {
        let plan = self.plan(desc)?;
        let mut workspace = Workspace::new(&plan);
        pass::backward(&Host(Start::Misaligned), desc, inputs, |arguments| {
            self.device.backward(&plan, arguments, &mut workspace)
        })
    }
}
