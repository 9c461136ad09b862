//! What a pass reads and writes, as borrowed views. The builders only collect; everything is checked against the
//! description when the pass runs, before any element is touched.

use crate::{View, ViewMut};

/// An input and the output over it: two tensors, or one when working in place.
#[derive(Debug)]
pub(crate) enum Through<'a> {
    Separate(View<'a>, ViewMut<'a>),
    InPlace(ViewMut<'a>),
    /// Nothing is written (a backward pass that only wants the parameters' gradients).
    ReadOnly(View<'a>),
}

impl Through<'_> {
    pub(crate) fn input(&self) -> View<'_> {
        match self {
            Through::Separate(x, _) | Through::ReadOnly(x) => *x,
            Through::InPlace(x) => x.as_view(),
        }
    }
}

/// Running mean and variance (never the standard deviation), one element a channel.
#[derive(Debug)]
pub(crate) enum Running<'a> {
    /// Used as they are.
    Given { mean: View<'a>, var: View<'a> },
    /// `running = (1 − factor)·running + factor·batch`, with the unbiased variance of the batch.
    Update {
        mean: ViewMut<'a>,
        var: ViewMut<'a>,
        factor: f64,
    },
}

/// The arguments of a forward pass.
///
/// Shapes, for a [`Geometry`](crate::Geometry) `g`: `x`, `y` and the residual have `g.elements()` elements of the data's
/// type; weight and bias `g.parameters`; running statistics `g.channels`, both of the parameters' type; the saved mean and
/// rstd `g.groups()`, `f32` (`f64` for `f64` data).
#[derive(Debug)]
pub struct Forward<'a> {
    pub(crate) data: Through<'a>,
    pub(crate) weight: Option<View<'a>>,
    pub(crate) bias: Option<View<'a>>,
    pub(crate) residual: Option<View<'a>>,
    pub(crate) running: Option<Running<'a>>,
    pub(crate) saved_mean: Option<ViewMut<'a>>,
    pub(crate) saved_rstd: Option<ViewMut<'a>>,
}

impl<'a> Forward<'a> {
    fn of(data: Through<'a>) -> Forward<'a> {
        Forward {
            data,
            weight: None,
            bias: None,
            residual: None,
            running: None,
            saved_mean: None,
            saved_rstd: None,
        }
    }

    /// Reads `x`, writes `y`.
    pub fn new(x: impl Into<View<'a>>, y: impl Into<ViewMut<'a>>) -> Forward<'a> {
        Forward::of(Through::Separate(x.into(), y.into()))
    }

    /// Reads `x` and writes `y` over it. The description must say [`in_place`](crate::NormDesc::in_place).
    pub fn in_place(x: impl Into<ViewMut<'a>>) -> Forward<'a> {
        Forward::of(Through::InPlace(x.into()))
    }

    /// The factor of the affine map.
    pub fn weight(self, weight: impl Into<View<'a>>) -> Forward<'a> {
        Forward {
            weight: Some(weight.into()),
            ..self
        }
    }

    /// The addend of the affine map.
    pub fn bias(self, bias: impl Into<View<'a>>) -> Forward<'a> {
        Forward {
            bias: Some(bias.into()),
            ..self
        }
    }

    /// The tensor added before the activation.
    pub fn residual(self, residual: impl Into<View<'a>>) -> Forward<'a> {
        Forward {
            residual: Some(residual.into()),
            ..self
        }
    }

    /// The running statistics that an evaluation pass uses.
    pub fn running(self, mean: impl Into<View<'a>>, var: impl Into<View<'a>>) -> Forward<'a> {
        Forward {
            running: Some(Running::Given {
                mean: mean.into(),
                var: var.into(),
            }),
            ..self
        }
    }

    /// The running statistics that a training pass updates: `running = (1 − factor)·running + factor·batch`. PyTorch's
    /// `momentum` is this factor; a cumulative average has `factor = 1/number of batches so far, this one included`.
    pub fn update_running(self, mean: impl Into<ViewMut<'a>>, var: impl Into<ViewMut<'a>>, factor: f64) -> Forward<'a> {
        Forward {
            running: Some(Running::Update {
                mean: mean.into(),
                var: var.into(),
                factor,
            }),
            ..self
        }
    }

    /// Where to save the mean and `rstd = 1/√(variance + eps)` of each group for the backward pass. For RMSNorm see
    /// [`save_rstd`](Forward::save_rstd). The mean may be `f64` whatever the data, which keeps the backward pass exact where the
    /// mean is much larger than the spread. Groups without elements are left as they are.
    pub fn save(self, mean: impl Into<ViewMut<'a>>, rstd: impl Into<ViewMut<'a>>) -> Forward<'a> {
        Forward {
            saved_mean: Some(mean.into()),
            saved_rstd: Some(rstd.into()),
            ..self
        }
    }

    /// Where to save `rstd = 1/√(mean square + eps)` of each group: all that RMSNorm has.
    pub fn save_rstd(self, rstd: impl Into<ViewMut<'a>>) -> Forward<'a> {
        Forward {
            saved_rstd: Some(rstd.into()),
            ..self
        }
    }
}

/// The arguments of a backward pass; shapes as for [`Forward`], gradients like what they are the gradient of.
#[derive(Debug)]
pub struct Backward<'a> {
    pub(crate) x: View<'a>,
    pub(crate) data: Through<'a>,
    pub(crate) weight: Option<View<'a>>,
    pub(crate) bias: Option<View<'a>>,
    pub(crate) residual: Option<View<'a>>,
    pub(crate) running: Option<Running<'a>>,
    pub(crate) mean: Option<View<'a>>,
    pub(crate) rstd: Option<View<'a>>,
    pub(crate) dweight: Option<ViewMut<'a>>,
    pub(crate) dbias: Option<ViewMut<'a>>,
    pub(crate) dresidual: Option<ViewMut<'a>>,
}

impl<'a> Backward<'a> {
    fn of(x: View<'a>, data: Through<'a>) -> Backward<'a> {
        Backward {
            x,
            data,
            weight: None,
            bias: None,
            residual: None,
            running: None,
            mean: None,
            rstd: None,
            dweight: None,
            dbias: None,
            dresidual: None,
        }
    }

