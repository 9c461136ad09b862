//! The pairs that the user names with `--map FIRST=SECOND`.

use std::collections::BTreeSet;

use super::norms::{self, Norm, NormKind};
use super::pairs::{Pair, Target};
use super::pattern::Mapping;
use super::state::StateDict;
use super::{Options, fit};

/// The mapped pairs.
///
/// # Errors
/// When a mapping names modules that are not there, not a norm and a layer, or of shapes that do not fit; or a name of
/// another option matches nothing.
pub(super) fn resolve(state: &StateDict<'_>, options: &Options) -> Result<Vec<Pair>, String> {
    let modules: BTreeSet<&str> = state
        .names()
        .filter_map(|name| Some(name.rsplit_once('.')?.0))
        .collect();
    for (option, pattern) in options.patterns() {
        if !modules.iter().any(|module| pattern.matches(module)) {
            return Err(format!("{option} {pattern}: no module of this name in the file"));
        }
    }
    let mut pairs = Vec::new();
    for mapping in &options.maps {
        for (first, second) in matches(mapping, &modules)? {
            add(&mut pairs, state, options, first, &second).map_err(|e| format!("--map {first}={second}: {e}"))?;
        }
    }
    Ok(pairs)
}

fn matches<'a>(mapping: &Mapping, modules: &BTreeSet<&'a str>) -> Result<Vec<(&'a str, String)>, String> {
    let firsts = modules
        .iter()
        .filter_map(|first| Some((*first, mapping.second_of(first)?)));
    let all: Vec<(&str, String)> = firsts.collect();
    let both: Vec<_> = all
        .iter()
        .filter(|(_, second)| modules.contains(second.as_str()))
        .cloned()
        .collect();
    match (all.first(), both.is_empty()) {
        (None, _) => Err(format!("--map {mapping}: no module {} in the file", mapping.first)),
        (Some((_, second)), true) => Err(format!("--map {mapping}: no module {second} in the file")),
        _ => Ok(both),
    }
}

fn add(
    pairs: &mut Vec<Pair>,
    state: &StateDict<'_>,
    options: &Options,
    first: &str,
    second: &str,
) -> Result<(), String> {
    let norm = |name: &str| norms::named(state, name);
    match (norm(first), norm(second)) {
        (None, Some(norm)) if fit::is_layer(state, first) => {
            if norm.kind != NormKind::Batch {
                return Err(format!(
                    "{second} has no running statistics, so it cannot go into the layer before it"
                ));
            }
            let layout = fit::before(state, options, first, norm.features).map_err(|misfit| misfit.reason)?;
            push(pairs, &norm, Target::Previous(first.to_owned(), layout))
        }
        (Some(norm), None) if fit::is_layer(state, second) => {
            let layout = fit::after(state, options, second, norm.features).map_err(|misfit| misfit.reason)?;
            push(pairs, &norm, Target::Next(vec![(second.to_owned(), layout)]))
        }
        _ => Err("expected a layer and a norm, in the order of the data flow".into()),
    }
}

/// Adds a pair, or another reader to a pair that is there.
fn push(pairs: &mut Vec<Pair>, norm: &Norm, target: Target) -> Result<(), String> {
    let Some(pair) = pairs.iter_mut().find(|pair| pair.norm == *norm) else {
        pairs.push(Pair {
            norm: norm.clone(),
            target,
            mapped: true,
        });
        return Ok(());
    };
    match (&mut pair.target, target) {
        (Target::Next(readers), Target::Next(more)) => {
            readers.extend(more);
            Ok(())
        }
        _ => Err(format!("{} is mapped already", norm.name)),
    }
}
