"""Registered operators, for what looks at operators rather than runs them: torch.compile, torch.export, dispatch modes.

`isonorm::forward` and `isonorm::backward` are functional: new running statistics are results, which the caller copies. The second
derivative is torch's operators, for below an operator nothing can be differentiated. `eps` may be None for an RMSNorm; results that there are not are empty."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _autograd, _native, _plans
from ._problem import (
    HAVE_CHANNELS,
    HAVE_RUNNING,
    Call,
    dense,
    in_backward,
    in_layout,
    is_rectified,
    kept,
    layout,
    to_keep,
)

_CALL = "str op, int size, float? eps, str? activation, bool training, bool stream"
_TENSORS = "Tensor x, Tensor? weight, Tensor? bias, Tensor? residual, Tensor? running_mean, Tensor? running_var"

#: A compiler may lay out inputs as suits it: kernels are for several orders in memory, and results lie as `x` does. PyTorch before 2.5 has
#: no word for that.
_TAGS = (torch.Tag.flexible_layout,) if hasattr(torch.Tag, "flexible_layout") else ()

_library = torch.library.Library("isonorm", "DEF")
_library.define(
    f"forward({_TENSORS}, {_CALL}, float factor, bool keep) -> (Tensor y, Tensor stream, Tensor saved, Tensor new_mean, Tensor new_var)",
    tags=_TAGS,
)
_library.define(
    f"backward(Tensor dy, Tensor? dstream, {_TENSORS}, Tensor? saved, {_CALL}, bool[] needs) "
    "-> (Tensor dx, Tensor dweight, Tensor dbias, Tensor dresidual)",
    tags=_TAGS,
)


def knows(x: Tensor) -> bool:
    """Whether operators work on such a tensor: torch's own, and those that stand for one while torch traces."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return type(x) in (Tensor, torch.nn.Parameter) or isinstance(x, (FakeTensor, FunctionalTensor))


def _params(tensors, dtype: torch.dtype) -> torch.dtype:
    present = [t.dtype for t in tensors if t is not None]
    return present[0] if present else (dtype if dtype == torch.float64 else torch.float32)


def _find(call: Call, x, weight, bias, has_residual, running_mean):
    where = layout(x, call.op in HAVE_CHANNELS)
    affine = "none" if weight is None else "weight" if bias is None else "full"
    return _plans.find(call, x, where, _params((weight, bias, running_mean), x.dtype), affine, has_residual)


def _bytes_kept(call: Call, x: Tensor, keep: bool) -> int:
    given = call.op in HAVE_RUNNING and not call.training
    return kept(call, x).bytes if keep and not given else 0


def _in_order_of(given: Tensor, x: Tensor, *results: Tensor):
    """Results that lie in memory as `x` does, which `given` was made, as `given` does: what the fake kernels promise."""
    if given is x:
        return results
    return tuple(torch.empty_like(given).copy_(t) if t.numel() else t for t in results)


def _empty(x: Tensor) -> Tensor:
    return x.new_empty(0)


def _forward(
    x, weight, bias, residual, running_mean, running_var, op, size, eps, activation, training, stream, factor, keep
):
    call = Call(op, size, eps, activation, training, stream)
    has_channels = op in HAVE_CHANNELS
    given, (x, where) = x, dense(x, has_channels)
    residual = None if residual is None else in_layout(residual, where)
    weight, bias = (None if t is None else t.contiguous() for t in (weight, bias))
    plans = _find(call, x, weight, bias, residual is not None, running_mean)
    means = [_empty(x), _empty(x)]
    updates = training and running_mean is not None
    if updates:
        running_mean, running_var = means = [running_mean.clone(), running_var.clone()]
    if plans is None:
        result = _native.normalize(call, x, weight, bias, residual, running_mean, running_var, factor)
        y, stream_out = result if stream else (result, _empty(x))
        saved = x.new_zeros(_bytes_kept(call, x, keep), dtype=torch.uint8)
    else:
        y, stream_out, saved = plans.forward(x, weight, bias, residual, running_mean, running_var, factor, keep, True)
        stream_out = _empty(x) if stream_out is None else stream_out
        saved = x.new_empty(0, dtype=torch.uint8) if saved is None else saved
    y, stream_out = _in_order_of(given, x, y, stream_out)
    return y, stream_out, saved, *means


def _forward_fake(
    x, weight, bias, residual, running_mean, running_var, op, size, eps, activation, training, stream, factor, keep
):
    call = Call(op, size, eps, activation, training, stream)
    updates = training and running_mean is not None
    means = [torch.empty_like(t) if updates else x.new_empty(0) for t in (running_mean, running_var)]
    stream_out = torch.empty_like(x) if stream else x.new_empty(0)
    saved = x.new_empty(_bytes_kept(call, x, keep), dtype=torch.uint8)
    return torch.empty_like(x), stream_out, saved, *means


