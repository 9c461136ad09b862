//! Which linear layers read a LayerNorm's or RMSNorm's output, by the names that transformer libraries use.
//!
//! A norm's weight may only be folded when *every* reader is known. So a rule names the block that the norm feeds, the
//! layers in it that read the norm, and those that do not; any other matrix in the block is a reason to leave it alone.

use super::state::StateDict;

/// A block of a transformer, its norm, and who reads it.
struct Rule {
    /// The norm's own name.
    norm: &'static str,
    /// The module beside it that it feeds.
    block: &'static str,
    /// The readers in the block; alternatives.
    readers: &'static [&'static [&'static str]],
    /// Layers of the block that read something else.
    others: &'static [&'static str],
    /// A norm that has to be beside this one; a block without it runs its branches side by side, from one norm.
    requires: Option<&'static str>,
    /// A norm beside this one by which the same name means a norm after the block (Gemma 2, OLMo 2).
    forbids: &'static [&'static str],
}

const RULES: [Rule; 5] = [
    Rule {
        norm: "input_layernorm",
        block: "self_attn",
        readers: &[&["q_proj", "k_proj", "v_proj"], &["qkv_proj"]],
        others: &["o_proj", "q_norm", "k_norm"],
        requires: Some("post_attention_layernorm"),
        forbids: &[],
    },
    Rule {
        norm: "post_attention_layernorm",
        block: "mlp",
        readers: &[&["gate_proj", "up_proj"], &["gate_up_proj"]],
        others: &["down_proj"],
        requires: Some("input_layernorm"),
        forbids: &["pre_feedforward_layernorm", "post_feedforward_layernorm"],
    },
    Rule {
        norm: "pre_feedforward_layernorm",
        block: "mlp",
        readers: &[&["gate_proj", "up_proj"], &["gate_up_proj"]],
        others: &["down_proj"],
        requires: Some("post_feedforward_layernorm"),
        forbids: &[],
    },
    Rule {
        norm: "ln_1",
        block: "attn",
        readers: &[&["c_attn"]],
        others: &["c_proj"],
        requires: Some("ln_2"),
        forbids: &[],
    },
    Rule {
        norm: "ln_2",
        block: "mlp",
        readers: &[&["c_fc"]],
        others: &["c_proj"],
        requires: Some("ln_1"),
        forbids: &[],
    },
];

/// The last norm of a language model, and the embedding that its output layer may share its weight with.
const LAST: [(&str, &str); 3] = [
    ("model.norm", "model.embed_tokens"),
    ("transformer.ln_f", "transformer.wte"),
    ("ln_f", "wte"),
];

const OUTPUT: &str = "lm_head";

/// The linear layers that read the norm of this name, all of them, or the reason why that is not known.
pub(super) fn of(norm: &str, state: &StateDict<'_>) -> Result<Vec<String>, String> {
    if let Some((_, embedding)) = LAST.iter().find(|(name, _)| *name == norm) {
        return output_layer(embedding, state);
    }
    let (parent, leaf) = match norm.rsplit_once('.') {
        Some((parent, leaf)) => (format!("{parent}."), leaf),
        None => (String::new(), norm),
    };
    let rule = RULES.iter().find(|rule| rule.norm == leaf);
    let rule = rule.ok_or("no rule by name says which layers read it; --map NORM=LAYER for each of them")?;
    let beside = |name: &str| state.shape(&format!("{parent}{name}.weight")).is_some();
    if let Some(name) = rule.requires.filter(|name| !beside(name)) {
        return Err(format!(
            "there is no {name} beside it, so the block's branches may share it"
        ));
    }
    if let Some(name) = rule.forbids.iter().find(|name| beside(name)) {
        return Err(format!(
            "there is a {name} beside it, so it comes after its block and nothing linear follows"
        ));
    }
    in_block(rule, &format!("{parent}{}.", rule.block), state)
}

fn in_block(rule: &Rule, block: &str, state: &StateDict<'_>) -> Result<Vec<String>, String> {
    let is_there = |name: &&str| state.shape(&format!("{block}{name}.weight")).is_some();
    let readers = rule.readers.iter().find(|names| names.iter().all(&is_there));
    let readers = readers.ok_or_else(|| format!("{block}{} is not there", rule.readers[0].join(", ")))?;
    let stranger = state.names().find(|name| {
        let Some(inner) = name.strip_prefix(block).and_then(|rest| rest.strip_suffix(".weight")) else {
            return false;
        };
        let matrix = state.shape(name).is_some_and(|shape| shape.len() > 1);
        matrix && !readers.contains(&inner) && !rule.others.contains(&inner)
    });
    match stranger {
        Some(name) => Err(format!(
            "{name} may read it, too; --map NORM=LAYER for each layer that does"
        )),
        None => Ok(readers.iter().map(|name| format!("{block}{name}")).collect()),
    }
}

fn output_layer(embedding: &str, state: &StateDict<'_>) -> Result<Vec<String>, String> {
    let weight = state.bytes(&format!("{OUTPUT}.weight"));
    let weight =
        weight.ok_or_else(|| format!("there is no {OUTPUT}.weight; the output layer shares the embedding's"))?;
    if state.bytes(&format!("{embedding}.weight")) == Some(weight) {
        return Err(format!("{OUTPUT} shares its weight with {embedding}"));
    }
    Ok(vec![OUTPUT.to_owned()])
}
