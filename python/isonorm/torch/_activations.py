"""The activations that can be fused behind a normalization, and torch's functions for the same."""

from __future__ import annotations

import functools
from typing import Callable

import torch
import torch.nn.functional as F

_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
}
_LEAKY = "leaky_relu"

NAMES = ("relu", "leaky_relu", "leaky_relu:SLOPE", "silu", "gelu", "gelu_tanh", "sigmoid", "tanh", "hardswish")


def function(activation: str | None) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """torch's function of that name; None for no activation. A `ValueError` says which names there are."""
    if activation is None:
        return None
    if isinstance(activation, str):
        if activation in _FUNCTIONS:
            return _FUNCTIONS[activation]
        name, _, slope = activation.partition(":")
        if name == _LEAKY:
            try:
                return functools.partial(F.leaky_relu, negative_slope=float(slope or 0.01))
            except ValueError:
                pass
    raise ValueError(f"unknown activation {activation!r}; expected None or one of {', '.join(NAMES)}")
