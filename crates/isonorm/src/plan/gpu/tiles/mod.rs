//! Tiles: groups that lie side by side in memory, or in pieces. Everything about plans that depends on what these kernels are
//! specialised on is in this folder.

mod columns;
mod given;
mod held;
mod shapes;

use std::sync::OnceLock;

use isonorm_kernels::rows::access::Width;
use isonorm_kernels::rows::epilogue::Class;
use isonorm_kernels::rows::key::Pass;
use isonorm_kernels::tiles::forward::takes_moments;
use isonorm_kernels::tiles::key::{self, Key, Listed};
use isonorm_kernels::tiles::tiling::Tiling;
use isonorm_kernels::tiles::{Kind, THREADS, message_words, strips};

use super::choice::Planned;
use super::occupancy::blocks_per_sm;
use super::rows::{Running, VECTOR_BYTES, gather, running};
use super::tuning;
use super::{GpuProperties, Kernel, Messages, REGION_BYTES, Schedule, Work};
use crate::{Activation, DType, Geometry, NormDesc};

/// What the kernels are told besides pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    pub(crate) tiling: Tiling,
    /// Elements of a group.
    pub(crate) group: u64,
    /// Whether a mean is taken off.
    pub(crate) centred: bool,
    /// Parameters of each kind.
    pub(crate) parameters: u64,
    /// Whether parameters have the data's type, else `f32`.
    pub(crate) as_data: bool,
    /// Where in the workspace kernels of [`Class::Added`] and [`Class::Result`] leave where gradients pass.
    pub(crate) signs: Option<usize>,
    /// Backward: shares of the gradients of weight and bias, which another kernel adds up.
    pub(crate) shares: Option<Shares>,
    /// Forward: what the last kernel is told, where a batch has several tensors; it runs where running statistics are updated.
    pub(crate) running: Option<Running>,
}

/// Shares of gradients in the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Shares of each gradient, one behind the other: of the tensors of a batch, or of teams.
    pub(crate) parts: u64,
    /// Where those of weight and bias start.
    pub(crate) offsets: [usize; 2],
}

/// All kernels.
fn listed() -> &'static [Listed] {
    static LISTED: OnceLock<Vec<Listed>> = OnceLock::new();
    LISTED.get_or_init(|| key::listed().collect())
}

/// A problem as these kernels see it.
struct Problem<'a> {
    gpu: &'a GpuProperties,
    dtype: DType,
    pass: Pass,
    given: bool,
    /// Whether statistics are all that is wanted.
    moments: bool,
    /// Whether weight and bias belong to rows: the channels of N, C, spatial.
    by_row: bool,
    /// Whether a mean is taken off.
    centred: bool,
    activation: Activation,
    /// Whether a tensor is added before the activation.
    residual: bool,
    /// Whether the activation's mask is written, or read.
    masked: bool,
    /// Whether the activation's result is read in the place of that tensor.
    by_result: bool,
    batch: u64,
    rows: u64,
    kept: u32,
    inner: u32,
    /// Neighbouring elements that share a parameter.
    run: u32,
    parameters: u64,
    has_parameters: bool,
    as_data: bool,
    /// Channels whose running statistics may be updated.
    tracked: Option<u64>,
}

pub(super) const NAME: &str = "tiles";
/// The compute capability that all of these kernels need.
const NEEDS: u32 = 80;

/// Shapes for tensors that start on 16 bytes, and for others, those that are fastest by the estimate first.
pub(super) struct Plans {
    pub(super) aligned: Vec<Planned>,
    pub(super) misaligned: Vec<Planned>,
}

/// All shapes, or why there are none.
pub(super) fn plans(desc: &NormDesc, g: &Geometry, gpu: &GpuProperties) -> Result<Plans, String> {
    let problem = Problem::of(desc, g, gpu)?;
    let choices = match problem.is_told() {
        true => given::choices,
        false => shapes::choices,
    };
    let elements = match problem.masked {
        true => Err("a thread writes whole bytes of a mask".into()),
        false => choices(&problem, Width::Element),
    };
    let mut aligned = columns::choices(&problem);
    aligned.extend(held::choices(&problem));
    match choices(&problem, Width::Vector).or_else(|_| elements.clone()) {
        Ok(choices) => aligned.extend(choices),
        Err(reason) if aligned.is_empty() => return Err(reason),
        Err(_) => {}
    }
    let planned = |choice: &shapes::Choice| Planned {
        name: match choice.listed.key.kind {
            kind if kind.is_strips() => "tiles/strips",
            Kind::Held if choice.tiling.blocks > 1 => "tiles/blocks",
            Kind::Held => "tiles/block",
            _ => NAME,
        },
        shape: choice.to_string(),
        nanoseconds: match problem.inner {
            1 => choice.nanoseconds,
            _ => tuning::with_activation(choice.nanoseconds, problem.pass, problem.activation, problem.bytes()),
        },
        schedule: schedule(&problem, choice),
    };
    Ok(Plans {
        aligned: aligned.iter().map(planned).collect(),
        misaligned: elements.unwrap_or_default().iter().map(planned).collect(),
    })
}

