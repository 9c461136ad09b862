"""The one way from a function or module to a result: looks at the tensors, then takes kernels, a registered operator,
or torch."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.autograd.graph import increment_version

from isonorm import _core

from . import _autograd, _native, _operators, _plans
from ._modes import AUTOCAST_TO_F32, RMSNORM_PROMOTES, is_transformed, is_watched
from ._problem import DTYPES, HAVE_CHANNELS, HAVE_RUNNING, Call, dense, in_layout, layout

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Notes(NamedTuple):
    """Where a module keeps what it found out about a call, and what it calls this call."""

    site: _core.Site
    config: tuple


class How(NamedTuple):
    """How a call is carried out."""

    #: A backward pass may follow.
    keeps: bool
    #: Autocast would convert its arguments.
    casts: bool
    #: Running statistics are written.
    updates: bool


def normalize(call: Call, x, weight, bias, residual=None, running_mean=None, running_var=None, factor=0.0, notes=None):
    """`act(norm(x) + residual)`; with `call.stream` the pair of `act(norm(x + residual))` and `x + residual`.

    Takes torch's own functions where isonorm has no kernels: other devices than CPUs and CUDA, `float64` on GPUs, types that kernels do
    not mix, subclasses of tensors, torch.func's transforms, forward-mode derivatives. Errors are torch's then. `notes` are a module's."""
    compiling = torch.compiler.is_compiling()
    if not compiling and (type(x) not in _PLAIN or is_watched() or is_transformed()):
        if not _operators.knows(x) or is_transformed():
            return _native.normalize(call, x, weight, bias, residual, running_mean, running_var, factor)
        compiling = True
    asked = (x, weight, bias, residual, running_mean)
    if not compiling:
        # A view that stands for the negative of its memory.
        x, weight, bias, residual = (
            t.resolve_neg() if isinstance(t, torch.Tensor) else t for t in (x, weight, bias, residual)
        )
    if x.is_cuda and call.op in AUTOCAST_TO_F32 and torch.is_autocast_enabled():
        x, weight, bias, residual = (
            t.float() if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t
            for t in (x, weight, bias, residual)
        )
    if residual is not None and (
        not isinstance(residual, torch.Tensor)
        or residual.shape != x.shape
        or residual.dtype != x.dtype
        or residual.get_device() != x.get_device()
    ):
        return _apart(call, x, weight, bias, residual, running_mean, running_var, factor)
    if RMSNORM_PROMOTES and call.op == "rmsnorm" and weight is not None and weight.dtype != x.dtype:
        if residual is not None:
            return _apart(call, x, weight, bias, residual, running_mean, running_var, factor)
        wide = torch.promote_types(x.dtype, weight.dtype)
        x, weight = x.to(wide), weight.to(wide)
    params = _check(call, x, weight, bias, running_mean, running_var)
    if params is None or x.numel() == 0:
        return _native.normalize(call, x, weight, bias, residual, running_mean, running_var, factor)
    if weight is None and bias is not None:
        weight = torch.ones_like(bias)
    # Parameters and statistics of several types: as the widest of them.
    weight, bias = (t if t is None or t.dtype == params else t.to(params) for t in (weight, bias))
    weight, bias = (t if t is None or t.is_contiguous() else t.contiguous() for t in (weight, bias))
    statistics = (running_mean, running_var)
    if running_mean is not None and not _are_ready(statistics, params):
        running_mean, running_var = (t.to(params, memory_format=torch.contiguous_format, copy=True) for t in statistics)

    has_channels = call.op in HAVE_CHANNELS
    where = layout(x, has_channels)
    if where is None:
        x, where = dense(x, has_channels)
    if residual is not None and layout(residual, has_channels) != where:
        residual = in_layout(residual, where)
    if compiling:
        result = _operators.normalize(call, x, weight, bias, residual, running_mean, running_var, factor)
    else:
        same = all(a is b for a, b in zip(asked, (x, weight, bias, residual, running_mean)))
        notes = notes if same else None
        result = _run(call, x, where, weight, bias, residual, params, running_mean, running_var, factor, notes)
    if result is None:
        return _native.normalize(call, x, weight, bias, residual, *statistics, factor)
    if running_mean is not statistics[0] and call.training:
        statistics[0].copy_(running_mean)
        statistics[1].copy_(running_var)
    return result


