use std::fmt;

use crate::cpu::Cpu;
use crate::{Backward, Forward, Isa, NormDesc, Plan, Result, Workspace};

/// Where the work is done. Cheap to clone.
///
/// ```
/// use isonorm::{Device, Forward, NormDesc, Workspace};
///
/// let device = Device::best();
/// let plan = device.plan(&NormDesc::layer_norm([2, 4], 1))?;
/// let mut workspace = Workspace::new(&plan);
///
/// let x = vec![1.0f32, 2.0, 3.0, 4.0, -1.0, -1.0, -1.0, -1.0];
/// let (weight, bias) = (vec![1.0f32; 4], vec![0.5f32; 4]);
/// let mut y = vec![0.0f32; 8];
/// device.forward(&plan, Forward::new(&x, &mut y).weight(&weight).bias(&bias), &mut workspace)?;
/// assert_eq!(y[4..], [0.5; 4]); // a constant row is its bias, exactly
/// # Ok::<(), isonorm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    cpu: Cpu,
}

impl Device {
    /// The fastest device for memory of the host: the CPU with every thread and the widest vectors it has, also where there is
    /// a GPU. To carry a tensor there and back takes longer than to normalize it here; what is there already is worked on by
    /// `cuda::Stream`.
    pub fn best() -> Device {
        Device::cpu()
    }

    /// The CPU with the threads of the current `rayon` pool.
    pub fn cpu() -> Device {
        Device { cpu: Cpu::new() }
    }

    /// The CPU with this many threads of its own (0: as many as there are cores). Results are the same bits for any
    /// number.
    pub fn cpu_with_threads(threads: usize) -> Device {
        Device {
            cpu: Cpu::with_threads(threads),
        }
    }

    /// The same device with narrower vectors than it has, to compare or to test. `None` when this machine lacks them.
    pub fn with_isa(&self, isa: Isa) -> Option<Device> {
        isa.is_available().then(|| Device {
            cpu: self.cpu.clone().with_isa(isa),
        })
    }

    /// Decides how to carry out a description here. Pure, but for allocating the plan.
    ///
    /// # Errors
    /// Those of [`NormDesc::check`].
    pub fn plan(&self, desc: &NormDesc) -> Result<Plan> {
        Plan::new(desc, self.cpu.properties())
    }

    /// Runs a forward pass. Allocates nothing.
    ///
    /// # Errors
    /// When an argument is missing, unwanted, of the wrong length or type, misaligned, or overlaps another; or when the plan
    /// or the workspace are another problem's. Nothing has been written then.
    pub fn forward(&self, plan: &Plan, arguments: Forward<'_>, workspace: &mut Workspace) -> Result<()> {
        self.cpu.forward(plan, arguments, workspace)
    }

    /// Runs a backward pass. Allocates nothing.
    ///
    /// # Errors
    /// As [`forward`](Device::forward).
    pub fn backward(&self, plan: &Plan, arguments: Backward<'_>, workspace: &mut Workspace) -> Result<()> {
        self.cpu.backward(plan, arguments, workspace)
    }

    /// The number of threads that work at once.
    pub fn threads(&self) -> usize {
        self.cpu.properties().threads
    }
}

impl Default for Device {
    fn default() -> Device {
        Device::best()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = self.cpu.properties();
        write!(
            f,
            "cpu ({} thread{}, {})",
            p.threads,
            if p.threads == 1 { "" } else { "s" },
            p.isa
        )
    }
}