impl<'a> Problem<'a> {
    /// The problem, or why no kernel of this family does it.
    fn of(desc: &NormDesc, g: &Geometry, gpu: &'a GpuProperties) -> Result<Problem<'a>, String> {
        let (dtype, backward) = (desc.get_dtype(), desc.get_pass().is_backward());
        let given = desc.uses_running_statistics();
        let moments = desc.get_pass() == crate::Pass::Moments;
        if dtype == DType::F64 {
            return Err(format!("there are no kernels of {dtype}"));
        }
        if gpu.compute_capability < NEEDS {
            let has = gpu.compute_capability;
            return Err(format!(
                "compute capability {has} is below {NEEDS}, which the kernels need"
            ));
        }
        let takes_contiguous = desc.has_mask() || desc.reads_result() || moments || given && g.inner == 1;
        if g.outer == 1 && !takes_contiguous {
            return Err("groups are contiguous".into());
        }
        if given && !backward && g.inner > 1 {
            return Err("channels are segments, of which each access is by itself".into());
        }
        debug_assert!(!given || g.kept == g.channels, "one of each statistic for each group");
        let narrow = |number: usize, of: &str| {
            let narrow = u32::try_from(number).ok().filter(|number| *number <= i32::MAX as u32);
            narrow.ok_or_else(|| format!("{number} {of} are more than 2³¹"))
        };
        let (kept, inner) = (
            narrow(g.kept, "groups side by side")?,
            narrow(g.inner, "neighbouring elements of a group")?,
        );
        let by_row = g.affine.outer_stride > 0;
        if by_row {
            narrow(g.outer, "channels")?;
        }
        let run = g.affine.inner_divisor.map_or(g.inner, |d| d.get()) as u32;
        let has_parameters = desc.get_affine().has_weight();
        Ok(Problem {
            gpu,
            dtype,
            pass: if backward { Pass::Backward } else { Pass::Forward },
            given,
            moments,
            by_row,
            centred: desc.get_norm().is_centred(),
            activation: desc.get_activation(),
            residual: desc.has_residual(),
            masked: desc.has_mask(),
            by_result: desc.reads_result(),
            batch: g.batch as u64,
            rows: g.outer as u64,
            kept,
            inner,
            run: if has_parameters { run } else { inner },
            parameters: g.parameters as u64,
            has_parameters,
            as_data: desc.get_param_dtype() != DType::F32,
            tracked: (desc.get_norm().has_running_statistics() && !given && !backward && !moments)
                .then_some(g.channels as u64),
        })
    }

    fn bytes(&self) -> u32 {
        self.dtype.bytes() as u32
    }

    /// Whether nothing is summed: the forward pass of statistics that are given.
    fn is_told(&self) -> bool {
        self.given && self.pass == Pass::Forward
    }

    /// Whether what is added before the activation has to be read.
    fn reads_residual(&self) -> bool {
        match self.pass {
            Pass::Forward => self.residual,
            Pass::Backward => self.residual && !self.masked && self.activation != Activation::Identity,
        }
    }

    /// Elements of a row of memory.
    fn line(&self) -> u64 {
        u64::from(self.kept) * u64::from(self.inner)
    }

    /// The kernel with the least code that does it.
    fn listed(&self, width: Width, tiling: &Tiling) -> Option<&'static Listed> {
        let kind = match () {
            () if self.given => Kind::Given,
            () if self.by_row => Kind::ByRow,
            () if tiling.parts > 1 => Kind::Wide,
            () if tiling.lanes == 0 && width == Width::Vector => Kind::Group,
            () => Kind::Groups,
        };
        let suits = |listed: &&Listed| {
            let key = &listed.key;
            (key.pass, key.kind, key.width) == (self.pass, kind, width)
                && self.suits(key.class)
                && (!self.moments || takes_moments(key.class, width))
        };
        listed().iter().filter(suits).min_by_key(|listed| listed.key.class)
    }

