"""The plans of a SyncBatchNorm: moments, the forward pass with statistics that are given, and both halves of the
backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from isonorm import _core

from ._plans import device_of, raw_stream
from ._problem import Call, in_backward, is_rectified, layout, problem, statistics_types

_MOST = 4096
_plans: dict[tuple, object] = {}


def _remembered(key: tuple, make):
    found = _plans.get(key)
    if found is None:
        if len(_plans) >= _MOST:
            _plans.clear()
        found = _plans[key] = make()
    return found


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the biased variance of each channel, in one read of `x`."""
    where, device = layout(x, True), device_of(x)
    mean_type, var_type = statistics_types(x)

    def make():
        call = Call("batchnorm", 0, None, None, True)
        return _core.Plan(problem(call, x.shape, x.dtype, where, torch.float32, "none", False, "moments"), *device)

    plan = _remembered(("moments", x.shape, x.dtype, where, *device), make)
    mean, var = x.new_empty(x.shape[1], dtype=mean_type), x.new_empty(x.shape[1], dtype=var_type)
    plan.moments(raw_stream(x), x.data_ptr(), mean.data_ptr(), var.data_ptr())
    return mean, var


def find(call: Call, x: Tensor, has_residual: bool) -> SyncPlans:
    """The plans for such an input, which has an affine map of the accumulator's type."""
    where, device = layout(x, True), device_of(x)
    key = (call, x.shape, x.dtype, where, has_residual, *device)
    return _remembered(key, lambda: SyncPlans(call, x, where, has_residual, device))


class SyncPlans:
    """The passes of one rank, for an input that may be empty. Where a ReLU behind a residual has a backward pass of its own, `sums` and
    `backward` are what follows it."""

    def __init__(self, call: Call, x: Tensor, where: int, has_residual: bool, device: tuple[int, int]):
        params = torch.float64 if x.dtype == torch.float64 else torch.float32

        def plan(way: str) -> _core.Plan | None:
            if x.numel() == 0:
                return None
            text = problem(call, x.shape, x.dtype, where, params, "full", has_residual, way)
            return _core.Plan(text, *device, synchronized=True)

        self._forward, self._backward = plan("forward"), plan("backward")
        self.rectifies = is_rectified(call, has_residual)
        self._activates = in_backward(call, has_residual)[0].activation is not None

    def forward(self, x, weight, bias, residual, mean, var) -> Tensor:
        """The result."""
        y = torch.empty_like(x)
        if self._forward is not None:
            self._forward.forward(
                raw_stream(x),
                x.data_ptr(),
                y.data_ptr(),
                weight.data_ptr(),
                bias.data_ptr(),
                _address(residual),
                0,
                mean.data_ptr(),
                var.data_ptr(),
                0.0,
                0,
                0,
            )
        return y

    def sums(self, dy, x, weight, bias, residual, mean, var) -> tuple[Tensor, Tensor]:
        """Σg and Σg·x̂ of each channel of this rank: the gradients of bias and weight."""
        sums = torch.zeros((2, x.shape[1]), dtype=weight.dtype, device=x.device)
        if self._backward is not None:
            dbias, dweight = sums
            self._run(dy, None, x, weight, bias, residual, mean, var, None, dweight, dbias, None)
        return sums

    def backward(self, dy, x, weight, bias, residual, mean, var, means, needs_residual):
        """dx, given the means of g and g·x̂ over all ranks, and dresidual."""
        dx = torch.empty_like(x)
        # Without an activation the residual's gradient is that of the result.
        dresidual = torch.empty_like(x) if needs_residual and self._activates else None
        if self._backward is not None:
            self._run(dy, dx, x, weight, bias, residual, mean, var, means, None, None, dresidual)
        return dx, dresidual if self._activates or not needs_residual else dy

    def _run(self, dy, dx, x, weight, bias, residual, mean, var, means, dweight, dbias, dresidual):
        mean_g, mean_gx = (None, None) if means is None else means
        self._backward.backward(
            raw_stream(x),
            x.data_ptr(),
            dy.data_ptr(),
            _address(dx),
            weight.data_ptr(),
            bias.data_ptr() if self._activates else 0,
            _address(residual),
            0,
            mean.data_ptr(),
            var.data_ptr(),
            0,
            0,
            _address(mean_g),
            _address(mean_gx),
            _address(dweight),
            _address(dbias),
            _address(dresidual),
        )


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
