//! How a description is carried out: pure (no tensor, no allocation but the plan's own), deterministic, printable.
//!
//! What decides *bits* (how a group is cut into blocks and parts, how many accumulators parameter gradients have) follows
//! from the geometry alone; what decides only *speed* (who computes which part, when) may also follow from the device. So
//! results are the same bits for any number of threads.

mod columns;
mod explain;
#[cfg(feature = "cuda")]
pub(crate) mod gpu;
mod properties;
mod rows;
mod traffic;

pub(crate) use columns::{ColumnsPlan, WIDEST_TILE};
pub use properties::CpuProperties;
pub(crate) use rows::{CHUNK, MOST_BATCHED, RowsPlan, share};
pub use traffic::Traffic;

use crate::{Affine, Geometry, NormDesc, Result};

/// Segments shorter than this leave most of a vector's lanes, or of a stream's bandwidth, unused: below it the lanes go
/// across groups (`columns`). Measured in `docs/tuning.md`.
const SHORTEST_ROW: usize = 128;

/// A way to carry out a problem, and why it was or was not taken. Candidates are tried in order; the first that is not
/// declined is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name, such as `rows/resident`.
    pub name: &'static str,
    /// How it divides the work, where there are several candidates of this name.
    pub shape: Option<String>,
    /// Seconds that it takes by an estimate, where candidates are compared by one.
    pub estimate: Option<f64>,
    /// Why not; `None` for the one that was taken.
    pub declined: Option<String>,
}

impl Candidate {
    /// The only one of its name.
    fn named(name: &'static str, declined: Option<String>) -> Candidate {
        Candidate {
            name,
            shape: None,
            estimate: None,
            declined,
        }
    }
}

/// Which kernels run, with their tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// There are no elements.
    Empty,
    Rows(RowsPlan),
    Columns(ColumnsPlan),
}

/// A piece of the workspace, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// What the workspace holds. Regions that a problem has no use for are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regions {
    /// Weight and bias in the accumulator's type, when they come in another or not at all.
    pub(crate) parameters: Region,
    /// `f64` mean and variance of each group, when InstanceNorm averages them into running statistics.
    pub(crate) statistics: Region,
    /// Partial results of the parts of a group: moments forward, sums backward.
    pub(crate) parts: Region,
    /// `f64` accumulators of the parameters' gradients, a pair a chunk.
    pub(crate) gradients: Region,
    /// Short-term accumulators of the parameters' gradients in the accumulator's type, a pair a chunk.
    pub(crate) staging: Region,
    /// All of it.
    pub(crate) bytes: usize,
}

impl Regions {
    /// Appends a region of `count` numbers of `size` bytes, on cache lines of its own.
    fn append(&mut self, count: usize, size: usize) -> Region {
        let region = Region {
            offset: self.bytes,
            bytes: count * size,
        };
        self.bytes += region.bytes.next_multiple_of(64);
        region
    }
}

/// How a description is carried out on a device. Prints itself: see [`explain`](Plan::explain).
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    desc: NormDesc,
    geometry: Geometry,
    properties: CpuProperties,
    candidates: Vec<Candidate>,
    pub(crate) schedule: Schedule,
    pub(crate) regions: Regions,
}

impl Plan {
    /// The plan for a CPU with these properties.
    ///
    /// # Errors
    /// Those of [`NormDesc::check`].
    pub fn new(desc: &NormDesc, properties: &CpuProperties) -> Result<Plan> {
        let geometry = Geometry::of(desc)?;
        let mut regions = Regions::default();
        let mut candidates = Vec::new();
        let schedule = if geometry.elements() == 0 {
            Schedule::Empty
        } else if let Some(reason) = rows::declined(&geometry) {
            rows::NAMES.iter().for_each(|name| {
                candidates.push(Candidate::named(name, Some(reason.clone())));
            });
            Schedule::Columns(columns::plan(
                desc,
                &geometry,
                properties,
                &mut regions,
                &mut candidates,
            ))
        } else {
            let taken = rows::plan(desc, &geometry, properties, &mut regions, &mut candidates);
            columns::NAMES.iter().for_each(|name| {
                let declined = Some(format!("rows of {} contiguous elements were taken", geometry.inner));
                candidates.push(Candidate::named(name, declined));
            });
            Schedule::Rows(taken)
        };
        if schedule != Schedule::Empty {
            let accumulator = desc.get_dtype().accumulator();
            let as_given = desc.get_param_dtype() == accumulator && desc.get_affine() == Affine::Full;
            if !as_given || desc.get_pass().is_backward() {
                regions.parameters = regions.append(2 * geometry.parameters.next_multiple_of(8), accumulator.bytes());
            }
            if geometry.channels > 0 && geometry.channels != geometry.groups() && !desc.get_pass().is_backward() {
                regions.statistics = regions.append(2 * geometry.groups(), size_of::<f64>());
            }
        }
        Ok(Plan {
            desc: *desc,
            geometry,
            properties: *properties,
            candidates,
            schedule,
            regions,
        })
    }

    /// The description that this plan carries out.
    pub fn desc(&self) -> &NormDesc {
        &self.desc
    }

    /// The 4-D view of the problem.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The device it was made for.
    pub fn properties(&self) -> &CpuProperties {
        &self.properties
    }

    /// Every candidate in the order of trying, with the reason for each that was declined.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The name of the candidate that was taken; `empty` when there are no elements.
    pub fn name(&self) -> &'static str {
        self.candidates
            .iter()
            .find(|c| c.declined.is_none())
            .map_or("empty", |c| c.name)
    }

    /// The size of the workspace that execution needs.
    pub fn workspace_bytes(&self) -> usize {
        self.regions.bytes
    }

    /// The bytes that must move, and those that this plan moves.
    pub fn traffic(&self) -> Traffic {
        Traffic::of(self)
    }
}

/// Ordered candidates: the first whose reason is `None` is taken.
fn choose(candidates: &mut Vec<Candidate>, tried: Vec<(&'static str, Option<String>)>) -> &'static str {
    let mut taken = None;
    for (name, declined) in tried {
        let declined = match taken {
            Some(t) => Some(format!("{t} was taken")),
            None => declined,
        };
        if declined.is_none() {
            taken = Some(name);
        }
        candidates.push(Candidate::named(name, declined));
    }
    taken.expect("the last candidate is never declined")
}
