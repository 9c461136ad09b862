//! The normalizations in a state dict, recognised by the tensors they own.

use std::collections::BTreeSet;

use super::state::StateDict;

/// What a module's tensors say it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormKind {
    /// It has running statistics: a BatchNorm, or an InstanceNorm that keeps them, which evaluates the same.
    Batch,
    /// It has a weight only, or a weight and a bias of the same shape: LayerNorm, RMSNorm or GroupNorm.
    Affine,
}

/// A normalization in a state dict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Norm {
    /// The module's name.
    pub name: String,
    /// What it is.
    pub kind: NormKind,
    /// The number of parameters, or of running means.
    pub features: usize,
}

/// Every normalization, sorted by name.
pub(super) fn find(state: &StateDict<'_>) -> Vec<Norm> {
    let modules: BTreeSet<&str> = state
        .names()
        .filter_map(|name| Some(name.rsplit_once('.')?.0))
        .collect();
    modules
        .into_iter()
        .filter_map(|module| recognise(state, module))
        .collect()
}

/// The normalization of this name. One that the user named may also have nothing but a weight and any name.
pub(super) fn named(state: &StateDict<'_>, module: &str) -> Option<Norm> {
    let weight = state
        .shape(&format!("{module}.weight"))
        .filter(|shape| shape.len() == 1);
    recognise(state, module).or_else(|| Some(Norm::new(module, NormKind::Affine, weight?)))
}

impl Norm {
    fn new(name: &str, kind: NormKind, shape: &[usize]) -> Norm {
        Norm {
            name: name.to_owned(),
            kind,
            features: shape.iter().product(),
        }
    }
}

fn recognise(state: &StateDict<'_>, module: &str) -> Option<Norm> {
    let shape = |leaf: &str| state.shape(&format!("{module}.{leaf}"));
    if let (Some(mean), Some(var)) = (shape("running_mean"), shape("running_var")) {
        return (mean.len() == 1 && mean == var).then(|| Norm::new(module, NormKind::Batch, mean));
    }
    let (weight, bias) = (shape("weight")?, shape("bias"));
    let paired = bias == Some(weight) && !weight.is_empty();
    let named = bias.is_none() && weight.len() == 1 && sounds_like_a_norm(module);
    (paired || named).then(|| Norm::new(module, NormKind::Affine, weight))
}

/// A weight of one dimension alone could also be a PReLU's or a layer scale's.
fn sounds_like_a_norm(module: &str) -> bool {
    let leaf = module.rsplit('.').next().unwrap_or(module).to_ascii_lowercase();
    leaf.contains("norm") || leaf.starts_with("ln") || leaf.ends_with("ln") || leaf.starts_with("bn")
}
