//! Which layer a BatchNorm follows, by the naming schemes of well-known model libraries.

use std::fmt;

/// A naming scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// Neighbours in a sequence: `features.0`, `features.1`; `downsample.0`, `downsample.1` (torchvision).
    Sequence,
    /// The same suffix: `conv1`, `bn1`; `block.conv`, `block.norm`; `conv_dw`, `bn_dw`.
    Suffix,
    /// The layer's whole name in the norm's: `conv1`, `bn_conv1`; `fc`, `fc_bn`.
    Affix,
    /// The norm inside the layer: `conv1`, `conv1.norm` (Detectron2).
    Nested,
    /// The n-th norm after the n-th convolution of a block: `conv_stem`, `bn1`; `conv_pw`, `bn1`, `conv_dw`, `bn2` (timm).
    Ordered,
}

impl Scheme {
    /// Whether a name of this scheme leaves open which of the two comes first, so that a misfit elsewhere in the file
    /// casts doubt on all of them.
    pub fn leaves_order_open(self) -> bool {
        matches!(self, Scheme::Suffix | Scheme::Affix | Scheme::Ordered)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scheme::Sequence => "N, N+1",
            Scheme::Suffix => "convN, bnN",
            Scheme::Affix => "X, X_bn",
            Scheme::Nested => "X, X.norm",
            Scheme::Ordered => "n-th conv, bnN",
        })
    }
}

/// What norms are called; a longer name before one that it contains.
const NORM_STEMS: [&str; 4] = ["batch_norm", "batchnorm", "norm", "bn"];

/// What the layers before them are called.
const LAYER_STEMS: [&str; 9] = [
    "conv",
    "deconv",
    "conv_transpose",
    "convtranspose",
    "upconv",
    "fc",
    "linear",
    "lin",
    "dense",
];

/// All convolutions of a block of timm's EfficientNet family, in the order of the data flow.
const BLOCKS: [&[&str]; 6] = [
    &["conv_stem", "conv_head"],
    &["conv_stem"],
    &["conv_dw", "conv_pw"],
    &["conv_pw", "conv_dw", "conv_pwl"],
    &["conv_exp", "conv_pwl"],
    &["conv"],
];

/// The layers that the norm of this name may follow: each scheme's, when `is_layer` knows it.
pub(super) fn layers_before(norm: &str, is_layer: impl Fn(&str) -> bool) -> Vec<(String, Scheme)> {
    let (parent, leaf) = match norm.rsplit_once('.') {
        Some((parent, leaf)) => (format!("{parent}."), leaf),
        None => (String::new(), norm),
    };
    let mut found: Vec<(String, Scheme)> = Vec::new();
    let mut consider = |name: String, scheme| {
        if is_layer(&name) && found.iter().all(|(other, _)| *other != name) {
            found.push((name, scheme));
        }
    };
    if let Some(before) = leaf.parse::<usize>().ok().and_then(|n| n.checked_sub(1)) {
        consider(format!("{parent}{before}"), Scheme::Sequence);
    }
    if NORM_STEMS.contains(&leaf.to_ascii_lowercase().as_str()) {
        consider(parent.trim_end_matches('.').to_owned(), Scheme::Nested);
    }
    for name in affixed(leaf) {
        consider(format!("{parent}{name}"), Scheme::Affix);
    }
    if let Some(suffix) = suffix(leaf) {
        for stem in LAYER_STEMS {
            consider(format!("{parent}{stem}{suffix}"), Scheme::Suffix);
        }
    }
    if let Some(name) = ordered(leaf, |name| is_layer(&format!("{parent}{name}"))) {
        consider(format!("{parent}{name}"), Scheme::Ordered);
    }
    found
}

/// `1` of `bn1`, nothing of `norm`.
fn suffix(leaf: &str) -> Option<&str> {
    let lower = leaf.to_ascii_lowercase();
    let stem = NORM_STEMS.iter().find(|stem| lower.starts_with(**stem))?;
    leaf.get(stem.len()..)
}

/// `conv1` of `bn_conv1` and of `conv1_bn`.
fn affixed(leaf: &str) -> impl Iterator<Item = &str> {
    NORM_STEMS.into_iter().flat_map(move |stem| {
        let before = leaf.strip_prefix(stem).and_then(|rest| rest.strip_prefix('_'));
        let after = leaf.strip_suffix(stem).and_then(|rest| rest.strip_suffix('_'));
        [before, after].into_iter().flatten()
    })
}

/// The `n`-th convolution of the block that has exactly these, for `bnN`.
fn ordered(leaf: &str, is_layer: impl Fn(&str) -> bool) -> Option<&'static str> {
    let position: usize = leaf.strip_prefix("bn")?.parse().ok()?;
    let mut all: Vec<&str> = BLOCKS.concat();
    all.sort_unstable();
    all.dedup();
    let present: Vec<&str> = all.into_iter().filter(|name| is_layer(name)).collect();
    let block = BLOCKS
        .iter()
        .find(|b| b.len() == present.len() && b.iter().all(|name| present.contains(name)))?;
    block.get(position.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(norm: &str, layers: &[&str]) -> Vec<String> {
        layers_before(norm, |name| layers.contains(&name))
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn the_schemes_of_model_libraries() {
        for (norm, layer) in [
            ("bn1", "conv1"),
            ("layer1.0.bn2", "layer1.0.conv2"),
            ("layer2.0.downsample.1", "layer2.0.downsample.0"),
            ("features.41", "features.40"),
            ("features.3.conv.0.1", "features.3.conv.0.0"),
            ("Mixed_5b.branch1x1.bn", "Mixed_5b.branch1x1.conv"),
            ("stem.norm", "stem.conv"),
            ("head.BatchNorm2", "head.linear2"),
            ("bn_conv1", "conv1"),
            ("fc_bn", "fc"),
            ("res2.0.conv1.norm", "res2.0.conv1"),
            ("bn_dw", "conv_dw"),
            ("up.bn1", "up.deconv1"),
        ] {
            assert_eq!(before(norm, &[layer]), [layer], "{norm}");
        }
    }

    #[test]
    fn blocks_in_order() {
        let inverted = ["b.conv_pw", "b.conv_dw", "b.conv_pwl"];
        assert_eq!(before("b.bn1", &inverted), ["b.conv_pw"]);
        assert_eq!(before("b.bn2", &inverted), ["b.conv_dw"]);
        assert_eq!(before("b.bn3", &inverted), ["b.conv_pwl"]);
        assert_eq!(before("bn1", &["conv_dw", "conv_pw"]), ["conv_dw"]);
        assert_eq!(before("bn2", &["conv_stem", "conv_head"]), ["conv_head"]);
        assert_eq!(before("bn2", &["conv_stem"]), [""; 0]);
    }

    #[test]
    fn what_no_scheme_knows() {
        for norm in ["features.0", "bn1", "norm", "é", "bné", "", "."] {
            assert_eq!(before(norm, &["other"]), [""; 0], "{norm}");
        }
        assert_eq!(before("bn1", &["conv1", "fc1"]).len(), 2);
    }
}