def _run(call, x, where, weight, bias, residual, params, running_mean, running_var, factor, notes: Notes | None):
    """By kernels, now. None where there are none for this device."""
    keeps = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias, residual))
    affine = "none" if weight is None else "weight" if bias is None else "full"
    plans = _plans.find(call, x, where, params, affine, residual is not None)
    if plans is None:
        return None
    how = How(keeps, call.op in AUTOCAST_TO_F32 and x.is_cuda, call.training and running_mean is not None)
    apply = _autograd.apply_rectified if plans.rectifies else _autograd.apply
    if notes is not None:
        given = (x, weight, bias, residual, running_mean)
        notes.site.remember(notes.config, *given, how, plans.passes, plans, apply)
    if how.updates:
        increment_version(running_mean)
        increment_version(running_var)
    if how.keeps:
        return apply(x, weight, bias, residual, (plans, running_mean, running_var, factor))
    y, stream, _ = plans.forward(x, weight, bias, residual, running_mean, running_var, factor, False)
    return (y, stream) if call.stream else y


def _apart(call: Call, x, weight, bias, residual, running_mean, running_var, factor):
    """With a residual of another shape, type or device than x or the result: torch adds it, as it promotes and broadcasts."""
    if call.stream:
        stream = x + residual
        return normalize(call._replace(stream=False), stream, weight, bias), stream
    plain = call._replace(activation=None)
    y = normalize(plain, x, weight, bias, None, running_mean, running_var, factor)
    return _native.finish(y, residual, call.activation)


def _are_ready(statistics, params) -> bool:
    return all(t.dtype == params and t.is_contiguous() for t in statistics)


def _check(call: Call, x, weight, bias, running_mean, running_var) -> torch.dtype | None:
    """The type of parameters and statistics for the kernels; None where torch has to say what is wrong, or to do it."""
    dtype, device = x.dtype, x.get_device()
    if dtype not in DTYPES or not (x.is_cpu or x.is_cuda and dtype != torch.float64) or x.layout != torch.strided:
        return None
    if call.op in HAVE_RUNNING or call.op == "groupnorm":
        if x.dim() < 2 or x.dim() > 8:
            return None
        wanted = (x.shape[1],)
    else:
        if x.dim() < call.size or x.dim() > 8:
            return None
        wanted = x.shape[x.dim() - call.size :]
    if call.op in ("batchnorm", "instancenorm") and not (3 if call.op == "instancenorm" else 2) <= x.dim() <= 5:
        return None
    eps = call.eps
    if eps is not None and not 0 <= eps < math.inf or eps == 0 and call.op in HAVE_RUNNING:
        return None
    if running_mean is not None and (
        running_mean.requires_grad or running_var is not None and running_var.requires_grad
    ):
        return None
    params = None
    for tensor in (weight, bias, running_mean, running_var):
        if tensor is None:
            continue
        if tensor.shape != wanted or tensor.get_device() != device or device < 0 and not tensor.is_cpu:
            return None
        if type(tensor) not in _PLAIN and not _operators.knows(tensor):
            return None
        if tensor.dtype != dtype and tensor.dtype != torch.float32:
            return None
        params = tensor.dtype if params in (None, tensor.dtype) else torch.float32
    if call.op in HAVE_RUNNING and (running_mean is None) != (running_var is None):
        return None
    if call.op in HAVE_RUNNING and not call.training and running_mean is None:
        return None
    if call.training and not _has_statistics(call, x):
        return None
    if params is None:
        params = dtype if dtype == torch.float64 else torch.float32
    return params


def _has_statistics(call: Call, x) -> bool:
    """Whether each group has more than one value, where torch asks for that."""
    if call.op == "batchnorm":
        return x.numel() != x.shape[1]
    if call.op == "instancenorm":
        return x.numel() != x.shape[0] * x.shape[1]
    if call.op == "groupnorm":
        return 0 < call.size <= x.shape[1] and x.shape[1] % call.size == 0 and x.numel() != call.size
    return True
