//! What was folded and what was not, for people and as JSON.

use std::path::Path;

use serde::Serialize;

use super::apply::FoldedLayer;
use super::norms::{Norm, NormKind};
use super::pairs::{LeftAlone, Pair, Target};
use super::state::StateDict;
use super::{Args, Options};
use crate::error::Result;
use crate::format::{dims, number};
use crate::screen::{BAD, GOOD, LABEL, STRONG, Screen, styled};

/// The outcome for one file.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    input: &'a Path,
    /// `None` when nothing was written.
    output: Option<&'a Path>,
    dry_run: bool,
    /// Added to each BatchNorm's variance; the file does not say.
    eps: f64,
    /// Whether every check on random input passed.
    passed: bool,
    folded: Vec<Folded>,
    left_alone: Vec<Left>,
    removed: Vec<String>,
    added: Vec<String>,
    tensors: usize,
}

/// A norm and a layer that it went into.
#[derive(Debug, Serialize)]
struct Folded {
    norm: String,
    norm_kind: &'static str,
    features: usize,
    layer: String,
    layer_kind: String,
    /// `previous`: the layer before the norm; `next`: the one after it.
    into: &'static str,
    weight_shape: Vec<usize>,
    dtype: isonorm::DType,
    bias_added: bool,
    max_error: f64,
    allowed_error: f64,
    passed: bool,
}

#[derive(Debug, Serialize)]
struct Left {
    norm: String,
    norm_kind: &'static str,
    reason: String,
}

fn kind(norm: &Norm) -> &'static str {
    match norm.kind {
        NormKind::Batch => "batchnorm",
        NormKind::Affine => "norm",
    }
}

impl<'a> Report<'a> {
    pub fn new(args: &'a Args, options: &Options) -> Report<'a> {
        Report {
            input: &args.input,
            output: None,
            dry_run: args.dry_run,
            eps: options.eps,
            passed: true,
            folded: Vec::new(),
            left_alone: Vec::new(),
            removed: Vec::new(),
            added: Vec::new(),
            tensors: 0,
        }
    }

    pub fn add_folded(&mut self, pair: &Pair, layers: Vec<FoldedLayer>) {
        let into = match pair.target {
            Target::Previous(..) => "previous",
            Target::Next(_) => "next",
        };
        self.folded.extend(layers.into_iter().map(|layer| Folded {
            norm: pair.norm.name.clone(),
            norm_kind: kind(&pair.norm),
            features: pair.norm.features,
            layer: layer.name,
            layer_kind: layer.layout.to_string(),
            into,
            weight_shape: layer.shape,
            dtype: layer.dtype,
            bias_added: layer.bias_added,
            max_error: layer.verdict.error,
            allowed_error: layer.verdict.allowed,
            passed: layer.verdict.passes(),
        }));
        self.passed = self.folded.iter().all(|folded| folded.passed);
    }

    pub fn add_left_alone(&mut self, left: &LeftAlone) {
        let LeftAlone { norm, reason } = left;
        self.left_alone.push(Left {
            norm: norm.name.clone(),
            norm_kind: kind(norm),
            reason: reason.clone(),
        });
    }

    pub fn describe_result(&mut self, state: &StateDict<'_>) {
        self.left_alone.sort_by(|a, b| a.norm.cmp(&b.norm));
        self.removed = state.removed().map(str::to_owned).collect();
        self.added = state.added().map(str::to_owned).collect();
        self.tensors = state.len();
    }

    pub fn written(&mut self, output: &'a Path) {
        self.output = Some(output);
    }

    /// Whether there was nothing to fold.
    pub fn is_empty(&self) -> bool {
        self.folded.is_empty()
    }

    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.passed
    }

    pub fn show(&self, screen: &mut Screen) -> Result<()> {
        if screen.is_json() {
            return screen.json(self);
        }
        self.folded.iter().try_for_each(|folded| screen.line(folded.line()))?;
        for left in &self.left_alone {
            screen.line(format!(
                "{} {}: {}",
                styled(LABEL, "left alone"),
                left.norm,
                left.reason
            ))?;
        }
        screen.line(self.summary())
    }

    fn summary(&self) -> String {
        let norms = {
            let mut names: Vec<&str> = self.folded.iter().map(|folded| folded.norm.as_str()).collect();
            names.dedup();
            names.len()
        };
        let counts = format!(
            "{norms} {} folded, {} left alone; {} tensors removed, {} added, {} in all",
            if norms == 1 { "norm" } else { "norms" },
            self.left_alone.len(),
            self.removed.len(),
            self.added.len(),
            self.tensors
        );
        let eps = match self.folded.iter().any(|folded| folded.norm_kind == "batchnorm") {
            true => format!(" (eps {:e}, which the file does not say)", self.eps),
            false => String::new(),
        };
        let what = match (self.output, self.passed, self.dry_run) {
            (Some(path), ..) => format!("wrote {}", path.display()),
            (None, false, _) => styled(BAD, "a check failed, nothing written"),
            (None, true, true) => "dry run, nothing written".to_owned(),
            (None, true, false) => "nothing to fold, nothing written".to_owned(),
        };
        format!("{}: {counts}{eps}", styled(STRONG, what))
    }
}

impl Folded {
    fn line(&self) -> String {
        let (first, second) = match self.into {
            "previous" => (&self.layer, &self.norm),
            _ => (&self.norm, &self.layer),
        };
        let bias = if self.bias_added { ", bias added" } else { "" };
        let verdict = if self.passed {
            styled(GOOD, "same")
        } else {
            styled(BAD, "differs")
        };
        format!(
            "{} {first} -> {second} ({} {} {}, {} features{bias}): {verdict} within {} (allowed {})",
            styled(LABEL, "folded"),
            self.layer_kind,
            dims(&self.weight_shape),
            self.dtype,
            self.features,
            number(self.max_error),
            number(self.allowed_error)
        )
    }
}
