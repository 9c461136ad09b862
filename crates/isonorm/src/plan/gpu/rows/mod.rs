//! Rows: groups that are contiguous in memory, and, with given statistics, segments. Everything about plans that depends on what
//! these kernels are specialised on is in this folder.

mod across_runs;
mod apart;
mod backward;
mod by_segment;
mod each;
mod long;
mod parameters;
mod pieces;
mod registers;
pub(crate) mod running;
mod runs;
pub(super) mod segments;
mod sweeps;
mod told;
mod tried;

use std::sync::OnceLock;

pub(crate) use self::backward::{gather, gather_warps, gather_width};
pub(crate) use self::parameters::Parameters;
pub(crate) use self::told::{Backward, Columns, Exchange, Forward, Running, Share, Sweeps, SweepsWorkspace};

use isonorm_kernels::modules::ROWS;
use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::{self, Key, Listed, Pass};
use isonorm_kernels::rows::parameters::Sharing;
use isonorm_kernels::rows::segments::Segments;
use isonorm_kernels::rows::statistics::Op;

use self::tried::Tried;
use super::occupancy::blocks_per_sm;
use super::{GpuProperties, GpuSchedule, Kernel, MOST_BLOCKS, Messages, REGION_BYTES, Schedule, Work};
use crate::plan::Candidate;
use crate::{Activation, DType, Geometry, NormDesc};

/// Bytes of an access that is not a single element; tensors and parameters start on as many.
pub(crate) const VECTOR_BYTES: u32 = 16;

/// Whether there is a module of a kernel for this type.
fn is_for(listed: &Listed, dtype: DType) -> bool {
    let mut modules = ROWS.iter();
    modules.any(|module| (module.family, module.data) == (listed.family, dtype.name()))
}

/// The compute capability that a kernel's module needs.
fn needs(listed: &Listed) -> Option<u32> {
    let module = ROWS.iter().find(|module| module.family == listed.family);
    module.map(|module| module.compute_capability)
}

/// All kernels.
fn listed() -> &'static [Listed] {
    static LISTED: OnceLock<Vec<Listed>> = OnceLock::new();
    LISTED.get_or_init(|| key::listed().collect())
}

/// A problem as these kernels see it.
struct Rows<'a> {
    gpu: &'a GpuProperties,
    dtype: DType,
    pass: Pass,
    op: Op,
    activation: Activation,
    /// Whether kernels load a tensor besides x (and dy): one that is added before the activation, or to x.
    residual: bool,
    /// Whether the residual stream has a gradient besides, which is added to dx.
    dstream: bool,
    rows: u64,
    columns: u64,
    /// Elements from a row to the next.
    stride: u64,
    segments: Segments,
    parameters: Parameters,
    /// Whether there is a weight, or more.
    has_parameters: bool,
    /// Whether what is computed is written over what it is computed from.
    in_place: bool,
    /// Whether the activation's mask is written.
    masked: bool,
    /// Channels whose running statistics may be updated.
    tracked: Option<u64>,
}

/// A way to carry it out, or why not.
type Way = fn(&Rows<'_>, Width) -> Result<Schedule, String>;

/// Ways by name, in the order of trying.
type Ways = &'static [(&'static str, Way)];

/// Teams that hold a row.
const FORWARD: Ways = &[
    ("rows/lanes", registers::lanes),
    ("rows/shared", long::shared),
    ("rows/block", registers::block),
    ("rows/blocks", registers::blocks),
    ("rows/chip", registers::chip),
];
/// Rows that are longer than that.
const FORWARD_LONG: Ways = &[
    ("rows/alone", long::alone),
    ("rows/down", long::down),
    ("rows/pieces", pieces::plan),
    ("rows/grid", long::grid),
];
/// Given statistics, for which nothing is held.
const FORWARD_GIVEN: Ways = &[("rows/each", each::plan)];
const BACKWARD: Ways = &[
    ("rows/apart", apart::plan),
    ("rows/lanes", backward::lanes),
    ("rows/block", backward::block),
    ("rows/blocks", backward::blocks),
    ("rows/chip", backward::chip),
];
const BACKWARD_LONG: Ways = &[("rows/pieces", pieces::plan), ("rows/sweeps", sweeps::plan)];

