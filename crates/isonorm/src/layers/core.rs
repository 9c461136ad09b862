//! What all layers have, and do not need to know their op as a type for.

use super::cache::Engine;
use super::config::{Config, Kind};
use super::running::{Running, converted, filled};
use crate::fold::BatchNormParameters;
use crate::{Affine, DEFAULT_EPS, DType, Device, Shape, Tensor};

/// The parameters of the affine map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parameters {
    pub(super) weight: Option<Tensor>,
    pub(super) bias: Option<Tensor>,
}

impl Parameters {
    pub(super) fn affine(&self) -> Affine {
        match (&self.weight, &self.bias) {
            (Some(_), Some(_)) => Affine::Full,
            (Some(_), None) => Affine::Weight,
            (None, _) => Affine::None,
        }
    }
}

/// A layer: what it is, what it has learned, where it runs.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub(super) config: Config,
    pub(super) parameters: Parameters,
    pub(super) running: Option<Running>,
    pub(super) engine: Engine,
}

impl Core {
    pub(super) fn new(kind: Kind, shape: Shape, affine: Affine, tracks: bool) -> Core {
        let mut core = Core {
            config: Config::new(kind, shape),
            parameters: Parameters {
                weight: None,
                bias: None,
            },
            running: None,
            engine: Engine::new(Device::best()),
        };
        core.set_affine(affine);
        core.set_tracking(tracks);
        core
    }

    /// Adds the parameters that are missing, as the identity, and drops those that are not wanted.
    pub(super) fn set_affine(&mut self, affine: Affine) {
        let Parameters { weight, bias } = &mut self.parameters;
        let set = |parameter: &mut Option<Tensor>, wanted: bool, value: f64| match (wanted, parameter.is_some()) {
            (true, false) => *parameter = Some(filled(self.config.shape, self.config.param_dtype, value)),
            (false, true) => *parameter = None,
            _ => {}
        };
        set(weight, affine.has_weight(), 1.0);
        set(bias, affine.has_bias(), 0.0);
    }

    pub(super) fn set_tracking(&mut self, tracks: bool) {
        match (tracks, &self.running) {
            (true, None) => self.running = Some(Running::new(self.config.shape, self.config.param_dtype)),
            (false, _) => self.running = None,
            _ => {}
        }
    }

    /// Converts parameters and running statistics.
    pub(super) fn set_param_dtype(&mut self, dtype: DType) {
        self.config.param_dtype = dtype;
        for (_, tensor) in self.tensors_mut() {
            *tensor = converted(tensor, dtype);
        }
    }

    /// Everything that a state dict holds except the counter, with its names there.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let running = self.running.as_ref();
        let named = [
            ("weight", self.parameters.weight.as_ref()),
            ("bias", self.parameters.bias.as_ref()),
            ("running_mean", running.map(|r| &r.mean)),
            ("running_var", running.map(|r| &r.var)),
        ];
        named.into_iter().filter_map(|(name, tensor)| Some((name, tensor?)))
    }

    /// As [`tensors`](Core::tensors).
    pub(super) fn tensors_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Tensor)> {
        let (mean, var) = self.running.as_mut().map(|r| (&mut r.mean, &mut r.var)).unzip();
        let named = [
            ("weight", self.parameters.weight.as_mut()),
            ("bias", self.parameters.bias.as_mut()),
            ("running_mean", mean),
            ("running_var", var),
        ];
        named.into_iter().filter_map(|(name, tensor)| Some((name, tensor?)))
    }

    /// Plans belong to a device, so they are forgotten.
    pub(super) fn set_device(&mut self, device: Device) {
        self.engine = Engine::new(device);
    }

    /// The parameters that have gradients.
    pub(super) fn trained_mut(&mut self) -> Vec<(&'static str, &mut Tensor)> {
        if !self.config.kind.is_trained() {
            return Vec::new();
        }
        let Parameters { weight, bias } = &mut self.parameters;
        let named = [("weight", weight), ("bias", bias)];
        named
            .into_iter()
            .filter_map(|(name, tensor)| Some((name, tensor.as_mut()?)))
            .collect()
    }

    /// What folding a BatchNorm away needs to know, where it keeps statistics.
    pub(super) fn fold_parameters(&self) -> Option<BatchNormParameters<'_>> {
        let running = self.running.as_ref()?;
        let eps = self.config.eps.unwrap_or(DEFAULT_EPS);
        let mut folded = BatchNormParameters::new(running.mean.view(), running.var.view()).eps(eps);
        if let Some(weight) = &self.parameters.weight {
            folded = folded.weight(weight.view());
        }
        if let Some(bias) = &self.parameters.bias {
            folded = folded.bias(bias.view());
        }
        Some(folded)
    }
}
