"""A case's inputs and parameters, and what comes of them in float64."""

from __future__ import annotations

import math
from typing import Callable, List, Optional

import torch
import torch.nn.functional as F

from .cases import Case, is_backward

TORCH_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
# Where the slope of an activation jumps: which side a value is rounded to decides about its gradient.
KINKS = {"relu": (0.0,), "leaky_relu": (0.0,), "hardswish": (-3.0, 3.0)}
DEFAULT_SLOPE = 0.01


def activation(name: Optional[str]) -> Callable[[torch.Tensor], torch.Tensor]:
    """The activation of this name as PyTorch computes it."""
    kind, _, slope = (name or "none").partition(":")
    if kind == "leaky_relu":
        value = float(slope or DEFAULT_SLOPE)
        return lambda z: F.leaky_relu(z, value)
    return {
        "none": lambda z: z,
        "relu": F.relu,
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "hardswish": F.hardswish,
    }[kind]


class Tensors:
    """One set of a case's tensors: `x`, and `residual` and gradients of the outputs where there are any."""

    def __init__(self, case: Case, a_pass: str, device: torch.device):
        def normal() -> torch.Tensor:
            n, c = (case.shape + (1,))[:2]
            sizes = (n, *case.shape[2:], c) if case.channels_last else case.shape
            flat = torch.randn(sizes, device=device, dtype=torch.float32).to(TORCH_DTYPES[case.dtype])
            return flat.movedim(-1, 1) if case.channels_last else flat

        self.x = normal()
        self.residual = normal() if case.residual else None
        backward = is_backward(a_pass)
        self.grads = [normal() for _ in range(2 if case.residual == "stream" else 1)] if backward else []
        self.inputs = [t for t in (self.x, self.residual) if t is not None]
        for t in self.inputs:
            t.requires_grad_(backward)


class Parameters:
    """A case's weight, bias and running statistics, in the type that the case says."""

    def __init__(self, case: Case, device: torch.device):
        def uniform(low: float, high: float) -> torch.Tensor:
            values = torch.rand(case.param_shape, device=device) * (high - low) + low
            return values.to(TORCH_DTYPES[case.param])

        self.weight = uniform(0.5, 1.5) if case.affine != "none" else None
        self.bias = uniform(-0.5, 0.5) if case.affine == "full" else None
        self.mean = uniform(-0.5, 0.5)
        self.var = uniform(0.5, 1.5)


class Reference:
    """A case's outputs, or its gradients, in float64."""

    def __init__(self, case: Case, a_pass: str, norm: torch.nn.Module, tensors: Tensors):
        """`norm` is PyTorch's module in float64, with the case's parameters."""
        backward = is_backward(a_pass)
        inputs = [t.detach().double().requires_grad_(backward) for t in tensors.inputs]
        with torch.set_grad_enabled(backward):
            x, residual = inputs[0], inputs[-1]
            stream = x + residual if case.residual == "stream" else x
            z = norm(stream)
            z = z + residual if case.residual == "add" else z
            y = activation(case.activation)(z)
        outputs = [y, stream] if case.residual == "stream" else [y]
        self.dtype = TORCH_DTYPES[case.dtype]
        # The gradients of the outputs that errors are measured with.
        self.grads: List[torch.Tensor] = []
        self.values = [t.detach() for t in outputs]
        if backward:
            self.grads = [self._away_from_kinks(case, z.detach(), tensors.grads[0]), *tensors.grads[1:]]
            leaves = [*inputs, *norm.parameters()]
            self.values = list(torch.autograd.grad(outputs, leaves, [g.double() for g in self.grads]))

    @staticmethod
    def _away_from_kinks(case: Case, z: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        """The gradient of y, without the elements whose activation's slope rounding could change."""
        kinks = KINKS.get(case.act.partition(":")[0], ())
        margin = 2 * torch.finfo(TORCH_DTYPES[case.dtype]).eps * z.abs().max()
        for kink in kinks:
            grad = grad.masked_fill((z - kink).abs() < margin, 0.0)
        return grad

    def error(self, results: List[torch.Tensor]) -> float:
        """The largest difference of any tensor, as a share of that tensor's largest value."""
        if len(results) != len(self.values):
            raise RuntimeError(f"{len(results)} results, expected {len(self.values)}")
        worst = 0.0
        for result, value in zip(results, self.values):
            if result.shape != value.shape:
                raise RuntimeError(f"a result of shape {tuple(result.shape)}, expected {tuple(value.shape)}")
            if value.numel() == 0:
                continue
            error = ((result.detach().double() - value).abs().max() / value.abs().max().clamp_min(1e-300)).item()
            worst = max(worst, error if math.isfinite(error) else math.inf)
        return worst

    def is_wrong(self, error: float) -> bool:
        """Whether rounding, once or a few times, does not explain an error."""
        eps = torch.finfo(self.dtype).eps
        return not error <= eps * (8 if self.dtype.itemsize == 2 else 512)
