//! The ladder: kernels as they were published, each for the problems that it was written for. They are run to be compared with; planning
//! never comes here.

use std::fmt;
use std::sync::Arc;

use isonorm_kernels::ladder::{
    THREADS, bn_eval_vec4, bn_relu_backward, bn_relu_train, bn_tile_nc, bn_welford_block, bn_welford_fused,
    bn_welford_warp, ln_shared, ln_shuffle, ln_vec4,
};

use super::{GpuPlan, GpuProperties, GpuSchedule, Kernel, MOST_BLOCKS, Messages, Schedule, Work};
use crate::plan::{Candidate, traffic};
use crate::{Activation, Affine, DType, Error, Geometry, NormDesc, Pass, Result, Shape};

/// Families of its kernels.
pub(crate) const BATCH_NORM: &str = "ladder_batch_norm";
pub(crate) const LAYER_NORM: &str = "ladder_layer_norm";

/// What LayerNorm's were published with.
const LAYER_NORM_EPS: f64 = 1e-6;

/// A published kernel, or a few that belong together, in the order of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// BatchNorm of `[N, C]` by tiles of 32 channels.
    BnTileNc,
    /// BatchNorm, a thread a channel, three kernels.
    BnNaive,
    /// BatchNorm, a block a channel, Welford.
    BnWelfordBlock,
    /// The same with shuffles.
    BnWelfordWarp,
    /// The same with running statistics.
    BnWelfordFused,
    /// The same with a ReLU.
    BnReluTrain,
    /// BatchNorm with running statistics and a ReLU.
    BnReluEval,
    /// BatchNorm with running statistics, accesses of 16 bytes.
    BnEvalVec4,
    /// The gradients of BatchNorm and a ReLU.
    BnReluBackward,
    /// LayerNorm, a thread a row.
    LnNaive,
    /// LayerNorm, a block a row.
    LnShared,
    /// The same with shuffles.
    LnShuffle,
    /// The same with accesses of 16 bytes.
    LnVec4,
}

/// How a rung comes by the variance, which says how exact it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variance {
    /// E\[x²\] − E\[x\]²
    Squares,
    /// The squared distances from a mean that was computed before.
    TwoPass,
    /// Number by number (Welford 1962), merged by Chan's formula.
    Welford,
    /// It is not computed.
    Given,
}

impl Rung {
    /// All, in order.
    pub const ALL: [Rung; 13] = [
        Rung::BnTileNc,
        Rung::BnNaive,
        Rung::BnWelfordBlock,
        Rung::BnWelfordWarp,
        Rung::BnWelfordFused,
        Rung::BnReluTrain,
        Rung::BnReluEval,
        Rung::BnEvalVec4,
        Rung::BnReluBackward,
        Rung::LnNaive,
        Rung::LnShared,
        Rung::LnShuffle,
        Rung::LnVec4,
    ];