    /// Reads `x` and `dy`, writes `dx`.
    pub fn new(x: impl Into<View<'a>>, dy: impl Into<View<'a>>, dx: impl Into<ViewMut<'a>>) -> Backward<'a> {
        Backward::of(x.into(), Through::Separate(dy.into(), dx.into()))
    }

    /// Reads `x` and `dy` and writes `dx` over `dy`. The description must say [`in_place`](crate::NormDesc::in_place).
    pub fn in_place(x: impl Into<View<'a>>, dy: impl Into<ViewMut<'a>>) -> Backward<'a> {
        Backward::of(x.into(), Through::InPlace(dy.into()))
    }

    /// Reads `x` and `dy` and writes no `dx`: the input needs no gradient, the parameters do.
    pub fn without_dx(x: impl Into<View<'a>>, dy: impl Into<View<'a>>) -> Backward<'a> {
        Backward::of(x.into(), Through::ReadOnly(dy.into()))
    }

    /// The factor of the affine map.
    pub fn weight(self, weight: impl Into<View<'a>>) -> Backward<'a> {
        Backward {
            weight: Some(weight.into()),
            ..self
        }
    }

    /// The addend of the affine map; needed when there is an activation.
    pub fn bias(self, bias: impl Into<View<'a>>) -> Backward<'a> {
        Backward {
            bias: Some(bias.into()),
            ..self
        }
    }

    /// The tensor that the forward pass added before the activation; needed when there are both.
    pub fn residual(self, residual: impl Into<View<'a>>) -> Backward<'a> {
        Backward {
            residual: Some(residual.into()),
            ..self
        }
    }

    /// The running statistics that the evaluation pass used.
    pub fn running(self, mean: impl Into<View<'a>>, var: impl Into<View<'a>>) -> Backward<'a> {
        Backward {
            running: Some(Running::Given {
                mean: mean.into(),
                var: var.into(),
            }),
            ..self
        }
    }

    /// The statistics that the forward pass saved.
    pub fn saved(self, mean: impl Into<View<'a>>, rstd: impl Into<View<'a>>) -> Backward<'a> {
        Backward {
            mean: Some(mean.into()),
            rstd: Some(rstd.into()),
            ..self
        }
    }

    /// What the forward pass of an RMSNorm saved.
    pub fn saved_rstd(self, rstd: impl Into<View<'a>>) -> Backward<'a> {
        Backward {
            rstd: Some(rstd.into()),
            ..self
        }
    }

    /// Where to write the weight's gradient (overwritten, not added to).
    pub fn dweight(self, dweight: impl Into<ViewMut<'a>>) -> Backward<'a> {
        Backward {
            dweight: Some(dweight.into()),
            ..self
        }
    }

    /// Where to write the bias's gradient (overwritten, not added to).
    pub fn dbias(self, dbias: impl Into<ViewMut<'a>>) -> Backward<'a> {
        Backward {
            dbias: Some(dbias.into()),
            ..self
        }
    }

    /// Where to write the residual's gradient.
    pub fn dresidual(self, dresidual: impl Into<ViewMut<'a>>) -> Backward<'a> {
        Backward {
            dresidual: Some(dresidual.into()),
            ..self
        }
    }
}
