use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;

use crate::call::Save;
use crate::device::DeviceArgs;
use crate::io::Source;

const EXAMPLES: &str = "\
Examples:
  isonorm run layernorm --input x.npy --weight w.npy --bias b.npy --output y.npy
  isonorm run batchnorm --layout nhwc --act relu --input acts.safetensors:layer1 --output y.safetensors
  isonorm run \"batchnorm pass=eval\" --input x.npy --running-mean m.npy --running-var v.npy --output y.npy
  isonorm run rmsnorm --pass backward --input x.npy --grad dy.npy --weight w.npy --output grads.safetensors

Shapes are read from the file: N,C,spatial; with --layout nhwc (nlc, ndhwc, channels_last) the file's sizes are
N,spatial,C, in the order of memory, as NumPy shows such an array. A problem string's x= and dtype= may be left out;
given, they must agree with the file (x= is always N,C,spatial).

Files: .npy (f2, f4, f8) and .safetensors (F16, BF16, F32, F64); FILE.safetensors:NAME picks a tensor. A .safetensors
output holds every result under its name: y, stream, mean, rstd, running_mean, running_var; or dx, dweight, dbias, dresidual.
An .npy output holds y or dx; the others are written beside it: y.npy, y.mean.npy, y.rstd.npy and so on.";

/// Weight, bias and running statistics come from files; which of them are given decides affine= and param= unless the
/// problem says so. A training pass that is given running statistics updates them and writes them out.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The op, or a problem string without x= and dtype=: batchnorm, layernorm, rmsnorm, groupnorm, instancenorm
    #[arg(required = true, value_name = "PROBLEM")]
    pub(super) problem: Vec<String>,

    /// The tensor to normalize
    #[arg(long, short, value_name = "FILE")]
    pub(super) input: Source,
    /// Where to write the results; without it they are only reported
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Memory order: nchw or nhwc (by rank also nc, ncl, nlc, ncdhw, ndhwc), channels_first or channels_last
    #[arg(long)]
    pub(super) layout: Option<String>,
    /// Activation: relu, leaky_relu or leaky_relu:SLOPE, silu, gelu, gelu_tanh, sigmoid, tanh or hardswish
    #[arg(long, value_name = "NAME")]
    pub(super) act: Option<String>,
    /// What to compute: train (the default), moments, eval, backward or backward_eval
    #[arg(long)]
    pub(super) pass: Option<String>,
    /// Number added to the variance before the root
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(super) eps: Option<String>,
    /// Groups of channels of groupnorm
    #[arg(long, value_name = "N")]
    pub(super) groups: Option<String>,
    /// Normalize over this many last dimensions (layernorm, rmsnorm)
    #[arg(long, value_name = "N")]
    pub(super) dims: Option<String>,
    /// Normalize over the channels of N,C,spatial instead (layernorm, rmsnorm)
    #[arg(long, value_name = "channels")]
    pub(super) over: Option<String>,

    /// Factor of the affine map
    #[arg(long, value_name = "FILE")]
    pub(super) weight: Option<Source>,
    /// Addend of the affine map
    #[arg(long, value_name = "FILE")]
    pub(super) bias: Option<Source>,
    /// Tensor added before the activation
    #[arg(long, value_name = "FILE")]
    pub(super) residual: Option<Source>,
    /// Add the residual to the input instead: the sum is normalized, and written too (layernorm, rmsnorm). Backward, the input is that sum
    #[arg(long)]
    pub(super) stream: bool,
    /// Gradient of the sum from where else it goes, for a backward pass with --stream
    #[arg(long, value_name = "FILE", requires = "stream")]
    pub(super) dstream: Option<Source>,
    /// Running mean: used by eval passes, updated by train
    #[arg(long, value_name = "FILE")]
    pub(super) running_mean: Option<Source>,
    /// Running variance
    #[arg(long, value_name = "FILE")]
    pub(super) running_var: Option<Source>,
    /// Share of the batch in updated running statistics (PyTorch's momentum)
    #[arg(long, value_name = "X", default_value_t = 0.1, allow_negative_numbers = true)]
    pub(super) momentum: f64,

    /// Gradient of y, for a backward pass
    #[arg(long, value_name = "FILE")]
    pub(super) grad: Option<Source>,
    /// Mean that the forward pass saved; without --mean and --rstd they are computed from the input first
    #[arg(long, value_name = "FILE")]
    pub(super) mean: Option<Source>,
    /// Rstd that the forward pass saved
    #[arg(long, value_name = "FILE")]
    pub(super) rstd: Option<Source>,

    /// Also write the mean of each group
    #[arg(long)]
    pub(super) save_mean: bool,
    /// Also write rstd = 1/sqrt(variance + eps) of each group
    #[arg(long)]
    pub(super) save_rstd: bool,
    /// Run this often and report the median time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub(super) repeat: usize,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
}

impl Args {
    /// The statistics that were asked for.
    pub(super) fn save(&self) -> Save {
        Save {
            mean: self.save_mean,
            rstd: self.save_rstd,
        }
    }

    /// The flags that stand for words of the problem string.
    pub(super) fn words(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let residual = match (self.stream, &self.residual) {
            (true, _) => Some("stream"),
            (false, residual) => residual.as_ref().map(|_| "add"),
        };
        [
            ("layout", self.layout.as_deref()),
            ("act", self.act.as_deref()),
            ("pass", self.pass.as_deref()),
            ("eps", self.eps.as_deref()),
            ("groups", self.groups.as_deref()),
            ("dims", self.dims.as_deref()),
            ("over", self.over.as_deref()),
            ("residual", residual),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    }
}
