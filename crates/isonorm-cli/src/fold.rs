//! `isonorm fold`: removes normalizations from a state dict.
//!
//! The way of a file: [`state`] reads it; [`norms`] recognises the normalizations; [`pairs`] decides for each, by the rules
//! of [`naming`] (BatchNorm) and [`readers`] (LayerNorm, RMSNorm) or by `--map`, which layers it goes into; [`apply`] folds,
//! and [`check`] runs both ways on random input. Names prove little, so whatever is in doubt stays as it is, with the
//! reason.

mod apply;
mod check;
mod fit;
mod mapped;
mod naming;
mod norms;
mod pairs;
mod pattern;
mod probe;
mod readers;
mod report;
mod state;

use std::path::{Path, PathBuf};

use crate::error::{Error, Outcome, Result};
use crate::io::{Pending, ReadError};
use crate::screen::{Screen, progress};
use pairs::LeftAlone;
use pattern::{Groups, Mapping, Pattern};
use report::Report;
use state::StateDict;

const RULES: &str = "\
How pairs are found:
  BatchNorm into the layer before it, when the layer's outputs are as many as the norm's features:
    N, N+1           features.0 features.1; downsample.0 downsample.1; conv.0.0 conv.0.1
    convN, bnN       conv1 bn1; block.conv block.norm; conv_dw bn_dw; fc1 bn1
    X, X_bn or bn_X  conv1 bn_conv1; fc fc_bn
    X, X.norm        conv1 conv1.norm
    n-th conv, bnN   conv_stem bn1; conv_pw bn1 conv_dw bn2 conv_pwl bn3
  A norm that comes before its layer (DenseNet, pre-activation ResNet) is seen by the shapes, and then all
  pairs of that scheme are left alone. Where all widths are equal nothing shows it: use --keep.
  LayerNorm and RMSNorm weights (--norms layer or all) into every linear layer that reads them:
    input_layernorm -> self_attn.{q,k,v}_proj; post_attention_layernorm -> mlp.{gate,up}_proj;
    ln_1 -> attn.c_attn; ln_2 -> mlp.c_fc; model.norm, ln_f -> lm_head unless it is tied
  The norm's weight becomes one and its bias zero. Gemma stores its norm weights minus one: --unit-offset.

BatchNorm's tensors are removed and biases added where they were missing: the model that loads the file has an
identity for each norm that was folded, and layers with a bias.

Examples:
  isonorm fold resnet50.safetensors -o folded.safetensors
  isonorm fold net.safetensors -o folded.safetensors --map 'blocks.*.fc=blocks.*.batchnorm_out' --eps 1e-3
  isonorm fold unet.safetensors -o folded.safetensors --transposed 'up*.0' --groups up1.0=4
  isonorm fold vit.safetensors -o folded.safetensors --map 'blocks.*.norm1=blocks.*.attn.qkv'";

/// Reads a state dict; what is read is decoded, written and read again.
///
/// # Panics
/// When what was written is not what was read.
pub(crate) fn fuzz(data: &[u8]) {
    let Ok(state) = StateDict::parse(data) else { return };
    for name in state.names() {
        let _ = state.tensor(name);
    }
    let mut written = Vec::new();
    state.write(&mut written).expect("memory can be written");
    let again = StateDict::parse(&written).expect("what was written can be read");
    assert!(state.names().eq(again.names()));
    for name in state.names() {
        assert!(
            state.shape(name) == again.shape(name) && state.bytes(name) == again.bytes(name),
            "{name}"
        );
    }
}

/// Which kinds of normalization are folded without being mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Norms {
    /// BatchNorm into the layer before it
    #[default]
    Batch,
    /// LayerNorm and RMSNorm weights into the linear layers after them
    Layer,
    /// Both
    All,
}

impl Norms {
    fn batch(self) -> bool {
        self != Norms::Layer
    }

    fn layer(self) -> bool {
        self != Norms::Batch
    }
}

/// In NAME, `*` stands for one component of a module's name, or for part of one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = RULES, after_help = "--help shows how pairs are found, and examples.")]
pub(crate) struct Args {
    /// The state dict, a .safetensors file
    input: PathBuf,
    /// Where the folded state dict goes
    #[arg(short, long, required_unless_present = "dry_run")]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Fold and check, but write nothing
    #[arg(long)]
    dry_run: bool,
}

