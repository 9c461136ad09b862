//! Which norm is folded into which layers, and why the others are left alone.

use std::collections::BTreeMap;

use isonorm::fold::WeightLayout;

use super::naming::{self, Scheme};
use super::norms::{self, Norm, NormKind};
use super::state::StateDict;
use super::{Options, fit, readers};

/// Where a norm goes.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Into the layer before it.
    Previous(String, WeightLayout),
    /// Into every linear layer after it.
    Next(Vec<(String, WeightLayout)>),
}

impl Target {
    /// The names of the layers.
    fn layers(&self) -> Vec<&str> {
        match self {
            Target::Previous(name, _) => vec![name],
            Target::Next(layers) => layers.iter().map(|(name, _)| name.as_str()).collect(),
        }
    }
}

/// A norm and where it goes.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The norm.
    pub norm: Norm,
    /// Its target.
    pub target: Target,
    /// Whether the user asked for it.
    pub mapped: bool,
}

/// A norm that stays.
#[derive(Clone, Debug)]
pub(super) struct LeftAlone {
    /// The norm.
    pub norm: Norm,
    /// Why, for people.
    pub reason: String,
}

/// What to do with each norm of a file.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Those to fold.
    pub fold: Vec<Pair>,
    /// Those to leave.
    pub left_alone: Vec<LeftAlone>,
}

/// What becomes of a norm that was not mapped, so far.
enum Found {
    Pair(Target, Option<Scheme>),
    Not(String),
}

/// Decides about every norm.
///
/// # Errors
/// When a `--map` or another name on the command line does not fit the file.
pub(super) fn find(state: &StateDict<'_>, options: &Options) -> Result<Pairs, String> {
    let norms = norms::find(state);
    let mapped = super::mapped::resolve(state, options)?;
    let mut doubts: BTreeMap<Scheme, String> = BTreeMap::new();
    let mut found = Vec::new();
    for norm in norms
        .iter()
        .filter(|norm| !mapped.iter().any(|pair| pair.norm == **norm))
    {
        found.push((norm, look(state, options, norm, &mut doubts)));
    }
    let claims = claims(&found, &mapped);
    let mut pairs = Pairs {
        fold: mapped,
        left_alone: Vec::new(),
    };
    for (norm, found) in found {
        match settle(norm, found, &doubts, &claims) {
            Ok(target) => pairs.fold.push(Pair {
                norm: norm.clone(),
                target,
                mapped: false,
            }),
            Err(reason) => pairs.left_alone.push(LeftAlone {
                norm: norm.clone(),
                reason,
            }),
        }
    }
    pairs.fold.sort_by(|a, b| a.norm.name.cmp(&b.norm.name));
    Ok(pairs)
}

fn look(state: &StateDict<'_>, options: &Options, norm: &Norm, doubts: &mut BTreeMap<Scheme, String>) -> Found {
    if options.keeps(&norm.name) {
        return Found::Not("--keep".into());
    }
    match norm.kind {
        NormKind::Batch if !options.norms.batch() => Found::Not("a BatchNorm, and --norms layer".into()),
        NormKind::Batch => before(state, options, norm, doubts),
        NormKind::Affine if !options.norms.layer() => Found::Not(
            "LayerNorm, RMSNorm or GroupNorm takes its statistics from its input; --norms all folds weights into linear readers"
                .into(),
        ),
        NormKind::Affine => after(state, options, norm).map_or_else(Found::Not, |target| Found::Pair(target, None)),
    }
}

fn before(state: &StateDict<'_>, options: &Options, norm: &Norm, doubts: &mut BTreeMap<Scheme, String>) -> Found {
    let candidates = naming::layers_before(&norm.name, |name| fit::is_layer(state, name));
    let (layer, scheme) = match &candidates[..] {
        [] => return Found::Not("no layer before it by name; --map LAYER=NORM if there is one".into()),
        [one] => one,
        many => {
            let names: Vec<&str> = many.iter().map(|(name, _)| name.as_str()).collect();
            return Found::Not(format!("may follow {}; --map LAYER=NORM decides", names.join(" or ")));
        }
    };
    match fit::before(state, options, layer, norm.features) {
        Ok(layout) => Found::Pair(Target::Previous(layer.clone(), layout), Some(*scheme)),
        Err(misfit) => {
            if misfit.norm_is_first && scheme.leaves_order_open() {
                let witness = format!("{} comes before {layer} in this file", norm.name);
                doubts.entry(*scheme).or_insert(witness);
            }
            Found::Not(misfit.reason)
        }
    }
}

fn after(state: &StateDict<'_>, options: &Options, norm: &Norm) -> Result<Target, String> {
    let layers = readers::of(&norm.name, state)?;
    let with_layout = |layer: String| match fit::after(state, options, &layer, norm.features) {
        Ok(layout) => Ok((layer, layout)),
        Err(misfit) => Err(misfit.reason),
    };
    Ok(Target::Next(
        layers.into_iter().map(with_layout).collect::<Result<_, _>>()?,
    ))
}

/// Whether the norm comes before the layer, and the layer's name: a layer has one norm on each side.
type Side = (bool, String);

fn sides(target: &Target) -> impl Iterator<Item = Side> {
    let norm_first = matches!(target, Target::Next(_));
    target
        .layers()
        .into_iter()
        .map(move |name| (norm_first, name.to_owned()))
}

/// The norms that each side of a layer was found for.
fn claims(found: &[(&Norm, Found)], mapped: &[Pair]) -> BTreeMap<Side, Vec<String>> {
    let by_name = found.iter().filter_map(|(norm, found)| match found {
        Found::Pair(target, _) => Some((&norm.name, target)),
        Found::Not(_) => None,
    });
    let all = by_name.chain(mapped.iter().map(|pair| (&pair.norm.name, &pair.target)));
    let mut claims: BTreeMap<Side, Vec<String>> = BTreeMap::new();
    for (norm, target) in all {
        sides(target).for_each(|side| claims.entry(side).or_default().push(norm.clone()));
    }
    claims
}

fn settle(
    norm: &Norm,
    found: Found,
    doubts: &BTreeMap<Scheme, String>,
    claims: &BTreeMap<Side, Vec<String>>,
) -> Result<Target, String> {
    let (target, scheme) = match found {
        Found::Pair(target, scheme) => (target, scheme),
        Found::Not(reason) => return Err(reason),
    };
    if let Some((scheme, witness)) = scheme.and_then(|scheme| Some((scheme, doubts.get(&scheme)?))) {
        return Err(format!(
            "{witness}, so names like \"{scheme}\" do not say that it follows its layer; --map LAYER=NORM"
        ));
    }
    for side in sides(&target) {
        if let Some(rival) = claims
            .get(&side)
            .and_then(|all| all.iter().find(|name| **name != norm.name))
        {
            return Err(format!("{} belongs to {rival} as well", side.1));
        }
    }
    Ok(target)
}
