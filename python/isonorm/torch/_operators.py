"""Registered operators, for what looks at operators rather than runs them: torch.compile, torch.export, dispatch modes.

`isonorm::forward` and `isonorm::backward` are functional: new running statistics are results, which the caller copies. The second
derivative is torch's operators, for below an operator nothing can be differentiated. `eps` may be None for an RMSNorm; results that there are not are empty."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _autograd, _native, _plans
from ._problem import HAVE_CHANNELS, HAVE_RUNNING, Call, can_mask, dense, in_layout, kept, layout

_CALL = "str op, int size, float? eps, str? activation, bool training, bool stream"
_TENSORS = "Tensor x, Tensor? weight, Tensor? bias, Tensor? residual, Tensor? running_mean, Tensor? running_var"

_library = torch.library.Library("isonorm", "DEF")
_library.define(
    f"forward({_TENSORS}, {_CALL}, float factor, bool keep) -> (Tensor y, Tensor stream, Tensor saved, Tensor new_mean, Tensor new_var)"
)
_library.define(
    f"backward(Tensor dy, Tensor? dstream, {_TENSORS}, Tensor? saved, {_CALL}, bool masked, bool[] needs) "
    "-> (Tensor dx, Tensor dweight, Tensor dbias, Tensor dresidual)"
)


def knows(x: Tensor) -> bool:
    """Whether operators work on such a tensor: torch's own, and those that stand for one while torch traces."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return type(x) in (Tensor, torch.nn.Parameter) or isinstance(x, (FakeTensor, FunctionalTensor))


def _params(tensors, dtype: torch.dtype) -> torch.dtype:
    present = [t.dtype for t in tensors if t is not None]
    return present[0] if present else (dtype if dtype == torch.float64 else torch.float32)


def _find(call: Call, x, weight, bias, masked, residual, running_mean):
    where = layout(x, call.op in HAVE_CHANNELS)
    kind = "none" if not residual else "stream" if call.stream else "masked" if masked else "add"
    affine = "none" if weight is None else "weight" if bias is None else "full"
    return _plans.find(call, x, where, _params((weight, bias, running_mean), x.dtype), affine, kind)


def _is_masked(call: Call, x, residual, keep) -> bool:
    where = layout(x, call.op in HAVE_CHANNELS)
    return bool(keep and residual is not None and not call.stream and can_mask(call, x, where))


def _empty(x: Tensor) -> Tensor:
    return x.new_empty(0)


def _forward(
    x, weight, bias, residual, running_mean, running_var, op, size, eps, activation, training, stream, factor, keep
):
    call = Call(op, size, eps, activation, training, stream)
    has_channels = op in HAVE_CHANNELS
    given, (x, where) = x, dense(x, has_channels)
    if residual is not None:
        residual = in_layout(residual, where)
    masked = _is_masked(call, x, residual, keep)
    plans = _find(call, x, weight, bias, masked, residual is not None, running_mean)
    means = [_empty(x), _empty(x)]
    updates = training and running_mean is not None
    if updates:
        running_mean, running_var = means = [running_mean.clone(), running_var.clone()]
    if plans is None:
        result = _native.normalize(call, x, weight, bias, residual, running_mean, running_var, factor)
        y, stream_out = result if stream else (result, _empty(x))
        at = kept(call, x, masked)
        saved = x.new_empty(at.bytes if keep and not (op in HAVE_RUNNING and not training) else 0, dtype=torch.uint8)
        if masked:
            bits = _autograd.pack_mask(y)
            saved[at.mask : at.mask + bits.numel()] = bits
    else:
        y, stream_out, saved = plans.forward(x, weight, bias, residual, running_mean, running_var, factor, keep, True)
        stream_out = _empty(x) if stream_out is None else stream_out
        saved = x.new_empty(0, dtype=torch.uint8) if saved is None else saved
    if given is not x:
        y = torch.empty_like(given).copy_(y)
    return y, stream_out, saved, *means


def _forward_fake(
    x, weight, bias, residual, running_mean, running_var, op, size, eps, activation, training, stream, factor, keep
):
    call = Call(op, size, eps, activation, training, stream)
    updates = training and running_mean is not None
    means = [torch.empty_like(t) if updates else x.new_empty(0) for t in (running_mean, running_var)]
    stream_out = torch.empty_like(x) if stream else x.new_empty(0)
    bytes_kept = 0
    if keep and not (op in HAVE_RUNNING and not training):
        bytes_kept = kept(call, x, _is_masked(call, x, residual, keep)).bytes
    return torch.empty_like(x), stream_out, x.new_empty(bytes_kept, dtype=torch.uint8), *means


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
    masked,
    needs,
):
    call = Call(op, size, eps, activation, training, stream)
    x, where = dense(x, op in HAVE_CHANNELS)
    dy = in_layout(dy, where)
    dstream = None if dstream is None else in_layout(dstream, where)
    residual = None if residual is None else in_layout(residual, where)
    plans = _find(call, x, weight, bias, masked, masked or stream or residual is not None or needs[3], running_mean)
    if plans is None:
        mask = _autograd.unpack_mask(saved, kept(call, x, True), x) if masked else None
        found = _native.backward(call, dy, dstream, x, weight, bias, residual, running_mean, running_var, needs, mask)
    else:
        found = plans.backward(dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs)
    dx, dweight, dbias, dresidual = (_empty(x) if g is None else g for g in found)
    # An operator's results share memory neither with each other nor with what it is given.
    if dresidual is dy or dresidual is dx:
        dresidual = dresidual.clone()
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
    masked,
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
    op, size, eps, activation, training, stream, _, keep = rest
    call = ctx.call = Call(op, size, eps, activation, training, stream)
    _, stream_out, saved, *_ = output
    ctx.masked = _is_masked(call, x, residual, keep)
    given = op in HAVE_RUNNING and not training
    read = None if ctx.masked or stream or activation is None else residual
    ctx.set_materialize_grads(False)
    statistics = (running_mean, running_var) if given else (None, None)
    ctx.save_for_backward(stream_out if stream else x, weight, bias, read, saved, *statistics)


def _derivative(ctx, dy, dstream, *_):
    x, weight, bias, residual, saved, running_mean, running_var = ctx.saved_tensors
    needs = list(ctx.needs_input_grad[:4])
    if dy is None:
        dy = torch.zeros_like(x)
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
        ctx.masked,
        needs,
    )
    found = [g if need else None for g, need in zip(found, needs)]
    return (*found, *[None] * 10)


def _setup_backward(ctx, inputs, output):
    ctx.call, ctx.masked, ctx.needs = Call(*inputs[9:15]), inputs[15], inputs[16]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:9])


def _second_derivative(ctx, *given):
    # What was not needed is an empty result, whose gradient means nothing.
    given = [g if need else None for g, need in zip(given, ctx.needs)]
    found = _autograd.SecondDerivative.apply(ctx.call, ctx.masked, *given, *ctx.saved_tensors)
    return (*found, *[None] * 11)


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