/// What the user knows about the model.
#[derive(Debug, clap::Args)]
struct Options {
    /// Fold this pair, named in the order of the data flow: a layer and its BatchNorm, or a norm and its linear reader
    #[arg(long = "map", value_name = "FIRST=SECOND")]
    maps: Vec<Mapping>,
    /// Leave this norm alone
    #[arg(long, value_name = "NAME")]
    keep: Vec<Pattern>,
    /// What is added to BatchNorm's variance; state dicts do not say
    #[arg(long, default_value = "1e-5")]
    eps: f64,
    /// This layer's weight has its inputs first: a transposed convolution, or a linear layer stored as [in, out]
    #[arg(long, value_name = "NAME")]
    transposed: Vec<Pattern>,
    /// This transposed convolution has G groups
    #[arg(long, value_name = "NAME=G")]
    groups: Vec<Groups>,
    /// Which normalizations to fold by name
    #[arg(long, value_enum, default_value_t)]
    norms: Norms,
    /// The weights of LayerNorm and RMSNorm are stored minus one
    #[arg(long)]
    unit_offset: bool,
}

impl Options {
    /// The number of groups of a layer that was said to be transposed.
    fn groups_of_transposed(&self, layer: &str) -> Option<usize> {
        let groups = self
            .groups
            .iter()
            .find(|given| given.name.matches(layer))
            .map(|given| given.groups);
        groups.or_else(|| self.transposed.iter().any(|name| name.matches(layer)).then_some(1))
    }

    fn keeps(&self, norm: &str) -> bool {
        self.keep.iter().any(|name| name.matches(norm))
    }

    /// Whether a `--map` names this layer.
    fn is_mapped(&self, layer: &str) -> bool {
        self.maps.iter().any(|mapping| mapping.names(layer))
    }

    /// Every name given other than in a `--map`, with its option.
    fn patterns(&self) -> impl Iterator<Item = (&'static str, &Pattern)> {
        let groups = self.groups.iter().map(|given| ("--groups", &given.name));
        let transposed = self.transposed.iter().map(|name| ("--transposed", name));
        groups
            .chain(transposed)
            .chain(self.keep.iter().map(|name| ("--keep", name)))
    }
}

pub(crate) fn execute(args: &Args, screen: &mut Screen) -> Result<Outcome> {
    if !(args.options.eps >= 0.0 && args.options.eps.is_finite()) {
        return Err(Error::usage(format!(
            "--eps must be finite and not negative, got {}",
            args.options.eps
        )));
    }
    if let Some(output) = &args.output {
        refuse_same_file(&args.input, output)?;
    }
    let unreadable = |source| Error::Read {
        path: args.input.clone(),
        source,
    };
    let bytes = read(&args.input).map_err(unreadable)?;
    let mut state = StateDict::parse(&bytes).map_err(unreadable)?;
    let mut report = Report::new(args, &args.options);
    fold(&mut state, args, &mut report)?;
    report.describe_result(&state);
    if let Some(output) = args
        .output
        .as_ref()
        .filter(|_| !args.dry_run && report.passed() && !report.is_empty())
    {
        Pending::create(output, |to| state.write(to))?.publish()?;
        report.written(output);
    }
    report.show(screen)?;
    Ok(match report.passed() && !report.is_empty() {
        true => Outcome::Success,
        false => Outcome::Failure,
    })
}

/// Folds every pair. One that the library refuses is left alone, unless the user asked for it.
fn fold(state: &mut StateDict<'_>, args: &Args, report: &mut Report<'_>) -> Result<()> {
    let in_file = |reason: String| Error::usage(format!("{}: {reason}", args.input.display()));
    let pairs = pairs::find(state, &args.options).map_err(in_file)?;
    pairs.left_alone.iter().for_each(|left| report.add_left_alone(left));
    let bar = progress(pairs.fold.len() as u64, "folding");
    for pair in &pairs.fold {
        match apply::fold(state, &args.options, pair) {
            Ok(layers) => report.add_folded(pair, layers),
            Err(reason) if pair.mapped => return Err(in_file(format!("{}: {reason}", pair.norm.name))),
            Err(reason) => report.add_left_alone(&LeftAlone {
                norm: pair.norm.clone(),
                reason,
            }),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let unsupported = |reason: &str| Err(ReadError::Unsupported(reason.into()));
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    if name.ends_with(".json") || is_shard(&name) {
        return unsupported(
            "one part of a model in several files, or their index; a norm and its layer may be in different ones, so merge them into one file first",
        );
    }
    if !std::fs::metadata(path)?.is_file() {
        return unsupported("not a file");
    }
    Ok(std::fs::read(path)?)
}

/// `model-00001-of-00003.safetensors`.
fn is_shard(name: &str) -> bool {
    let stem = name.strip_suffix(".safetensors").unwrap_or(name);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    stem.rsplit_once("-of-")
        .is_some_and(|(rest, count)| number(count) && rest.rsplit_once('-').is_some_and(|(_, index)| number(index)))
}

/// The weights before folding cannot be computed from those after it.
fn refuse_same_file(input: &Path, output: &Path) -> Result<()> {
    match (input.canonicalize(), output.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => Err(Error::usage(format!(
            "{}: the output would replace the input, which folding cannot give back",
            output.display()
        ))),
        _ => Ok(()),
    }
}