    /// The kernel with the least code that does it, of a kind that GPUs need a capability for, and of some classes.
    fn listed_of(&self, kind: Kind, classes: &[Class]) -> Option<&'static Listed> {
        let suits = |listed: &&Listed| {
            let key = &listed.key;
            key.needs() <= self.gpu.compute_capability
                && (key.pass, key.kind) == (self.pass, kind)
                && key.class.has(self.activation)
                && classes.contains(&key.class)
        };
        listed().iter().filter(suits).min_by_key(|listed| listed.key.class)
    }

    /// Whether kernels of a class do it, which have to be masked ones or must not be.
    fn suits(&self, class: Class) -> bool {
        let is_masked = self.pass == Pass::Backward && self.masked;
        class.has(self.activation) && (class == Class::Masked) == is_masked
    }

    /// The kernel, alone, in blocks with tiles so divided.
    fn kernel(&self, listed: &Listed, tiling: &Tiling, grid: u32) -> Kernel {
        let is_held = listed.key.kind == Kind::Held;
        Kernel {
            family: listed.family,
            dtype: self.dtype,
            entry: listed.name,
            grid,
            block: listed.key.threads(tiling),
            cluster: if is_held { tiling.blocks } else { 1 },
            shared_bytes: listed.key.shared_bytes(tiling, self.bytes()),
            // Blocks that share a tile wait for each other, but where statistics are given and nothing is summed.
            resident: tiling.blocks > 1 && !is_held && !self.is_told(),
        }
    }
}

/// Words of the messages of a team.
fn words_of_team(key: &Key, tiling: &Tiling) -> usize {
    let words = |blocks: u32, places: u32| message_words(blocks, places) as usize;
    let Tiling { blocks, parts, .. } = *tiling;
    match key.pass {
        _ if key.kind.is_strips() => words(blocks, tiling.width),
        Pass::Forward => words(blocks, tiling.groups()),
        Pass::Backward if parts > 1 => parts as usize * words(blocks / parts, tiling.units()) + words(blocks, 1),
        Pass::Backward => words(blocks, tiling.units()),
    }
}

fn schedule(problem: &Problem<'_>, choice: &shapes::Choice) -> Schedule {
    let &shapes::Choice {
        listed, tiling, teams, ..
    } = choice;
    let kernel = problem.kernel(listed, &tiling, teams * tiling.blocks);
    let messages = match kernel.resident {
        true => Messages::new(
            teams as usize * words_of_team(&listed.key, &tiling),
            tiling.tiles.div_ceil(teams).into(),
        ),
        false => Messages::default(),
    };
    let group = problem.rows * u64::from(problem.inner);
    let mut tiles = Tiles {
        tiling,
        group,
        centred: problem.centred,
        parameters: problem.parameters,
        as_data: problem.as_data,
        signs: None,
        shares: None,
        running: None,
    };
    let (mut workspace_bytes, mut running_bytes) = (0, 0);
    if listed.key.kind.is_strips() && matches!(listed.key.class, Class::Added | Class::Result) {
        let passing = strips::passing(&tiling, listed.key.at_once);
        tiles.signs = Some(0);
        workspace_bytes = passing as usize * kernel.grid as usize * kernel.block as usize;
    }
    let mut kernels = vec![kernel];
    let parts = if problem.by_row { teams.into() } else { problem.batch };
    if problem.pass == Pass::Backward && problem.has_parameters && parts > 1 {
        let bytes = ((parts * problem.parameters) as usize * size_of::<f32>()).next_multiple_of(REGION_BYTES);
        tiles.shares = Some(Shares {
            parts,
            offsets: [0, bytes],
        });
        workspace_bytes = 2 * bytes;
        kernels.push(gather(problem.dtype, parts, problem.parameters));
    }
    if let (Some(channels), true) = (problem.tracked, problem.batch > 1) {
        let groups = problem.batch * channels;
        let bytes = (groups as usize * size_of::<f32>()).next_multiple_of(REGION_BYTES);
        running_bytes = 2 * bytes;
        tiles.running = Some(Running {
            instances: problem.batch,
            channels,
            statistics: [0, bytes],
        });
        kernels.push(running::kernel(problem.dtype, problem.batch, channels));
    }
    // What is not kept is read again; of a forward pass, only x.
    let is_strips = listed.key.kind.is_strips();
    let not_kept = u128::from(match problem.is_told() {
        true => 0,
        // Nothing comes behind the statistics.
        false if problem.moments => 0,
        false if is_strips => strips::passing(&tiling, listed.key.at_once),
        false if listed.key.kind == Kind::Held => 0,
        false => tiling.accesses - tiling.kept,
    });
    let tensors = match problem.pass {
        Pass::Forward => 1,
        Pass::Backward if is_strips => 2,
        Pass::Backward => 2 + u128::from(problem.reads_residual()),
    };
    let bytes = u128::from(group * u64::from(problem.kept) * problem.batch * u64::from(problem.bytes()));
    let again_bytes = (tensors * bytes * not_kept / u128::from(tiling.accesses)) as u64;
    Schedule {
        kernels,
        work: Work::Tiles(tiles),
        workspace_bytes,
        running_bytes,
        messages,
        again_bytes,
    }
}
