use super::refused;
use crate::{DEFAULT_EPS, Result, View};

/// The parameters and running statistics of a BatchNorm, one element a channel, each of any type.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormParameters<'a> {
    running_mean: View<'a>,
    running_var: View<'a>,
    affine: AffineParameters<'a>,
    eps: f64,
}

impl<'a> BatchNormParameters<'a> {
    /// A BatchNorm without affine parameters and with [`DEFAULT_EPS`]. `running_var` is the variance, never the standard
    /// deviation.
    pub fn new(running_mean: impl Into<View<'a>>, running_var: impl Into<View<'a>>) -> Self {
        BatchNormParameters {
            running_mean: running_mean.into(),
            running_var: running_var.into(),
            affine: AffineParameters::default(),
            eps: DEFAULT_EPS,
        }
    }

    /// The factor `γ`.
    pub fn weight(self, weight: impl Into<View<'a>>) -> Self {
        BatchNormParameters {
            affine: self.affine.weight(weight),
            ..self
        }
    }

    /// The addend `β`.
    pub fn bias(self, bias: impl Into<View<'a>>) -> Self {
        BatchNormParameters {
            affine: self.affine.bias(bias),
            ..self
        }
    }

    /// The number added to the variance before the root.
    pub fn eps(self, eps: f64) -> Self {
        BatchNormParameters { eps, ..self }
    }

    /// The affine map of each channel.
    pub(super) fn channels(&self, count: usize, why: &str) -> Result<Vec<Channel>> {
        if !(self.eps >= 0.0 && self.eps.is_finite()) {
            return Err(refused(format!(
                "eps must be finite and not negative, got {}",
                self.eps
            )));
        }
        let mean = read("running_mean", Some(self.running_mean), count, 0.0, why)?;
        let var = read("running_var", Some(self.running_var), count, 1.0, why)?;
        let (weight, bias) = self.affine.read(count, why)?;
        (0..count)
            .map(|c| {
                if !(var[c] >= 0.0 && var[c] + self.eps > 0.0 && var[c].is_finite()) {
                    return Err(refused(format!(
                        "running_var[{c}] is {}, and with eps {} that has no reciprocal root",
                        var[c], self.eps
                    )));
                }
                Ok(Channel {
                    mean: mean[c],
                    scale: weight[c] / (var[c] + self.eps).sqrt(),
                    bias: bias[c],
                })
            })
            .collect()
    }
}

/// One channel of a BatchNorm in evaluation: `y = (x − mean)·scale + bias`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    pub(super) mean: f64,
    pub(super) scale: f64,
    pub(super) bias: f64,
}

/// The weight and bias of a LayerNorm or RMSNorm, each of any type; what is missing is one or zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct AffineParameters<'a> {
    weight: Option<View<'a>>,
    bias: Option<View<'a>>,
}

impl<'a> AffineParameters<'a> {
    /// Neither weight nor bias.
    pub fn new() -> Self {
        AffineParameters::default()
    }

    /// The factor `γ`.
    pub fn weight(self, weight: impl Into<View<'a>>) -> Self {
        AffineParameters {
            weight: Some(weight.into()),
            ..self
        }
    }

    /// The addend `β`.
    pub fn bias(self, bias: impl Into<View<'a>>) -> Self {
        AffineParameters {
            bias: Some(bias.into()),
            ..self
        }
    }

    pub(super) fn has_bias(&self) -> bool {
        self.bias.is_some()
    }

    /// Weight and bias as `f64`.
    pub(super) fn read(&self, count: usize, why: &str) -> Result<(Vec<f64>, Vec<f64>)> {
        Ok((
            read("the norm's weight", self.weight, count, 1.0, why)?,
            read("the norm's bias", self.bias, count, 0.0, why)?,
        ))
    }
}

/// The values as `f64`, or `count` times `missing`.
fn read(name: &str, view: Option<View<'_>>, count: usize, missing: f64, why: &str) -> Result<Vec<f64>> {
    let Some(view) = view else {
        return Ok(vec![missing; count]);
    };
    if view.len() != count {
        return Err(refused(format!(
            "{name} has {} elements, expected {count} ({why})",
            view.len()
        )));
    }
    let values = view.to_f64();
    match values.iter().position(|v| !v.is_finite()) {
        Some(c) => Err(refused(format!("{name}[{c}] is {}", values[c]))),
        None => Ok(values),
    }
}
