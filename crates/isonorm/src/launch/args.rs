//! What a pass reads and writes. The builders only collect; everything is checked against the description when the pass
//! runs, before any element is touched. They are generic over how memory is named: `R` to read, `W` to write.

use crate::{View, ViewMut};

/// An input and the output over it: two tensors, or one when working in place.
#[derive(Debug)]
pub(crate) enum Through<R, W> {
    Separate(R, W),
    InPlace(W),
    /// Nothing is written (a backward pass that only wants the parameters' gradients, a forward one that only takes statistics).
    ReadOnly(R),
}

/// Running mean and variance (never the standard deviation), one element a channel.
#[derive(Debug)]
pub(crate) enum Running<R, W> {
    /// Used as they are.
    Given { mean: R, var: R },
    /// `running = (1 − factor)·running + factor·batch`, with the unbiased variance of the batch.
    Update { mean: W, var: W, factor: f64 },
}

/// The arguments of a forward pass on the CPU.
pub type Forward<'a> = ForwardArguments<View<'a>, ViewMut<'a>>;

/// The arguments of a backward pass on the CPU.
pub type Backward<'a> = BackwardArguments<View<'a>, ViewMut<'a>>;

/// The arguments of a forward pass.
///
/// Shapes, for a [`Geometry`](crate::Geometry) `g`: `x`, `y`, the residual and the stream have `g.elements()` elements of the data's
/// type; weight and bias `g.parameters`; running statistics `g.channels`, both of the parameters' type; the saved mean,
/// rstd and variance `g.groups()`, `f32` (`f64` for `f64` data); the mask
/// [`mask_elements`](crate::NormDesc::mask_elements) of the data's type.
#[derive(Debug)]
pub struct ForwardArguments<R, W> {
    pub(crate) data: Through<R, W>,
    pub(crate) weight: Option<R>,
    pub(crate) bias: Option<R>,
    pub(crate) residual: Option<R>,
    pub(crate) mask: Option<W>,
    pub(crate) stream: Option<Through<R, W>>,
    pub(crate) running: Option<Running<R, W>>,
    pub(crate) saved_mean: Option<W>,
    pub(crate) saved_rstd: Option<W>,
    pub(crate) saved_var: Option<W>,
}

impl<R, W> ForwardArguments<R, W> {
    fn of(data: Through<R, W>) -> Self {
        Self {
            data,
            weight: None,
            bias: None,
            residual: None,
            mask: None,
            stream: None,
            running: None,
            saved_mean: None,
            saved_rstd: None,
            saved_var: None,
        }
    }

    /// Reads `x`, writes `y`.
    pub fn new(x: impl Into<R>, y: impl Into<W>) -> Self {
        Self::of(Through::Separate(x.into(), y.into()))
    }

    /// Reads `x` and writes `y` over it. The description must say [`in_place`](crate::NormDesc::in_place).
    pub fn in_place(x: impl Into<W>) -> Self {
        Self::of(Through::InPlace(x.into()))
    }

    /// Reads `x` and writes no `y`: only its statistics are wanted ([`Pass::Moments`](crate::Pass::Moments)).
    pub fn without_y(x: impl Into<R>) -> Self {
        Self::of(Through::ReadOnly(x.into()))
    }

    /// The factor of the affine map.
    pub fn weight(self, weight: impl Into<R>) -> Self {
        Self {
            weight: Some(weight.into()),
            ..self
        }
    }

    /// The addend of the affine map.
    pub fn bias(self, bias: impl Into<R>) -> Self {
        Self {
            bias: Some(bias.into()),
            ..self
        }
    }

    /// The tensor added before the activation.
    pub fn residual(self, residual: impl Into<R>) -> Self {
        Self {
            residual: Some(residual.into()),
            ..self
        }
    }

    /// Where to write the mask of the ReLU behind the residual ([`Residual::Masked`](crate::Residual::Masked)).
    pub fn save_mask(self, mask: impl Into<W>) -> Self {
        Self {
            mask: Some(mask.into()),
            ..self
        }
    }

