"""Derivatives: the first by kernels, the second by torch's formulas, a third raises."""

from __future__ import annotations

import torch

from . import _native
from ._modes import is_batched, is_transformed, is_watched
from ._plans import Plans
from ._problem import in_layout, layout


class Normalize(torch.autograd.Function):
    """Forward with what backward needs kept. `launch` is the plans, the running statistics, and the factor of an update."""

    @staticmethod
    def forward(ctx, x, weight, bias, residual, launch):
        plans, running_mean, running_var, factor = launch
        y, stream, saved = plans.forward(x, weight, bias, residual, running_mean, running_var, factor, True)
        ctx.plans = plans
        if stream is not None:
            # In the place of x.
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(stream, weight, bias, None, saved)
            return y, stream
        residual = residual if plans.activates else None
        if plans.given:
            ctx.save_for_backward(x, weight, bias, residual, saved, running_mean, running_var)
        else:
            ctx.save_for_backward(x, weight, bias, residual, saved)
        return y

    @staticmethod
    def backward(ctx, dy, dstream=None):
        plans = ctx.plans
        x, weight, bias, residual, saved, *running = ctx.saved_tensors
        running_mean, running_var = running or (None, None)
        needs = ctx.needs_input_grad[:4]
        if dy is None:
            if dstream is None:
                return (None,) * 5
            dy = torch.zeros_like(x)
        given = (dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs)
        is_simple = not torch.is_grad_enabled() and plans.passes.takes(x, dy, dstream)
        return (*(plans.backward(*given) if is_simple else _gradients(plans, *given)), None)


def _gradients(plans: Plans, dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs):
    """Of gradients in any order in memory, or that something else than autograd wants to see, or that are to have a
    derivative."""
    if is_watched() or is_transformed() or is_batched(dy) or dstream is not None and is_batched(dstream):
        return _native.backward(plans.call, dy, dstream, x, weight, bias, residual, running_mean, running_var, needs)
    dy = _as_kernels_read(dy, plans.where)
    dstream = None if dstream is None else _as_kernels_read(dstream, plans.where)
    given = (dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs)
    return Gradients.apply(plans, *given) if torch.is_grad_enabled() else plans.backward(*given)


def _as_kernels_read(gradient: torch.Tensor, where: int) -> torch.Tensor:
    gradient = gradient.resolve_neg()
    return gradient if layout(gradient, True) == where else in_layout(gradient, where)


class Gradients(torch.autograd.Function):
    """The backward pass as a function of its own, which has a derivative."""

    @staticmethod
    def forward(ctx, plans: Plans, dy, *rest):
        *tensors, needs = rest
        ctx.plans = plans
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dy, *tensors)
        dx, dweight, dbias, dresidual = plans.backward(dy, *rest)
        # A result that is an input, or another result, would be taken for a view of it.
        if dresidual is not None and (dresidual is dy or dresidual is dx):
            dresidual = dresidual.clone()
        return dx, dweight, dbias, dresidual

    @staticmethod
    def backward(ctx, *given):
        found = SecondDerivative.apply(ctx.plans.call, *given, *ctx.saved_tensors)
        return (None, *found, None, None, None, None)


class SecondDerivative(torch.autograd.Function):
    """The derivative of the backward pass, which has none: every path through it raises rather than leaves out a part."""

    @staticmethod
    def forward(ctx, call, ddx, ddweight, ddbias, ddresidual, *tensors):
        *given, _ = tensors
        return _native.double_backward(call, (ddx, ddweight, ddbias, ddresidual), *given)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(THIRD)


THIRD = "isonorm has first and second derivatives of normalizations; a third was asked for"


class Rectify(torch.autograd.Function):
    """The ReLU behind a residual, which the pass that made `y` has carried out already: what is left is its derivative.

    It is a node of its own, so that y and dy need not be in memory any longer while the norm's backward pass makes dx. Its
    derivative is what reaches the residual, too."""

    @staticmethod
    def forward(ctx, y, residual):
        ctx.mark_dirty(y)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dz = rectified_gradient(dy, y)
        return dz, dz


_of_relu = torch.ops.aten.threshold_backward.default
_of_relu_into = torch.ops.aten.threshold_backward.grad_input


def rectified_gradient(dy, y):
    """`dy` where a ReLU's result `y` is not 0, else 0; as `y` lies in memory, unless something else than autograd wants to see it or it is to
    have a derivative."""
    if torch.is_grad_enabled() or type(dy) is not torch.Tensor or is_watched() or is_transformed() or is_batched(dy):
        return _of_relu(dy, y.detach(), 0)
    return _of_relu_into(dy, y, 0, grad_input=torch.empty_like(y))


#: `Function.apply` without the look at torch.func's transforms, which `_normalize` has had already.
apply = super(torch.autograd.Function, Normalize).apply
_rectify = super(torch.autograd.Function, Rectify).apply


def apply_rectified(x, weight, bias, residual, launch):
    """As `apply`, for plans with a ReLU behind a residual."""
    return _rectify(apply(x, weight, bias, residual.detach(), launch), residual)
