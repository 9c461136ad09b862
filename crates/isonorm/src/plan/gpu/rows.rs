//! Rows: groups that are contiguous in memory. Everything about plans that depends on what these kernels are specialised
//! on is in this file.

use isonorm_kernels::modules::ROWS_FORWARD;
use isonorm_kernels::rows::forward::Key;
use isonorm_kernels::simt::WARP;

use super::{GpuProperties, GpuSchedule, Kernel, MOST_BLOCKS, taken};
use crate::plan::Candidate;
use crate::{Activation, Affine, DType, Geometry, NormDesc};

/// Bytes that a thread loads at once.
const VECTOR_BYTES: usize = 16;
/// Threads of a block whose warps own a row each: four rows, so that a short last block wastes little.
const WARPS_BLOCK: u32 = 4 * WARP;
/// Fewer threads than this leave a multiprocessor short of loads in flight when a block owns a row.
const SMALLEST_BLOCK: u32 = 4 * WARP;

/// A forward pass whose rows stay in registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowsForward {
    pub(crate) key: Key,
    pub(crate) kernel: Kernel,
    pub(crate) rows: u64,
    pub(crate) columns: u32,
}

/// Tries each candidate in order.
pub(super) fn plan(desc: &NormDesc, g: &Geometry, gpu: &GpuProperties, candidates: &mut Vec<Candidate>) -> GpuSchedule {
    let chunks = (g.inner * desc.get_dtype().bytes()).div_ceil(VECTOR_BYTES);
    let teams = [("rows/warp", warp(chunks)), ("rows/block", block(chunks))];
    let mut schedule = GpuSchedule::Unsupported;
    for (name, team) in teams {
        let declined = match (taken(candidates), declined(desc, g, gpu), team) {
            (Some(other), ..) => Some(format!("{other} was taken")),
            (None, Some(reason), _) => Some(reason),
            (None, None, None) => Some(too_long(name, desc.get_dtype())),
            (None, None, Some(team)) => {
                schedule = GpuSchedule::RowsForward(forward(desc, g, team));
                None
            }
        };
        candidates.push(Candidate { name, declined });
    }
    schedule
}

/// Why no kernel of this family does it, whatever the length of a row.
fn declined(desc: &NormDesc, g: &Geometry, gpu: &GpuProperties) -> Option<String> {
    let dtype = desc.get_dtype();
    let Some(module) = ROWS_FORWARD.iter().find(|m| m.name == module(dtype)) else {
        return Some(format!("there are no kernels of {dtype}"));
    };
    let by_element = g.affine.kept_stride == 0 && g.affine.inner_divisor.is_some_and(|d| d.get() == 1);
    match () {
        () if gpu.compute_capability < module.compute_capability => {
            let (has, needs) = (gpu.compute_capability, module.compute_capability);
            Some(format!(
                "compute capability {has} is below {needs}, which the kernels need"
            ))
        }
        () if desc.get_pass().is_backward() => Some("there are no backward kernels".into()),
        () if desc.uses_running_statistics() => Some("there are no kernels that take running statistics".into()),
        () if g.outer > 1 => Some("there are no kernels for groups that are not contiguous".into()),
        () if desc.get_affine() != Affine::None && !by_element => {
            Some("there are no kernels with a weight that elements share".into())
        }
        () if desc.get_affine() != Affine::None && desc.get_param_dtype() != DType::F32 => {
            Some("there are no kernels with parameters other than f32".into())
        }
        () if desc.get_activation() != Activation::Identity => Some("there are no kernels with an activation".into()),
        () => None,
    }
}

fn too_long(name: &str, dtype: DType) -> String {
    let lanes = VECTOR_BYTES / dtype.bytes();
    let vectors = Key::VECTORS[Key::VECTORS.len() - 1];
    let threads = if name == "rows/warp" { WARP } else { Key::MAX_THREADS };
    let most = (vectors * threads) as usize * lanes;
    format!("rows of more than {most} elements of {dtype} do not fit its registers")
}

/// Who owns a row: vectors a thread, threads a block, rows a block.
struct Team {
    block: bool,
    vectors: u32,
    threads: u32,
    rows: u32,
}

/// The fewest vectors with which a warp holds this many chunks.
fn warp(chunks: usize) -> Option<Team> {
    let vectors = Key::VECTORS.into_iter().find(|v| (v * WARP) as usize >= chunks)?;
    Some(Team {
        block: false,
        vectors,
        threads: WARPS_BLOCK,
        rows: WARPS_BLOCK / WARP,
    })
}

/// The most vectors a thread that leave the block large enough.
fn block(chunks: usize) -> Option<Team> {
    let threads = |vectors: u32| chunks.div_ceil((vectors * WARP) as usize) * WARP as usize;
    let fits = |v: &u32| threads(*v) <= Key::MAX_THREADS as usize;
    let large = |v: &u32| threads(*v) >= SMALLEST_BLOCK as usize;
    let most_first = || Key::VECTORS.into_iter().rev();
    let vectors = most_first()
        .filter(fits)
        .find(large)
        .or_else(|| Key::VECTORS.into_iter().find(fits))?;
    Some(Team {
        block: true,
        vectors,
        threads: threads(vectors) as u32,
        rows: 1,
    })
}

fn forward(desc: &NormDesc, g: &Geometry, team: Team) -> RowsForward {
    let key = Key {
        centred: desc.get_norm().is_centred(),
        block: team.block,
        vectors: team.vectors,
    };
    let dtype = desc.get_dtype();
    let rows = g.groups() as u64;
    RowsForward {
        key,
        kernel: Kernel {
            module: module(dtype),
            entry: key.name(dtype.name()),
            grid: rows.div_ceil(team.rows.into()).min(MOST_BLOCKS) as u32,
            block: team.threads,
            cluster: 1,
            shared_bytes: key.shared_bytes(),
        },
        rows,
        // A row fits the registers of a block.
        columns: g.inner as u32,
    }
}

/// The module of a data type; `f64` has none.
fn module(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "rows_forward_f16",
        DType::Bf16 => "rows_forward_bf16",
        DType::F32 => "rows_forward_f32",
        DType::F64 => "rows_forward_f64",
    }
}
