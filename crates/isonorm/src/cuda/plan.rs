use std::collections::HashMap;
use std::mem::Discriminant;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use foldhash::fast::RandomState;
use isonorm_kernels::ablation::Ablation;

use super::Device;
use super::driver::Function;
use crate::{Activation, Affine, DType, GpuPlan, Kernel, Layout, Norm, NormDesc, Pass, Residual, Result, Shape};

/// How a description is carried out on a GPU that is there: a [`GpuPlan`] and its kernels. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan(Arc<Prepared>);

#[derive(Debug)]
struct Prepared {
    device: Device,
    plan: GpuPlan,
    /// What its kernels leave out: nothing, but in a study of their times.
    ablation: Ablation,
    /// For aligned tensors, and for others.
    functions: [OnceLock<Vec<Function>>; 2],
}

impl Plan {
    /// This plan for this GPU.
    pub(super) fn of(device: Device, plan: GpuPlan) -> Plan {
        Plan::ablated(device, plan, Ablation::default())
    }

    fn ablated(device: Device, plan: GpuPlan, ablation: Ablation) -> Plan {
        Plan(Arc::new(Prepared {
            device,
            plan,
            ablation,
            functions: Default::default(),
        }))
    }

    /// The same plan with kernels that leave stages out, to find out what these cost. They are compiled for this plan alone. Results are wrong;
    /// what kernels read and write lies where it does otherwise.
    #[doc(hidden)]
    #[must_use]
    pub fn without(&self, ablation: Ablation) -> Plan {
        Plan::ablated(self.0.device, self.0.plan.clone(), ablation)
    }

    /// What a study of its times leaves out. Barriers stay in kernels of strips, forward: whether a strip is measured again a warp reads in two
    /// pieces, between which another one writes it then, and its threads decide differently. As the assembler takes them for one, those that go on
    /// change registers of the warp that the others have addresses in.
    #[doc(hidden)]
    pub fn ablations(&self) -> impl Iterator<Item = Ablation> {
        let is_strips = |kernel: &Kernel| {
            let of = |kind| kernel.family.starts_with(kind);
            ["tiles_forward_columns", "tiles_forward_batched", "tiles_forward_joined"]
                .into_iter()
                .any(of)
        };
        let needs_barriers = self.kernels().iter().any(is_strips);
        let has_none = |ablation: Ablation| ablation.and(Ablation::SYNC) == ablation;
        let may_be = move |ablation: &Ablation| !(needs_barriers && has_none(*ablation));
        Ablation::STUDY.into_iter().filter(may_be)
    }

    /// The GPU that it is for.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Loads its kernels, if that has not been done. Otherwise the first call does, which takes long, for the driver compiles
    /// them, and is not possible while a stream is captured.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) when the driver refuses a module;
    /// [`Error::Unsupported`](crate::Error::Unsupported) when the GPU does not hold blocks that have to run at the same time.
    pub fn prepare(&self) -> Result<()> {
        [true, false]
            .into_iter()
            .try_for_each(|aligned| self.functions(aligned).map(drop))
    }

    /// Whether its kernels are loaded.
    pub fn is_prepared(&self) -> bool {
        self.0.functions.iter().all(|functions| functions.get().is_some())
    }

    /// What tells it from all other plans that are there.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Whether the kernels for such tensors are loaded.
    pub(super) fn is_loaded(&self, aligned: bool) -> bool {
        self.loaded(aligned).get().is_some()
    }

    /// Its kernels for tensors that all start on 16 bytes, or for others, in the order of the schedule.
    pub(super) fn functions(&self, aligned: bool) -> Result<&[Function]> {
        let loaded = self.loaded(aligned);
        if let Some(functions) = loaded.get() {
            return Ok(functions);
        }
        let plan = &self.0.plan;
        let kernels = match aligned {
            true => plan.kernels(),
            false => plan.misaligned_kernels(),
        };
        let functions = kernels.iter().map(|kernel| self.load(kernel)).collect::<Result<_>>()?;
        Ok(loaded.get_or_init(|| functions))
    }

    fn loaded(&self, aligned: bool) -> &OnceLock<Vec<Function>> {
        let [of_aligned, of_others] = &self.0.functions;
        if aligned { of_aligned } else { of_others }
    }

    /// A kernel, which the GPU can run as it is going to be launched.
    fn load(&self, kernel: &Kernel) -> Result<Function> {
        let state = self.0.device.state();
        let (context, gpu) = (&state.context, &state.properties);
        let function = match self.0.ablation == Ablation::default() {
            true => state.modules.function(context, gpu, kernel)?,
            false => state.modules.ablated(context, gpu, kernel, self.0.ablation)?,
        };
        if kernel.resident {
            let held = function.resident_blocks(context, kernel)? * gpu.sms;
            if held < kernel.grid {
                let (entry, grid) = (kernel.entry, kernel.grid);
                let reason = format!("{grid} blocks of {entry} have to run at the same time, the GPU holds {held}");
                return Err(self.0.plan.unsupported(reason));
            }
        }
        Ok(function)
    }
}

impl Deref for Plan {
    type Target = GpuPlan;

    fn deref(&self) -> &GpuPlan {
        &self.0.plan
    }
}

/// Shapes that vary may make any number of plans; when there are so many, all are forgotten.
const MOST_PLANS: usize = 4096;

/// The plans of a GPU. A call that finds its plan takes a lock that other readers share.
#[derive(Default)]
pub(super) struct Plans(RwLock<HashMap<Key, Plan, RandomState>>);

impl Plans {
    pub(super) fn get(&self, device: Device, desc: &NormDesc) -> Result<Plan> {
        let key = Key::of(desc);
        if let Some(plan) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(plan.clone());
        }
        let plan = GpuPlan::new(desc, &device.state().properties)?;
        plan.check()?;
        let plan = Plan::of(device, plan);
        let mut plans = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        Ok(plans.entry(key).or_insert(plan).clone())
    }
}

/// A description, to be looked up: numbers by their bits.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    norm: Norm,
    shape: Shape,
    layout: Layout,
    dtypes: [DType; 2],
    affine: Affine,
    activation: (Discriminant<Activation>, u64),
    residual: Residual,
    pass: Pass,
    eps: u64,
    in_place: bool,
}

impl Key {
    fn of(desc: &NormDesc) -> Key {
        let activation = desc.get_activation();
        let slope = match activation {
            Activation::LeakyRelu { slope } => slope.to_bits(),
            _ => 0,
        };
        Key {
            norm: desc.get_norm(),
            shape: desc.get_shape(),
            layout: desc.get_layout(),
            dtypes: [desc.get_dtype(), desc.get_param_dtype()],
            affine: desc.get_affine(),
            activation: (std::mem::discriminant(&activation), slope),
            residual: desc.get_residual(),
            pass: desc.get_pass(),
            eps: desc.get_eps().to_bits(),
            in_place: desc.is_in_place(),
        }
    }
}