    /// The residual that is added to `x`, and where to write the sum, which is what is normalized
    /// ([`Residual::Stream`](crate::Residual::Stream)).
    pub fn stream(self, residual: impl Into<R>, stream: impl Into<W>) -> Self {
        Self {
            stream: Some(Through::Separate(residual.into(), stream.into())),
            ..self
        }
    }

    /// The residual that `x` is added to: the sum is written over it, and is what is normalized.
    pub fn stream_in_place(self, residual: impl Into<W>) -> Self {
        Self {
            stream: Some(Through::InPlace(residual.into())),
            ..self
        }
    }

    /// The running statistics that an evaluation pass uses. The mean may be `f64` whatever the parameters, as a saved one may.
    pub fn running(self, mean: impl Into<R>, var: impl Into<R>) -> Self {
        Self {
            running: Some(Running::Given {
                mean: mean.into(),
                var: var.into(),
            }),
            ..self
        }
    }

    /// The running statistics that a training pass updates: `running = (1 − factor)·running + factor·batch`. PyTorch's
    /// `momentum` is this factor; a cumulative average has `factor = 1/number of batches so far, this one included`.
    pub fn update_running(self, mean: impl Into<W>, var: impl Into<W>, factor: f64) -> Self {
        Self {
            running: Some(Running::Update {
                mean: mean.into(),
                var: var.into(),
                factor,
            }),
            ..self
        }
    }

    /// Where to save the mean and `rstd = 1/√(variance + eps)` of each group for the backward pass. For RMSNorm see
    /// [`save_rstd`](Self::save_rstd). The mean may be `f64` whatever the data, which keeps the backward pass exact where the
    /// mean is much larger than the spread. Groups without elements are left as they are.
    pub fn save(self, mean: impl Into<W>, rstd: impl Into<W>) -> Self {
        Self {
            saved_mean: Some(mean.into()),
            saved_rstd: Some(rstd.into()),
            ..self
        }
    }

    /// Where [`Pass::Moments`](crate::Pass::Moments) saves the mean and the biased variance of each channel, exactly 0 for a constant one. The
    /// mean may be `f64` whatever the data. Of an `x` without elements both are 0, so that they can be weighted with a count of 0.
    pub fn save_variance(self, mean: impl Into<W>, var: impl Into<W>) -> Self {
        Self {
            saved_mean: Some(mean.into()),
            saved_var: Some(var.into()),
            ..self
        }
    }

    /// Where to save `rstd = 1/√(mean square + eps)` of each group: all that RMSNorm has.
    pub fn save_rstd(self, rstd: impl Into<W>) -> Self {
        Self {
            saved_rstd: Some(rstd.into()),
            ..self
        }
    }
}

/// The arguments of a backward pass; shapes as for [`ForwardArguments`], gradients like what they are the gradient of.
#[derive(Debug)]
pub struct BackwardArguments<R, W> {
    pub(crate) x: R,
    pub(crate) data: Through<R, W>,
    pub(crate) weight: Option<R>,
    pub(crate) bias: Option<R>,
    pub(crate) residual: Option<R>,
    pub(crate) mask: Option<R>,
    pub(crate) result: Option<R>,
    pub(crate) dstream: Option<R>,
    pub(crate) running: Option<Running<R, W>>,
    pub(crate) means: Option<[R; 2]>,
    pub(crate) mean: Option<R>,
    pub(crate) rstd: Option<R>,
    pub(crate) dweight: Option<W>,
    pub(crate) dbias: Option<W>,
    pub(crate) dresidual: Option<W>,
}

impl<R, W> BackwardArguments<R, W> {
    fn of(x: R, data: Through<R, W>) -> Self {
        Self {
            x,
            data,
            weight: None,
            bias: None,
            residual: None,
            mask: None,
            result: None,
            dstream: None,
            running: None,
            means: None,
            mean: None,
            rstd: None,
            dweight: None,
            dbias: None,
            dresidual: None,
        }
    }

    /// Reads `x` and `dy`, writes `dx`.
    pub fn new(x: impl Into<R>, dy: impl Into<R>, dx: impl Into<W>) -> Self {
        Self::of(x.into(), Through::Separate(dy.into(), dx.into()))
    }

