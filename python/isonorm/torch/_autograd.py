"""Derivatives: the first by kernels, the second by torch's formulas, a third raises."""

from __future__ import annotations

import torch

from . import _native
from ._modes import is_batched, is_transformed, is_watched
from ._plans import Plans
from ._problem import LAST, in_layout, kept, layout


def unpack_mask(saved: torch.Tensor, plans_kept, x: torch.Tensor) -> torch.Tensor:
    """The mask of a ReLU behind a residual, an element of `x`'s shape each: a byte has the bits of 16 bytes of the
    result."""
    each = 16 // x.element_size()
    raw = saved[plans_kept.mask : plans_kept.mask + (x.numel() + each - 1) // each]
    bits = torch.arange(each, dtype=torch.uint8, device=x.device)
    flat = ((raw[:, None] >> bits) & 1).flatten()[: x.numel()]
    if layout(x, True) == LAST:
        shape = x.movedim(1, -1).shape
        return flat.view(shape).movedim(-1, 1)
    return flat.view(x.shape)


def pack_mask(y: torch.Tensor) -> torch.Tensor:
    """The bytes that `unpack_mask` reads, of a dense result."""
    each = 16 // y.element_size()
    flat = (y if layout(y, True) != LAST else y.movedim(1, -1)).flatten() != 0
    flat = torch.nn.functional.pad(flat, (0, -flat.numel() % each)).view(-1, each)
    bits = torch.arange(each, dtype=torch.uint8, device=y.device)
    return (flat.to(torch.uint8) << bits).sum(1, dtype=torch.uint8)


class Normalize(torch.autograd.Function):
    """Forward with what backward needs kept."""

    @staticmethod
    def forward(ctx, x, weight, bias, residual, plans: Plans, where, running_mean, running_var, factor):
        y, stream, saved = plans.forward(x, weight, bias, residual, running_mean, running_var, factor, True)
        ctx.set_materialize_grads(False)
        ctx.plans, ctx.where = plans, where
        # What the backward pass reads: the stream in the place of x; the residual where an activation's derivative
        # depends on it.
        smooth = plans.call.activation is None
        read = None if plans.masked or plans.stream or smooth else residual
        given = (running_mean, running_var) if plans.given else (None, None)
        ctx.save_for_backward(x if stream is None else stream, weight, bias, read, saved, *given)
        return y if stream is None else (y, stream)

    @staticmethod
    def backward(ctx, dy, dstream=None):
        plans = ctx.plans
        x, weight, bias, residual, saved, running_mean, running_var = ctx.saved_tensors
        needs = ctx.needs_input_grad[:4]
        if dy is None:
            if dstream is None:
                return (None,) * 9
            dy = torch.zeros_like(x)
        others = is_transformed() or is_watched() or is_batched(dy) or dstream is not None and is_batched(dstream)
        if not others and layout(dy, True) != ctx.where:
            dy = in_layout(dy, ctx.where)
        if not others and dstream is not None and layout(dstream, True) != ctx.where:
            dstream = in_layout(dstream, ctx.where)
        if others:
            mask = unpack_mask(saved, plans.kept, x) if plans.masked else None
            found = _native.backward(
                plans.call, dy, dstream, x, weight, bias, residual, running_mean, running_var, needs, mask
            )
            return (*found, None, None, None, None, None)
        given = (dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs)
        found = Gradients.apply(plans, *given) if torch.is_grad_enabled() else plans.backward(*given)
        return (*found, None, None, None, None, None)


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
        found = SecondDerivative.apply(ctx.plans.call, ctx.plans.masked, *given, *ctx.saved_tensors)
        return (None, *found, None, None, None, None)


class SecondDerivative(torch.autograd.Function):
    """The derivative of the backward pass, which has none: every path through it raises rather than leaves out a part."""

    @staticmethod
    def forward(ctx, call, masked: bool, ddx, ddweight, ddbias, ddresidual, *tensors):
        *given, saved = tensors
        x = given[2]
        mask = unpack_mask(saved, kept(call, x, True), x) if masked else None
        return _native.double_backward(call, (ddx, ddweight, ddbias, ddresidual), *given, mask)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(THIRD)


THIRD = "isonorm has first and second derivatives of normalizations; a third was asked for"

#: `Function.apply` without the look at torch.func's transforms, which `_normalize` has had already.
apply = super(torch.autograd.Function, Normalize).apply
