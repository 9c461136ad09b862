//! State dicts: what a layer has learned, by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::config::Kind;
use super::core::Core;
use super::running::converted;
use crate::{Error, Result, Tensor};

const COUNTER: &str = "num_batches_tracked";

/// An entry of a [`StateDict`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateValue {
    /// A parameter, or running statistics.
    Tensor(Tensor),
    /// The counter `num_batches_tracked`: a 64-bit integer scalar in PyTorch.
    Count(u64),
}

impl StateValue {
    /// The tensor, unless this is a counter.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            StateValue::Tensor(tensor) => Some(tensor),
            StateValue::Count(_) => None,
        }
    }

    fn describe(&self) -> String {
        match self {
            StateValue::Tensor(tensor) => format!("a tensor of shape {}", tensor.shape()),
            StateValue::Count(_) => "a counter".into(),
        }
    }
}

impl From<Tensor> for StateValue {
    fn from(tensor: Tensor) -> StateValue {
        StateValue::Tensor(tensor)
    }
}

impl From<u64> for StateValue {
    fn from(count: u64) -> StateValue {
        StateValue::Count(count)
    }
}

/// Names as in PyTorch, and what they stand for. The state of a model is the union of its layers':
/// `model.extend(layer.state_dict("layer1.0.bn1"))`.
pub type StateDict = BTreeMap<String, StateValue>;

/// `prefix` with the dot that joins it to a name.
fn joining(prefix: &str) -> String {
    if prefix.is_empty() || prefix.ends_with('.') {
        prefix.into()
    } else {
        format!("{prefix}.")
    }
}

/// What does not fit, name by name.
#[derive(Default)]
struct Misfits {
    missing: Vec<String>,
    unexpected: Vec<String>,
    mismatched: Vec<String>,
}

impl Misfits {
    fn into_result(self, layer: &'static str) -> Result<()> {
        let Misfits {
            missing,
            unexpected,
            mismatched,
        } = self;
        if missing.is_empty() && unexpected.is_empty() && mismatched.is_empty() {
            return Ok(());
        }
        Err(Error::StateDict {
            layer,
            missing,
            unexpected,
            mismatched,
        })
    }
}

impl Core {
    pub(super) fn state_dict(&self, prefix: &str) -> StateDict {
        let prefix = joining(prefix);
        let mut state: StateDict = self
            .tensors()
            .map(|(name, tensor)| (format!("{prefix}{name}"), tensor.clone().into()))
            .collect();
        if let Some(count) = self.counter() {
            state.insert(format!("{prefix}{COUNTER}"), count.into());
        }
        state
    }

    /// The counter, where there is one to save.
    fn counter(&self) -> Option<u64> {
        let running = self.running.as_ref().filter(|_| self.config.kind != Kind::FrozenBatch);
        running.map(|r| r.batches)
    }

    pub(super) fn load_state_dict(&mut self, prefix: &str, state: &StateDict) -> Result<()> {
        let prefix = joining(prefix);
        self.compare(&prefix, state).into_result(self.config.kind.name())?;
        let dtype = self.config.param_dtype;
        for (name, tensor) in self.tensors_mut() {
            if let Some(StateValue::Tensor(new)) = state.get(&format!("{prefix}{name}")) {
                *tensor = converted(new, dtype);
            }
        }
        if let (Some(running), Some(StateValue::Count(n))) =
            (&mut self.running, state.get(&format!("{prefix}{COUNTER}")))
        {
            running.batches = *n;
        }
        Ok(())
    }

    fn compare(&self, prefix: &str, state: &StateDict) -> Misfits {
        let mut misfits = Misfits::default();
        for (name, tensor) in self.tensors() {
            let key = format!("{prefix}{name}");
            match state.get(&key) {
                None => misfits.missing.push(key),
                Some(StateValue::Tensor(new)) if new.shape() == tensor.shape() => {}
                Some(other) => {
                    let (got, expected) = (other.describe(), tensor.shape());
                    misfits
                        .mismatched
                        .push(format!("{key} is {got}, expected a tensor of shape {expected}"));
                }
            }
        }
        let own = |key: &&String| key.starts_with(prefix);
        for key in state.keys().filter(own) {
            let name = &key[prefix.len()..];
            if name == COUNTER && self.running.is_some() {
                if let Some(StateValue::Tensor(tensor)) = state.get(key) {
                    let got = tensor.shape();
                    misfits
                        .mismatched
                        .push(format!("{key} is a tensor of shape {got}, expected a counter"));
                }
            } else if !self.tensors().any(|(own, _)| own == name) {
                misfits.unexpected.push(key.clone());
            }
        }
        misfits
    }
}
