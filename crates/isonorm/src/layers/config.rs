//! What a layer is, apart from its parameters.

use serde::{Deserialize, Serialize};

use super::Momentum;
use crate::{Activation, Affine, DType, Error, Norm, NormDesc, Over, Pass, Residual, Result, Shape, Tensor};

/// A tensor and its name in errors.
pub(super) type Named<'a> = (&'static str, &'a Tensor);

/// Which layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Batch,
    FrozenBatch,
    Layer(Dimensions),
    Rms(Dimensions),
    Group { groups: usize },
    Instance,
}

/// The dimensions that a LayerNorm or RMSNorm goes over; how many the last ones are follows from the parameters' shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Dimensions {
    Last,
    Channels,
}

impl Kind {
    /// The layer's name, [`Op::NAME`](super::op::Op::NAME).
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Batch => "BatchNorm",
            Kind::FrozenBatch => "FrozenBatchNorm",
            Kind::Layer(_) => "LayerNorm",
            Kind::Rms(_) => "RmsNorm",
            Kind::Group { .. } => "GroupNorm",
            Kind::Instance => "InstanceNorm",
        }
    }

    /// Whether parameters have gradients and running statistics are ever updated.
    pub(super) fn is_trained(self) -> bool {
        self != Kind::FrozenBatch
    }
}

/// What a layer is, apart from its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Config {
    pub(super) kind: Kind,
    /// The shape of weight, bias and running statistics.
    pub(super) shape: Shape,
    #[serde(with = "crate::desc::activation_as_name")]
    pub(super) activation: Activation,
    /// `None`: the op's default.
    pub(super) eps: Option<f64>,
    pub(super) momentum: Momentum,
    pub(super) param_dtype: DType,
}

impl Config {
    pub(super) fn new(kind: Kind, shape: Shape) -> Config {
        Config {
            kind,
            shape,
            activation: Activation::Identity,
            eps: None,
            momentum: Momentum::default(),
            param_dtype: DType::F32,
        }
    }

    pub(super) fn norm(&self) -> Norm {
        let over = |dimensions| match dimensions {
            Dimensions::Last => Over::Last(self.shape.rank()),
            Dimensions::Channels => Over::Channels,
        };
        match self.kind {
            Kind::Batch | Kind::FrozenBatch => Norm::Batch,
            Kind::Layer(dimensions) => Norm::Layer(over(dimensions)),
            Kind::Rms(dimensions) => Norm::Rms(over(dimensions)),
            Kind::Group { groups } => Norm::Group { groups },
            Kind::Instance => Norm::Instance,
        }
    }

    /// The op's name in errors.
    pub(super) fn op(&self) -> &'static str {
        self.norm().name()
    }

    /// The description of a pass that normalizes `x`.
    pub(super) fn desc(&self, x: Named<'_>, residual: Residual, affine: Affine, pass: Pass) -> Result<NormDesc> {
        self.check_shape(x)?;
        let (_, x) = x;
        let desc = NormDesc::new(self.norm(), x.shape())
            .layout(x.layout())
            .dtype(x.dtype())
            .param_dtype(self.param_dtype)
            .affine(affine)
            .activation(self.activation)
            .residual(residual)
            .pass(pass);
        Ok(match self.eps {
            Some(eps) => desc.eps(eps),
            None => desc,
        })
    }

    /// Compares the dimensions of `x` that the parameters belong to; its rank is checked with the description.
    fn check_shape(&self, (tensor, x): Named<'_>) -> Result<()> {
        let x = x.shape();
        let (own, over_rows) = (self.shape, !self.norm().has_channels());
        let fits = if over_rows {
            x.dims().ends_with(own.dims())
        } else {
            x.dims().get(1..2) == Some(own.dims())
        };
        if fits {
            return Ok(());
        }
        let expected = if over_rows {
            format!("...x{own}")
        } else {
            format!("Nx{own} or Nx{own}x...")
        };
        Err(Error::ShapeMismatch {
            op: self.op(),
            tensor,
            expected,
            got: x.to_string(),
        })
    }

    /// A tensor that must have the shape, layout and type of the one that is normalized.
    pub(super) fn check_like(&self, (name, x): Named<'_>, (tensor, got): Named<'_>) -> Result<()> {
        let op = self.op();
        if (got.shape(), got.layout()) != (x.shape(), x.layout()) {
            let say = |t: &Tensor| format!("{} {:?}", t.shape(), t.layout());
            return Err(Error::ShapeMismatch {
                op,
                tensor,
                expected: format!("{} as {name}", say(x)),
                got: say(got),
            });
        }
        if got.dtype() != x.dtype() {
            return Err(Error::DTypeMismatch {
                op,
                tensor,
                expected: x.dtype(),
                got: got.dtype(),
            });
        }
        Ok(())
    }
}
