//! Plans for a GPU: which kernels run, in which shape. Pure, as the CPU's: no driver is asked, so that a plan for a GPU can be
//! looked at and tested anywhere.

mod choice;
mod explain;
pub(crate) mod ladder;
mod occupancy;
mod properties;
pub(crate) mod rows;
pub(crate) mod tiles;
mod tuning;

pub use ladder::{Rung, Variance};
pub use properties::GpuProperties;
pub(crate) use properties::copy_speed;

use std::sync::Arc;

use isonorm_kernels::rows::parameters::Sharing;

use super::{Candidate, Traffic, traffic};
use crate::{DType, Error, Geometry, NormDesc, Result};

/// The largest grid in its first dimension; kernels go on from there by steps of the grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Regions of the workspace start on as many: on lines of the cache.
const REGION_BYTES: usize = 256;
/// Sums that a team adds up of a row or a tile, at most, one after the other.
const MOST_SUMS: u64 = 4;

/// A kernel with the sizes that it is launched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The family that it belongs to, such as `rows_forward_block`: there is a module of it for each element type.
    pub family: &'static str,
    /// The element type.
    pub dtype: DType,
    /// The name of its entry point.
    pub entry: &'static str,
    /// Blocks.
    pub grid: u32,
    /// Threads of a block.
    pub block: u32,
    /// Blocks of a cluster; 1: no clusters.
    pub cluster: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Whether all blocks have to run at the same time.
    pub resident: bool,
}

/// Kernels in order, and what launching them takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) work: Work,
    pub(crate) workspace_bytes: usize,
    /// Bytes of the workspace behind those, where running statistics are updated.
    pub(crate) running_bytes: usize,
    /// Behind those again, unless the launcher has another place for them.
    pub(crate) messages: Messages,
    /// Bytes that are moved besides those that every implementation moves.
    pub(crate) again_bytes: u64,
}

/// What blocks that run at the same time leave for each other, in memory that has held nothing else since it was zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    pub(crate) bytes: usize,
    /// How many tags a launch takes for them, at most.
    pub(crate) tags: u64,
}

impl Messages {
    /// So many words, of teams that have so many rows or tiles one after the other.
    fn new(words: usize, in_turn: u64) -> Messages {
        Messages {
            bytes: words * size_of::<u32>(),
            tags: in_turn.saturating_mul(MOST_SUMS),
        }
    }
}

/// What kernels are told besides pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Forward(rows::Forward),
    Backward(rows::Backward),
    Sweeps(rows::Sweeps),
    Tiles(tiles::Tiles),
    /// A published kernel; no plan that was chosen has one.
    Rung(Rung),
}

impl Schedule {
    /// Bytes of global memory that a call needs which updates running statistics, or does not, without those for messages; these start
    /// behind.
    pub(crate) fn scratch_bytes(&self, updates: bool) -> usize {
        let bytes = self.workspace_bytes + if updates { self.running_bytes } else { 0 };
        bytes.next_multiple_of(REGION_BYTES)
    }

    /// Whether a kernel reads neighbouring parameters at once.
    pub(crate) fn reads_parameters_by_column(&self) -> bool {
        let parameters = match &self.work {
            Work::Forward(rows) => rows.parameters,
            Work::Backward(rows) => rows.parameters,
            Work::Sweeps(rows) => rows.parameters,
            Work::Tiles(_) | Work::Rung(_) => return false,
        };
        parameters.sharing == Sharing::ByColumn
    }
}

/// Which kernels run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GpuSchedule {
    /// There are no elements.
    Empty,
    /// No kernel does it.
    Unsupported,
    Kernels {
        /// For tensors that start on [`VECTOR_BYTES`](rows::VECTOR_BYTES).
        aligned: Box<Schedule>,
        /// For others, where there are kernels.
        misaligned: Option<Box<Schedule>>,
    },
}

/// How a description is carried out on a GPU. Prints itself: see [`explain`](GpuPlan::explain).
///
/// ```
/// use isonorm::{GpuPlan, GpuProperties, NormDesc};
///
/// let h200 = GpuProperties::known("h200").ok_or("a known GPU")?;
/// let plan = GpuPlan::new(&NormDesc::layer_norm([8192, 4096], 1), &h200.into())?;
/// assert_eq!(plan.name(), "rows/block");
/// assert_eq!(plan.traffic().moved_bytes, plan.traffic().compulsory_bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GpuPlan {
    desc: NormDesc,
    geometry: Geometry,
    properties: Arc<GpuProperties>,
    candidates: Vec<Candidate>,
    pub(crate) schedule: GpuSchedule,
}

impl GpuPlan {
    /// The plan for a GPU with these properties. There is one for every valid description: where no kernel is taken, it says
    /// why ([`check`](GpuPlan::check)).
    ///
    /// # Errors
    /// Those of [`NormDesc::check`].
    pub fn new(desc: &NormDesc, properties: &Arc<GpuProperties>) -> Result<GpuPlan> {
        GpuPlan::skipping(desc, properties, 0)
    }