    /// Its name, such as `bn-naive`.
    pub const fn name(self) -> &'static str {
        match self {
            Rung::BnTileNc => "bn-tile-nc",
            Rung::BnNaive => "bn-naive",
            Rung::BnWelfordBlock => "bn-welford-block",
            Rung::BnWelfordWarp => "bn-welford-warp",
            Rung::BnWelfordFused => "bn-welford-fused",
            Rung::BnReluTrain => "bn-relu-train",
            Rung::BnReluEval => "bn-relu-eval",
            Rung::BnEvalVec4 => "bn-eval-vec4",
            Rung::BnReluBackward => "bn-relu-backward",
            Rung::LnNaive => "ln-naive",
            Rung::LnShared => "ln-shared",
            Rung::LnShuffle => "ln-shuffle",
            Rung::LnVec4 => "ln-vec4",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Rung> {
        Rung::ALL.into_iter().find(|rung| rung.name() == name)
    }

    /// What it computes for an `x` of this shape, `f32`: `[N, C, …]` with weight and bias for BatchNorm; for LayerNorm rows of the last
    /// dimension, without, and with the eps that it was published with.
    pub fn desc(self, shape: impl Into<Shape>) -> NormDesc {
        if self.is_layer_norm() {
            return NormDesc::layer_norm(shape, 1).affine(Affine::None).eps(LAYER_NORM_EPS);
        }
        let desc = NormDesc::batch_norm(shape);
        match self {
            Rung::BnReluTrain => desc.activation(Activation::Relu),
            Rung::BnReluEval => desc.activation(Activation::Relu).pass(Pass::Eval),
            Rung::BnEvalVec4 => desc.pass(Pass::Eval),
            Rung::BnReluBackward => desc.activation(Activation::Relu).pass(Pass::Backward),
            _ => desc,
        }
    }

    /// Whether it is one of LayerNorm.
    pub const fn is_layer_norm(self) -> bool {
        matches!(self, Rung::LnNaive | Rung::LnShared | Rung::LnShuffle | Rung::LnVec4)
    }

    /// Whether it updates running statistics where it is given them; others refuse.
    pub const fn updates_running(self) -> bool {
        matches!(self, Rung::BnWelfordFused | Rung::BnReluTrain)
    }

    /// How it comes by the variance.
    pub const fn variance(self) -> Variance {
        match self {
            Rung::BnTileNc | Rung::LnShared | Rung::LnShuffle | Rung::LnVec4 => Variance::Squares,
            Rung::BnNaive | Rung::LnNaive => Variance::TwoPass,
            Rung::BnWelfordBlock | Rung::BnWelfordWarp | Rung::BnWelfordFused | Rung::BnReluTrain => Variance::Welford,
            Rung::BnReluEval | Rung::BnEvalVec4 | Rung::BnReluBackward => Variance::Given,
        }
    }

    /// Threads that share the elements of a group of BatchNorm, or of a row.
    pub const fn threads_of_group(self) -> u32 {
        match self {
            Rung::BnTileNc => 32,
            Rung::BnNaive | Rung::LnNaive => 1,
            _ => THREADS,
        }
    }

    /// Whether it maps x by a scale and a shift, which are rounded at the size of the mean, instead of subtracting the mean.
    pub const fn scales_and_shifts(self) -> bool {
        matches!(
            self,
            Rung::BnWelfordFused | Rung::BnReluTrain | Rung::BnReluEval | Rung::BnEvalVec4
        )
    }

    /// How often it reads and writes a tensor of `x`'s size.
    pub const fn transfers(self) -> (u64, u64) {
        match self {
            Rung::BnNaive | Rung::LnNaive => (3, 1),
            Rung::BnReluEval | Rung::BnEvalVec4 => (1, 1),
            Rung::BnReluBackward => (4, 1),
            _ => (2, 1),
        }
    }

    /// Why it does not carry this out, if it does not.
    fn declined(self, desc: &NormDesc, g: &Geometry) -> Option<String> {
        let own = self.desc(desc.get_shape()).eps(desc.get_eps());
        let evaluates = matches!(self, Rung::BnWelfordFused | Rung::BnReluTrain) && *desc == own.pass(Pass::Eval);
        if *desc != own && !evaluates {
            return Some(format!("it was written for {own}"));
        }
        if self == Rung::BnTileNc && desc.get_shape().dims().len() != 2 {
            return Some(format!("it was written for x=NxC, x is {}", desc.get_shape()));
        }
        if g.elements() == 0 {
            return Some("there are no elements".into());
        }
        // Indices within a group are numbers of 32 bits, and they step beyond its end.
        let most = u64::from(u32::MAX) - u64::from(THREADS);
        let blocks = (g.elements() as u64).div_ceil(u64::from(THREADS));
        let group = g.outer as u64 * g.inner as u64;
        (group > most || g.kept as u64 > most || blocks > MOST_BLOCKS)
            .then(|| format!("its indices do not reach {} elements", g.elements()))
    }

    /// Its kernels, as they are launched.
    fn kernels(self, g: &Geometry) -> Vec<Kernel> {
        let family = if self.is_layer_norm() { LAYER_NORM } else { BATCH_NORM };
        let kernel = |entry, grid: u64, block, shared_bytes| Kernel {
            family,
            dtype: DType::F32,
            entry,
            grid: grid as u32,
            block,
            cluster: 1,
            shared_bytes,
            resident: false,
        };
        // A thread for each of these, and a block for each group.
        let threads = |entry, count: usize| kernel(entry, (count as u64).div_ceil(u64::from(THREADS)), THREADS, 0);
        let blocks = |entry, shared_bytes| kernel(entry, g.kept as u64, THREADS, shared_bytes);
        match self {
            Rung::BnTileNc => {
                let tiles = (g.kept as u64).div_ceil(32);
                vec![kernel(
                    "bn_tile_nc",
                    tiles,
                    bn_tile_nc::TILE_THREADS,
                    bn_tile_nc::SHARED_BYTES,
                )]
            }
            Rung::BnNaive => vec![
                threads("bn_naive_mean", g.kept),
                threads("bn_naive_variance", g.kept),
                threads("bn_naive_normalize", g.elements()),
            ],
            Rung::BnWelfordBlock => vec![blocks("bn_welford_block", bn_welford_block::SHARED_BYTES)],
            Rung::BnWelfordWarp => vec![blocks("bn_welford_warp", bn_welford_warp::SHARED_BYTES)],
            Rung::BnWelfordFused => vec![blocks("bn_welford_fused", bn_welford_fused::SHARED_BYTES)],
            Rung::BnReluTrain => vec![blocks("bn_relu_train", bn_relu_train::SHARED_BYTES)],
            Rung::BnReluEval => vec![threads("bn_relu_eval", g.kept * g.inner)],
            Rung::BnEvalVec4 => vec![
                threads("bn_eval_scale", g.kept),
                threads("bn_eval_vec4", g.elements().div_ceil(bn_eval_vec4::WIDTH as usize)),
            ],
            Rung::BnReluBackward => vec![blocks("bn_relu_backward", bn_relu_backward::SHARED_BYTES)],
            Rung::LnNaive => vec![threads("ln_naive", g.kept)],
            Rung::LnShared => vec![blocks("ln_shared", ln_shared::SHARED_BYTES)],
            Rung::LnShuffle => vec![blocks("ln_shuffle", ln_shuffle::SHARED_BYTES)],
            Rung::LnVec4 => vec![blocks("ln_vec4", ln_vec4::SHARED_BYTES)],
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl GpuPlan {
    /// A rung instead of what would be planned: see [`Rung::desc`] for what each carries out. Tensors that a rung accesses 16 bytes at a time
    /// have to start on as many.
    ///
    /// # Errors
    /// Those of [`NormDesc::check`]; [`Error::Unsupported`] for what the rung was not written for.
    pub fn rung(rung: Rung, desc: &NormDesc, properties: &Arc<GpuProperties>) -> Result<GpuPlan> {
        let geometry = Geometry::of(desc)?;
        if let Some(reason) = rung.declined(desc, &geometry) {
            return Err(Error::Unsupported {
                op: desc.op(),
                pass: desc.get_pass().name(),
                reason: format!("{rung}: {reason}"),
            });
        }
        let (read, written) = rung.transfers();
        let (must_read, must_write) = traffic::tensors(desc);
        let workspace_bytes = match rung {
            Rung::BnNaive | Rung::BnEvalVec4 => 2 * geometry.kept * size_of::<f32>(),
            _ => 0,
        };
        let schedule = Box::new(Schedule {
            kernels: rung.kernels(&geometry),
            work: Work::Rung(rung),
            workspace_bytes,
            running_bytes: 0,
            messages: Messages::default(),
            again_bytes: (read + written - must_read - must_write) * traffic::tensor_bytes(desc, &geometry),
        });
        let by_16_bytes = matches!(rung, Rung::BnEvalVec4 | Rung::LnVec4);
        Ok(GpuPlan {
            desc: *desc,
            geometry,
            properties: properties.clone(),
            candidates: vec![Candidate::named(rung.name(), None)],
            schedule: GpuSchedule::Kernels {
                misaligned: (!by_16_bytes).then(|| schedule.clone()),
                aligned: schedule,
            },
        })
    }
}
