"""Plans, found again by what they depend on, and run on tensors.

Nothing is checked here: `_normalize` has seen to it that tensors are of one device, in a layout that kernels know, of the
shapes and types that the plan is for."""

from __future__ import annotations

import torch

from isonorm import _core

from ._problem import HAVE_RUNNING, Call, kept, problem

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
    """How a problem is carried out on a device, forward and backward."""

    __slots__ = (
        "call",
        "masked",
        "stream",
        "given",
        "kept",
        "_problem",
        "_device",
        "_run",
        "_backward",
        "_smooth",
    )

    def __init__(self, call: Call, x: torch.Tensor, where: int, params: torch.dtype, affine: str, residual: str):
        self.call = call
        self.masked = residual == "masked"
        self.stream = residual == "stream"
        self.given = call.op in HAVE_RUNNING and not call.training
        self.kept = kept(call, x, self.masked)
        self._problem = (call, tuple(x.shape), x.dtype, where, params, affine, residual)
        self._device = device_of(x)
        self._run = self._plan("forward").forward
        self._backward = None
        self._smooth = call.activation is None

    def _plan(self, way: str) -> _core.Plan:
        call, shape, dtype, where, params, affine, residual = self._problem
        return _core.Plan(problem(call, shape, dtype, where, params, affine, residual, way), *self._device)

    def forward(self, x, weight, bias, residual, running_mean, running_var, factor, keep, zeros=False):
        """The result, the residual stream or None, and what the backward pass needs (bytes) or None; `zeros`: with no
        byte left as it was."""
        try:
            return self._launch_forward(x, weight, bias, residual, running_mean, running_var, factor, keep, zeros)
        except NotImplementedError:
            # Some kernels want tensors that start on 16 bytes.
            x, residual = _aligned(x), _aligned(residual)
            return self._launch_forward(x, weight, bias, residual, running_mean, running_var, factor, keep, zeros)

    def _launch_forward(self, x, weight, bias, residual, running_mean, running_var, factor, keep, zeros=False):
        y = torch.empty_like(x)
        stream = torch.empty_like(x) if self.stream else None
        mean = rstd = mask = 0
        saved = None
        if keep and not self.given:
            at = self.kept
            make = torch.zeros if zeros and at.gaps else torch.empty
            saved = make(at.bytes, dtype=torch.uint8, device=x.device)
            mean, rstd, mask = self._addresses(saved)
        self._run(
            raw_stream(x),
            x.data_ptr(),
            y.data_ptr(),
            0 if weight is None else weight.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            0 if residual is None else residual.data_ptr(),
            mask,
            0 if stream is None else stream.data_ptr(),
            0 if running_mean is None else running_mean.data_ptr(),
            0 if running_var is None else running_var.data_ptr(),
            factor,
            mean,
            rstd,
        )
        return y, stream, saved

    def _addresses(self, saved) -> tuple[int, int, int]:
        """Of the parts of what a forward pass keeps: mean, rstd and mask, 0 for those that there are not."""
        first, at = saved.data_ptr(), self.kept
        return (first if at.rstd else 0), first + at.rstd, (first + at.mask if self.masked else 0)

    def backward(self, dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs):
        """The gradients of x, weight, bias and residual, as far as they are needed, else None. `x` is the stream where
        there is one."""
        if self._backward is None:
            self._backward = self._plan("backward").backward
        try:
            return self._launch_backward(
                dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs
            )
        except NotImplementedError:
            dy, dstream, x, residual = map(_aligned, (dy, dstream, x, residual))
            return self._launch_backward(
                dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs
            )

    def _launch_backward(self, dy, dstream, x, weight, bias, residual, running_mean, running_var, saved, needs):
        needs_x, needs_weight, needs_bias, needs_residual = needs
        dx = torch.empty_like(x) if needs_x or (self.stream and needs_residual) else None
        dweight = torch.empty_like(weight) if needs_weight else None
        dbias = torch.empty_like(bias) if needs_bias else None
        # Without an activation the residual's gradient is that of the result; a stream's is that of x.
        dresidual = torch.empty_like(x) if needs_residual and not self.stream and not self._smooth else None
        mean = rstd = mask = 0
        if not self.given:
            mean, rstd, mask = self._addresses(saved)
        needs_z = not self._smooth and not self.masked
        self._backward(
            raw_stream(x),
            x.data_ptr(),
            dy.data_ptr(),
            0 if dx is None else dx.data_ptr(),
            0 if weight is None else weight.data_ptr(),
            bias.data_ptr() if needs_z and bias is not None else 0,
            residual.data_ptr() if needs_z and residual is not None and not self.stream else 0,
            mask,
            0 if dstream is None else dstream.data_ptr(),
            running_mean.data_ptr() if self.given else 0,
            running_var.data_ptr() if self.given else 0,
            mean,
            rstd,
            0,
            0,
            0 if dweight is None else dweight.data_ptr(),
            0 if dbias is None else dbias.data_ptr(),
            0 if dresidual is None else dresidual.data_ptr(),
        )
        if needs_residual and dresidual is None:
            dresidual = dx if self.stream else dy
        return (dx if needs_x else None), dweight, dbias, dresidual


def _aligned(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The same where it starts on 16 bytes, a copy otherwise."""
    return (
        tensor if tensor is None or tensor.data_ptr() % 16 == 0 else tensor.clone(memory_format=torch.preserve_format)
    )


_plans: dict[tuple, Plans | None] = {}


def find(call: Call, x, where: int, params: torch.dtype, affine: str, residual: str) -> Plans | None:
    """The plans for this call; None where no kernel carries it out on this device."""
    key = (
        call,
        x.shape,
        x.dtype,
        where,
        params,
        affine,
        residual,
        device_of(x),
    )
    try:
        return _plans[key]
    except KeyError:
        pass
    try:
        found = Plans(call, x, where, params, affine, residual)
    except NotImplementedError:
        found = None
    if len(_plans) >= _MOST:
        _plans.clear()
    _plans[key] = found
    return found