def _backward(
    dy,
    dstream,
    x,
    weight,
    bias,
    residual,
    running_mean,
    running_var,
    saved,
    op,
    size,
    eps,
    activation,
    training,
    stream,
    needs,
):
    call = Call(op, size, eps, activation, training, stream)
    given, (x, where) = x, dense(x, op in HAVE_CHANNELS)
    dy = in_layout(dy, where)
    dstream = None if dstream is None else in_layout(dstream, where)
    residual = None if residual is None else in_layout(residual, where)
    weight, bias = (None if t is None else t.contiguous() for t in (weight, bias))
    plans = _find(call, x, weight, bias, stream or residual is not None or needs[3], running_mean)
    if plans is None:
        found = _native.backward(call, dy, dstream, x, weight, bias, residual, running_mean, running_var, needs)
    else:
        found = plans.backward(dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs)
    dx, dweight, dbias, dresidual = (_empty(x) if g is None else g for g in found)
    # An operator's results share memory neither with each other nor with what it is given.
    if dresidual is dy or dresidual is dx:
        dresidual = dresidual.clone()
    dx, dresidual = _in_order_of(given, x, dx, dresidual)
    return dx, dweight, dbias, dresidual


def _backward_fake(
    dy,
    dstream,
    x,
    weight,
    bias,
    residual,
    running_mean,
    running_var,
    saved,
    op,
    size,
    eps,
    activation,
    training,
    stream,
    needs,
):
    like = (x, weight, bias, x)
    return tuple(torch.empty_like(t) if need else x.new_empty(0) for t, need in zip(like, needs))


for _name, _kernel, _fake in (
    ("forward", _forward, _forward_fake),
    ("backward", _backward, _backward_fake),
):
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _kernel, _device)
    torch.library.register_fake(f"isonorm::{_name}", _fake, lib=_library)


def _setup_forward(ctx, inputs, output):
    x, weight, bias, residual, running_mean, running_var, *rest = inputs
    op, size, eps, activation, training, stream, *_ = rest
    call = Call(op, size, eps, activation, training, stream)
    y, stream_out, saved, *_ = output
    given = op in HAVE_RUNNING and not training
    ctx.rectifies = is_rectified(call, residual is not None)
    rectified = y if ctx.rectifies else None
    call, _ = in_backward(call, residual is not None)
    ctx.call = call
    ctx.set_materialize_grads(False)
    statistics = (running_mean, running_var) if given else (None, None)
    x = stream_out if stream else x
    ctx.save_for_backward(x, weight, bias, to_keep(call, residual), saved, *statistics, rectified)


def _derivative(ctx, dy, dstream, *_):
    x, weight, bias, residual, saved, running_mean, running_var, rectified = ctx.saved_tensors
    needs = list(ctx.needs_input_grad[:4])
    if dy is None:
        dy = torch.zeros_like(x)
    dz = None
    if ctx.rectifies:
        dy = dz = _autograd.rectified_gradient(dy, rectified)
        needs[3] = False
    found = torch.ops.isonorm.backward(
        dy,
        dstream if ctx.call.stream else None,
        x,
        weight,
        bias,
        residual,
        running_mean,
        running_var,
        saved,
        *ctx.call,
        needs,
    )
    *found, dresidual = (g if need else None for g, need in zip(found, needs))
    return (*found, dz if ctx.rectifies else dresidual, *[None] * 10)


def _setup_backward(ctx, inputs, output):
    ctx.call, ctx.needs = Call(*inputs[9:15]), inputs[15]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:9])


def _second_derivative(ctx, *given):
    # What was not needed is an empty result, whose gradient means nothing.
    given = [g if need else None for g, need in zip(given, ctx.needs)]
    found = _autograd.SecondDerivative.apply(ctx.call, *given, *ctx.saved_tensors)
    return (*found, *[None] * 10)


torch.library.register_autograd("isonorm::forward", _derivative, setup_context=_setup_forward, lib=_library)
torch.library.register_autograd("isonorm::backward", _second_derivative, setup_context=_setup_backward, lib=_library)


def normalize(call: Call, x, weight, bias, residual, running_mean, running_var, factor):
    """By the operator `isonorm::forward`."""
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias, residual))
    y, stream, _, new_mean, new_var = torch.ops.isonorm.forward(
        x, weight, bias, residual, running_mean, running_var, *call, factor, keep
    )
    if call.training and running_mean is not None:
        running_mean.copy_(new_mean.detach())
        running_var.copy_(new_var.detach())
    return (y, stream) if call.stream else y
