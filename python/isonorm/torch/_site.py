"""What a module found out about its last call, so that a next one like it need not look at everything again.

To look at a few tensors takes the host longer than to launch a kernel. What a plan depends on is compared with what it was; anything else
than that, whatever it is, takes the long way, `normalize`."""

from __future__ import annotations

import torch
from torch.autograd.graph import increment_version

from . import _autograd
from ._modes import AUTOCAST_TO_F32, is_transformed, is_watched
from ._problem import Call

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_get_threads = torch.get_num_threads
_apply = _autograd.apply
_Tensor = torch.Tensor
_PLAIN = (torch.nn.Parameter, torch.Tensor)


#: The attribute of a module that holds its site.
SITE = "_isonorm_site"


class Site:
    """The last call of a module. A copy of the module begins with one of its own."""

    __slots__ = (
        "config", "shape", "stride", "dtype", "device", "params", "wanted", "has", "kind", "where", "threads", "keep", "plans", "casts", "updates",
    )  # fmt: skip

    def __init__(self):
        self.config = None

    def __reduce__(self):
        return Site, ()

    def __deepcopy__(self, memo):
        return Site()

    def remember(self, config, call: Call, plans, x, where, weight, bias, residual, params, running_mean, keep) -> None:
        """A call that ran as it was given: nothing was copied or converted."""
        self.shape, self.stride, self.dtype, self.device = x.shape, x.stride(), x.dtype, x.get_device()
        self.params = params
        self.wanted = None if weight is None else weight.shape
        self.has = (weight is not None, bias is not None, running_mean is not None)
        self.kind = residual is not None
        self.where, self.keep, self.plans = where, keep, plans
        self.threads = torch.get_num_threads() if self.device < 0 else 0
        self.casts = call.op in AUTOCAST_TO_F32 and self.device >= 0
        self.updates = call.training and running_mean is not None
        self.config = config


def again(site: Site, config: tuple, x, weight, bias, residual, running_mean, running_var, factor):
    """The result, if this call is like the last one; None if it is not known to be."""
    if (
        site.config != config
        or type(x) is not _Tensor
        or x.shape != site.shape
        or x.dtype is not site.dtype
        or x.stride() != site.stride
        or x.get_device() != site.device
        or (residual is not None) is not site.kind
        or (weight is not None, bias is not None, running_mean is not None) != site.has
        or _is_compiling()
        or is_watched()
        or is_transformed()
    ):
        return None
    device = site.device
    if device < 0:
        if not x.is_cpu or _get_threads() != site.threads:
            return None
    elif site.casts and torch.is_autocast_enabled():
        return None
    params, grad = site.params, x.requires_grad
    if weight is not None:
        if (
            type(weight) not in _PLAIN
            or weight.dtype is not params
            or weight.shape != site.wanted
            or weight.get_device() != device
            or not weight.is_contiguous()
        ):
            return None
        grad = grad or weight.requires_grad
        if bias is not None:
            if (
                type(bias) not in _PLAIN
                or bias.dtype is not params
                or bias.shape != site.wanted
                or bias.get_device() != device
                or not bias.is_contiguous()
            ):
                return None
            grad = grad or bias.requires_grad
        if device < 0 and not (weight.is_cpu and (bias is None or bias.is_cpu)):
            return None
    if residual is not None:
        if (
            type(residual) is not _Tensor
            or residual.dtype is not site.dtype
            or residual.shape != site.shape
            or residual.stride() != site.stride
            or residual.get_device() != device
            or device < 0
            and not residual.is_cpu
        ):
            return None
        grad = grad or residual.requires_grad
    if running_mean is not None:
        for statistic in (running_mean, running_var):
            if (
                statistic.dtype is not params
                or statistic.shape != (site.shape[1],)
                or statistic.get_device() != device
                or device < 0
                and not statistic.is_cpu
                or not statistic.is_contiguous()
                or statistic.requires_grad
            ):
                return None
    if (grad and _is_grad_enabled()) is not site.keep:
        return None
    plans = site.plans
    if site.updates:
        increment_version(running_mean)
        increment_version(running_var)
    if site.keep:
        return _apply(x, weight, bias, residual, plans, site.where, running_mean, running_var, factor)
    y, stream, _ = plans.forward(x, weight, bias, residual, running_mean, running_var, factor, False)
    return y if stream is None else (y, stream)
