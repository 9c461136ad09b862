use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::driver::{self, Context};
use super::modules::Modules;
use super::plan::Plans;
use super::{Plan, Stream};
use crate::{Error, GpuPlan, GpuProperties, NormDesc, Result, Rung};

/// A GPU: a handle to its context, its kernels and the plans made for it, which are the whole process's and stay until its
/// end. Any thread may use it.
#[derive(Clone, Copy)]
pub struct Device {
    state: &'static State,
}

pub(super) struct State {
    pub(super) context: Context,
    pub(super) properties: Arc<GpuProperties>,
    pub(super) modules: Modules,
    pub(super) plans: Plans,
}

/// The GPUs that were asked for so far.
static DEVICES: Mutex<BTreeMap<u32, Device>> = Mutex::new(BTreeMap::new());

impl Device {
    /// How many GPUs there are: at least one.
    ///
    /// # Errors
    /// [`Error::NoGpu`] when there is none, or no driver.
    pub fn count() -> Result<u32> {
        match driver::device_count()? {
            0 => Err(Error::NoGpu {
                reason: "the CUDA driver finds none".into(),
            }),
            count => Ok(count),
        }
    }

    /// The first GPU.
    ///
    /// # Errors
    /// [`Error::NoGpu`] when there is none, or no driver; [`Error::Driver`] when it refuses.
    pub fn first() -> Result<Device> {
        Device::get(0)
    }

    /// The GPU with this number, as the driver counts (`CUDA_VISIBLE_DEVICES` has a say in that).
    ///
    /// # Errors
    /// As [`first`](Device::first).
    pub fn get(ordinal: u32) -> Result<Device> {
        let count = Device::count()?;
        if ordinal >= count {
            return Err(Error::NoGpu {
                reason: format!("number {ordinal} was asked for, there are {count}, counted from 0"),
            });
        }
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.get(&ordinal) {
            return Ok(*device);
        }
        let context = Context::retain(ordinal)?;
        let state = State {
            properties: driver::properties(&context)?.into(),
            modules: Modules::default(),
            plans: Plans::default(),
            context,
        };
        let device = Device {
            state: Box::leak(Box::new(state)),
        };
        devices.insert(ordinal, device);
        Ok(device)
    }

    /// Every GPU.
    ///
    /// # Errors
    /// As [`first`](Device::first).
    pub fn all() -> Result<Vec<Device>> {
        (0..Device::count()?).map(Device::get).collect()
    }

    /// Its number.
    pub fn ordinal(&self) -> u32 {
        self.state.context.ordinal
    }

    /// What plans know about it.
    pub fn properties(&self) -> &GpuProperties {
        &self.state.properties
    }

    /// Free global memory, and all of it, in bytes.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.state.context.memory()
    }

    /// The plan for a description, made once and remembered.
    ///
    /// # Errors
    /// Those of [`NormDesc::check`]; [`Error::Unsupported`] when no kernel carries it out.
    pub fn plan(&self, desc: &NormDesc) -> Result<Plan> {
        self.state.plans.get(*self, desc)
    }

    /// Every way in which kernels carry a description out, that of [`plan`](Device::plan) first: see [`GpuPlan::alternatives`].
    ///
    /// # Errors
    /// As [`plan`](Device::plan).
    #[doc(hidden)]
    pub fn alternatives(&self, desc: &NormDesc) -> Result<Vec<Plan>> {
        let plans = GpuPlan::alternatives(desc, &self.state.properties)?;
        plans[0].check()?;
        Ok(plans.into_iter().map(|plan| Plan::of(*self, plan)).collect())
    }

    /// A rung of the ladder, to compare with: see [`GpuPlan::rung`].
    ///
    /// # Errors
    /// As [`GpuPlan::rung`].
    pub fn rung(&self, rung: Rung, desc: &NormDesc) -> Result<Plan> {
        Ok(Plan::of(*self, GpuPlan::rung(rung, desc, &self.state.properties)?))
    }

    /// A new stream.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(*self)
    }

    pub(super) fn state(&self) -> &'static State {
        self.state
    }

    pub(super) fn context(&self) -> &'static Context {
        &self.state.context
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.ordinal() == other.ordinal()
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = self.properties();
        write!(f, "cuda:{} ({}, {} SMs)", self.ordinal(), p.name, p.sms)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}
