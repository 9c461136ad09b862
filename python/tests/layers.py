"""The layers under test, each beside PyTorch's, and how both are run."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, Callable, Dict, Tuple

import torch
from torch import nn

import isonorm.torch as iso

ACTIVATIONS = {
    "relu": torch.relu,
    "leaky_relu": nn.functional.leaky_relu,
    "leaky_relu:0.2": lambda z: nn.functional.leaky_relu(z, 0.2),
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "gelu_tanh": lambda z: nn.functional.gelu(z, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": nn.functional.hardswish,
    None: lambda z: z,
}
STREAMED = ("LayerNorm", "RMSNorm")


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer: its class's name, what constructs it, and a shape that it takes."""

    name: str
    arguments: Tuple[Any, ...]
    shape: Tuple[int, ...]
    keywords: Tuple[Tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        words = [repr(a) for a in self.arguments] + [f"{k}={v!r}" for k, v in self.keywords]
        return f"{self.name}({', '.join(words)})"

    def pair(self, dtype=torch.float32, device="cpu", activation=None, training=True):
        """PyTorch's module and ours, with the same random parameters and running statistics."""
        keywords = dict(self.keywords, dtype=dtype, device=device)
        theirs = getattr(nn, self.name)(*self.arguments, **keywords)
        ours = getattr(iso, self.name)(*self.arguments, **keywords, activation=activation)
        randomize(theirs)
        ours.load_state_dict(theirs.state_dict())
        return theirs.train(training), ours.train(training)

    def input(self, dtype=torch.float32, device="cpu", shift=0.5):
        """Random data, not centred."""
        return (torch.randn(self.shape, dtype=torch.float64) + shift).to(device, dtype)


def randomize(module: nn.Module) -> nn.Module:
    """Parameters and running statistics that no mistake leaves unseen."""
    with torch.no_grad():
        for name, t in module.state_dict().items():
            if not t.is_floating_point():
                continue
            random = torch.rand(t.shape, dtype=torch.float64)
            wide = random + 0.5 if name.endswith(("weight", "running_var")) else random - 0.5
            t.copy_(wide)
    return module


LAYERS = (
    Layer("BatchNorm1d", (6,), (8, 6)),
    Layer("BatchNorm1d", (5,), (4, 5, 9)),
    Layer("BatchNorm2d", (8,), (3, 8, 5, 4)),
    Layer("BatchNorm3d", (4,), (2, 4, 3, 2, 5)),
    Layer("InstanceNorm1d", (5,), (3, 5, 9), (("affine", True), ("track_running_stats", True))),
    Layer("InstanceNorm2d", (8,), (2, 8, 5, 4), (("affine", True), ("track_running_stats", True))),
    Layer("InstanceNorm3d", (4,), (2, 4, 3, 2, 5), (("affine", True), ("track_running_stats", True))),
    Layer("GroupNorm", (2, 8), (3, 8, 5, 4)),
    Layer("GroupNorm", (3, 6), (4, 6, 7)),
    Layer("LayerNorm", (12,), (5, 7, 12)),
    Layer("LayerNorm", ((4, 6),), (3, 2, 4, 6)),
    Layer("RMSNorm", (12,), (5, 7, 12)),
    Layer("RMSNorm", ((4, 6),), (3, 2, 4, 6)),
)
# Forms without parameters, or without running statistics.
BARE = (
    Layer("BatchNorm2d", (8,), (3, 8, 5, 4), (("affine", False),)),
    Layer("BatchNorm2d", (8,), (3, 8, 5, 4), (("track_running_stats", False),)),
    Layer("BatchNorm2d", (8,), (3, 8, 5, 4), (("momentum", None),)),
    Layer("InstanceNorm2d", (8,), (2, 8, 5, 4)),
    Layer("GroupNorm", (2, 8), (3, 8, 5, 4), (("affine", False),)),
    Layer("LayerNorm", (12,), (5, 7, 12), (("bias", False),)),
    Layer("LayerNorm", (12,), (5, 7, 12), (("elementwise_affine", False),)),
    Layer("RMSNorm", (12,), (5, 7, 12), (("elementwise_affine", False),)),
)


def of_name(name: str) -> Layer:
    """The first layer of this class."""
    return next(layer for layer in LAYERS if layer.name == name)


def composed(module: nn.Module, x, residual=None, activation=None):
    """What PyTorch's module, an addition and an activation make: the reference for a fused layer."""
    z = module(x)
    return ACTIVATIONS[activation](z if residual is None else z + residual)


def run(forward: Callable, module: nn.Module, x, dy=None, residual=None) -> Dict[str, torch.Tensor]:
    """y, the gradients and the running statistics of `forward(x, residual)`, in a dict that reference.judge reads.

    `dy` is a tensor, or a function that makes it of y. Gradients go to copies of x and the residual that keep strides.
    """
    x = leaf(x)
    skip = None if residual is None else leaf(residual)
    y = forward(x) if residual is None else forward(x, skip)
    found = {"y": y.detach()}
    wanted = {"dx": x, "dweight": getattr(module, "weight", None), "dbias": getattr(module, "bias", None)}
    wanted["dresidual"] = skip
    wanted = {name: t for name, t in wanted.items() if t is not None and t.requires_grad}
    if dy is not None:
        gradients = torch.autograd.grad(y, list(wanted.values()), dy(y) if callable(dy) else dy, allow_unused=True)
        found.update(zip(wanted, gradients))
    for name in ("running_mean", "running_var"):
        buffer = getattr(module, name, None)
        if buffer is not None:
            found[name] = buffer.detach().clone()
    return found


def leaf(t: torch.Tensor) -> torch.Tensor:
    """A leaf that asks for its gradient, with the same values and strides (overlapping ones too), apart from `t`."""
    storage = t.detach().untyped_storage().clone()
    fresh = torch.empty(0, dtype=t.dtype, device=t.device).set_(storage, t.storage_offset(), t.shape, t.stride())
    return fresh.requires_grad_()


def strides(t: torch.Tensor) -> Tuple[int, ...]:
    """Strides of the dimensions that have more than one element; of empty tensors all are alike."""
    return tuple(s for n, s in zip(t.shape, t.stride()) if n > 1) if math.prod(t.shape) else ()


def check_strides(module, x, mine, wanted) -> None:
    """PyTorch's strides, which differ between its versions and devices for an x in an order of its own: contiguous is right then. With
    channels last also x's, which its InstanceNorm and 3-d layers lose (pytorch#111824)."""
    allowed = [strides(wanted)]
    spatial_strides = x.stride()[2:]
    in_order = list(spatial_strides) == sorted(spatial_strides, reverse=True)
    is_last = x.ndim in (4, 5) and x.stride(1) < x.stride(-1) and in_order
    if type(module).__name__.startswith(("RMSNorm", "LayerNorm")) or not is_last:
        allowed.append(strides(torch.empty(x.shape)))
    if x.ndim > 2 and type(module).__name__.startswith(("BatchNorm", "InstanceNorm", "GroupNorm")):
        n, c, *spatial = x.shape
        last = torch.empty((n, *spatial, c)).movedim(-1, 1)
        if x.stride(1) < min(x.stride()[2:]):
            allowed.append(strides(last))
    assert strides(mine) in allowed, f"y has {mine.stride()}, PyTorch's {wanted.stride()}, x {x.stride()}"


def clone(module: nn.Module) -> nn.Module:
    """A deep copy."""
    return copy.deepcopy(module)


def outcome(call: Callable, *arguments, **keywords):
    """What a call returns, or the exception that it raises."""
    try:
        return call(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001  any type may come; it is compared
        return error


def same_refusal(ours, theirs) -> bool:
    """Whether PyTorch refuses; then so must we, with the same type."""
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"taken; PyTorch says {theirs!r}"
        assert type(ours) is type(theirs), f"{ours!r}; PyTorch says {theirs!r}"
        assert str(ours)
        return True
    if isinstance(ours, Exception):
        raise ours
    return False