/// Tries each candidate in order, and takes the first that does it, but for `skipped` others: for tensors that start on 16 bytes, and
/// again for others.
pub(super) fn plan(
    desc: &NormDesc,
    g: &Geometry,
    gpu: &GpuProperties,
    skipped: usize,
    candidates: &mut Vec<Candidate>,
) -> GpuSchedule {
    let given = desc.uses_running_statistics() && !desc.get_pass().is_backward();
    let [held, long] = match desc.get_pass().is_backward() {
        true => [BACKWARD, BACKWARD_LONG],
        false if given => [FORWARD_GIVEN, &[]],
        false => [FORWARD, FORWARD_LONG],
    };
    let rows = match Rows::of(desc, g, gpu) {
        Ok(rows) => rows,
        Err(reason) => {
            let declined = |(name, _): &(&'static str, Way)| Candidate::named(name, Some(reason.clone()));
            candidates.extend(held.iter().chain(long).map(declined));
            return GpuSchedule::Unsupported;
        }
    };
    let mut aligned = Tried::skipping(skipped);
    let by_segment = by_segment::plans(desc, &rows);
    let before = by_segment::tried_before(&rows);
    let runs = runs::plans(desc, &rows);
    let (first, later): (Vec<_>, Vec<_>) = held.iter().partition(|(name, _)| {
        (by_segment.is_empty() || before.contains(name)) && (runs.is_empty() || *name != "rows/chip")
    });
    let (before_others, runs) = match runs::come_first(&rows) {
        true => (runs, Vec::new()),
        false => (Vec::new(), runs),
    };
    aligned.planned(before_others);
    if given {
        aligned.ways(&rows, held, Width::Ragged);
    } else if rows.may_be_vectors() {
        aligned.ways(&rows, first, Width::Vector);
    }
    // Faster than what follows in nearly all problems of which all were measured, and in no other more than 6 % slower.
    aligned.planned(runs);
    // Faster than accesses of each segment's own wherever both were measured.
    aligned.planned(across_runs::plans(desc, &rows));
    aligned.planned(by_segment);
    if rows.may_be_vectors() && !given {
        aligned.ways(&rows, later.into_iter().chain(long), Width::Vector);
    }
    let elements = |skipped| {
        let mut tried = Tried::skipping(skipped);
        tried.ways(&rows, held.iter().chain(long), Width::Element);
        tried
    };
    let misaligned = elements(0);
    if aligned.schedule.is_none() {
        let of_elements = match aligned.skipped {
            0 => misaligned.clone(),
            skipped => elements(skipped),
        };
        if of_elements.schedule.is_some() || aligned.candidates.is_empty() {
            aligned = of_elements;
        }
    }
    candidates.extend(aligned.candidates);
    match aligned.schedule {
        Some(schedule) => GpuSchedule::Kernels {
            aligned: Box::new(schedule),
            misaligned: misaligned.schedule.map(Box::new),
        },
        None => GpuSchedule::Unsupported,
    }
}

impl<'a> Rows<'a> {
    /// What does not depend on the shape, with no rows; or why no kernel of this family does it.
    fn supported(desc: &NormDesc, gpu: &'a GpuProperties) -> Result<Rows<'a>, String> {
        let (dtype, backward) = (desc.get_dtype(), desc.get_pass().is_backward());
        let given = desc.uses_running_statistics();
        let oldest = ROWS.iter().filter(|module| module.data == dtype.name());
        if desc.has_mask() && (backward || !given) {
            return Err("its kernels have no mask".into());
        }
        if desc.reads_result() {
            return Err("its kernels do not read the result".into());
        }
        if desc.get_pass() == crate::Pass::Moments {
            return Err("its kernels hold what they normalize".into());
        }
        let Some(needs) = oldest.map(|module| module.compute_capability).min() else {
            return Err(format!("there are no kernels of {dtype}"));
        };
        if gpu.compute_capability < needs {
            let has = gpu.compute_capability;
            return Err(format!(
                "compute capability {has} is below {needs}, which the kernels need"
            ));
        }
        Ok(Rows {
            gpu,
            dtype,
            pass: if backward { Pass::Backward } else { Pass::Forward },
            op: match () {
                () if given => Op::Given,
                () if desc.get_norm().is_centred() => Op::Layer,
                () => Op::Rms,
            },
            activation: desc.get_activation(),
            residual: desc.has_residual() || desc.has_stream() && !backward,
            dstream: desc.has_stream() && backward,
            rows: 0,
            columns: 0,
            stride: 0,
            segments: Segments::NONE,
            parameters: Parameters::NONE,
            has_parameters: desc.get_affine().has_weight(),
            in_place: desc.is_in_place(),
            masked: desc.has_mask(),
            tracked: None,
        })
    }

    /// The problem, or why no kernel of this family does it, whatever the length of a row.
    fn of(desc: &NormDesc, g: &Geometry, gpu: &'a GpuProperties) -> Result<Rows<'a>, String> {
        let supported = Rows::supported(desc, gpu)?;
        let given = desc.uses_running_statistics();
        if g.outer > 1 && !given || g.affine.outer_stride > 0 {
            return Err("groups are not contiguous".into());
        }
        if given && g.inner == 1 {
            return Err("channels lie side by side".into());
        }
        let tracked = desc.get_norm().has_running_statistics() && !given && !desc.get_pass().is_backward();
        Ok(Rows {
            rows: (g.batch * g.outer * g.kept) as u64,
            columns: g.inner as u64,
            stride: g.inner as u64,
            parameters: Parameters::of(desc, g)?,
            tracked: tracked.then_some(g.channels as u64),
            ..supported
        })
    }

    fn bytes(&self) -> u32 {
        self.dtype.bytes() as u32
    }

    /// Whether rows of aligned tensors may be accessed by 16 bytes.
    fn may_be_vectors(&self) -> bool {
        let elements = u64::from(VECTOR_BYTES / self.bytes());
        let whole = |length: u64| length.is_multiple_of(elements);
        whole(self.columns) && (self.parameters.sharing == Sharing::ByColumn || whole(self.parameters.run))
    }

    /// The kernels that do it, those with the least code for nothing first; whether they hold a row is another question.
    fn kernels(&self, width: Width) -> Vec<&'static Listed> {
        self.kernels_that(width, |key| !key.is_apart() && !key.is_of_lines())
    }

    /// The same of those whose warps have lines of a row in shared memory.
    fn kernels_of_lines(&self) -> Vec<&'static Listed> {
        self.kernels_that(Width::Vector, Key::is_of_lines)
    }

    /// The same of those some of whose blocks have columns.
    fn kernels_apart(&self) -> Vec<&'static Listed> {
        self.kernels_that(Width::Vector, Key::is_apart)
    }

    fn kernels_that(&self, width: Width, are: impl Fn(&Key) -> bool) -> Vec<&'static Listed> {
        let suits = |key: &Key| {
            (key.pass, key.op, key.width) == (self.pass, self.op, width)
                && (key.sharing == self.parameters.sharing || self.may_be_by_run(key))
                && key.class.has(self.activation)
                && (key.class == Class::Masked) == self.masked
                && (key.residual || !self.reads_residual(key))
                && are(key)
        };
        let suits = |kernel: &&Listed| suits(&kernel.key) && is_for(kernel, self.dtype);
        let mut kernels: Vec<_> = listed().iter().filter(suits).collect();
        // Least code first: that for all activations is the most.
        let code = |class: Class| (class == Class::Any, class);
        kernels.sort_by_key(|kernel| {
            let key = &kernel.key;
            (code(key.class), !self.may_be_by_run(key), key.residual)
        });
        kernels
    }

    /// Whether there is a residual that the kernel has to read: the gradient of one is there without it where nothing follows.
    fn reads_residual(&self, key: &Key) -> bool {
        self.residual && (key.pass, key.class) != (Pass::Backward, Class::Plain)
    }

    /// Tensors that the kernel accesses besides x and y, or x, dy and dx: what is added, and its gradient.
    fn added_tensors(&self, key: &Key) -> u64 {
        let has_gradient = self.residual && self.pass == Pass::Backward;
        u64::from(self.reads_residual(key)) + u64::from(has_gradient)
    }

    /// Whether the kernel, of runs of columns, does for columns that have no parameters: it keeps nothing from row to row, and so
    /// takes fewer registers.
    fn may_be_by_run(&self, key: &Key) -> bool {
        key.spans_blocks() && key.sharing == Sharing::ByRun && !self.has_parameters
    }

    /// Whether the GPU has clusters, for which kernels need such a compute capability.
    fn has_clusters(&self, needs: u32) -> Result<(), String> {
        let (major, minor) = (needs / 10, needs % 10);
        if self.gpu.compute_capability < needs {
            return Err(format!("clusters need compute capability {major}.{minor}"));
        }
        if self.gpu.cluster_sms == 0 {
            return Err("the GPU has too few multiprocessors for clusters".into());
        }
        Ok(())
    }

    /// Clusters that the GPU holds at once, at least.
    fn resident_clusters(&self, listed: &Listed, threads: u32, kept: u32, cluster: u32) -> u64 {
        let blocks = self.resident_blocks(listed, threads, kept);
        if cluster == 1 {
            return blocks;
        }
        let of_sm = blocks / u64::from(self.gpu.sms);
        (of_sm * u64::from(self.gpu.cluster_sms) / u64::from(cluster)).max(1)
    }

    /// Blocks that the GPU holds at once, at least.
    fn resident_blocks(&self, listed: &Listed, threads: u32, kept: u32) -> u64 {
        let kernel = self.kernel(listed, 1, threads, kept);
        u64::from(blocks_per_sm(self.gpu, &kernel)) * u64::from(self.gpu.sms)
    }

    /// A kernel, alone.
    fn kernel(&self, listed: &Listed, grid: u64, threads: u32, kept: u32) -> Kernel {
        Kernel {
            family: listed.family,
            dtype: self.dtype,
            entry: listed.name,
            grid: grid.min(MOST_BLOCKS) as u32,
            block: threads,
            cluster: 1,
            shared_bytes: listed.key.shared_bytes(threads, kept),
            resident: false,
        }
    }

    /// What a backward kernel is told that shares no row, keeps nothing, and leaves so many gradients of the weight as they are wanted.
    fn backward(&self, gradients: u64) -> Backward {
        Backward {
            rows: self.rows,
            columns: self.columns,
            stride: self.stride,
            segments: self.segments,
            parameters: self.parameters,
            parts: 1,
            are_gradients: true,
            gradients,
            slots: 0,
            sums_bytes: 0,
            blocks: 1,
            apart: None,
        }
    }

    /// What a forward kernel is told that shares no row and keeps nothing.
    fn forward(&self) -> Forward {
        Forward {
            rows: self.rows,
            columns: self.columns,
            stride: self.stride,
            segments: self.segments,
            parameters: self.parameters,
            blocks: 1,
            kept: 0,
            exchange: None,
            running: None,
        }
    }
}
