//! Folds one norm, checks the result, and puts it into the state dict.

use isonorm::fold::{
    AffineParameters, BatchNormParameters, WeightLayout, affine_into_next, batch_norm_into_next,
    batch_norm_into_previous,
};
use isonorm::{DType, Tensor, TensorData};

use super::Options;
use super::check::{self, Layer, NormValues, Statistics, Verdict};
use super::norms::NormKind;
use super::pairs::{Pair, Target};
use super::state::StateDict;

/// A layer that a norm went into.
#[derive(Clone, Debug)]
pub(super) struct FoldedLayer {
    pub name: String,
    pub layout: WeightLayout,
    pub shape: Vec<usize>,
    pub dtype: DType,
    pub bias_added: bool,
    pub verdict: Verdict,
}

/// What a BatchNorm owns.
const BATCH_NORM: [&str; 5] = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"];

/// A norm's tensors.
struct Parameters {
    mean: Option<Tensor>,
    var: Option<Tensor>,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
}

/// Folds this norm. The state dict is changed only when all went well and every check passed; the caller looks at the
/// verdicts.
///
/// # Errors
/// When a tensor is of another type, or the library refuses.
pub(super) fn fold(state: &mut StateDict<'_>, options: &Options, pair: &Pair) -> Result<Vec<FoldedLayer>, String> {
    let parameters = Parameters::read(state, options, pair)?;
    let values = parameters.values(options);
    let targets: Vec<(&str, WeightLayout)> = match &pair.target {
        Target::Previous(name, layout) => vec![(name, *layout)],
        Target::Next(layers) => layers.iter().map(|(name, layout)| (name.as_str(), *layout)).collect(),
    };
    let (mut folded, mut edits) = (Vec::new(), Vec::new());
    for (name, layout) in targets {
        let before = layer(state, name, layout)?;
        let mut after = before.clone();
        let previous = matches!(pair.target, Target::Previous(..));
        parameters
            .fold_into(&mut after, previous, options.eps)
            .map_err(library)?;
        let verdict =
            if previous { check::previous } else { check::next }(&before, &values, &after).map_err(library)?;
        folded.push(FoldedLayer {
            name: name.to_owned(),
            layout,
            shape: after.weight.shape().dims().to_vec(),
            dtype: after.weight.dtype(),
            bias_added: before.bias.is_none() && after.bias.is_some(),
            verdict,
        });
        edits.push((name, after));
    }
    if folded.iter().all(|layer| layer.verdict.passes()) {
        for (name, layer) in edits {
            state.set(format!("{name}.weight"), layer.weight);
            layer
                .bias
                .into_iter()
                .for_each(|bias| state.set(format!("{name}.bias"), bias));
        }
        parameters.retire(state, options, pair);
    }
    Ok(folded)
}

/// The library's reason without its prefix, which the context already says.
fn library(error: isonorm::Error) -> String {
    match error {
        isonorm::Error::Fold { reason } => reason,
        other => other.to_string(),
    }
}

fn layer(state: &StateDict<'_>, name: &str, layout: WeightLayout) -> Result<Layer, String> {
    Ok(Layer {
        layout,
        weight: state.tensor(&format!("{name}.weight"))?,
        bias: state.optional(&format!("{name}.bias"))?,
    })
}

impl Parameters {
    fn read(state: &StateDict<'_>, options: &Options, pair: &Pair) -> Result<Parameters, String> {
        let optional = |leaf: &str| state.optional(&format!("{}.{leaf}", pair.norm.name));
        let is_batch = pair.norm.kind == NormKind::Batch;
        let statistics = |leaf| if is_batch { optional(leaf) } else { Ok(None) };
        let mut weight = optional("weight")?;
        if let Some(weight) = weight.as_mut().filter(|_| options.unit_offset && !is_batch) {
            let raised: Vec<f64> = weight.data().to_f64().iter().map(|w| 1.0 + w).collect();
            // In `f64`, so that nothing of the sum is lost.
            *weight = Tensor::new(weight.shape(), TensorData::from(raised)).map_err(|e| e.to_string())?;
        }
        Ok(Parameters {
            mean: statistics("running_mean")?,
            var: statistics("running_var")?,
            weight,
            bias: optional("bias")?,
        })
    }

    fn values(&self, options: &Options) -> NormValues {
        let values = |tensor: &Option<Tensor>| tensor.as_ref().map(|t| t.data().to_f64());
        let statistics = values(&self.mean).zip(values(&self.var));
        NormValues {
            statistics: statistics.map(|(mean, var)| Statistics {
                mean,
                var,
                eps: options.eps,
            }),
            weight: values(&self.weight),
            bias: values(&self.bias),
        }
    }

    fn fold_into(&self, layer: &mut Layer, previous: bool, eps: f64) -> isonorm::Result<()> {
        let Layer { layout, weight, bias } = layer;
        let (gamma, beta) = (
            self.weight.as_ref().map(Tensor::view),
            self.bias.as_ref().map(Tensor::view),
        );
        let (Some(mean), Some(var)) = (&self.mean, &self.var) else {
            let mut norm = AffineParameters::new();
            norm = gamma.into_iter().fold(norm, AffineParameters::weight);
            norm = beta.into_iter().fold(norm, AffineParameters::bias);
            return affine_into_next(*layout, weight, bias, &norm);
        };
        let mut norm = BatchNormParameters::new(mean.view(), var.view()).eps(eps);
        norm = gamma.into_iter().fold(norm, BatchNormParameters::weight);
        norm = beta.into_iter().fold(norm, BatchNormParameters::bias);
        match previous {
            true => batch_norm_into_previous(*layout, weight, bias, &norm),
            false => batch_norm_into_next(*layout, weight, bias, &norm),
        }
    }

    /// A BatchNorm is dropped; another norm keeps its names, so that the model still loads, and its affine map becomes the
    /// identity.
    fn retire(&self, state: &mut StateDict<'_>, options: &Options, pair: &Pair) {
        let name = &pair.norm.name;
        if pair.norm.kind == NormKind::Batch {
            BATCH_NORM
                .iter()
                .for_each(|leaf| state.remove(&format!("{name}.{leaf}")));
            return;
        }
        let identity = if options.unit_offset { 0.0 } else { 1.0 };
        for (leaf, value) in [("weight", identity), ("bias", 0.0)] {
            let full = format!("{name}.{leaf}");
            if let Ok(mut tensor) = state.tensor(&full) {
                let values = vec![value; tensor.data().len()];
                *tensor.data_mut() = TensorData::from_f64(tensor.dtype(), &values);
                state.set(full, tensor);
            }
        }
    }
}
