"""torch.nn.functional's normalizations, with the activation and the residual add behind them in the same pass.

Each takes what torch's function of the same name takes, and besides `activation`, one of `"relu"`, `"leaky_relu"` (slope 0.01),
`"leaky_relu:SLOPE"`, `"silu"`, `"gelu"`, `"gelu_tanh"`, `"sigmoid"`, `"tanh"`, `"hardswish"` or None, and `residual`, a tensor that is added
before the activation: `activation(norm(input) + residual)`. Errors for bad input are torch's.
"""

from __future__ import annotations

import math
from typing import Sequence

import torch
from torch import Tensor

from . import _activations
from ._normalize import normalize
from ._problem import Call

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "layer_norm_stream",
    "rms_norm",
    "rms_norm_stream",
]


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """BatchNorm of `N, C` or `N, C, spatial`; parameters and running statistics are `[C]`.

    In training the statistics are those of each channel over batch and positions, and `running = (1 − momentum)·running +
    momentum·batch`, with the variance that has n − 1 in its denominator; otherwise they are the running ones.
    """
    if training and isinstance(input, Tensor) and input.dim() >= 2:
        _more_than_one_value(input, input.numel() // max(input.shape[1], 1), "channel")
    _activations.function(activation)
    call = Call("batchnorm", 0, eps, activation, training)
    return normalize(call, input, weight, bias, residual, running_mean, running_var, momentum)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """InstanceNorm of `N, C, spatial`; parameters and running statistics are `[C]`, the latter averages over the instances."""
    if use_input_stats and isinstance(input, Tensor) and input.dim() > 2:
        _more_than_one_value(input, math.prod(input.shape[2:]), "channel of a sample")
    _activations.function(activation)
    call = Call("instancenorm", 0, eps, activation, use_input_stats)
    return normalize(call, input, weight, bias, residual, running_mean, running_var, momentum)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """GroupNorm of `N, C, spatial`: statistics of each sample over C/num_groups channels and all positions; parameters are `[C]`."""
    _activations.function(activation)
    return normalize(Call("groupnorm", num_groups, eps, activation, True), input, weight, bias, residual)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """LayerNorm over the last dimensions, `normalized_shape`, which is also the parameters' shape."""
    _activations.function(activation)
    call = Call("layernorm", _last(input, normalized_shape, "layer_norm"), eps, activation, True)
    return normalize(call, input, weight, bias, residual)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """RMSNorm over the last dimensions: `x / √(mean(x²) + eps) · weight`. `eps` None: the machine epsilon of the type that is computed in."""
    _activations.function(activation)
    call = Call("rmsnorm", _last(input, normalized_shape, "rms_norm"), eps, activation, True)
    return normalize(call, input, weight, None, residual)


def layer_norm_stream(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The residual stream of a pre-norm transformer: `stream = input + residual`, and its LayerNorm. Returns both, the norm first."""
    _activations.function(activation)
    call = Call("layernorm", _last(input, normalized_shape, "layer_norm"), eps, activation, True, True)
    return normalize(call, input, weight, bias, residual)


def rms_norm_stream(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The residual stream of a pre-norm transformer: `stream = input + residual`, and its RMSNorm. Returns both, the norm first."""
    _activations.function(activation)
    call = Call("rmsnorm", _last(input, normalized_shape, "rms_norm"), eps, activation, True, True)
    return normalize(call, input, weight, None, residual)


def _last(input: Tensor, normalized_shape: Sequence[int], name: str) -> int:
    """How many dimensions `normalized_shape` has; they have to be the input's last ones."""
    count = len(normalized_shape)
    if not isinstance(input, Tensor):
        return count
    if count == 0 or tuple(input.shape[max(input.dim() - count, 0) :]) != tuple(normalized_shape):
        raise RuntimeError(
            f"{name}: expected an input whose last dimensions are normalized_shape={list(normalized_shape)}, "
            f"got an input of size {list(input.shape)}"
        )
    return count


def _more_than_one_value(input: Tensor, values: int, unit: str) -> None:
    if values == 1 and input.numel() > 0:
        raise ValueError(f"Expected more than 1 value per {unit} when training, got input size {tuple(input.shape)}")