    /// The plan of [`new`](GpuPlan::new), and behind it those that other candidates would have been, in the order of trying: to be
    /// measured against each other.
    ///
    /// # Errors
    /// As [`new`](GpuPlan::new).
    #[doc(hidden)]
    pub fn alternatives(desc: &NormDesc, properties: &Arc<GpuProperties>) -> Result<Vec<GpuPlan>> {
        let mut plans = vec![GpuPlan::new(desc, properties)?];
        while plans
            .last()
            .is_some_and(|plan| matches!(plan.schedule, GpuSchedule::Kernels { .. }))
        {
            plans.push(GpuPlan::skipping(desc, properties, plans.len())?);
        }
        // The first one says at least why there are none.
        plans.truncate(plans.len().saturating_sub(1).max(1));
        Ok(plans)
    }

    /// The plan without so many candidates that would have been taken.
    fn skipping(desc: &NormDesc, properties: &Arc<GpuProperties>, skipped: usize) -> Result<GpuPlan> {
        let geometry = Geometry::of(desc)?;
        let mut candidates = Vec::new();
        let schedule = if geometry.elements() == 0 {
            GpuSchedule::Empty
        } else {
            match rows::plan(desc, &geometry, properties, skipped, &mut candidates) {
                GpuSchedule::Unsupported => choice::plan(desc, &geometry, properties, skipped, &mut candidates),
                schedule => schedule,
            }
        };
        Ok(GpuPlan {
            desc: *desc,
            geometry,
            properties: properties.clone(),
            candidates,
            schedule,
        })
    }

    /// Whether kernels carry this out.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reasons why the candidates were declined.
    pub fn check(&self) -> Result<()> {
        if self.schedule != GpuSchedule::Unsupported {
            return Ok(());
        }
        let mut reasons: Vec<&str> = self.candidates.iter().filter_map(|c| c.declined.as_deref()).collect();
        reasons.dedup();
        Err(self.unsupported(reasons.join("; ")))
    }

    /// That this cannot be done, for a reason that only the arguments show.
    pub(crate) fn unsupported(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            op: self.desc.op(),
            pass: self.desc.get_pass().name(),
            reason: reason.into(),
        }
    }

    /// The description that this plan carries out.
    pub fn desc(&self) -> &NormDesc {
        &self.desc
    }

    /// The 4-D view of the problem.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The GPU that it was made for.
    pub fn properties(&self) -> &GpuProperties {
        &self.properties
    }

    /// Every candidate in the order of trying, with the reason for each that was declined.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The name of the candidate that was taken; `empty` when there are no elements, `unsupported` when all were declined.
    pub fn name(&self) -> &'static str {
        match self.schedule {
            GpuSchedule::Empty => "empty",
            GpuSchedule::Unsupported => "unsupported",
            _ => taken(&self.candidates).unwrap_or("unsupported"),
        }
    }

    /// The kernels that it launches, in order, where all tensors start on 16 bytes.
    pub fn kernels(&self) -> &[Kernel] {
        self.aligned().map_or(&[], |schedule| &schedule.kernels)
    }

    /// The kernels that it launches where some tensor does not start on 16 bytes; none where that is not supported.
    pub fn misaligned_kernels(&self) -> &[Kernel] {
        self.misaligned().map_or(&[], |schedule| &schedule.kernels)
    }

    /// What runs where all tensors start on 16 bytes.
    pub(crate) fn aligned(&self) -> Option<&Schedule> {
        match &self.schedule {
            GpuSchedule::Kernels { aligned, .. } => Some(aligned),
            _ => None,
        }
    }

    /// What runs where some tensor does not.
    pub(crate) fn misaligned(&self) -> Option<&Schedule> {
        match &self.schedule {
            GpuSchedule::Kernels { misaligned, .. } => misaligned.as_deref(),
            _ => None,
        }
    }

    /// Bytes of global memory that it needs besides its arguments, which start on 16 bytes.
    pub fn workspace_bytes(&self) -> usize {
        let schedules = [self.aligned(), self.misaligned()].into_iter().flatten();
        let bytes = schedules.map(|schedule| schedule.scratch_bytes(true) + schedule.messages.bytes);
        bytes.max().unwrap_or(0)
    }

    /// The bytes that must move, and those that this plan moves (none where it is unsupported), where all tensors start on 16
    /// bytes.
    pub fn traffic(&self) -> Traffic {
        let compulsory_bytes = traffic::compulsory_bytes(&self.desc, &self.geometry);
        let moved_bytes = self.aligned().map_or(0, |s| compulsory_bytes + s.again_bytes);
        Traffic {
            compulsory_bytes,
            moved_bytes,
        }
    }

    /// Seconds that a copy takes to move as many bytes as this plan does.
    pub fn copy_seconds(&self) -> f64 {
        self.traffic().moved_bytes as f64 / self.properties.copy_bytes_per_second
    }
}

/// The name of the candidate that was not declined.
fn taken(candidates: &[Candidate]) -> Option<&'static str> {
    candidates.iter().find(|c| c.declined.is_none()).map(|c| c.name)
}
