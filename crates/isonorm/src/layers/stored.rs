//! Layers through serde: what they are and what they have learned.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::cache::Engine;
use super::config::{Config, Kind};
use super::core::{Core, Parameters};
use super::layer::Layer;
use super::op::Op;
use super::running::Running;
use crate::{Device, Tensor};

/// A layer that is written.
#[derive(Serialize)]
#[serde(rename = "Layer")]
struct Borrowed<'a> {
    config: &'a Config,
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    running: Option<&'a Running>,
}

/// A layer that is read, before its parts have been compared with each other.
#[derive(Deserialize)]
#[serde(rename = "Layer")]
struct Stored {
    config: Config,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    running: Option<Running>,
}

impl Stored {
    fn into_core(self) -> Result<Core, String> {
        let Stored {
            config,
            weight,
            bias,
            running,
        } = self;
        let frozen = config.kind == Kind::FrozenBatch;
        if bias.is_some() && weight.is_none() {
            return Err("a bias without a weight".into());
        }
        if frozen && (bias.is_none() || running.is_none()) {
            return Err("a frozen layer needs weight, bias and running statistics".into());
        }
        if running.is_some() && !config.norm().has_running_statistics() {
            return Err(format!("{} has no running statistics", config.kind.name()));
        }
        let engine = Engine::new(Device::best());
        let core = Core {
            parameters: Parameters { weight, bias },
            config,
            running,
            engine,
        };
        let (shape, dtype) = (core.config.shape, core.config.param_dtype);
        for (name, tensor) in core.tensors() {
            if (tensor.shape(), tensor.dtype()) != (shape, dtype) {
                let (got, of) = (tensor.shape(), tensor.dtype());
                return Err(format!("{name} is {got} of {of}, expected {shape} of {dtype}"));
            }
        }
        Ok(core)
    }
}

impl<K: Op> Serialize for Layer<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Core {
            config,
            parameters,
            running,
            ..
        } = &self.core;
        let Parameters { weight, bias } = parameters;
        Borrowed {
            config,
            weight: weight.as_ref(),
            bias: bias.as_ref(),
            running: running.as_ref(),
        }
        .serialize(serializer)
    }
}

impl<'de, K: Op> Deserialize<'de> for Layer<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Layer<K>, D::Error> {
        let core = Stored::deserialize(deserializer)?
            .into_core()
            .map_err(de::Error::custom)?;
        let name = core.config.kind.name();
        if name != K::NAME {
            return Err(de::Error::custom(format!("expected {}, got {name}", K::NAME)));
        }
        Ok(Layer::of(core))
    }
}