    /// Reads `x` and `dy` and writes `dx` over `dy`. The description must say [`in_place`](crate::NormDesc::in_place).
    pub fn in_place(x: impl Into<R>, dy: impl Into<W>) -> Self {
        Self::of(x.into(), Through::InPlace(dy.into()))
    }

    /// Reads `x` and `dy` and writes no `dx`: the input needs no gradient, the parameters do.
    pub fn without_dx(x: impl Into<R>, dy: impl Into<R>) -> Self {
        Self::of(x.into(), Through::ReadOnly(dy.into()))
    }

    /// The factor of the affine map.
    pub fn weight(self, weight: impl Into<R>) -> Self {
        Self {
            weight: Some(weight.into()),
            ..self
        }
    }

    /// The addend of the affine map; needed when there is an activation.
    pub fn bias(self, bias: impl Into<R>) -> Self {
        Self {
            bias: Some(bias.into()),
            ..self
        }
    }

    /// The tensor that the forward pass added before the activation; needed when there are both.
    pub fn residual(self, residual: impl Into<R>) -> Self {
        Self {
            residual: Some(residual.into()),
            ..self
        }
    }

    /// The mask that the forward pass wrote, in place of the residual and the bias.
    pub fn mask(self, mask: impl Into<R>) -> Self {
        Self {
            mask: Some(mask.into()),
            ..self
        }
    }

    /// The result of the forward pass, `y`, in place of the residual and the bias ([`Residual::Result`](crate::Residual::Result)).
    pub fn result(self, y: impl Into<R>) -> Self {
        Self {
            result: Some(y.into()),
            ..self
        }
    }

    /// The gradient that the residual stream has from where else it goes, added to `dx`. Behind a residual stream `x` is the
    /// stream, and `dx` the gradient of both `x` and the residual.
    pub fn dstream(self, dstream: impl Into<R>) -> Self {
        Self {
            dstream: Some(dstream.into()),
            ..self
        }
    }

    /// The running statistics that the evaluation pass used. The mean may be `f64` whatever the parameters, as a saved one may.
    pub fn running(self, mean: impl Into<R>, var: impl Into<R>) -> Self {
        Self {
            running: Some(Running::Given {
                mean: mean.into(),
                var: var.into(),
            }),
            ..self
        }
    }

    /// The means over all that the statistics were taken of, for a `dx` through statistics that depend on `x`: of `g`, which is `dy` times the
    /// activation's derivative, and of `g·x̂`, one of each a channel, `f32` (`f64` for `f64` data). Then
    ///
    /// ```text
    /// dx = rstd · weight · (g − mean_g − x̂ · mean_gx)
    /// ```
    ///
    /// For a BatchNorm whose statistics are those of several ranks, which pass them to [`running`](Self::running): the sums are what each rank
    /// has from [`without_dx`](Self::without_dx) as `dbias` and `dweight`; added up over the ranks and divided by the count of all, they are
    /// these means. `pass=backward_eval` of BatchNorm.
    pub fn means(self, mean_g: impl Into<R>, mean_gx: impl Into<R>) -> Self {
        Self {
            means: Some([mean_g.into(), mean_gx.into()]),
            ..self
        }
    }

    /// The statistics that the forward pass saved.
    pub fn saved(self, mean: impl Into<R>, rstd: impl Into<R>) -> Self {
        Self {
            mean: Some(mean.into()),
            rstd: Some(rstd.into()),
            ..self
        }
    }

    /// What the forward pass of an RMSNorm saved.
    pub fn saved_rstd(self, rstd: impl Into<R>) -> Self {
        Self {
            rstd: Some(rstd.into()),
            ..self
        }
    }

    /// Where to write the weight's gradient (overwritten, not added to).
    pub fn dweight(self, dweight: impl Into<W>) -> Self {
        Self {
            dweight: Some(dweight.into()),
            ..self
        }
    }

    /// Where to write the bias's gradient (overwritten, not added to).
    pub fn dbias(self, dbias: impl Into<W>) -> Self {
        Self {
            dbias: Some(dbias.into()),
            ..self
        }
    }

    /// Where to write the residual's gradient.
    pub fn dresidual(self, dresidual: impl Into<W>) -> Self {
        Self {
            dresidual: Some(dresidual.into()),
            ..self
        }
    }
}
