"""Plans, found again by what they depend on, and run on tensors.

Nothing is checked here: `_normalize` has seen to it that tensors are of one device, in a layout that kernels know, of the
shapes and types that the plan is for."""

from __future__ import annotations

import torch

from isonorm import _core

from ._problem import HAVE_RUNNING, Call, in_backward, is_rectified, kept, problem

#: Shapes that vary make any number of plans; when there are so many, all are forgotten.
_MOST = 4096

_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def raw_stream(x: torch.Tensor) -> int:
    """torch's current stream of the tensor's GPU; 0 on a CPU."""
    return _current_stream(x.get_device()) if x.is_cuda else 0


def device_of(x: torch.Tensor) -> tuple[int, int]:
    """A GPU's number, or -1 and the threads of the CPU: what a plan is for."""
    index = x.get_device()
    return index, torch.get_num_threads() if index < 0 else 0


class Plans:
    """How a problem is carried out on a device, forward and backward. `forward` and `backward` are those of `_core.Passes`.

    Where a ReLU behind a residual has a backward pass of its own, `backward` is what follows it."""

    __slots__ = ("call", "where", "rectifies", "stream", "given", "activates", "passes", "forward", "backward")

    def __init__(self, call: Call, x: torch.Tensor, where: int, params: torch.dtype, affine: str, has_residual: bool):
        def way(name: str) -> str:
            return problem(call, tuple(x.shape), x.dtype, where, params, affine, has_residual, name)

        #: That of the backward pass.
        self.call, _ = in_backward(call, has_residual)
        self.where = where
        self.rectifies = is_rectified(call, has_residual)
        self.stream = call.stream
        self.given = call.op in HAVE_RUNNING and not call.training
        self.activates = self.call.activation is not None
        self.passes = _core.Passes(way("forward"), way("backward"), *device_of(x), kept(call, x), self)
        self.forward, self.backward = self.passes.forward, self.passes.backward


_plans: dict[tuple, Plans | None] = {}


def find(call: Call, x, where: int, params: torch.dtype, affine: str, has_residual: bool) -> Plans | None:
    """The plans for this call; None where no kernel carries it out on this device."""
    key = (
        call,
        x.shape,
        x.dtype,
        where,
        params,
        affine,
        has_residual,
        device_of(x),
    )
    try:
        return _plans[key]
    except KeyError:
        pass
    try:
        found = Plans(call, x, where, params, affine, has_residual)
    except NotImplementedError:
        found = None
    if len(_plans) >= _MOST:
        _plans.clear()
    _plans[key] = found
    return found
